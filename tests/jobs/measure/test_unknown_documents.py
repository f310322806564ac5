"""Judged documents that the index does not have are counted, and said wherever a measure of them is."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from jobs.config.load import load_config
from jobs.index.index import index
from jobs.log.judgements import Judgements
from jobs.measure import unknown
from jobs.measure.evaluate import evaluate
from jobs.runs.folder import open_run
from jobs.terminal.live_display import LiveDisplay
from retrievers.retriever import open_documents
from tests.support.jobs.in_process_runs import QUERIES, prepared_job, run_in_process
from tests.support.retrievers.blocks import typed

GRADES = {QUERIES[1]: {"d01": 1, "D02": 1}, QUERIES[2]: {"d06": 2, "msmarco-7": 0}}


@pytest.fixture
def path(bm25_job: str) -> str:
    return bm25_job


def notes(folder: Path, grades: dict[str, dict[str, int]]) -> list[str]:
    found = evaluate(open_run(str(folder)), Judgements("qrels.tsv", grades, "query"))
    return [note for note in found.notes if "judged documents" in note]


def test_they_are_counted_and_said(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = run_in_process(prepared_job(path))
    (said,) = notes(folder, GRADES)
    assert said.startswith("warning: 2 of 4 judged documents are not in the index (")
    assert "such as 'D02': they cannot be found" in said
    found = evaluate(open_run(str(folder)), Judgements("qrels.tsv", GRADES, "query")).values()
    assert found["unknown_documents"] == {"unknown": 2, "looked_up": 4}
    assert "none of the judged documents can be found" in notes(folder, {QUERIES[1]: {"7": 1}})[0]
    assert notes(folder, {QUERIES[1]: {"d01": 1}}) == []
    monkeypatch.setattr(unknown, "MOST", 2)
    assert "1 of 2 judged documents drawn from 4 are not" in notes(folder, GRADES)[0]


def test_a_store_knows_its_documents(bm25: dict[str, Any]) -> None:
    assert open_documents("r", typed(bm25)).known(["d08", "", "d01", "zz", "d0"]) == [True, False, True, False, False]


def test_index_says_what_it_replaces_and_which_texts_are_missing(
    tmp_path: Path, values: dict[str, Any], config_file: Any
) -> None:
    values["retrieve"]["retrievers"]["bm25"]["index"] = str(tmp_path / "index")
    config = load_config(config_file(values))
    first, second = str(tmp_path / "first.parquet"), str(tmp_path / "second.parquet")
    pq.write_table(pa.table({"doc_id": ["a", "b", "c", "d"], "text": ["the sea", None, " ", "moon"]}), first)
    pq.write_table(pa.table({"doc_id": ["a"], "text": ["bread"]}), second)

    def built(corpus: str) -> dict[str, Any]:
        (found,) = index(config, [corpus], LiveDisplay(io.StringIO()), replace=True)
        return found

    told = "analyzer english: no language is recognised in 4 documents, whose letters English has"
    found = built(first)
    assert (found["done"], found["without_text"], found["replaced"]) == (f"built; 2 documents have no text; {told}", 2, None)
    assert built(first)["done"] == f"exists already, nothing to do; 2 documents have no text; {told}"
    found = built(second)
    assert found["done"].startswith("built, in place of the index of another corpus (4 documents); analyzer english: ")
    assert (found["without_text"], found["replaced"]) == (0, 4)
