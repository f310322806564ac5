"""Dedup beside DuckDB, which makes the same tables, queries and query_map, by one SQL script.

Each time a process of its own. The script hashes, groups, sorts and compresses as dedup does; it normalises by lower case and
white space alone, and has no rejected rows and no limit of memory.
"""

import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path

from dedup_speed import WHOLE_NAME, apart, write_log

from limits.rounds import Row, Spent, alternated

ROWS, FILES = 2_000_000, 8


def measure(quick: bool) -> list[Row]:
    """Returns one row."""
    rows = ROWS // 20 if quick else ROWS
    with tempfile.TemporaryDirectory(prefix="dmqr-dedup-log-") as name:
        write_log(Path(name), rows, FILES)

        def once(what: str) -> Spent:
            told = apart(what, Path(name))
            return Spent(told["seconds"], told["cpu"])

        sides: dict[str, Callable[[], Spent]] = {what: partial(once, what) for what in ("dedup", WHOLE_NAME)}
        spent = alternated(sides, 1 if quick else 3)
    return [Row(f"dedup, {rows:,} log rows", "DuckDB's SQL", rows, "rows", spent["dedup"], spent[WHOLE_NAME])]
