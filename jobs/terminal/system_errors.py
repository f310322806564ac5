"""What the system refused, in one line."""

from __future__ import annotations

import errno

from cluster.cause import cause
from cluster.errors import UnavailableError

_ANOTHER = "correct the path, or name another"
_REMEDIES = {
    errno.ENOSPC: "free space in the output's folder and in that of temporary files (TMPDIR)",
    errno.EDQUOT: "free space in the output's folder and in that of temporary files (TMPDIR)",
    errno.EACCES: "make it writable, or name another",
    errno.EPERM: "make it writable, or name another",
    errno.EROFS: "name another folder, on a disk that can be written",
    errno.ENOENT: "make its folder, or correct the path",
    errno.EPIPE: "what stood at the other end of a pipe or connection is gone; start it again",
    errno.EMFILE: "raise the limit of open files (ulimit -n)",
}


def system(error: OSError) -> str:
    """Returns what the system refused, where, and what to do about it; for a full disk without the file's name."""
    if isinstance(error, UnavailableError):
        return f"{cause(error)}; try again later"
    name = f"{error.filename}: " if error.filename else ""
    return f"{name}{error.strerror or type(error).__name__}; {_REMEDIES.get(error.errno or 0, _ANOTHER)}"
