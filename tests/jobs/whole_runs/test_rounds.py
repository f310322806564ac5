"""Further rounds of whole jobs in this process: which queries have one, what is asked and searched, and what comes of it."""

from __future__ import annotations

import io
import json
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from cluster.errors import ConfigError
from jobs.chain.stages.llm.iterate import Iterate
from jobs.chain.stages.retrieve import Retrieve
from jobs.config.load import load_config
from jobs.job.prepare import prepare
from jobs.log.judgements import Judgements
from jobs.plan.plan import plan
from jobs.runs.folder import RunFolder
from jobs.terminal.live_display import LiveDisplay
from jobs.tune.judged_lists import gather
from retrievers.local.build import build_local_index
from tests.support.jobs.in_process_runs import QUERIES, finished, job_in_process, prepared_work, rows
from tests.support.retrievers.blocks import index_fields
from tests.support.retrievers.fake_models import INFERENCE_FAILED, FakeModels
from tests.support.rewriters.fake_server import FakeServer

REFINED = {
    QUERIES[0]: "wild yeast makes sourdough rise", QUERIES[1]: "lens of a small lamp", QUERIES[2]: "spring tides full moon",
    QUERIES[3]: "moon pulls the sea", "yeast": "beer cousins", "zzz": "a mirror gathers faint light",
}  # fmt: skip
BELOW = 1.2


def said(body: dict[str, Any]) -> str:
    """Writes the refined query of a query; in a second round the same with one more word."""
    prompt = body["messages"][-1]["content"]
    query = prompt.rpartition("Query: ")[2]
    again = "" if "Tried before:\n(none)" in prompt else " galaxies"
    return json.dumps({"query": REFINED[query] + again})


@pytest.fixture
def server() -> Iterator[FakeServer]:
    with FakeServer(["refiner-8b"], text=said) as one:
        yield one


@pytest.fixture
def job(
    tmp_path: Path, values: dict[str, Any], bm25: dict[str, Any], config_file: Callable[[Any], str], server: FakeServer,
    monkeypatch: pytest.MonkeyPatch,
) -> str:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    engine = {"kind": "openai", "model": "refiner-8b", "base_url": server.address, "attempts": 1}
    values["iterate"] = {"by": "bm25", "below": BELOW, "documents": 2, "merge": "best", "engine": engine}
    return job_in_process(tmp_path, values, bm25, config_file)


def lists(run: RunFolder) -> dict[tuple[str, str, int], dict[str, float]]:
    """Query, strategy and position -> doc_id -> score of its list."""
    texts = {one["query_id"]: one["query"] for one in rows(run, "queries")}
    found: dict[tuple[str, str, int], dict[str, float]] = {}
    for one in rows(run, "runs"):
        found.setdefault((texts[one["query_id"]], one["strategy"], one["position"]), {})[one["doc_id"]] = one["score"]
    return found


def results(run: RunFolder, arm: str = "run") -> dict[str, list[str]]:
    texts = {one["query_id"]: one["query"] for one in rows(run, "queries")}
    found: dict[str, list[str]] = {}
    for one in sorted(rows(run, "results"), key=lambda one: one["rank"]):
        if one["arm"] == arm:
            found.setdefault(texts[one["query_id"]], []).append(one["doc_id"])
    return found


def asked(server: FakeServer) -> Counter[str]:
    prompts = [one["messages"][-1]["content"] for one in server.bodies]
    return Counter(prompt.rpartition("Query: ")[2] for prompt in prompts if "Tried before" in prompt)


