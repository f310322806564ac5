"""Tables on S3 and what speaks its language.

A commit is a PutObject with `If-None-Match: *`. An answer may be lost after the store has done it, and the next attempt is
then told that the object exists; so every attempt carries a token of its put in the object's metadata, and who is refused
looks whose token lies there.
"""

from __future__ import annotations

import errno
import uuid
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa

from cluster import ClusterError
from cluster.s3_client import Precondition, call, rests
from cluster.s3_file import RangedFile
from cluster.storage import Entry

SCHEME = "s3://"
TOKEN = "dmqr-put"
PART = 16 << 20  # bytes of a multipart upload's parts; larger for files of more than 10,000 of them
_CONFLICTS = 12  # times that an object is found gone which was said to be there


def _page(asked: dict[str, Any], client: Any) -> dict[str, Any]:
    page: dict[str, Any] = client.list_objects_v2(**asked)
    return page


class S3Storage:
    """The keys below s3://BUCKET/PREFIX. Nothing is asked of the server before the first call.

    All methods raise ClusterError for what no waiting mends (credentials, bucket, region, rights), OSError for a store that
    does not answer however often it is asked.
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
        call(self.url(key), lambda client: client.put_object(**self._named(key), Body=data))

    def upload(self, path: Path, key: str) -> None:
        from boto3.s3.transfer import TransferConfig

        transfer = TransferConfig(multipart_threshold=2 * PART, multipart_chunksize=PART, max_concurrency=4)
        named = self._named(key)
        call(self.url(key), lambda client: client.upload_file(str(path), named["Bucket"], named["Key"], Config=transfer))

    def get(self, key: str) -> bytes | None:
        try:
            data: bytes = call(self.url(key), lambda client: client.get_object(**self._named(key))["Body"].read())
        except FileNotFoundError:
            return None
        return data

    def download(self, key: str, path: Path) -> None:
        """Write the object into a local file, in parts. FileNotFoundError if there is none."""
        from boto3.s3.transfer import TransferConfig

        transfer = TransferConfig(multipart_threshold=2 * PART, multipart_chunksize=PART, max_concurrency=4)
        named = self._named(key)
        call(self.url(key), lambda client: client.download_file(named["Bucket"], named["Key"], str(path), Config=transfer))

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

    def delete(self, key: str) -> None:
        call(self.url(key), lambda client: client.delete_object(**self._named(key)))

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

    def _ours(self, key: str, token: str, data: bytes) -> bool | None:
        """Whether what lies there is of the put with this token; None if nothing does. Where a store has kept no metadata,
        the content tells: two drivers' manifests are never the same."""
        try:
            answer = call(self.url(key), lambda client: client.head_object(**self._named(key)))
        except FileNotFoundError:
            return None
        there = answer.get("Metadata", {}).get(TOKEN)
        return bool(there == token) if there else self.get(key) == data
