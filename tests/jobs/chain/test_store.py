"""Jobs that share a store: nothing is asked, searched or scored twice, and every job holds all that is its own."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from cluster.errors import ClusterError, Stopped
from jobs.chain.store.files import StoreFiles
from jobs.config.load import load_config
from jobs.runs.folder import open_run
from jobs.try_one.trial import LoadedConfig
from retrievers.local.build import build_local_index
from tests.support.jobs.in_process_runs import run_in_process
from tests.support.jobs.nights import NEW, QUERIES, Nights, kinds, log, results, totals
from tests.support.jobs.run_folders import page
from tests.support.jobs.whole_runs import rows
from tests.support.retrievers.blocks import index_fields
from tests.support.rewriters.fake_server import FakeServer, Reply, completion, refusal

EMPTY = Reply(content=json.dumps(completion("")).encode(), headers={"Content-Type": "application/json"})


@pytest.mark.slow
def test_scores_outlive_an_index(nights: Nights, corpus: Path) -> None:
    """A new index of the same documents under other names, and one more: only its pairs are scored."""
    first, _, scored = nights.run("one")
    table = pq.read_table(corpus)
    ids = [f"new {one}" for one in table.column("doc_id").to_pylist()]
    more = {name: [""] for name in table.column_names} | {
        "doc_id": ["d09"],
        "text": ["A lamp of the harbours shines at spring tide."],
    }
    table = table.set_column(table.column_names.index("doc_id"), "doc_id", pa.array(ids))
    pq.write_table(pa.concat_tables([table, pa.table(more, schema=table.schema)]), "more.parquet")
    build_local_index(Path("more"), Path("more.parquet"), index_fields("english"))
    second, sent, paid = nights.run("two", "retrieve.retrievers.bm25.index=more")
    assert sent == 0
    pairs = rows(second, "scores")
    assert 0 < paid == sum(one["doc_id"] == "d09" for one in pairs) < len(pairs)
    known = {(one["query_id"], f"new {one['doc_id']}"): one["score"] for one in rows(first, "scores")}
    assert scored == sum(known.get((one["query_id"], one["doc_id"])) == one["score"] for one in pairs)


@pytest.mark.slow
def test_try_takes_what_a_night_was_answered(nights: Nights) -> None:
    first = nights.run("one")[0]
    config = load_config(nights.path)
    with LoadedConfig(config, nights.path, "config") as loaded:
        loaded.load(lambda _: None)
        nights.forget()
        trial = loaded.try_query(QUERIES[0], lambda _: None)
        assert nights.paid() == (0, 0)
        (told,) = trial.requests
        assert told["prompt"]
        assert "about" in told["answer"]
        loaded.try_query(NEW, lambda _: None)
        assert nights.paid()[0] == 1
    log([*QUERIES, NEW])
    assert nights.run("two")[1:] == (0, 0)
    assert first.is_dir()


@pytest.mark.slow
@pytest.mark.parametrize("fault", [refusal(400, "no"), EMPTY])
def test_what_failed_is_asked_again(nights: Nights, llm: FakeServer, fault: Reply) -> None:
    llm.answer = lambda body: fault if QUERIES[0] in json.dumps(body) else None
    first = nights.run("one")[0]
    assert len(rows(first, "errors")) == 1
    llm.answer = lambda _: None
    second, sent, _ = nights.run("two")
    assert sent == 1
    assert not rows(second, "errors")


@pytest.mark.slow
def test_a_resumed_night_has_the_costs_of_a_whole_one(nights: Nights, monkeypatch: pytest.MonkeyPatch) -> None:
    nights.run("one")
    log([*QUERIES, NEW])
    whole = nights.run("whole", "store=other")[0]
    assert totals(whole, "requests")["rewrite"] == 7
    stopped = nights.job("resumed")
    monkeypatch.setattr("jobs.chain.stages.retrieve.Retrieve.__call__", _broken)
    with pytest.raises(Stopped):
        run_in_process(stopped)
    monkeypatch.undo()
    monkeypatch.chdir(whole.parent.parent)
    folder, sent, _ = nights.counted(nights.job("resumed"))
    assert sent == 0
    assert totals(folder, "requests")["rewrite"] == 1  # of the stopped start
    assert totals(folder, "reused")["rewrite"] == 6
    assert results(folder) == results(whole)


def _broken(*_: Any) -> Any:
    raise ClusterError("storage-refused", "the disk is gone")


@pytest.mark.slow
def test_what_is_kept_and_where(nights: Nights, tmp_path: Path) -> None:
    folder = nights.run("one", "store=null")[0]
    assert nights.run("two", "store=null")[1] == 6
    nights.run("three", "store=elsewhere", "retrieve.store=true")
    assert kinds(Path("elsewhere")) == {"completions": 2, "lists": 2, "scores": 2}
    assert len(list(Path("elsewhere/v1/used").glob("*/*"))) == 3
    answers = [{"query": query, "completions": {"dmqr": json.dumps({"general": f"about {query}"})}} for query in QUERIES]
    Path("recorded.jsonl").write_text("".join(json.dumps(answer) + "\n" for answer in answers))
    nights.run("four", 'rewrite.engine={"kind": "recorded", "path": "recorded.jsonl"}', "rerank.kind=none")
    assert not (folder.parent / "store").exists()
    nights.run("five")
    assert kinds(folder.parent / "store") == {"completions": 2, "scores": 2}  # no lists of a local BM25 index
    assert nights.job("six").open_store().root == str(tmp_path / "runs" / "store")  # wherever a worker's folder is


@pytest.mark.slow
def test_a_file_that_was_merged_since_is_looked_for_once_more(nights: Nights, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = nights.run("one")[0]
    rows_of = StoreFiles.rows

    def merged(self: StoreFiles, space: Any, schema: Any, query_ids: Any) -> Any:
        for file in (Path(self.root) / space.folder).glob("*.parquet"):
            file.rename(file.with_name(file.name.replace(".parquet", "0.parquet")))
        return rows_of(self, space, schema, query_ids)

    monkeypatch.setattr(StoreFiles, "rows", merged)
    assert nights.run("two")[1:] == (0, 0)
    assert folder.is_dir()


@pytest.mark.slow
@pytest.mark.parametrize("damage", [lambda data: b"PAR1", lambda data: data[:40] + b"\0" * 40 + data[80:]])
def test_a_damaged_file_is_named(nights: Nights, damage: Callable[[bytes], bytes]) -> None:
    folder = nights.run("one")[0]
    for file in (folder.parent / "store").glob("v1/completions/*/*.parquet"):
        file.write_bytes(damage(file.read_bytes()))
    with pytest.raises((ClusterError, Stopped), match=r"is damaged .*; remove it, its rows are made again"):
        nights.run("two")


def test_an_unfinished_run_of_before_is_refused(nights: Nights, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr("jobs.chain.stages.retrieve.Retrieve.__call__", _broken)
        with pytest.raises(Stopped):
            nights.run("one")
    (plan,) = Path("runs").glob("small-one-*/shards.json")
    body = json.loads(plan.read_text())
    del body["version"]
    plan.write_text(json.dumps(body))
    with pytest.raises(ClusterError, match="was begun by another version of dmqr, and is not finished; start another run"):
        nights.run("one")


def test_try_does_without_a_store_that_cannot_be_written(nights: Nights) -> None:
    Path("taken").write_text("a file")
    with LoadedConfig(load_config(nights.path, ["store=taken/store"]), nights.path, "config") as loaded:
        assert any("cannot write to taken/store" in one and "nothing is taken from the store" in one for one in loaded.warnings)
        assert loaded.try_query(QUERIES[0], lambda _: None).row["hits"]


@pytest.mark.slow
def test_what_is_taken_from_the_store_has_no_seconds_and_is_shown(nights: Nights) -> None:
    first = nights.run("one")[0]
    log([*QUERIES, NEW])
    second = nights.run("two")[0]
    hits = [one for one in rows(second, "costs") if one["reused"] and not one["requests"] + one["pairs"] + one["searches"]]
    assert {one["stage"] for one in hits} == {"rewrite", "rerank"}
    assert {(one["seconds"], one["latency"]) for one in hits} == {(0.0, None)}
    scores, answers = (sum(one["reused"] for one in hits if one["stage"] == stage) for stage in ("rerank", "rewrite"))
    assert scores == len(rows(first, "scores"))
    assert f"{scores + answers} answers, lists and scores came from the store" in page(open_run(str(second))).sections["cost"]
