"""Tables that several screens have."""

import io
from collections.abc import Iterable
from typing import TextIO

from rich.console import Console, RenderableType
from rich.table import Table


def page_text(shown: RenderableType, width: int, stream: TextIO | None = None) -> str:
    """Returns the lines of a table or page; coloured if `stream`, where it will go, is a terminal."""
    console = Console(
        file=stream or io.StringIO(), width=width, highlight=False, markup=False, emoji=False, force_jupyter=False
    )
    with console.capture() as captured:
        console.print(shown)
    lines = captured.get().splitlines()
    return "\n".join(lines if stream is not None and stream.isatty() else [line.rstrip() for line in lines])


def facts(rows: Iterable[tuple[str, RenderableType]], title: str | None = None, least: int | None = None) -> Table:
    """Returns a line per fact, its name in bold and at least `least` wide, without a frame."""
    table = Table(title=title, title_justify="left", show_header=False, box=None, padding=(0, 2, 0, 0))
    table.add_column(style="bold", no_wrap=True, min_width=least)
    table.add_column(overflow="fold")
    for row in rows:
        table.add_row(*row)
    return table