@pytest.mark.slow
def test_queries_with_a_low_best_score_have_a_round(job: str, server: FakeServer) -> None:
    plain = finished(prepared_work(job, ["iterate=null", "name=plain"], None))
    best = {query: max(lists(plain).get((query, "original", 1), {"": 0.0}).values()) for query in QUERIES}
    low = {query for query in QUERIES if best[query] < BELOW}
    assert low, best
    assert low != set(QUERIES), best
    run = finished(prepared_work(job, [], None))
    assert asked(server) == Counter(low)
    texts = {one["query_id"]: one["query"] for one in rows(run, "queries")}
    found = {texts[one["query_id"]]: one for one in rows(run, "rounds")}
    assert found.keys() == low
    before, after, searched = results(plain), results(run), lists(run)
    for query, one in found.items():
        assert one["text"] == REFINED[query]
        assert one["best"] == (pytest.approx(best[query]) if best[query] else None)
        assert set(after[query]) == set(before.get(query, [])) | searched[query, "iterate", 1].keys()
        assert one["new"] == len(set(after[query]) - set(before.get(query, [])))
    for query in set(QUERIES) - low:
        assert after[query] == before[query]
    assert {one["stage"] for one in rows(run, "costs")} >= {"iterate", "retrieve"}
    assert not [one for one in rows(run, "errors") if one["stage"] == "iterate"]


@pytest.mark.slow
def test_the_best_of_both_rounds_is_that_of_the_fused_scores(job: str) -> None:
    """With one list a round, min-max fusion is arithmetic that a test can do by hand."""
    run = finished(prepared_work(job, ["fuse.redundancy=none", "rewrite.strategies=[]", "iterate.below=1e9"], None))
    searched = lists(run)
    for query, doc_ids in results(run).items():
        scaled: dict[str, float] = {}
        for strategy in ("original", "iterate"):
            found = searched.get((query, strategy, 1), {})
            low, high = min(found.values(), default=0.0), max(found.values(), default=0.0)
            for doc_id, score in found.items():
                value = (score - low) / (high - low) if high > low else 1.0
                scaled[doc_id] = max(scaled.get(doc_id, 0.0), value)
        assert doc_ids == sorted(scaled, key=lambda doc_id: (-round(scaled[doc_id], 9), doc_id))


@pytest.mark.slow
def test_rounds_end_where_the_best_score_is_reached(job: str, server: FakeServer) -> None:
    run = finished(prepared_work(job, ["iterate.rounds=3"], None))
    texts = {one["query_id"]: one["query"] for one in rows(run, "queries")}
    searched, expected = lists(run), Counter[str]()
    for query in QUERIES:
        best = max(searched.get((query, "original", 1), {"": 0.0}).values())
        number = 1
        while best < BELOW and number <= 3:
            expected[query] += 1
            best = max(best, *searched.get((query, "iterate", number), {"": 0.0}).values())
            number += 1
            if number == 4 or (number == 3 and best < BELOW):  # the third query would be the second again
                expected[query] += best < BELOW and number == 3
                break
    assert asked(server) == expected
    repeated = [texts[one["query_id"]] for one in rows(run, "errors") if one["reason"] == "repeated_query"]
    assert set(repeated) == {query for query, n in expected.items() if n == 3}
    assert len(rows(run, "rounds")) == expected.total() - len(repeated)


@pytest.mark.slow
def test_a_second_run_asks_nothing_and_an_arm_is_its_run(job: str, server: FakeServer) -> None:
    arms = {
        "two": {"iterate.rounds": 2}, "fused": {"iterate.merge": "fuse"}, "never": {"iterate.below": -1.0},
        "rrf": {"fuse.method": "rrf"},
    }  # fmt: skip
    ablation = finished(prepared_work(job, [], {"arms": arms}))
    sent = len(server.bodies)
    for arm, changes in {"full": {}, "general": {"fuse.weights.original": 0}, **arms}.items():
        settings = [f"{key}={value}" for key, value in changes.items()]
        alone = finished(prepared_work(job, [*settings, "name=alone"], None))
        assert results(alone) == results(ablation, arm), arm
        of_arm = [one for one in rows(ablation, "rounds") if one["arm"] == arm]
        own = rows(alone, "rounds")
        assert sorted(repr(one | {"arm": ""}) for one in of_arm) == sorted(repr(one | {"arm": ""}) for one in own), arm
    prompts = [one["messages"][-1]["content"] for one in server.bodies[sent:]]
    assert not [prompt for prompt in prompts if "Tried before" in prompt]


