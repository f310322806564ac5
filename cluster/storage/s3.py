"""Storage on S3 and compatible object stores.

A commit is a PutObject with `If-None-Match: *`. An answer may be lost after the store has done it, and the next attempt is
then told that the object exists; so every put carries a token in the object's metadata, and a put that is refused compares
the token of the object there with its own.

Uploads go through boto3's transfer manager. Downloads do not: it cannot be told which version of the object is wanted.
"""

import errno
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from operator import itemgetter
from pathlib import Path
from typing import Any

import pyarrow as pa

from cluster.errors import ClusterError
from cluster.outages import pause
from cluster.storage import Entry
from cluster.storage.prefetch import prefetch
from cluster.storage.s3_client import PreconditionFailed, call
from cluster.storage.s3_file import S3File, ranged

SCHEME = "s3://"
TOKEN = "dmqr-put"  # metadata: which put made the object
PART = 16 << 20  # bytes of a large file that one request sends or fetches
STREAMS = 4  # such requests at a time
DELETED = 16  # objects at a time
_BODY = itemgetter("ETag", "Body")
_CONFLICTS = 12  # times that a put is refused by an object that is then not found


def _page(asked: dict[str, Any], client: Any) -> dict[str, Any]:
    page: dict[str, Any] = client.list_objects_v2(**asked)
    return page | {"IsTruncated": page["IsTruncated"]}  # KeyError: it is no list


class _RetryingClient:
    """The client for boto3's transfer manager: sends each request through `call`, which retries it and translates errors."""

    def __init__(self, url: str, meta: Any) -> None:
        self._url, self.meta = url, meta

    def __getattr__(self, operation: str) -> Callable[..., Any]:
        def request(**arguments: Any) -> Any:
            def attempt(client: Any) -> Any:
                if "Body" in arguments:
                    arguments["Body"].seek(0)  # the attempt before has read it
                return getattr(client, operation)(**arguments)

            return call(self._url, attempt)

        return request


