"""The verb import: a published data set as a log, a corpus, answers and judgements."""

from __future__ import annotations

import argparse
import dataclasses
from typing import TYPE_CHECKING, Any

from jobs.cli.printing import show

if TYPE_CHECKING:
    from jobs.importers.written import ImportedSet


def import_(options: argparse.Namespace) -> int:
    """Writes the file of a data set as the project's own files, and says what became of it."""
    from jobs.importers.written import import_set

    found = import_set(options.data_set, options.file, options.to or options.data_set, options.corpus)
    return show(options, lambda: dataclasses.asdict(found), lambda: _page(found), found.config)


def _page(found: ImportedSet) -> Any:
    """Returns what was read and written, one figure a line."""
    from rich.table import Table

    table = Table(box=None, show_header=False, padding=(0, 2, 0, 0))
    table.add_column(justify="right")
    table.add_column()
    rows = [(found.questions, "questions"), (found.answered, "with gold answers")]
    rows += [(found.judged, f"with judgements: {found.judgements:,} supporting passages")] if found.judgements else []
    rows += [(found.passages, f"passages, after {found.repeated:,} that were met before")] if found.passages else []
    for n, words in [*rows, *((n, words) for words, n in found.notes.items())]:
        table.add_row(f"{n:,}", words)
    table.add_row("", f"searched: {found.searched}")
    return table
