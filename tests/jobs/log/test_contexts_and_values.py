"""Dedup with earlier turns, values of more columns and types of queries."""

from __future__ import annotations

import datetime
from pathlib import Path
from typing import Any
from uuid import UUID

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from cluster.storage import open_storage
from jobs.log.check import LogColumns, check_log
from jobs.log.dedup import LogSummary, dedup
from jobs.log.files import find_log_files
from jobs.log.rows import contexts, values
from jobs.tables import STORED

Row = dict[str, Any]
AFTER = LogColumns("query", context_column="turns")


def write(path: Path, columns: dict[str, Any], **options: object) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table(columns), path, **options)
    return path


def run(log: Path, out: Path, columns: LogColumns, shard_size: int = 100) -> tuple[LogSummary, dict[str, list[Row]]]:
    files = find_log_files(str(log))
    check_log(files, columns)
    summary = dedup(files, columns, open_storage(str(out)), shard_size)
    return summary, {
        table: [row for file in files for row in pq.read_table(out / file.key).to_pylist(maps_as_pydicts="strict")]
        for table, files in summary.tables.items()
    }


# ---------------------------------------------------------------- contexts


KINDS = [pa.list_(pa.string()), pa.large_list(pa.large_string()), pa.list_(pa.string(), 2), pa.list_(pa.string_view())]


@pytest.mark.parametrize("kind", KINDS)  # Polars writes the last
def test_lists_of_text_are_joined(kind: pa.DataType) -> None:
    column = pa.array([["any trains?", "yes"], None, [None, "any trains?"], [None, None]], kind)
    assert contexts(column, 100).to_pylist() == [b"any trains?\nyes", None, b"any trains?", None]
    assert values(column).to_pylist() == ["any trains?; yes", None, "any trains?", None]


def test_a_row_with_a_context_that_is_not_utf8_is_rejected(tmp_path: Path) -> None:
    raw = pa.array([b"fine", b"caf\xe9", None, b"caf\xe9" + b"x" * 9000], pa.binary()).view(pa.string())
    rows = {"query": ["a", "b", "c", None], "turns": raw}
    summary, found = run(write(tmp_path / "log.parquet", rows), tmp_path / "out", AFTER)
    assert summary.rejected == {"empty": 1, "not_utf8": 1}
    assert [(row["log_id"], row["message"], row["raw"]) for row in found["errors"]] == [
        ("log.parquet#1", "the context is not UTF-8 (byte 3)", "caf\ufffd"), ("log.parquet#3", "the query is null", None)
    ]  # fmt: skip
    assert {row["query"] for row in found["queries"]} == {"a", "c"}


# ---------------------------------------------------------------- values


def test_values_of_every_kind_become_text(tmp_path: Path) -> None:
    uuid, when = UUID(int=7), datetime.datetime(2020, 1, 31, 12, 30)
    kinds = {
        "text": (pa.array(["é"]), "é"), "large": (pa.array(["x"], pa.large_string()), "x"),
        "coded": (pa.array(["x"]).dictionary_encode(), "x"), "list": (pa.array([["a", None, "b"]]), "a; b"),
        "empty": (pa.array([[]], pa.list_(pa.string())), None), "number": (pa.array([1.5]), "1.5"),
        "whole": (pa.array([7], pa.uint8()), "7"), "yes": (pa.array([True]), "true"),
        "day": (pa.array([when.date()]), "2020-01-31"), "clock": (pa.array([when.time()]), "12:30:00.000000"),
        "uuid": (pa.array([uuid.bytes], pa.uuid()), str(uuid)), "none": (pa.array([None], pa.string()), None),
        "bytes": (pa.array([b"caf\xe9"]).view(pa.string()), "caf\ufffd"),
    }  # fmt: skip
    log = write(tmp_path / "log.parquet", {"query": ["q"]} | {name: column for name, (column, _) in kinds.items()})
    _, found = run(log, tmp_path / "out", LogColumns("query", values=tuple(kinds)))
    assert found["queries"][0]["values"] == {name: text for name, (_, text) in kinds.items()}


# ---------------------------------------------------------------- types


def by_length(queries: list[str]) -> list[str]:
    return ["long" if len(query.split()) >= 3 else "short" for query in queries]


def test_a_classifier_tells_the_type_of_the_shown_query(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("jobs.log.dedup.RANGE_ROWS", 2)
    rows = {"query": ["sea", "why is the sea salt", "Sea", "tides", "SEA  "], "market": ["de"] * 5}
    columns = LogColumns("query", values=("market",), classify=by_length)
    summary, found = run(write(tmp_path / "log.parquet", rows), tmp_path / "out", columns)
    assert {row["query"]: row["query_type"] for row in found["queries"]} == {
        "why is the sea salt": "long", "SEA  ": "short", "tides": "short"
    }  # fmt: skip
    schema = pq.read_schema(tmp_path / "out" / summary.tables["queries"][0].key)
    assert schema.names == [*STORED["queries"].names, "query_type", "values"]
