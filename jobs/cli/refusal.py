"""The end of a verb that is refused or fails: one plain line, the last on standard error, and an exit code."""

from __future__ import annotations

import sys

from cluster.errors import ConfigError, DmqrError


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
