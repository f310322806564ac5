"""`dmqr runs --query`: a query's newest rewrites and the runs that had it, whatever form, turns and filters it came with."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from cluster.storage import open_storage
from jobs.__main__ import main
from jobs.chain.stages.order import Order
from jobs.runs.look_up import LookedUp, look_up
from retrievers.local.build import build_local_index
from rewriters.normalise import query_id
from tests.support.cluster.s3_server import S3Server
from tests.support.jobs.in_process_runs import prepared_job, run_in_process
from tests.support.jobs.whole_runs import rows
from tests.support.retrievers.blocks import index_fields

Values = dict[str, Any]
QUERY = "lamp of a lighthouse"
MAIL = "who is keeper@example.org"


@pytest.fixture
def job(
    tmp_path: Path, values: Values, bm25: Values, config_file: Callable[[Any], str], monkeypatch: pytest.MonkeyPatch
) -> Callable[..., str]:
    """Writes the config of a night and its log: queries, and other columns."""
    monkeypatch.chdir(tmp_path)

    def made(said: str, columns: dict[str, Any], **more: Any) -> str:
        pq.write_table(pa.table(columns), "log.parquet")
        asked = {*columns["query"]}
        lines = [{"query": one, "completions": {"dmqr": json.dumps({"general": f"{said} of {one}"})}} for one in asked]
        Path("recorded.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
        values["rewrite"] |= {"strategies": ["general"]} | more.pop("rewrite", {})
        values["retrieve"] = {"retrievers": {"bm25": bm25}} | more.pop("retrieve", {})
        values.update({"rerank": {"kind": "none"}, "limits": {"error_rate": 1}})
        values["cluster"] = {"address": "none", "shard_size": 2}
        values["log"] = {"path": "log.parquet", "query_column": "query"} | more.pop("log", {})
        return config_file(values | more)

    return made


def night(path: str, label: str, *settings: str) -> Path:
    return run_in_process(prepared_job(path, f"label={label}", *settings))


def found(query: str, name: str | None = None) -> LookedUp:
    return look_up(open_storage("runs"), name, query)


@pytest.mark.slow
def test_the_newest_rewrites_and_every_night(job: Callable[..., str], capfd: pytest.CaptureFixture[str]) -> None:
    night(job("first", {"query": [QUERY, QUERY, "yeast", "moon and tides"]}), "one")
    night(job("second", {"query": [QUERY.upper(), "yeast", "rye"]}), "two")
    night(job("third", {"query": ["yeast"]}), "three")
    looked = found(f"  {QUERY.title()} ")
    assert [(one.night, one.log_count, one.query) for one in looked.had] == [("one", 2, QUERY), ("two", 1, QUERY.upper())]
    assert {one.query_id for one in looked.had} == {query_id(QUERY)}
    assert (looked.runs, looked.unread, looked.normalised) == (3, {}, QUERY)
    (newest,) = looked.newest
    assert newest.had.night == "two"
    assert [one["text"] for one in newest.rewrites] == [f"second of {QUERY.upper()}"]
    assert not newest.masked
    capfd.readouterr()
    assert main(["runs", "runs/small", "--query", QUERY]) == 0
    said = capfd.readouterr().out
    assert f"second of {QUERY.upper()}" in said
    assert "first of" not in said
    assert main(["runs", "runs", "--query", QUERY, "--json"]) == 0
    assert [one["night"] for one in json.loads(capfd.readouterr().out)["had"]] == ["one", "two"]


@pytest.mark.slow
def test_every_query_of_a_night_is_found_in_its_own_shard(job: Callable[..., str]) -> None:
    asked = [f"query number {number}" for number in range(11)]
    folder = night(job("said", {"query": asked}), "one")
    texts = {one["query_id"]: one["text"] for one in rows(folder, "rewrites")}
    for query in asked:
        (newest,) = found(query).newest
        assert [one["text"] for one in newest.rewrites] == [texts[query_id(query)]]


def test_a_query_that_no_night_had(job: Callable[..., str], capfd: pytest.CaptureFixture[str]) -> None:
    night(job("said", {"query": [QUERY]}), "one")
    assert found("rye bread").had == []
    capfd.readouterr()
    assert main(["runs", "runs", "--query", "rye bread"]) == 0
    assert "none of 1 runs had 'rye bread'" in capfd.readouterr().out
    assert main(["runs", "runs", "--query", "   "]) == 2
    assert "has no words" in capfd.readouterr().err


@pytest.mark.slow
def test_the_same_words_after_other_turns_are_queries_of_their_own(
    job: Callable[..., str], capfd: pytest.CaptureFixture[str]
) -> None:
    log = {"query": ["how does it work"] * 4, "turns": ["a lighthouse", "A lighthouse", "a mill", None]}
    night(job("said", log, log={"context_column": "turns"}), "one")
    looked = found("How does it work")
    assert sorted((one.context or "", one.log_count) for one in looked.had) == [("", 1), ("A lighthouse", 2), ("a mill", 1)]
    assert len(looked.newest) == 3
    capfd.readouterr()
    assert main(["runs", "runs", "--query", "how does it work"]) == 0
    assert "after earlier turns: a mill" in capfd.readouterr().out


@pytest.mark.slow
def test_filters_and_masks_are_said(job: Callable[..., str], tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    documents = {"doc_id": ["d1", "d2"], "text": ["a lamp", "a lens"], "tenant": ["north", "south"]}
    pq.write_table(pa.table(documents), "corpus.parquet")
    build_local_index(tmp_path / "index", "corpus.parquet", index_fields("english"))
    log = {"query": [QUERY, QUERY, MAIL], "shop": ["north", "south", "south"]}
    more = {"retrievers": {"bm25": {"kind": "local", "index": "index"}}, "filters": {"tenant": "shop"}}
    path = job("said", log, retrieve=more, rewrite={"guards": {"mask": ["mail"]}})
    night(path, "one")
    looked = found(QUERY)
    assert sorted(one.filters["tenant"] for one in looked.had) == ["north", "south"]
    (masked,) = found(MAIL).newest
    assert masked.masked
    capfd.readouterr()
    assert main(["runs", "runs", "--query", MAIL]) == 0
    said = capfd.readouterr().out
    assert "searched where tenant: south" in said
    assert "sent with placeholders for its personal data" in said


@pytest.mark.slow
def test_a_night_that_has_not_done_it_yet_is_no_source_of_rewrites(
    job: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    night(job("first", {"query": [QUERY]}), "one")
    path = job("second", {"query": [QUERY]})

    def broken(*_: Any) -> Any:
        raise MemoryError("no room")

    with monkeypatch.context() as patch:
        patch.setattr(Order, "__call__", broken)
        assert main(["run", path, "--label", "two"]) == 1
    looked = found(QUERY)
    assert [(one.night, one.committed) for one in looked.had] == [("one", True), ("two", False)]
    assert [one.had.night for one in looked.newest] == ["one"]


@pytest.mark.slow
def test_a_run_that_cannot_be_read_is_named(job: Callable[..., str], capfd: pytest.CaptureFixture[str]) -> None:
    night(job("said", {"query": [QUERY]}), "one")
    spoilt = night(job("said", {"query": [QUERY, "rye"]}), "two")
    (spoilt / "shards.json").write_text("{")
    looked = found(QUERY)
    assert [one.night for one in looked.had] == ["one"]
    assert list(looked.unread) == [spoilt.name]
    capfd.readouterr()
    assert main(["runs", "runs", "--query", QUERY]) == 0
    assert f"not looked through: {spoilt.name}" in capfd.readouterr().out


@pytest.mark.slow
def test_runs_on_s3_are_looked_through(
    job: Callable[..., str], s3: S3Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DMQR_CACHE", str(tmp_path / "cache"))
    output = s3.fresh("runs")
    prepared = prepared_job(job("said", {"query": [QUERY, "yeast", "rye"]}), f"output={output}", "label=one")
    run_in_process(prepared)
    looked = look_up(open_storage(output), "small", QUERY)
    assert [one.night for one in looked.had] == ["one"]
    assert [one["text"] for one in looked.newest[0].rewrites] == [f"said of {QUERY}"]
