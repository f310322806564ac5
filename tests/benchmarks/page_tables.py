"""Tables of a page of the docs that a command writes: each between two comments, which name it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

DOCS = Path(__file__).resolve().parents[2] / "docs"


def put_tables(page: Path, tables: Mapping[str, str]) -> None:
    """Writes tables between the markers `<!-- table NAME -->` and `<!-- end NAME -->` of a page; all else stays.

    Raises:
        ValueError: The page has other markers than these names have, or one of them twice.
    """
    text = page.read_text(encoding="utf-8")
    if sorted(marked(text)) != sorted(tables):
        raise ValueError(f"{page}: has the tables {sorted(marked(text))}, given are {sorted(tables)}")
    for name, table in tables.items():
        begin, end = f"<!-- table {name} -->", f"<!-- end {name} -->"
        before, _, rest = text.partition(begin)
        _, found, after = rest.partition(end)
        if not found:
            raise ValueError(f"{page}: {begin} has no {end}")
        text = f"{before}{begin}\n\n{table.strip()}\n\n{end}{after}"
    page.write_text(text, encoding="utf-8")


def marked(text: str) -> list[str]:
    """Returns the names of a page's tables, in their order."""
    return re.findall(r"^<!-- table (.+) -->$", text, re.MULTILINE)


def table_of(text: str, name: str) -> list[list[str]]:
    """Returns the cells of the rows of a page's table, its head first."""
    inside = text.partition(f"<!-- table {name} -->")[2].partition(f"<!-- end {name} -->")[0]
    rows = [[cell.strip() for cell in line.strip("| ").split("|")] for line in inside.splitlines() if line.startswith("|")]
    return [row for row in rows if set("".join(row)) != {"-"}]
