"""The result of a verb: values, which `--json` prints, and a page, which a terminal and a notebook show."""

from __future__ import annotations

import html
import os
from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any

Folder = str | os.PathLike[str]
WIDTH = 100  # columns


class Result:
    """The result of a verb."""

    title = ""
    """A line above the page."""
    lines: Sequence[str] = ()
    """Lines below the page."""
    code = 0
    """The exit code of the command line."""
    failure = ""
    """The line with which the command line ends, where the code is not 0."""

    _notes: Sequence[str] = ()
    warnings: Sequence[str] = ()
    """Warnings of the call."""

    def __init__(
        self,
        values: Callable[[], Any],
        page: Callable[[], Any],
        *lines: str,
        notes: Sequence[str] = (),
        warnings: Sequence[str] = (),
    ) -> None:
        """Takes the functions that return the values and the page, the lines below the page, notes and warnings."""
        self._values, self._page, self.lines, self._notes, self.warnings = values, page, lines, notes, list(warnings)

    @cached_property
    def values(self) -> Any:
        """Returns what the verb prints with `--json`."""
        return self._values()

    @property
    def remarks(self) -> Sequence[str]:
        """Lines below the page of a notebook."""
        return [*self._notes, *(f"warning: {words}" for words in self.warnings)]

    @property
    def notes(self) -> Sequence[str]:
        """Sentences that a reader of the result needs to know."""
        return self.remarks

    def page(self) -> Any:
        """Returns what the verb prints: lines, or a table."""
        return self._page()

    def _repr_html_(self) -> str:
        """Returns the page, with the remarks below it, as HTML; everything is escaped."""
        from jobs.terminal.tables import page_text

        return f"<pre>{html.escape(chr(10).join([page_text(self.page(), WIDTH), *self.remarks]))}</pre>"
