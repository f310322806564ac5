"""Tables on S3 and what speaks its language.

A commit is a PutObject with `If-None-Match: *`. An answer may be lost after the store has done it, and the next attempt is
then told that the object exists; so every attempt carries a token of its put in the object's metadata, and who is refused
looks whose token lies there.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import uuid
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa

from cluster import ClusterError
from cluster.ahead import ahead
from cluster.s3_client import Precondition, call, rests
from cluster.s3_file import RangedFile, ranged
from cluster.storage import Entry

SCHEME = "s3://"
TOKEN = "dmqr-put"
PART = 16 << 20  # bytes of a large object that are sent or fetched at once; more where it has more than MOST_PARTS
MOST_PARTS = 10_000
STREAMS = 4  # parts under way at a time
DELETED = 16  # objects at a time
_CONFLICTS = 12  # times that an object is found gone which was said to be there


def _page(asked: dict[str, Any], client: Any) -> dict[str, Any]:
    page: dict[str, Any] = client.list_objects_v2(**asked)
    return page


def _checksum(client: Any) -> dict[str, str]:
    """The parts' checksums must be announced when an upload is begun, by those who send any."""
    wanted = client.meta.config.request_checksum_calculation == "when_supported"
    return {"ChecksumAlgorithm": "CRC32"} if wanted else {}


def partial_path(path: Path, entry: Entry) -> Path:
    """Where a file is written before it is whole: beside it, one name for each version of the object."""
    return path.with_name(f"{path.name}.{hashlib.sha256(str(entry.etag).encode()).hexdigest()[:8]}.part")


