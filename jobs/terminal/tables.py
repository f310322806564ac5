"""Tables that several screens have."""

from __future__ import annotations

from collections.abc import Iterable

from rich.console import RenderableType
from rich.table import Table


def facts(rows: Iterable[tuple[str, RenderableType]], title: str | None = None, least: int | None = None) -> Table:
    """Returns a line per fact, its name in bold and at least `least` wide, without a frame."""
    table = Table(title=title, title_justify="left", show_header=False, box=None, padding=(0, 2, 0, 0))
    table.add_column(style="bold", no_wrap=True, min_width=least)
    table.add_column()
    for row in rows:
        table.add_row(*row)
    return table
