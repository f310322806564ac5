"""Files that a person asks for: at a path or on S3, whole or not at all."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from cluster.storage import open_storage, remote
from cluster.storage.copies import work_folder


@contextmanager
def written(path: str) -> Iterator[Path]:
    """Yields a temporary file that becomes the file or the S3 object `path` if nothing fails; an OSError names `path`.

    A device, such as /dev/stdout, is written to directly.
    """
    target = Path(path)
    if remote(path) or (target.exists() and not target.is_file()):
        with work_folder() as folder:
            temporary = folder / "written"
            yield temporary
            if remote(path):
                bucket, _, key = path.removeprefix("s3://").partition("/")
                open_storage(f"s3://{bucket}").upload(temporary, key)
            else:
                target.write_bytes(temporary.read_bytes())
        return
    temporary = target.with_name(f".{target.name}-{os.getpid()}")
    try:
        temporary.touch()
    except OSError as error:
        raise OSError(error.errno, error.strerror, path) from error
    try:
        yield temporary
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)
