"""Sheets of documents to be judged: judgements with a heading, further columns, and grades that are still empty.

A sheet may stand alone, or behind judgements in one file (`cat qrels.tsv sheet.tsv`): from its heading on lines are its rows.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from cluster.errors import ConfigError

COLUMNS = ("doc_id", "grade")
"""Behind the judged key."""
BEHIND = ("arms", "rank", "weight", "query", "text")
"""Behind these: what helps to judge, and is not read."""
_KEYS = ("log_id", "query_id", "query")


def judged_lines(lines: Iterable[tuple[int, str]], key: str, where: str) -> Iterator[tuple[int, str]]:
    """Yields number and text of the lines that judge: of a sheet those with a grade, without the columns behind it.

    Args:
        lines: of a file, with their numbers.
        key: what the judgements name.
        where: begins an error's message.

    Raises:
        ConfigError: a sheet names another key.
    """
    in_sheet = False
    for number, line in lines:
        fields = line.split("\t")
        if _heads(fields):
            in_sheet = True
            if fields[0] != key:
                what = f"{where}: line {number} heads a sheet of {fields[0]}s, and {key}s are judged"
                raise ConfigError("judgements", f"{what}; name its key (evaluate.key, --key)")
        elif not in_sheet or len(fields) < 3:
            yield number, line
        elif fields[2].strip():
            yield number, "\t".join([*fields[:2], fields[2].strip()])


def _heads(fields: list[str]) -> bool:
    return tuple(fields[1:3]) == COLUMNS and fields[0] in _KEYS
