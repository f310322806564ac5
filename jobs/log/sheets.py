"""Sheets of documents to be judged: judgements with a heading, further columns, and grades that are still empty.

A sheet may stand alone, or behind judgements in one file (`cat qrels.tsv sheet.tsv`): from its heading on lines are its rows.
One over several data sets has the set in a column before the others; of it each set reads its own rows.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from cluster.errors import ConfigError
from jobs.terminal.formats import and_more

OF_SET = "set"
"""The column of the set, before the judged key."""
COLUMNS = ("doc_id", "grade")
"""Behind the judged key."""
BEHIND = ("arms", "rank", "weight", "query", "text")
"""Behind these: what helps to judge, and is not read."""
_KEYS = ("log_id", "query_id", "query")


def heads_sets(line: str) -> bool:
    """Returns whether a line heads a sheet over several data sets."""
    first, _, rest = line.partition("\t")
    return first == OF_SET and _heads(rest.split("\t"))


def judged_lines(
    lines: Iterable[tuple[int, str]], key: str, where: str, of_set: str | None = None
) -> Iterator[tuple[int, str]]:
    """Yields number and text of the lines that judge: of a sheet those with a grade, without the columns behind it.

    Args:
        lines: of a file, with their numbers.
        key: what the judgements name.
        where: begins an error's message.
        of_set: the set whose rows of a sheet over several sets are read; None: there is no set.

    Raises:
        ConfigError: a sheet names another key, or is of other sets, and nothing else judges.
    """
    in_sheet = False
    before = 0  # columns before the key
    mine, others = False, dict[str, None]()
    for number, line in lines:
        fields = line.split("\t")
        if _heads(fields) or heads_sets(line):
            in_sheet, before = True, int(fields[0] == OF_SET)
            if fields[before] != key:
                what = f"{where}: line {number} heads a sheet of {fields[before]}s, and {key}s are judged"
                raise ConfigError("judgements", f"{what}; name its key (evaluate.key, --key)")
        elif not in_sheet or len(fields) < 3 + before:
            mine = True
            yield number, line
        elif before and fields[0] != of_set:
            others[fields[0]] = None
        else:
            mine = True
            if fields[before + 2].strip():
                yield number, "\t".join([*fields[before : before + 2], fields[before + 2].strip()])
    if others and not mine:
        what = f"{where}: is a sheet of the sets {and_more(list(others))}, and none of its rows is of {of_set!r}"
        raise ConfigError("judgements", f"{what}; name the config like its set")


def _heads(fields: list[str]) -> bool:
    return tuple(fields[1:3]) == COLUMNS and fields[0] in _KEYS
