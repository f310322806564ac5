"""Errors that a user can correct: one tree of classes, each error with a code. Suggestions for unknown names.

All packages import this module; it imports only the standard library.
"""

import difflib
import tomllib
from collections.abc import Iterable, Set
from pathlib import Path
from typing import Any

GROUPS: dict[str, dict[str, tuple[str, str]]] = {
    title: {code: (row["meaning"], row["remedy"]) for code, row in codes.items()}
    for title, codes in tomllib.loads(Path(__file__).with_name("error_codes.toml").read_text(encoding="utf-8")).items()
}
"""Title -> code -> meaning, remedy; docs/errors.md is made from them."""
CODES = {code: row for group in GROUPS.values() for code, row in group.items()}  # all codes
_LISTED = 24  # known names in a line: all keys of any part of the config, but not all columns of any log


class DmqrError(Exception):
    """An error that is reported to the user as one line.

    Attributes:
        code: A key of `CODES`; docs/errors.md explains it.
        line: `where: what is wrong; what to do`.
        exit_code: Of the command line: 2, refused; 1, stopped or failed.
    """

    exit_code = 2

    def __init__(self, code: str, line: str) -> None:
        assert code in CODES, f"no error code {code!r}"
        super().__init__(code, line)
        self.code, self.line = code, line

    def __str__(self) -> str:
        return self.line

    @property
    def where(self) -> str:
        """Returns the place that the line begins with: a file, a key, an argument; empty where it names none."""
        return self._parts[0]

    @property
    def what(self) -> str:
        """Returns the problem there."""
        return self._parts[1]

    @property
    def remedy(self) -> str:
        """Returns the remedy: the end of the line, else that of its code in `CODES`."""
        return self._parts[2]

    @property
    def _parts(self) -> tuple[str, str, str]:
        head, semicolon, rest = self.line.partition("; ")
        where, colon, what = head.partition(": ")
        if not colon or where.count("(") > where.count(")"):  # a colon of `(known: a, b)`
            where, what = "", head
        more, _, remedy = rest.rpartition("; ")
        return where, f"{what}; {more}" if more else what, remedy if semicolon else CODES[self.code][1]


class ConfigError(DmqrError):
    """The config, an argument or a file that they name is invalid."""


class LogError(DmqrError):
    """The query log cannot be used."""


class RewriterError(DmqrError):
    """An engine, a prompt or a strategy cannot be used."""


class RetrieverError(DmqrError):
    """A corpus, an index or a model cannot be used."""


class ClusterError(DmqrError):
    """Ray, storage or the run's folder cannot be used."""


class HeldError(ClusterError):
    """Another process holds the lease of the run or the index."""


class Stopped(DmqrError):
    """A run stopped before it was finished; the line has the reason and the command that resumes it.

    Attributes:
        graceful: Whether the shards in flight were committed first, so that no work is lost.
        complete: Whether all shards are committed, so that the run can be shown.
        result: Of a complete run, as the verb shows it; None: of others, and before it is known.
    """

    result: Any = None

    def __init__(self, code: str, line: str, exit_code: int = 1, *, graceful: bool = True, complete: bool = False) -> None:
        super().__init__(code, line)
        self.exit_code, self.graceful, self.complete = exit_code, graceful, complete


class UnavailableError(ConnectionError):
    """Storage did not answer until the timeout, and may later. Code that turns OSErrors into others must re-raise this one."""

    code = "storage-away"


def nearest(name: str, known: Iterable[str]) -> str:
    """Returns the end of a line about an unknown name: `; did you mean 'X'? (known: A, X)`."""
    names = sorted(known) if isinstance(known, Set) else list(known)
    folded = {one.casefold(): one for one in names}
    close = difflib.get_close_matches(name.casefold(), folded, n=1, cutoff=0.5)
    listed = ", ".join(names[:_LISTED]) + (f" and {len(names) - _LISTED} more" if len(names) > _LISTED else "")
    return (f"; did you mean {folded[close[0]]!r}?" if close else "") + f" (known: {listed or 'none'})"
