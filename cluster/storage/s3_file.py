"""An S3 object as a file: ranged reads, some blocks of it in memory, never the whole.

fsspec has the file and its blocks; the requests are our client's, so that credentials, addresses, retries and counts are those
of all other requests. s3fs would be a second client, which holds botocore back; pyarrow's ignores AWS_ENDPOINT_URL_S3.
"""

import errno
from datetime import datetime
from typing import Any

from fsspec.spec import AbstractBufferedFile

from cluster.storage.s3_client import PreconditionFailed, call

BLOCK = 4 << 20  # bytes
STREAMED = 4 * BLOCK  # of a file that is read from begin to end: at 30 ms a request, some 130 MB/s
CACHED = 8 * BLOCK  # bytes of blocks: a Parquet reader reads several columns in turns
TAIL = 64 << 10  # bytes fetched on opening: the footer of most Parquet files


class S3File(AbstractBufferedFile):  # type: ignore[misc]
    """A read-only file of one version of an object. Threads must not share its position."""

    def __init__(self, url: str, etag: str | None = None, block: int = BLOCK) -> None:
        """Opens s3://BUCKET/KEY, of the version `etag` if one is given, to be read in blocks of `block` bytes.

        Raises OSError (ESTALE) for another version, and the errors of `cluster.storage.s3_client.call`.
        """
        self.url = url
        bucket, _, key = url.removeprefix("s3://").partition("/")
        self._object, wanted = {"Bucket": bucket, "Key": key}, {"IfMatch": etag} if etag else {}
        try:
            size, self.etag, self.modified, self._tail = call(url, lambda client: self._last(client, wanted))
        except PreconditionFailed:
            raise OSError(errno.ESTALE, "was replaced since it was listed", url) from None
        options = {"maxblocks": CACHED // block}
        super().__init__(None, key, block_size=block, cache_type="blockcache", cache_options=options, size=size)

    def _last(self, client: Any, wanted: dict[str, str]) -> tuple[int, str, datetime, bytes]:
        from botocore.exceptions import ClientError

        try:
            answer = client.get_object(**self._object, **wanted, Range=f"bytes=-{TAIL}")
        except ClientError as error:
            if error.response.get("Error", {}).get("Code") != "InvalidRange":  # AWS: an empty object
                raise
            answer = client.get_object(**self._object, **wanted)
        tail = answer["Body"].read()
        size = int(answer.get("ContentRange", f"/{len(tail)}").rpartition("/")[2])
        return size, answer["ETag"], answer["LastModified"], tail

    def read(self, length: int | None = -1) -> bytes:
        """Returns `length` bytes from the position, fewer at the end; the rest of the object without a length."""
        start, end, tail = self.loc, self.size, self.size - len(self._tail)
        if length is not None and length >= 0:
            end = min(end, start + length)
        if start < tail and end - start < self.blocksize:
            return super().read(end - start)
        data = self._tail[start - tail : end - tail] if start >= tail else self._fetch_range(start, end)
        self.loc += len(data)
        return data

    def _fetch_range(self, start: int, end: int) -> bytes:
        try:
            return ranged(self.url, self._object, self.etag, start, min(end, self.size) - start)
        except PreconditionFailed:
            raise OSError(errno.ESTALE, "was replaced while it was read", self.url) from None


def ranged(url: str, named: dict[str, Any], etag: str | None, start: int, size: int) -> bytes:
    """Returns `size` bytes from `start` of this version of an object; PreconditionFailed if it was replaced."""

    def get(client: Any) -> bytes:
        wanted = f"bytes={start}-{start + size - 1}"
        return client.get_object(**named, Range=wanted, IfMatch=etag)["Body"].read()

    data = call(url, get)
    if len(data) != size:
        raise OSError(errno.EIO, f"gave {len(data)} bytes in place of {size}", url)
    return data
