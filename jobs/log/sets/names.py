"""Names of data sets: `beir:FOLDER/SPLIT`, `irds:ID` and `topics:FILE`; their queries, as columns of text.

They stand where a path may stand: in `log.path`, `corpus.path`, `evaluate.qrels`, `--corpus`, and as judgements on the command
line. A set's queries have the columns of SET_COLUMNS, whatever its own files call them.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, Literal, NamedTuple

import pyarrow as pa

SetKind = Literal["beir", "irds", "topics"]
KINDS: Final[tuple[SetKind, ...]] = ("beir", "irds", "topics")
SET_COLUMNS: Final = {"query_column": "text", "id_column": "query_id"}  # of `log`: the columns of a set's queries


class SetName(NamedTuple):
    """The name of a data set."""

    kind: SetKind
    rest: str  # beir: a folder, with or without a split; irds: an id of ir_datasets; topics: a file

    def __str__(self) -> str:
        return f"{self.kind}:{self.rest}"


def set_name(path: str) -> SetName | None:
    """Returns the name of a data set; None: it is a path."""
    kind, colon, rest = path.partition(":")
    return next((SetName(known, rest) for known in KINDS if colon and known == kind), None)


def set_names(paths: str | Sequence[str]) -> list[SetName]:
    """Returns those of the paths that name data sets."""
    given = [paths] if isinstance(paths, str) else paths
    return [name for name in map(set_name, given) if name is not None]


def moved(path: str, change: Callable[[str], str]) -> str:
    """Returns a path, or the name of a data set, in which `change` has replaced the path; an id of ir_datasets has none."""
    name = set_name(path)
    if name is None:
        return change(path)
    return path if name.kind == "irds" else str(name._replace(rest=change(name.rest)))


def left_out_words(counts: Mapping[str, int]) -> str:
    """Returns the end of a line about a log, by the counts of its plan: how many queries of other splits are left out."""
    number = counts.get("left_out", 0)
    return f"; {number:,} queries of other splits left out" if number else ""


def table_of(rows: Sequence[Mapping[str, str | None]]) -> pa.Table:
    """Returns rows as columns of text: `query_id`, `text`, then the others as they are first met; what lacks is null."""
    names = dict.fromkeys(("query_id", "text", *(name for row in rows for name in row)))
    return pa.table({name: pa.array([row.get(name) for row in rows], pa.string()) for name in names})


def as_text(value: Any) -> str | None:
    """Returns a value as text: one that is none as JSON."""
    return value if value is None or isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
