"""Texts as cells of CSV that people open in a spreadsheet, and as they are read back.

A spreadsheet takes a cell that begins with `=`, `+`, `-` or `@` for a formula, and makes numbers and dates of others (`1-2`,
`10:30`, `may 5`, `0012`), which it then writes back in a form of its own. Such cells have an apostrophe before them, as in
spreadsheets, and lose one when they are read; a text that begins so by itself has one more. Files begin with a byte order
mark, by which Excel knows UTF-8.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Iterable, Sequence
from typing import IO

ENCODING = "utf-8-sig"
Cell = str | int | float | None
_GUARDED = re.compile(
    r"""'* (?: [=+@\-\t\r\uff1d\uff0b\uff0d\uff20]                   # a formula, in full width, too
      | (?=.*\d) [\W\d_]* (?:[^\W\d_]{1,12}[\W\d_]*)? \Z ) # a number or date: digits, with one short word at most
    """,
    re.VERBOSE | re.DOTALL,
)


def guarded(text: str) -> str:
    """Returns a text as a cell that a spreadsheet leaves as it is."""
    return f"'{text}" if _GUARDED.match(text) else text


def unguarded(cell: str) -> str:
    """Returns the text of a cell."""
    return cell[1:] if cell.startswith("'") and _GUARDED.match(cell) else cell


def write_rows(file: IO[str], header: Sequence[str], rows: Iterable[Sequence[Cell]]) -> None:
    """Writes CSV to a file that was opened with `ENCODING` and `newline=""`; numbers stay numbers, None is an empty cell."""
    writer = csv.writer(file, lineterminator="\r\n")
    writer.writerow([guarded(name) for name in header])
    writer.writerows([guarded(one) if isinstance(one, str) else one for one in row] for row in rows)
