"""A whole run over a log and a corpus of any form: the tables are those of the same rows in another."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from jobs.__main__ import main
from jobs.tables import STORED
from tests.support.jobs.in_process_runs import prepared_job, run_in_process
from tests.support.jobs.whole_runs import rows

CORPUS = [
    ("007", "Bread", "Sourdough rises slowly, because wild yeast is in no hurry."),
    ("7", None, 'The "spring" tide\ncomes.'),
]
LOG = [("01", "why does bread rise"), ("2", "spring tide"), ("3", "Spring  tide"), ("4", None), ("x", "yeast, wild")]


def write(path: Path, names: Sequence[str], values: Sequence[tuple[str | None, ...]]) -> None:
    if path.suffix == ".parquet":
        columns = zip(names, zip(*values, strict=True), strict=True)
        pq.write_table(pa.table({name: pa.array(column, pa.string()) for name, column in columns}), path)
    elif path.suffix == ".jsonl":
        path.write_text("".join(json.dumps(dict(zip(names, row, strict=True))) + "\n" for row in values))
    else:
        with path.open("w", newline="") as file:
            csv.writer(file).writerows([names, *values])


def tables(
    place: Path, form: str, values: dict[str, Any], config_file: Callable[[Any], str]
) -> dict[str, list[dict[str, Any]]]:
    """What a run makes of log and corpus in this form; without what takes time."""
    place.mkdir()
    write(place / f"log.{form}", ["id", "query"], LOG)
    write(place / f"corpus.{form}", ["doc_id", "title", "text"], CORPUS)
    values["log"] |= {"path": str(place / f"log.{form}"), "id_column": "id"}
    values["retrieve"]["retrievers"]["bm25"] |= {"index": str(place / "index")}
    config = config_file(values | {"output": str(place / "runs")})
    assert main(["index", config, "--corpus", str(place / f"corpus.{form}")]) == 0
    folder = run_in_process(prepared_job(config))
    timed = ("seconds", "device_seconds", "latency")
    return {
        table: [{name: value for name, value in row.items() if name not in timed} for row in rows(folder, table)]
        for table in STORED
        if (folder / table).exists()
    }


def test_the_tables_of_a_run(
    tmp_path: Path, values: dict[str, Any], config_file: Callable[[Any], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    texts = dict.fromkeys(" ".join(query.lower().split()) for _, query in LOG if query)
    asked = [{"query": text, "completions": {"dmqr": json.dumps({"general": f"about {text}"})}} for text in texts]
    Path("recorded.jsonl").write_text("".join(json.dumps(one) + "\n" for one in asked))
    values["rewrite"]["strategies"] = ["general"]
    values |= {"rerank": {"kind": "none"}, "limits": {"error_rate": 1}, "cluster": {"address": "none"}}
    found = {form: tables(tmp_path / form, form, values, config_file) for form in ("parquet", "jsonl", "csv")}
    assert {"queries", "query_map", "rewrites", "runs", "results", "costs", "errors"} <= set(found["parquet"])
    assert {row["doc_id"] for row in found["parquet"]["results"]} == {"007", "7"}
    assert [row["log_id"] for row in found["parquet"]["query_map"]] == ["01", "2", "3", "4", "x"]
    assert found["jsonl"] == found["parquet"]
    assert found["csv"] == found["parquet"]