class S3Storage:
    """Objects below s3://BUCKET/PREFIX; the methods keep the contract of `cluster.storage.Storage`.

    Every method raises ClusterError for permanent errors (credentials, bucket, region, permissions) and UnavailableError for
    a store that does not answer.
    """

    def __init__(self, root: str) -> None:
        bucket, _, prefix = root.removeprefix(SCHEME).partition("/")
        if not bucket:
            raise ClusterError("storage-refused", f"{root}: names no bucket; write s3://BUCKET/FOLDER")
        self._bucket, self._prefix = bucket, prefix.strip("/")
        self.root = f"{SCHEME}{bucket}" + (f"/{self._prefix}" if self._prefix else "")

    def put_if_absent(self, key: str, data: bytes) -> bool:
        token = uuid.uuid4().hex
        wanted = self._named(key) | {"Body": data, "IfNoneMatch": "*", "Metadata": {TOKEN: token}}
        for refused in range(1, _CONFLICTS + 1):
            try:
                call(self.url(key), lambda client: client.put_object(**wanted)["ETag"])
            except PreconditionFailed:
                ours = self._ours(key, token, data)
                if ours is not None:
                    return ours
            except OSError:  # no answer after all retries: it may have been done
                if self._ours(key, token, data):
                    return True
                raise
            else:
                return True
            time.sleep(pause(refused))  # it existed, and is gone
        raise OSError(errno.EIO, "is listed, but missing", self.url(key))

    def put(self, key: str, data: bytes) -> None:
        call(self.url(key), lambda client: client.put_object(**self._named(key), Body=data)["ETag"])

    def upload(self, path: Path, key: str) -> None:
        """Puts a file, in parts if it is large; each request is retried on its own.

        An interrupt (Ctrl-C) waits for the requests under way, and for the request that removes the parts already sent.
        """
        from boto3.s3.transfer import TransferConfig, create_transfer_manager

        token = uuid.uuid4().hex
        # "classic": the other transfer client, taken on some machines, has connections and retries of its own
        config = TransferConfig(
            multipart_threshold=2 * PART, multipart_chunksize=PART, max_concurrency=STREAMS, preferred_transfer_client="classic"
        )

        def send(client: Any) -> None:
            with create_transfer_manager(_RetryingClient(self.url(key), client.meta), config) as manager:
                named = self._named(key)
                manager.upload(str(path), named["Bucket"], named["Key"], {"Metadata": {TOKEN: token}}).result()

        try:
            call(self.url(key), send)
        except FileNotFoundError:  # no such upload: it may be completed, and the answer was lost
            if not self._ours(key, token, None):
                raise

    def get(self, key: str) -> bytes | None:
        try:
            data: bytes = call(self.url(key), lambda client: _BODY(client.get_object(**self._named(key)))[1].read())
        except FileNotFoundError:
            return None
        return data

    def download(self, entry: Entry, path: Path, on_progress: Callable[[], object] = lambda: None) -> None:
        """Writes this version of an object into a local file, which appears when it is complete, in parts.

        Calls `on_progress` after every part. Raises FileNotFoundError if the object was removed or replaced.
        """
        unfinished, named, url = path.with_name(f"{path.name}.part"), self._named(entry.key), self.url(entry.key)
        parts = prefetch(
            lambda at: ranged(url, named, entry.etag, at, min(PART, entry.size - at)), range(0, entry.size, PART), STREAMS
        )
        try:
            with unfinished.open("wb") as file:
                for data in parts:
                    file.write(data)
                    on_progress()
        except PreconditionFailed:
            raise FileNotFoundError(errno.ENOENT, "was replaced while it was copied", url) from None
        unfinished.replace(path)

    def open(self, key: str) -> pa.NativeFile:
        return pa.PythonFile(S3File(self.url(key)), mode="r")

    def stat(self, key: str) -> Entry | None:
        name = self._named(key)["Key"]
        # the name itself comes first; a page may be empty before it
        object_entry = next((entry for page in self._pages(Prefix=name, MaxKeys=1) for entry in page.get("Contents", [])), None)
        return Entry(key, object_entry["Size"], object_entry["ETag"]) if object_entry and object_entry["Key"] == name else None

    def list(self, prefix: str = "") -> Iterator[Entry]:
        for answer in self._pages(Prefix=self._folder(prefix)):
            for entry in answer.get("Contents", []):
                if not entry["Key"].endswith("/"):  # consoles create such objects for folders
                    yield Entry(self._key(entry["Key"]), entry["Size"], entry["ETag"])

    def folders(self) -> Sequence[str]:
        names: list[str] = []
        for answer in self._pages(Prefix=self._folder(""), Delimiter="/"):
            names += [self._key(one["Prefix"]).rstrip("/") for one in answer.get("CommonPrefixes", [])]
        return sorted(names)

    def delete(self, *keys: str) -> None:

        def delete(key: str) -> None:
            with suppress(FileNotFoundError):  # some stores answer 404 where there is none
                call(self.url(key), lambda client: client.delete_object(**self._named(key)))

        for _ in prefetch(delete, keys, DELETED):  # not DeleteObjects: stores differ in the checksums they want of it
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
        more: dict[str, Any] = {}
        while True:
            asked = {"Bucket": self._bucket, **wanted, **more}
            answer: dict[str, Any] = call(self.root, partial(_page, asked))
            yield answer
            if not answer.get("IsTruncated"):
                return
            more = {"ContinuationToken": answer["NextContinuationToken"]}

    def _ours(self, key: str, token: str, data: bytes | None) -> bool | None:
        """Returns True if the object was made by the put with this token; None if there is no object.

        For a store that keeps no metadata the content decides: two drivers' manifests are never the same.
        """
        try:
            answer = call(self.url(key), lambda client: client.head_object(**self._named(key)))
        except FileNotFoundError:
            return None
        stored_token = answer.get("Metadata", {}).get(TOKEN)
        return bool(stored_token == token) if stored_token else self.get(key) == data
