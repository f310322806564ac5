"""Standard output of the verbs: tables and pages as wide as the terminal, or JSON."""

from __future__ import annotations

import argparse
import json
import shutil
import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from jobs.runs.folder import RunFolder


def show(
    options: argparse.Namespace, values: Callable[[], Any], page: Callable[[], Any], *last: str, of: RunFolder | None = None
) -> int:
    """Prints what a verb found, as values with `--json`, else as a page with the lines `last` below it; returns exit code 0.

    Of a run, `of`, folder and state stand before the page, and among the values, which are an object.
    """
    from jobs.verbs.evaluate import with_state

    if options.json:
        print_json(values() if of is None else with_state(of, values()))
        return 0
    if of is not None:
        print(f"{of.storage.root} ({of.state})")
    print_page(page())
    for line in last:
        print(line)
    return 0


def print_page(shown: Any) -> None:
    """Prints a table or page on standard output: as wide as the terminal, in colour only there."""
    from jobs.terminal.tables import page_text

    print(page_text(shown, width(), sys.stdout))


def width() -> int:
    """Returns the columns of what is printed."""
    return shutil.get_terminal_size((80, 24)).columns if sys.stdout.isatty() else 100


def print_json(values: Any, lines: bool = False) -> None:
    """Prints values as JSON; with `lines` in one line, as one of several."""
    print(json.dumps(values, ensure_ascii=False, indent=None if lines else 1, default=_plain), flush=lines)


def _plain(value: Any) -> Any:
    if isinstance(value, Sequence | set):
        return list(value)
    return str(value)
