"""A real S3 server for tests: the one that S3_ENDPOINT_URL names, else one started from DMQR_SHARED/s3."""

import os
import subprocess
import sys
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

KEYS = {"AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "testtesttest", "AWS_REGION": "us-east-1"}
STARTS = 20  # on a busy machine it may not answer in the ten seconds that `serve` gives it
ABSENT = "no S3 server: set S3_ENDPOINT_URL (and AWS_... for it), or DMQR_SHARED to a folder with s3/serve"


class S3Server(NamedTuple):
    """`environment` is what a process needs to use it; `bucket` is there and this session's own."""

    endpoint: str
    bucket: str
    environment: dict[str, str]

    def fresh(self, name: str = "t") -> str:
        """An address below which nothing lies."""
        return f"s3://{self.bucket}/{name}-{uuid.uuid4().hex[:8]}"


def there() -> bool:
    return bool(os.environ.get("S3_ENDPOINT_URL")) or (_shared() / "serve").exists()


@contextmanager
def running(folder: Path) -> Iterator[S3Server]:
    named = os.environ.get("S3_ENDPOINT_URL")
    if named:
        environment = {key: os.environ.get(key, value) for key, value in KEYS.items()} | {"AWS_ENDPOINT_URL_S3": named}
        yield _with_bucket(named, environment)
        return
    serve = [sys.executable, str(_shared() / "serve")]
    for _ in range(STARTS):
        started = subprocess.run([*serve, "start", str(folder)], capture_output=True, text=True, check=False, timeout=300)
        if started.returncode == 0:
            break
        subprocess.run([*serve, "stop", str(folder), "--kill"], check=False, timeout=300)
    assert started.returncode == 0, started.stderr
    endpoint = started.stdout.strip()
    try:
        yield _with_bucket(endpoint, KEYS | {"AWS_ENDPOINT_URL_S3": endpoint})
    finally:
        subprocess.run([*serve, "stop", str(folder)], check=False, timeout=300)


def connect(server: S3Server):  # type: ignore[no-untyped-def]
    """boto3's own client, to look at the store past our code."""
    import boto3

    return boto3.client(
        "s3",
        endpoint_url=server.endpoint,
        aws_access_key_id=server.environment["AWS_ACCESS_KEY_ID"],
        aws_secret_access_key=server.environment["AWS_SECRET_ACCESS_KEY"],
        region_name=server.environment["AWS_REGION"],
    )


def _with_bucket(endpoint: str, environment: dict[str, str]) -> S3Server:
    server = S3Server(endpoint, f"dmqr-test-{uuid.uuid4().hex[:8]}", environment)
    connect(server).create_bucket(Bucket=server.bucket)
    return server


def _shared() -> Path:
    return Path(os.environ.get("DMQR_SHARED") or "/nowhere") / "s3"
