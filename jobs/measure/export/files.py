"""A file for other tools, which is there whole or not at all."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from cluster.storage import open_storage, remote


@contextmanager
def written(path: str) -> Iterator[Path]:
    """Yields a temporary file that becomes the file or the S3 object `path` if nothing fails."""
    if remote(path):
        bucket, _, key = path.removeprefix("s3://").partition("/")
        with tempfile.TemporaryDirectory(prefix="dmqr-evaluate-") as folder:
            yield Path(folder, "written")
            open_storage(f"s3://{bucket}").upload(Path(folder, "written"), key)
        return
    temporary = Path(path).with_name(f".{Path(path).name}-{os.getpid()}")
    try:
        temporary.touch()
    except OSError as error:
        raise OSError(error.errno, error.strerror, path) from error
    try:
        yield temporary
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)
