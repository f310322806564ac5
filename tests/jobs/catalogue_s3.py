"""What S3 answers that no waiting mends, and what an index there may meet: each as the code is told it, without a server."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from botocore import exceptions as of
from catalogue_called import Called

from cluster import copies, s3_client
from cluster.s3 import S3Storage
from cluster.storage import Entry
from jobs import index_on_s3, indexes, log
from jobs.log_files import LogFile

Patch = pytest.MonkeyPatch
BLOCK = {"kind": "local", "index": "s3://bucket/index"}


def meets(error: Exception) -> Callable[[Patch], object]:
    """A call whose request ends so."""

    def call(patch: Patch) -> None:
        for name in ("AWS_PROFILE", "AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3"):
            patch.delenv(name, raising=False)
        patch.setattr(s3_client, "_answered", set())
        patch.setattr(s3_client, "DOUBT_SECONDS", 0.0)

        def request(_: Any) -> None:
            raise error

        s3_client.call("s3://bucket/runs", request)

    return call


def answers(code: str, status: int = 403) -> Callable[[Patch], object]:
    answer: Any = {"Error": {"Code": code}, "ResponseMetadata": {"HTTPStatusCode": status, "HTTPHeaders": {}}}
    return meets(of.ClientError(answer, "PutObject"))


def a_profile_of_nobody(patch: Patch) -> None:
    patch.setenv("AWS_PROFILE", "nobody")
    S3Storage("s3://bucket/runs").get("x")


def a_small_disk(patch: Patch) -> None:
    patch.setenv(copies.FOLDER, "cache")
    copies.copied(S3Storage("s3://bucket/index"), [Entry("a", 1 << 60)], "1")


def a_cache_that_is_a_file(patch: Patch) -> None:
    Path("cache").write_text("")
    patch.setenv(copies.FOLDER, "cache")
    copies.copied(S3Storage("s3://bucket/index"), [], "1")


def an_index(patch: Patch) -> None:
    patch.setattr(indexes, "stored_index", lambda storage: ({"data": "data-1"}, b"{}"))
    patch.setattr(S3Storage, "list", lambda self, prefix="": iter([]))


def an_index_without_a_copy(patch: Patch) -> None:
    an_index(patch)
    patch.setenv(copies.FOLDER, "cache")
    indexes.open_documents("bm25", BLOCK, there_only=True)


def an_index_that_does_not_rest(patch: Patch) -> None:
    def gone(*_: object, **__: object) -> None:
        raise FileNotFoundError(2, "no such object")

    an_index(patch)
    patch.setattr(indexes, "copied", gone)
    indexes.open_documents("bm25", BLOCK)


def a_lost_build(_: Patch) -> None:
    lease: Any = SimpleNamespace(lost=lambda: True)
    index_on_s3._put(S3Storage("s3://bucket/index"), Path("nowhere"), lease, lambda *_: None)


def a_log_that_does_not_rest(patch: Patch) -> None:
    def replaced(*_: object) -> None:
        raise OSError(errno.ESTALE, "was replaced since it was listed")

    patch.setattr(log, "open_file", replaced)
    log.check_log([LogFile("s3://bucket/log.parquet", "log.parquet", 9, None, etag="0")], log.LogColumns("query"))


def a_cache_of_another(patch: Patch) -> None:
    patch.delenv(copies.FOLDER, raising=False)
    patch.setattr("os.getuid", lambda: os.geteuid() + 1)
    patch.setattr("tempfile.gettempdir", lambda: ".")
    copies.cache_folder().parent.mkdir(mode=0o700)
    copies.copied(S3Storage("s3://bucket/index"), [], "1")


S3 = [
    Called("is another user's", a_cache_of_another),
    Called("was replaced since it was listed", a_log_that_does_not_rest),
    Called("there is no bucket", answers("NoSuchBucket", 404)),
    Called("does not take these credentials", answers("SignatureDoesNotMatch")),
    Called("the credentials have expired", answers("ExpiredToken", 400)),
    Called("no credentials for S3", meets(of.NoCredentialsError())),
    Called("to these credentials", answers("AccessDenied")),
    Called("the bucket is not in region", answers("PermanentRedirect", 301)),
    Called("the clock of this machine", answers("RequestTimeTooSkewed")),
    Called("use another store", answers("NotImplemented", 501)),
    Called("is not an address of S3", meets(of.ParamValidationError(report="bucket"))),
    Called("set AWS_CA_BUNDLE", meets(of.SSLError(endpoint_url="https://s3", error="self-signed"))),
    Called("correct AWS_ENDPOINT_URL_S3", meets(of.EndpointConnectionError(endpoint_url="http://s3"))),
    Called("AWS_... variables", a_profile_of_nobody),
    Called("to a folder on another disk", a_small_disk),
    Called("no copies can be put there", a_cache_that_is_a_file),
    Called("is not on this machine", an_index_without_a_copy),
    Called("is replaced again and again", an_index_that_does_not_rest),
    Called("another process has begun to build it", a_lost_build),
]
