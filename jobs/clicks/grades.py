"""Graded judgements from what a click model estimates, and their file."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq

from cluster.errors import ConfigError
from cluster.storage import remote
from cluster.storage.whole_file import written
from jobs.clicks.interactions import Cells
from jobs.clicks.models import ClickEstimate

THRESHOLDS = (0.5, 1.0, 2.0)
ENDINGS = (".parquet", ".csv")
LEFT_OUT = {
    "few_impressions": "too few examined impressions",
    "few_clicks": "clicked, but too seldom",
    "place": "shown only at places that cannot be compared",
}
"""Why a pair gets no grade; in the order in which the reasons are looked for, the last one first."""


@dataclass(frozen=True)
class Grading:
    """How estimates become grades.

    A pair's impressions count as often as its places are examined: a hundred at a place that one in ten looks at are ten.
    Fewer than `min_impressions` of them say too little either way.
    """

    thresholds: tuple[float, ...] = THRESHOLDS
    """A pair has grade n from the n-th on: multiples of the attractiveness of an average document. Without a click it is 0."""
    min_impressions: float = 10
    min_clicks: int = 2
    """With fewer clicks, but some, a pair gets no grade."""

    def __post_init__(self) -> None:
        """Refuses what grades nothing.

        Raises:
            ConfigError: thresholds do not rise from above zero, or a number is negative.
        """
        if not self.thresholds or not all(a < b for a, b in pairwise((0.0, *self.thresholds))):
            shown = ",".join(f"{one:g}" for one in self.thresholds)
            raise ConfigError("argument", f"--thresholds {shown}: do not rise from above 0; write them like 0.5,1,2")
        for name, value in (("--min-impressions", self.min_impressions), ("--min-clicks", self.min_clicks)):
            if not value >= 0:
                raise ConfigError("argument", f"{name} {value:g}: is not 0 or more; correct it")


@dataclass(frozen=True)
class Graded:
    """The grades of pairs."""

    pairs: pa.Table
    """A row per pair, sorted: query_id, doc_id, impressions, clicks, examined, relevance, grade (null: none), left_out."""
    left_out: dict[str, int]
    """A key of LEFT_OUT -> pairs."""

    @property
    def judged(self) -> pa.Table:
        """Returns the pairs that have a grade."""
        return self.pairs.filter(self.pairs.column("grade").is_valid())


def graded(cells: Cells, found: ClickEstimate, grading: Grading) -> Graded:
    """Returns the grades of all pairs of cells."""
    pairs = len(cells.pairs)
    shown, clicks = (np.bincount(cells.pair, column, pairs) for column in (cells.shown, cells.clicked))
    grade = np.searchsorted(grading.thresholds, np.nan_to_num(found.relevance), side="right")
    grade[clicks == 0] = 0
    reason: npt.NDArray[np.object_] = np.full(pairs, None, object)
    reason[(clicks > 0) & (clicks < grading.min_clicks)] = "few_clicks"
    reason[found.examined < grading.min_impressions] = "few_impressions"
    reason[np.isnan(found.relevance)] = "place"
    columns = {
        "impressions": pa.array(shown.astype(np.int64)),
        "clicks": pa.array(clicks.astype(np.int64)),
        "examined": pa.array(found.examined),
        "relevance": pa.array(found.relevance, mask=np.isnan(found.relevance)),
        "grade": pa.array(grade.astype(np.int32), mask=np.array([one is not None for one in reason], bool)),
        "left_out": pa.array(reason, pa.string()),
    }
    table = cells.pairs
    for name, column in columns.items():
        table = table.append_column(name, column)
    return Graded(table, {name: n for name in LEFT_OUT if (n := int((reason == name).sum()))})


def write_judgements(path: str, table: Graded) -> None:
    """Writes query_id, doc_id and grade of the judged pairs, parted by tabs, as `evaluate --key query_id` reads them.

    Args:
        path: a local file, whose folder is made if need be, or an object on S3.
        table: the grades.

    Raises:
        ConfigError: a document's id has a tab or a line break.
        OSError: the file cannot be written.
    """
    rows = table.judged.select(["query_id", "doc_id", "grade"]).to_pydict()
    for doc_id in rows["doc_id"]:
        if doc_id != "".join(doc_id.splitlines()) or "\t" in doc_id:
            raise ConfigError(
                "argument", f"--out {path}: document {doc_id!r} has a tab or line break, which ends a column there"
            )
    lines = [f"{query}\t{document}\t{grade}\n" for query, document, grade in zip(*rows.values(), strict=True)]
    _make_folder(path)
    with written(path) as file:
        file.write_text("".join(lines), encoding="utf-8")


def check_table(path: str) -> None:
    """Checks the name of the file that `write_table` is to write.

    Raises:
        ConfigError: it ends in neither .parquet nor .csv.
    """
    if not path.endswith(ENDINGS):
        words = f"is neither Parquet nor CSV; give a name that ends in {' or '.join(ENDINGS)}"
        raise ConfigError("argument", f"--pairs {path}: {words}")


def write_table(path: str, table: Graded) -> None:
    """Writes a row per pair, judged or not, with all that is known of it; Parquet or CSV by the ending.

    Raises:
        OSError: the file cannot be written.
    """
    _make_folder(path)
    with written(path) as file:
        if path.endswith(".csv"):
            pyarrow.csv.write_csv(table.pairs, file)
        else:
            pq.write_table(table.pairs, file, compression="zstd")


def _make_folder(path: str) -> None:
    if not remote(path):
        Path(path).absolute().parent.mkdir(parents=True, exist_ok=True)


def parse_thresholds(text: str) -> tuple[float, ...]:
    """Returns thresholds written as 0.5,1,2.

    Raises:
        ConfigError: they are no numbers.
    """
    try:
        return tuple(float(one) for one in text.split(","))
    except ValueError as error:
        raise ConfigError("argument", f"--thresholds {text}: are no numbers; write them like 0.5,1,2") from error


def counts_of(table: Graded, grades: Sequence[int]) -> dict[int, int]:
    """Returns grade -> judged pairs."""
    found = np.bincount(table.judged.column("grade").to_numpy(), minlength=max(grades) + 1)
    return {grade: int(found[grade]) for grade in grades}
