"""An S3 object as a file: ranged reads, some blocks of it in memory, never the whole.

Through boto3 and not through another library's S3 client, so that credentials, addresses and retries are those of all other
requests. Every range is requested of the version that was opened: an object replaced in the meantime is an error.
"""

from __future__ import annotations

import errno
import io
import threading
from collections import OrderedDict
from concurrent.futures import Future
from datetime import datetime
from typing import Any

from cluster.storage.prefetch import begin
from cluster.storage.s3_client import PreconditionFailed, call

BLOCK = 4 << 20  # bytes: at 30 ms a request, some 130 MB/s; a sequential reader fetches two at a time
BLOCKS = 8  # cached: a Parquet reader reads several columns in turns
TAIL = 64 << 10  # bytes fetched on opening: the footer of most Parquet files
_fetches = threading.BoundedSemaphore(16)  # blocks that a process fetches at a time


class RangedFile(io.RawIOBase):
    """A read-only, seekable file. Positions are bytes; threads must not share a position (see `PerThread`)."""

    def __init__(self, bucket: str, key: str, etag: str | None = None, block: int = BLOCK) -> None:
        """Opens the object, of the version `etag` if one is given, to be read in blocks of so many bytes.

        Raises:
            FileNotFoundError: It does not exist.
            OSError: ESTALE: it is another version. Other errors: see `cluster.storage.s3_client.call`.
        """
        super().__init__()
        self.url = f"s3://{bucket}/{key}"
        self._object = {"Bucket": bucket, "Key": key}
        self._wanted = {"IfMatch": etag} if etag else {}
        self._at, self._block_size = 0, block
        self._blocks: OrderedDict[int, Future[bytes]] = OrderedDict()
        self._lock = threading.Lock()
        try:
            self.size, self.etag, self.modified, self._tail = call(self.url, self._open)
        except PreconditionFailed:
            raise OSError(errno.ESTALE, "was replaced since it was listed", self.url) from None
        self._tail_start = self.size - len(self._tail)

    def _open(self, client: Any) -> tuple[int, str, datetime, bytes]:
        from botocore.exceptions import ClientError

        try:
            answer = client.get_object(**self._object, **self._wanted, Range=f"bytes=-{TAIL}")
        except ClientError as error:
            if error.response.get("Error", {}).get("Code") != "InvalidRange":  # AWS: an empty object
                raise
            answer = client.get_object(**self._object, **self._wanted)
        tail = answer["Body"].read()
        said = answer.get("ContentRange", "")
        size = int(said.rpartition("/")[2]) if said else len(tail)
        return size, answer["ETag"], answer["LastModified"], tail

    def readable(self) -> bool:
        """Returns True."""
        return True

    def seekable(self) -> bool:
        """Returns True."""
        return True

    def tell(self) -> int:
        """Returns the position."""
        return self._at

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        """Moves the position; returns it."""
        self._at = max(0, offset + {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self.size}[whence])
        return self._at

    def read(self, size: int | None = -1) -> bytes:
        """Returns `size` bytes from the position, fewer at the end; the rest of the object without a size."""
        left = max(0, self.size - self._at)
        size = left if size is None or size < 0 else min(size, left)
        data = self.read_at(self._at, size)
        self._at += len(data)
        return data

    def readall(self) -> bytes:
        """Returns the rest of the object."""
        return self.read()

    def readinto(self, buffer: Any) -> int:
        """Fills the buffer from the position; returns the number of bytes read."""
        view = memoryview(buffer).cast("B")
        data = self.read(len(view))
        view[: len(data)] = data
        return len(data)

    def read_at(self, start: int, size: int) -> bytes:
        """Returns `size` bytes from `start`, which must lie within the object; safe to call from several threads."""
        if size <= 0:
            return b""
        if start >= self._tail_start:
            return self._tail[start - self._tail_start : start - self._tail_start + size]
        if size >= self._block_size:
            return self._range(start, size)
        first, last = start // self._block_size, (start + size - 1) // self._block_size
        whole = b"".join(self._block(number) for number in range(first, last + 1))
        return whole[start - first * self._block_size : start - first * self._block_size + size]

    def _block(self, number: int) -> bytes:
        with self._lock:
            sequential = number - 1 in self._blocks
            for wanted in (number, number + 1) if sequential else (number,):
                begins = wanted * self._block_size
                if wanted not in self._blocks and begins < self.size:
                    self._blocks[wanted] = begin(self._fetch, begins, min(self._block_size, self.size - begins))
            block = self._blocks[number]
            self._blocks.move_to_end(number)
            while len(self._blocks) > BLOCKS:
                self._blocks.popitem(last=False)
        try:
            return block.result()
        except BaseException:
            with self._lock:
                self._blocks.pop(number, None)
            raise

    def _fetch(self, start: int, size: int) -> bytes:
        with _fetches:
            return self._range(start, size)

    def _range(self, start: int, size: int) -> bytes:
        try:
            return ranged(self.url, self._object, self.etag, start, size)
        except PreconditionFailed:
            raise OSError(errno.ESTALE, "was replaced while it was read", self.url) from None


def ranged(url: str, named: dict[str, Any], etag: str | None, start: int, size: int) -> bytes:
    """Returns `size` bytes from `start` of this version of an object; PreconditionFailed if it was replaced."""

    def get(client: Any) -> bytes:
        wanted = f"bytes={start}-{start + size - 1}"
        body: bytes = client.get_object(**named, Range=wanted, IfMatch=etag)["Body"].read()
        return body

    data = call(url, get)
    if len(data) != size:
        raise OSError(errno.EIO, f"gave {len(data)} bytes in place of {size}", url)
    return data


class PerThread(RangedFile):
    """A file with one position per thread: DuckDB calls `seek` and `read` from several threads."""

    def __init__(self, bucket: str, key: str, block: int = BLOCK) -> None:
        """Opens the object as it is now."""
        self._own = threading.local()
        super().__init__(bucket, key, block=block)

    @property
    def _at(self) -> int:
        return getattr(self._own, "at", 0)

    @_at.setter
    def _at(self, position: int) -> None:
        self._own.at = position
