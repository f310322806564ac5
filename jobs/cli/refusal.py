"""The end of a verb that is refused or fails: one plain line, the last on standard error, and an exit code."""

from __future__ import annotations

import errno
import sys

from cluster.cause import cause
from cluster.errors import ConfigError, DmqrError, UnavailableError

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


def say(verb: str, words: object, code: int) -> int:
    """Writes the line, with the code of an error that has one; returns the exit code."""
    known = f" [{words.code}]" if isinstance(words, DmqrError) else ""
    print(f"{f'dmqr {verb}'.rstrip()}: {words}{known}", file=sys.stderr)
    return code


def other_python(error: ModuleNotFoundError) -> ConfigError:
    """Returns the refusal of an interpreter that lacks a package, which is hardly the one that was meant."""
    return ConfigError(
        "package-missing",
        f"{sys.executable}: has no package {(error.name or str(error)).partition('.')[0]}; run the Python that this project is "
        "installed in; for a submitted job activate its environment before `ray start` on every node, or submit with --pip",
    )


def system(error: OSError) -> str:
    """Returns what the system refused, where, and what to do about it; for a full disk without the file's name."""
    if isinstance(error, UnavailableError):
        return f"{cause(error)}; try again later"
    name = f"{error.filename}: " if error.filename else ""
    return f"{name}{error.strerror or type(error).__name__}; {_REMEDIES.get(error.errno or 0, _ANOTHER)}"
