"""A file that a guard reads: where it lies, and the hash of its content. The content itself is read in each worker, once."""

from __future__ import annotations

import errno
import hashlib
import io
from collections.abc import Callable
from dataclasses import dataclass
from typing import BinaryIO, TypeVar

from cluster.errors import RewriterError, UnavailableError

_PIECE = 1 << 20
Value = TypeVar("Value")


def open_local(path: str) -> BinaryIO:
    """Opens a file of this machine."""
    return open(path, "rb")


@dataclass(frozen=True)
class GuardFile:
    """A file; a value that workers are given.

    Attributes:
        where: Names it in errors: the config key and the path.
        path: Absolute, or on S3.
        content: The first 32 hex digits of the sha256 of its content.
        open: Opens a path; raises OSError.
    """

    where: str
    path: str
    content: str
    open: Callable[[str], BinaryIO] = open_local

    def read(self) -> BinaryIO:
        """Returns the content as a file in memory.

        Raises:
            RewriterError: It cannot be read, or is another than when the job was checked.
        """
        data = _guarded(self.where, lambda: self.open(self.path).read())
        if hashlib.sha256(data).hexdigest()[:32] != self.content:
            raise RewriterError("guard-file", f"{self.where}: was changed while the job ran; start the job anew")
        return io.BytesIO(data)


def guard_file(key: str, path: str, open_file: Callable[[str], BinaryIO] = open_local, absolute: str = "") -> GuardFile:
    """Returns a file, which errors name by the config's key and path, with the hash of its content.

    Workers open `absolute`; "": the same path.

    Raises:
        RewriterError: It cannot be read.
    """
    where = f"{key}: {path}"

    def hashed() -> str:
        found = hashlib.sha256()
        with open_file(path) as file:
            while piece := file.read(_PIECE):
                found.update(piece)
        return found.hexdigest()[:32]

    return GuardFile(where, absolute or path, _guarded(where, hashed), open_file)


def _guarded(where: str, read: Callable[[], Value]) -> Value:
    try:
        return read()
    except UnavailableError:
        raise
    except OSError as error:
        why = error.strerror or (errno.errorcode.get(error.errno, "") if error.errno else "") or str(error)
        raise RewriterError("guard-file", f"{where}: cannot be read: {why}; correct the path, or the file") from error