@pytest.mark.slow
def test_rounds_by_the_reranker(job: str, tmp_path: Path, server: FakeServer) -> None:
    from tests.support.retrievers.tiny_reranker import make_reranker

    make_reranker(tmp_path / "reranker", ["yeast and bread", "moon and tides"])
    rerank = [
        "rerank.max_length=128",
        "rerank.kind=cross_encoder",
        f"rerank.model={tmp_path / 'reranker'}",
        "iterate.by=rerank",
    ]
    plain = finished(prepared_work(job, ["iterate=null", "name=plain", *rerank[:3]], None))
    texts = {one["query_id"]: one["query"] for one in rows(plain, "queries")}
    best: dict[str, float] = {}
    for one in rows(plain, "scores"):
        best[texts[one["query_id"]]] = max(best.get(texts[one["query_id"]], -1e9), one["score"])
    below = sorted(best.values())[len(best) // 2]
    run = finished(prepared_work(job, [*rerank, f"iterate.below={below!r}"], None))
    low = {query for query in QUERIES if best.get(query, -1e9) < below}
    assert asked(server) == Counter(low)
    pairs = [(one["query_id"], one["doc_id"]) for one in rows(run, "scores")]
    assert len(pairs) == len(set(pairs))
    shown = results(run)
    scored = {(texts[one["query_id"]], one["doc_id"]) for one in rows(run, "scores")}
    assert all((query, doc_id) in scored for query, doc_ids in shown.items() for doc_id in doc_ids)


def overlap(query: str, texts: Sequence[str]) -> list[float]:
    """The reranker of the tests below: words in common, and the longer text first."""
    return [sum(word in text.lower() for word in query.split()) + len(text) / 1000 for text in texts]


@pytest.fixture
def reranker() -> Iterator[FakeModels]:
    with FakeModels("tei", score=overlap) as one:
        yield one


def reranked(server: FakeModels, **more: Any) -> list[str]:
    return [f"rerank={json.dumps({'kind': 'server', 'model': server.model, 'base_url': server.address} | more)}"]


@pytest.mark.slow
@pytest.mark.parametrize("by", ["bm25", "rerank"])
def test_arms_are_their_runs_also_where_measures_read_further_than_candidates(job: str, reranker: FakeModels, by: str) -> None:
    """What stands behind an arm's candidates, and what the reranker scored for other arms, is none of its rounds."""
    low = 1.2 if by == "bm25" else 2.05
    settings = [*reranked(reranker, keep=2), "fuse.keep=2", "iterate.merge=fuse", f"iterate.by={by}", f"iterate.below={low}"]
    arms = {"deep": {"fuse.keep": 8, "rerank.keep": 8}, "best": {"iterate.merge": "best"}, "twice": {"iterate.rounds": 2},
            "by need": {"fuse.keep": 8, "iterate.rounds": 2, "rerank.budget": {"settled": 1, "step": 1}},
            "few": {"fuse.keep": 8, "rerank.budget": {"pairs": 3}}, "as found": {"rerank.kind": "none"}}  # fmt: skip
    arms = {name: changes for name, changes in arms.items() if by == "bm25" or name != "as found"}
    ablation = finished(prepared_work(job, settings, {"arms": arms, "keep": 20}))
    for arm, changes in {"full": {}, **arms}.items():
        own = [f"{key}={value}" for key, value in changes.items()]
        alone = finished(prepared_work(job, [*settings, *own, "name=alone"], None))
        assert results(alone) == results(ablation, arm), arm
        of_arm = [one | {"arm": ""} for one in rows(ablation, "rounds") if one["arm"] == arm]
        assert sorted(map(repr, of_arm)) == sorted(repr(one | {"arm": ""}) for one in rows(alone, "rounds")), arm
    assert {one["arm"] for one in rows(ablation, "rounds")} == {"full", "general", "original", *arms}


@pytest.mark.slow
def test_a_query_on_which_the_reranker_failed_stays_as_it_was_fused(job: str, server: FakeServer, reranker: FakeModels) -> None:
    failed = QUERIES[2]
    plain = finished(prepared_work(job, ["iterate=null", "name=plain", "store=null"], None))
    reranker.fail(failed, INFERENCE_FAILED)
    settings = [*reranked(reranker, attempts=1), "store=null", "iterate.below=1e9"]
    run = finished(prepared_work(job, [*settings, "iterate.by=rerank", "name=one"], None))
    assert asked(server) == Counter(set(QUERIES) - {failed})  # its best score is not known
    assert results(run)[failed] == results(plain)[failed]
    run = finished(prepared_work(job, [*settings, "name=two"], None))
    assert asked(server)[failed] == 1
    texts = {one["query_id"]: one["query"] for one in rows(run, "queries")}
    own = [one for one in rows(run, "results") if texts[one["query_id"]] == failed]
    assert {one["rerank_score"] for one in own} == {None}
    assert [one["score"] for one in sorted(own, key=lambda one: one["rank"])] == sorted(
        (one["score"] for one in own), reverse=True
    )


@pytest.mark.slow
def test_the_best_score_of_a_list_that_is_not_fused_ends_the_rounds(
    job: str, server: FakeServer, bm25: dict[str, Any], served_dense: dict[str, Any]
) -> None:
    retrievers = [f"retrieve.retrievers={json.dumps({'bm25': bm25, 'dense': served_dense})}", "iterate.rounds=3"]
    finished(prepared_work(job, [*retrievers, "name=fused", "store=null"], None))
    sent = asked(server)
    assert min(sent.values()) < 3
    run = finished(prepared_work(job, [*retrievers, "fuse.retriever_weights={bm25: 0}", "store=null"], None))
    assert asked(server) - sent == sent
    assert {source["retriever"] for one in rows(run, "results") for source in one["sources"]} == {"dense"}


@pytest.mark.slow
def test_what_was_found_before_is_dropped_where_a_better_document_has_its_text(
    job: str, tmp_path: Path, server: FakeServer
) -> None:
    """Passages that begin alike are one; the rounds find different ones of them."""
    texts = {
        "a1": "Tides and harbours: the moon pulls the sea", "a2": "Tides and harbours: spring with the full moon",
        "b1": "Bread and yeast: sourdough rises", "b2": "Bread and yeast: why wild ones make it rise",
    }  # fmt: skip
    pq.write_table(pa.table({"doc_id": list(texts), "text": list(texts.values())}), tmp_path / "twins.parquet")
    build_local_index(tmp_path / "twins", tmp_path / "twins.parquet", index_fields("english"))
    settings = ["retrieve.retrievers.bm25.index=twins", "iterate.below=1e9", "rewrite.strategies=[]", "iterate.documents=1"]
    both = finished(prepared_work(job, [*settings, "name=both"], None))
    run = finished(prepared_work(job, [*settings, "fuse.duplicates=drop", "fuse.duplicate_chars=10"], None))
    dropped = 0
    for query, doc_ids in results(run).items():
        kept = list({doc_id[0]: doc_id for doc_id in reversed(results(both)[query])}.values())[::-1]
        assert sorted(doc_id[0] for doc_id in doc_ids) == sorted(doc_id[0] for doc_id in kept), query
        dropped += len(results(both)[query]) - len(doc_ids)
    assert dropped > 0
    found = lists(run)
    first = {query: max(found.get((query, "original", 1), {"": 0}).items(), key=lambda one: one[1])[0] for query in QUERIES}
    again = {query: max(found.get((query, "iterate", 1), {"": 0}).items(), key=lambda one: one[1])[0] for query in QUERIES}
    assert any(first[query] and again[query] and first[query] != again[query] and first[query][0] == again[query][0]
               for query in QUERIES)  # fmt: skip


@pytest.mark.slow
def test_one_block_of_a_worker_searches_at_a_time(job: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Several are under way while they wait for the LLM; models and their tokenizers bear one thread."""
    built, blocks = list[dict[str, Any]](), list[pa.Table]()
    start, call, search = Iterate.__init__, Iterate.__call__, Retrieve.__call__

    def begun(self: Iterate, **settings: Any) -> None:
        built.append(settings)
        start(self, **settings)

    def called(self: Iterate, table: pa.Table) -> pa.Table:
        blocks.append(table)
        return call(self, table)

    with monkeypatch.context() as patch:
        patch.setattr(Iterate, "__init__", begun)
        patch.setattr(Iterate, "__call__", called)
        finished(prepared_work(job, ["iterate.below=1e9", "store=null"], None))
    now, most, lock = Counter[str](), list[int](), threading.Lock()

    def slow(self: Retrieve, table: pa.Table) -> pa.Table:
        with lock:
            now["searching"] += 1
            most.append(now["searching"])
        time.sleep(0.05)
        found = search(self, table)
        with lock:
            now["searching"] -= 1
        return found

    monkeypatch.setattr(Retrieve, "__call__", slow)
    worker = Iterate(**built[0])
    with ThreadPoolExecutor(len(blocks)) as threads:
        made = list(threads.map(worker, blocks))
    worker.close()
    assert len(blocks) == 2
    assert most == [1, 1]
    assert all(table.num_rows == len(QUERIES) // 2 for table in made)


@pytest.mark.slow
def test_a_plan_counts_the_searches_and_pairs_of_rounds(job: str, reranker: FakeModels) -> None:
    def left(*settings: str) -> dict[str, Any]:
        path_settings = [*reranked(reranker), *settings]
        return dict(plan(prepare(load_config(job, path_settings), job), LiveDisplay(io.StringIO()))["left"])

    without, once, thrice = left("iterate=null"), left(), left("iterate.rounds=3")
    for kind, more in (("searches", 1), ("pairs", 50)):
        assert once[kind] - without[kind] == more * len(QUERIES), kind
        assert thrice[kind] - without[kind] == 3 * more * len(QUERIES), kind
    assert (without["rounds"], once["rounds"], thrice["rounds"]) == (0, len(QUERIES), 3 * len(QUERIES))


@pytest.mark.slow
def test_tune_learns_from_the_lists_before_the_rounds(job: str) -> None:
    plain = finished(prepared_work(job, ["iterate=null", "name=plain"], None))
    run = finished(prepared_work(job, [], None))
    assert rows(run, "rounds")
    grades = {one["query_id"]: {"d02": 1} for one in rows(run, "queries")}
    judgements = Judgements("qrels.tsv", grades, "query_id")
    gathered = [gather(one, judgements, None, "no vectors", 0) for one in (plain, run)]
    assert gathered[0].strategies == gathered[1].strategies == ["general"]
    assert [one.hits.doc_ids.to_pylist() for one in gathered[0].blocks] == [
        one.hits.doc_ids.to_pylist() for one in gathered[1].blocks
    ]
    assert not gathered[0].notes
    assert "refined queries" in gathered[1].notes[0]


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        (["iterate.by=bm52"], "iterate.by: no retriever 'bm52'; did you mean 'bm25'"),
        (["iterate.by=rerank"], "rerank.kind is none"),
        (["retrieve.retrievers.bm25.together=true"], "has no list of the original alone"),
        (["retrieve.routes={iterate: []}"], "retrieve.routes.iterate is empty"),
    ],
)
def test_a_score_that_there_is_not_is_refused(job: str, settings: list[str], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        prepared_work(job, settings, None)


def test_rounds_that_no_score_would_end_are_refused(job: str, bm25: dict[str, Any], served_dense: dict[str, Any]) -> None:
    retrievers = f"retrieve.retrievers={json.dumps({'bm25': bm25, 'dense': served_dense})}"
    settings = [retrievers, "retrieve.routes={iterate: [dense]}"]
    with pytest.raises(ConfigError, match="bm25 does not search refined queries"):
        prepared_work(job, [*settings, "iterate.rounds=2"], None)
    assert rows(finished(prepared_work(job, settings, None)), "rounds")
