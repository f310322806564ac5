"""An index of Elasticsearch that another program writes to: nothing of an earlier state is reused."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from jobs.chain.stages.write import Write
from jobs.config.load import load_config
from jobs.job.indexes import noted_changes
from jobs.job.prepare import prepare
from jobs.pages.run import report
from jobs.run.ablation import prepare_ablation
from jobs.runs.folder import open_run
from tests.support.jobs.in_process_runs import full_disk, run_in_process
from tests.support.jobs.nights import log
from tests.support.jobs.whole_runs import rows
from tests.support.retrievers.elastic_server import ask
from tests.support.retrievers.fake_models import FakeModels

QUERIES = ["sea at night", "bread", "moon"]


def put(index: str, doc_id: str, text: str) -> None:
    ask("PUT", f"/{index}/_doc/{doc_id}?refresh=true", {"text": text})


@pytest.fixture
def index(elasticsearch: str, new_name: Callable[[], str]) -> str:
    name = new_name()
    mapping = {"properties": {"text": {"type": "text"}}}
    ask("PUT", f"/{name}", {"mappings": mapping, "settings": {"number_of_replicas": 0}})
    for doc_id, text in {"d1": "the sea at night", "d2": "bread and the sea", "d3": "a moon"}.items():
        put(name, doc_id, text)
    return name


@pytest.fixture
def path(
    index: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, values: dict[str, Any], config_file: Callable[[Any], str]
) -> str:
    monkeypatch.chdir(tmp_path)
    log(QUERIES)
    values["rewrite"] = {"strategies": []}
    values["retrieve"]["retrievers"] = {"bm25": {"kind": "elastic", "index": index}}
    values |= {"rerank": {"kind": "none"}, "cluster": {"address": "none", "shard_size": 1}}
    return config_file(values)


def listed(folder: Path, arm: str) -> list[tuple[Any, ...]]:
    found = [row for row in rows(folder, "results") if row["arm"] == arm]
    return sorted((row["query_id"], row["rank"], row["doc_id"], row["score"], row["rerank_score"]) for row in found)


def ablated(path: str, *settings: str) -> Path:
    ablation = prepare_ablation(load_config(path, list(settings)), path)
    return run_in_process(ablation)


def alone(path: str, output: str, *settings: str) -> Path:
    prepared = prepare(load_config(path, [*settings, f"output={output}"]), path)
    return run_in_process(prepared)


def reused(folder: Path, stage: str) -> int:
    return sum(row["reused"] for row in rows(folder, "costs") if row["stage"] == stage)


@pytest.mark.slow
def test_no_list_or_score_of_an_earlier_state_is_reused(path: str, index: str) -> None:
    with FakeModels("tei", score=lambda query, texts: [float(len(text)) for text in texts]) as server:
        rerank = {"kind": "server", "model": server.model, "base_url": server.address, "combine": "replace"}
        settings = [f"rerank={json.dumps(rerank)}"]
        grid = [*settings, "ablate.grid={fuse.k: [10]}"]
        first = ablated(path, *settings)
        again = ablated(path, *grid)  # nothing has changed: all is reused
        assert reused(again, "retrieve") == 3
        assert reused(again, "rerank") == len(rows(first, "scores"))
        put(index, "d2", "bread and bread, a changed text of bread and the moon")
        put(index, "d4", "bread")
        grid[-1] = "ablate.grid={fuse.k: [11]}"
        second = ablated(path, *grid)
        assert reused(second, "retrieve") == 0
        pairs = [{(row["query_id"], row["doc_id"]) for row in rows(of, "scores")} for of in (first, second)]
        same = {(query_id, doc_id) for query_id, doc_id in pairs[0] & pairs[1] if doc_id not in ("d2", "d4")}
        assert reused(second, "rerank") == len(same) < len(pairs[1])  # scores are those of a text
        assert listed(second, "full") == listed(alone(path, "alone", *settings), "run")
        assert listed(second, "full") != listed(first, "full")


@pytest.mark.slow
def test_a_change_between_stop_and_resume_is_said(path: str, index: str, caplog: pytest.LogCaptureFixture) -> None:
    with full_disk():
        alone(path, "runs")
    put(index, "d5", "bread of the sea")
    folder = alone(path, "runs")
    said = f"index {index}: another program has written to it since the start before"
    assert sum(said in record.getMessage() for record in caplog.records) == 1
    starts = json.loads((folder / "run.json").read_text())["starts"]
    assert [one["index_states"]["begin"][index]["documents"] for one in starts] == [3, 4]
    assert starts[-1]["index_states"]["end"] == starts[-1]["index_states"]["begin"]
    (noted,) = noted_changes(starts)  # as the run's page says it
    assert noted.startswith(f"index {index}: another program has written to it since the start before")


@pytest.mark.slow
def test_a_change_while_it_is_searched_is_said(
    path: str, index: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    whole = Write.__call__

    def meanwhile(self: Write, table: pa.Table) -> pa.Table:
        put(index, "d6", f"bread {table.num_rows}")
        return whole(self, table)

    monkeypatch.setattr(Write, "__call__", meanwhile)
    folder = alone(path, "runs")
    assert sum("written to it since start 1 began" in record.getMessage() for record in caplog.records) == 1
    (start,) = json.loads((folder / "run.json").read_text())["starts"]
    assert start["index_states"]["begin"] != start["index_states"]["end"]
    assert "written to it since start 1 began" in report(open_run(str(folder)), None)


def test_the_states_noted_last_are_those_of_all_starts() -> None:
    starts: list[dict[str, Any]] = [
        {"start": 1, "index_states": {"begin": {"a": 1, "b": 1}, "end": {"a": 2}}},
        {"start": 2},
        {"start": 3, "index_states": {"begin": {"b": 3}}},
    ]
    assert [said.partition(", so")[0] for said in noted_changes(starts)] == [
        "index a: another program has written to it since start 1 began",
        "index b: another program has written to it since the start before",
    ]