class S3Storage:
    """The keys below s3://BUCKET/PREFIX. Nothing is asked of the server before the first call.

    All methods raise ClusterError for what no waiting mends (credentials, bucket, region, rights), UnavailableError for a
    store that does not answer however long it is asked.
    """

    def __init__(self, root: str) -> None:
        bucket, _, prefix = root.removeprefix(SCHEME).partition("/")
        if not bucket:
            raise ClusterError(f"{root}: names no bucket; write s3://BUCKET/FOLDER")
        self._bucket, self._prefix = bucket, prefix.strip("/")
        self.root = f"{SCHEME}{bucket}" + (f"/{self._prefix}" if self._prefix else "")

    def put_if_absent(self, key: str, data: bytes) -> bool:
        token = uuid.uuid4().hex
        wanted = self._named(key) | {"Body": data, "IfNoneMatch": "*", "Metadata": {TOKEN: token}}
        rest = rests()
        for _ in range(_CONFLICTS):
            try:
                call(self.url(key), lambda client: client.put_object(**wanted))
            except Precondition:
                ours = self._ours(key, token, data)
                if ours is not None:
                    return ours
            except OSError:  # no answer, however often asked: it may have been done all the same
                if self._ours(key, token, data):
                    return True
                raise
            else:
                return True
            rest()  # it was there, and is gone
        raise OSError(errno.EIO, "is said to be there, and is not", self.url(key))

    def put(self, key: str, data: bytes) -> None:
        self._send(key, len(data), lambda start, size: data[start : start + size])

    def upload(self, path: Path, key: str) -> None:
        with path.open("rb") as file:
            self._send(key, path.stat().st_size, lambda start, size: os.pread(file.fileno(), size, start))

    def get(self, key: str) -> bytes | None:
        try:
            data: bytes = call(self.url(key), lambda client: client.get_object(**self._named(key))["Body"].read())
        except FileNotFoundError:
            return None
        return data

    def download(self, entry: Entry, path: Path, tell: Callable[[], object] = lambda: None) -> None:
        """Write this version of an object into a local file, in parts; one that a kill broke off goes on where it was.

        Raises FileNotFoundError: it is gone, or another lies there. `tell` is called after every part.
        """
        part = partial_path(path, entry)
        with part.open("ab") as file:
            starts = range(file.tell(), entry.size, PART)
            named, url = self._named(entry.key), self.url(entry.key)
            try:
                for data in ahead(lambda at: ranged(url, named, entry.etag, at, min(PART, entry.size - at)), starts, STREAMS):
                    file.write(data)
                    tell()
            except Precondition:
                raise FileNotFoundError(errno.ENOENT, "was replaced while it was copied", url) from None
        part.replace(path)

    def open(self, key: str) -> pa.NativeFile:
        named = self._named(key)
        return pa.PythonFile(RangedFile(named["Bucket"], named["Key"]), mode="r")

    def stat(self, key: str) -> Entry | None:
        """The object of this very key, or None."""
        name = self._named(key)["Key"]
        for answer in self._pages(Prefix=name, MaxKeys=1):
            for found in answer.get("Contents", []):
                if found["Key"] == name:
                    return Entry(key, found["Size"], found["ETag"])
            break
        return None

    def list(self, prefix: str = "") -> Iterator[Entry]:
        for answer in self._pages(Prefix=self._folder(prefix)):
            for found in answer.get("Contents", []):
                if not found["Key"].endswith("/"):  # consoles make such objects for folders
                    yield Entry(self._key(found["Key"]), found["Size"], found["ETag"])

    def folders(self) -> Sequence[str]:
        found: list[str] = []
        for answer in self._pages(Prefix=self._folder(""), Delimiter="/"):
            found += [self._key(one["Prefix"]).rstrip("/") for one in answer.get("CommonPrefixes", [])]
        return sorted(found)

    def delete(self, *keys: str) -> None:
        def one(key: str) -> None:
            call(self.url(key), lambda client: client.delete_object(**self._named(key)))

        for _ in ahead(one, keys, DELETED):  # not DeleteObjects: its checksums are where stores differ
            pass

    def url(self, key: str) -> str:
        return f"{self.root}/{key}"

    def _named(self, key: str) -> dict[str, Any]:
        return {"Bucket": self._bucket, "Key": f"{self._prefix}/{key}" if self._prefix else key}

    def _folder(self, prefix: str) -> str:
        whole = "/".join(part for part in (self._prefix, prefix.strip("/")) if part)
        return f"{whole}/" if whole else ""

    def _key(self, name: str) -> str:
        return name[len(self._prefix) + 1 :] if self._prefix else name

    def _pages(self, **wanted: Any) -> Iterator[dict[str, Any]]:
        """Page by page, each tried again by itself."""
        more: dict[str, Any] = {}
        while True:
            asked = {"Bucket": self._bucket, **wanted, **more}
            answer: dict[str, Any] = call(self.root, partial(_page, asked))
            yield answer
            if not answer.get("IsTruncated"):
                return
            more = {"ContinuationToken": answer["NextContinuationToken"]}

    def _send(self, key: str, size: int, read: Callable[[int, int], bytes]) -> None:
        """Put what `read` gives for a start and a size; in parts if it is large, each tried again by itself."""
        named, url = self._named(key), self.url(key)
        if size <= 2 * PART:
            data = read(0, size)
            call(url, lambda client: client.put_object(**named, Body=data))
            return
        token, part = uuid.uuid4().hex, max(PART, -(-size // MOST_PARTS))
        begun = call(url, lambda client: client.create_multipart_upload(**named, Metadata={TOKEN: token}, **_checksum(client)))
        upload = named | {"UploadId": begun["UploadId"]}

        def send(number: int) -> dict[str, Any]:
            start = (number - 1) * part
            data = read(start, min(part, size - start))
            sent = call(url, lambda client: client.upload_part(**upload, PartNumber=number, Body=data, **_checksum(client)))
            tags = {name: value for name, value in sent.items() if name == "ETag" or name.startswith("Checksum")}
            return {"PartNumber": number} | tags

        try:
            parts = list(ahead(send, range(1, -(-size // part) + 1), STREAMS))
            call(url, lambda client: client.complete_multipart_upload(**upload, MultipartUpload={"Parts": parts}))
        except BaseException as error:
            if isinstance(error, FileNotFoundError) and self._ours(key, token, None):  # done: the first answer was lost
                return
            with contextlib.suppress(OSError, ClusterError):  # else a lifecycle rule removes it
                call(url, lambda client: client.abort_multipart_upload(**upload))
            raise

    def _ours(self, key: str, token: str, data: bytes | None) -> bool | None:
        """Whether what lies there is of the put with this token; None if nothing does. Where a store has kept no metadata,
        the content tells: two drivers' manifests are never the same."""
        try:
            answer = call(self.url(key), lambda client: client.head_object(**self._named(key)))
        except FileNotFoundError:
            return None
        there = answer.get("Metadata", {}).get(TOKEN)
        return bool(there == token) if there else self.get(key) == data
