"""What nobody has judged among the first results of all arms, as a sheet to be filled in: `evaluate --unjudged`.

Columns, parted by tabs: the judged key, `doc_id`, `grade` (empty), then what helps to judge: `arms`, `rank`, `weight`, `query`,
`text`; over several data sets, before them, `set`. `read_qrels` reads such a sheet, as far as grades are filled in
(`jobs/log/sheets.py`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import log2
from pathlib import Path
from typing import Any

from cluster.errors import ConfigError
from cluster.storage.whole_file import written
from jobs.log.judgements import Judgements
from jobs.log.sheets import BEHIND
from jobs.measure import judged_rows
from jobs.measure.frame import Frame
from jobs.measure.judged_rows import database
from jobs.runs.documents import texts_of
from jobs.runs.folder import RunFolder

DEPTH = 10  # results of an arm that are looked at, by default
_TEXTS = 500  # documents whose texts are read at a time


@dataclass(frozen=True)
class UnjudgedDocument:
    """A document among the first results of some arms to a key that does not judge it."""

    key: str
    doc_id: str
    arms: int
    """That have it among their first results."""
    rank: int
    """The best that it has there."""
    weight: float
    """The sum over the arms of 1 / log2(1 + rank), the discount of nDCG; of an arm with several seeds the mean over them."""
    query: str
    text: str
    """Of the document; empty where it is not known."""


@dataclass(frozen=True)
class Unjudged:
    """The documents, those first that move most arms most; a key and a document once."""

    rows: tuple[UnjudgedDocument, ...]
    arms: int
    depth: int
    key: str
    without_text: int
    why: str | None
    """Why texts are not known; None: all are."""

    @property
    def queries(self) -> int:
        """Returns the number of keys with such documents."""
        return len({one.key for one in self.rows})

    @property
    def said(self) -> str:
        """Returns it in one line."""
        arms = f"of {self.arms:,} arms" if self.arms > 1 else "of the run"
        words = (
            f"not judged: {len(self.rows):,} documents of {self.queries:,} keys among the first {self.depth:,} results {arms}"
        )
        return words + _lacking(self.without_text, self.why)

    def values(self) -> dict[str, Any]:
        """Returns the counts as JSON-able values."""
        counts = {"documents": len(self.rows), "keys": self.queries, "arms": self.arms, "depth": self.depth}
        return counts | {"without_text": self.without_text, "why": self.why}

    def columns(self) -> dict[str, list[Any]]:
        """Returns the columns of the sheet by name; of `grade` None."""
        return _columns(self.key, self.rows)


def _columns(key: str, rows: Sequence[UnjudgedDocument]) -> dict[str, list[Any]]:
    named: dict[str, list[Any]] = {"doc_id": [one.doc_id for one in rows], "grade": [None] * len(rows)}
    behind: dict[str, list[Any]] = {name: [getattr(one, name) for one in rows] for name in BEHIND}
    return {key: [one.key for one in rows]} | named | behind


def _lacking(without: int, why: str | None) -> str:
    """Returns how many texts are not known; nothing where all are."""
    return f"; the texts of {without:,} are not known" + (f" ({why})" if why else "") if without else ""


def unjudged_of(run: RunFolder, judgements: Judgements, frame: Frame, depth: int = DEPTH) -> Unjudged:
    """Returns what is not judged among the first results of a run, or of an ablation's arms.

    Args:
        run: a run or an ablation.
        judgements: that its frame is measured by.
        frame: of its lists.
        depth: results of an arm that are looked at.

    Raises:
        ConfigError: files of the run cannot be read.
    """
    arm_of = {arm: (arm, 1.0) for arm in frame.arms}
    for arm, seeded in frame.seeds.items():
        arm_of |= {name: (arm, 1 / len(seeded.arms)) for name in seeded.arms if name not in frame.arms or name == arm}
    keys: dict[str, list[int]] = {}
    for place, query_id in enumerate(frame.query_ids):
        if query_id is not None:
            keys.setdefault(query_id, []).append(place)
    found: dict[tuple[int, str], dict[str, float]] = {}
    ranks: dict[tuple[int, str], int] = {}
    listed: set[str] = set()
    with database(run) as connection:
        judged_rows.counted_keys(connection, run, judgements)
        for query_id, name, rank, doc_id in _ranked(judged_rows.arm_lists(connection, run, depth)):
            if rank > depth or name not in arm_of:
                continue
            arm, share = arm_of[name]
            listed.add(arm)
            for place in keys.get(query_id, ()):
                if doc_id in judgements.grades[frame.keys[place]]:
                    continue
                of_arms = found.setdefault((place, doc_id), {})
                of_arms[arm] = of_arms.get(arm, 0.0) + share / log2(1 + rank)
                ranks[place, doc_id] = min(rank, ranks.get((place, doc_id), rank))
    texts, why = _texts(run, sorted({doc_id for _, doc_id in found}))
    rows = [
        UnjudgedDocument(
            frame.keys[place] if judgements.key != "query" else _line(frame.queries[place]),
            doc_id, len(of_arms), ranks[place, doc_id], sum(of_arms.values()), _line(frame.queries[place]),
            _line(texts.get(doc_id)),
        )
        for (place, doc_id), of_arms in found.items()
    ]  # fmt: skip
    rows.sort(key=lambda one: (-round(one.weight, 9), one.rank, one.key, one.doc_id))
    without = sum(not one.text for one in rows)
    return Unjudged(tuple(rows), len(listed), depth, judgements.key, without, why)


def write_unjudged(path: str, found: Unjudged) -> None:
    """Writes the sheet to a local file or an object on S3.

    Raises:
        ConfigError: a key or a doc_id has a tab or a line's end, which part the columns of the sheet.
    """
    columns = found.columns()
    for name in (found.key, "doc_id"):
        for value in columns[name]:
            if _line(value) != value.strip(" ") or value != value.strip(" "):
                what = f"--unjudged {path}: {name} {value[:80]!r} has white space that a sheet cannot hold"
                raise ConfigError("argument", f"{what}; judge by another key (--key)")
    lines = ["\t".join(columns)]
    for row in zip(*columns.values(), strict=True):
        lines.append("\t".join(_cell(value) for value in row))
    with written(path) as file:
        Path(file).write_text("\n".join(lines) + "\n", encoding="utf-8", newline="\n")


def _ranked(tables: Iterable[Any]) -> Iterable[tuple[str, str, int, str]]:
    """Yields query_id, arm, rank and doc_id of lists that come by query, arm and rank."""
    last, rank = ("", ""), 0
    for table in tables:
        for row in zip(*(table.column(name).to_pylist() for name in ("query_id", "arm", "doc_id")), strict=True):
            rank = rank + 1 if row[:2] == last else 1
            last = row[:2]
            yield row[0], row[1], rank, row[2]


def _texts(run: RunFolder, doc_ids: Sequence[str]) -> tuple[Mapping[str, str], str | None]:
    """Returns the texts of documents, as far as they are known, and why others are not."""
    found: dict[str, str] = {}
    why: str | None = None
    for begin in range(0, len(doc_ids), _TEXTS):
        texts, reason = texts_of(run, doc_ids[begin : begin + _TEXTS])
        found |= texts
        why = why or reason
    return found, why


def _line(text: str | None) -> str:
    """Returns a text in one line without tabs."""
    return " ".join((text or "").split())


def _cell(value: Any) -> str:
    return "" if value is None else f"{value:.4f}" if isinstance(value, float) else str(value)
