"""Grades of estimates, their file, and the numbers that are refused."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from cluster.errors import ConfigError
from jobs.clicks.grades import Grading, check_table, counts_of, graded, parse_thresholds, write_judgements, write_table
from jobs.clicks.interactions import Cells
from jobs.clicks.models import ClickEstimate
from jobs.log.judgements import read_qrels


def pairs(rows: Sequence[tuple[float, float, float]], documents: list[str] | None = None) -> tuple[Cells, ClickEstimate]:
    """Pairs of (clicks, relevance, examined), each shown 100 times at the first place."""
    clicks, relevance, examined = (np.array(column, float) for column in zip(*rows, strict=True))
    named = documents or [f"d{n}" for n in range(len(rows))]
    table = pa.table({"query_id": [f"{n // 3:032x}" for n in range(len(rows))], "doc_id": named})
    ones = np.ones(len(rows))
    cells = Cells(table, np.arange(len(rows)), ones.astype(int), ones * 100, clicks)
    return cells, ClickEstimate("pbm", relevance, examined, np.ones(1), 1, True)


ROWS = [(0, 0.9, 50), (5, 0.49, 50), (5, 0.5, 50), (5, 1.0, 50), (5, 1.99, 10), (5, 2.0, 50), (1, 3.0, 50), (5, 3.0, 9.9),
        (5, np.nan, 0)]  # fmt: skip


def test_grades_by_hand() -> None:
    found = graded(*pairs(ROWS), Grading())
    assert found.pairs.column("grade").to_pylist() == [0, 0, 1, 2, 2, 3, None, None, None]
    assert found.left_out == {"few_impressions": 1, "few_clicks": 1, "place": 1}
    assert found.pairs.column("left_out").to_pylist()[6:] == ["few_clicks", "few_impressions", "place"]
    assert counts_of(found, range(4)) == {0: 2, 1: 1, 2: 2, 3: 1}


def test_other_limits() -> None:
    found = graded(*pairs(ROWS), Grading((1.5,), min_impressions=0, min_clicks=0))
    assert found.pairs.column("grade").to_pylist() == [0, 0, 0, 0, 1, 1, 1, 1, None]


def test_the_file_is_read_by_evaluate(tmp_path: Path) -> None:
    found = graded(*pairs(ROWS, ["d é", *"bcdefghi"]), Grading())
    path = tmp_path / "new" / "clicks.tsv"
    write_judgements(str(path), found)
    judgements = read_qrels(str(path), key="query_id")
    assert judgements.grades == {f"{0:032x}": {"d é": 0, "b": 0, "c": 1}, f"{1:032x}": {"d": 2, "e": 2, "f": 3}}


@pytest.mark.parametrize("document", ["a\tb", "a\nb", "a\u2028b"])
def test_an_id_that_would_end_a_column_is_refused(document: str, tmp_path: Path) -> None:
    found = graded(*pairs([(0, 0.9, 50)], [document]), Grading())
    with pytest.raises(ConfigError, match="has a tab or line break"):
        write_judgements(str(tmp_path / "clicks.tsv"), found)
    assert not (tmp_path / "clicks.tsv").exists()


@pytest.mark.parametrize("ending", ["parquet", "csv"])
def test_the_table_of_pairs(tmp_path: Path, ending: str) -> None:
    path = str(tmp_path / f"pairs.{ending}")
    check_table(path)
    write_table(path, graded(*pairs(ROWS), Grading()))
    import pyarrow.csv

    table = pq.read_table(path) if ending == "parquet" else pyarrow.csv.read_csv(path)
    assert table.column_names == ["query_id", "doc_id", "impressions", "clicks", "examined", "relevance", "grade", "left_out"]
    assert table.column("clicks").to_pylist() == [row[0] for row in ROWS]
    with pytest.raises(ConfigError, match="neither Parquet nor CSV"):
        check_table("pairs.xls")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"thresholds": (1.0, 0.5)}, "--thresholds 1,0.5: do not rise from above 0"),
        ({"thresholds": (0.0, 1.0)}, "do not rise"),
        ({"thresholds": ()}, "do not rise"),
        ({"thresholds": (1.0, float("nan"))}, "do not rise"),
        ({"min_impressions": -1}, "--min-impressions -1: is not 0 or more"),
        ({"min_impressions": float("nan")}, "--min-impressions nan: is not 0 or more"),
        ({"min_clicks": -1}, "--min-clicks -1: is not 0 or more"),
    ],
)
def test_gradings_that_are_refused(arguments: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        Grading(**arguments)


def test_thresholds_as_they_are_typed() -> None:
    assert parse_thresholds("0.5,1,2") == (0.5, 1.0, 2.0)
    with pytest.raises(ConfigError, match="are no numbers"):
        parse_thresholds("a,b")
