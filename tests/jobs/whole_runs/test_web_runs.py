"""Whole jobs that search the web, against a search engine and a reranker at the wire: rows, calls, kills, arms, pages."""

from __future__ import annotations

import io
import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from rich.console import Console

from cluster.errors import ConfigError, DmqrError, Stopped
from jobs.__main__ import main
from jobs.config.load import load_config
from jobs.job.prepare import prepare
from jobs.log.judgements import read_qrels
from jobs.measure.unknown import unknown_documents
from jobs.pages.report import report
from jobs.pages.try_one import page as try_page
from jobs.plan.plan import plan
from jobs.run.ablation import prepare_ablation
from jobs.runs.folder import open_run
from jobs.terminal.live_display import LiveDisplay
from jobs.try_one.stages import LoadedConfig
from jobs.try_one.trial import trial_values
from jobs.tune.tune import tune
from retrievers.web.hits import document_id
from tests.support.jobs.in_process_runs import prepared_job, run_in_process
from tests.support.jobs.whole_runs import ROOT, rows
from tests.support.retrievers.fake_models import OVERLOADED, FakeModels
from tests.support.retrievers.web_server import PAGES, WebServer
from tests.support.rewriters.fake_server import FakeServer

QUERIES = {
    "why does bread rise": "bread yeast gas",
    "lamp of a lighthouse": "lighthouse light",
    "moon and tides": "spring tide sea",
    "yeast of beer": "beer yeast",
    "faint galaxies": "telescopes galaxies",
    "zzz": "qqq",
}
TEXTS = [*QUERIES, *QUERIES.values()]
WEB = "retrieve.retrievers.web"
Row = dict[str, Any]


def score(query: str, texts: Sequence[str]) -> list[float]:
    return [len(set(query.split()) & set(text.lower().split())) - len(text) / 1000 for text in texts]


@pytest.fixture(autouse=True)
def short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WEB_KEY", "a-secret")
    for pause in ("FIRST_PAUSE", "LONGEST_PAUSE"):
        monkeypatch.setattr(f"cluster.outages.{pause}", 0.02)


@pytest.fixture(params=["tavily"])
def server(request: pytest.FixtureRequest) -> Iterator[WebServer]:
    with WebServer(request.param, key=None if request.param == "searxng" else "a-secret") as fake:
        yield fake


@pytest.fixture
def reranker() -> Iterator[FakeModels]:
    with FakeModels("vllm", "reranker", score=score) as fake:
        yield fake


@pytest.fixture
def path(
    tmp_path: Path, values: dict[str, Any], bm25: dict[str, Any], server: WebServer, reranker: FakeModels,
    config_file: Callable[[Any], str], monkeypatch: pytest.MonkeyPatch,
) -> str:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    pq.write_table(pa.table({"query": list(QUERIES)}), "log.parquet")
    lines = [{"query": query, "completions": {"general": text}} for query, text in QUERIES.items()]
    (tmp_path / "recorded.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    values["rewrite"] |= {"strategies": ["general"], "calls": "separate"}
    values["retrieve"] |= {"retrievers": {"bm25": bm25, "web": server.block(attempts=2, patience_minutes=0.02)}}
    values["rerank"] = {"kind": "server", "model": "reranker", "base_url": reranker.address, "keep": 5, "combine": "replace",
                        "attempts": 2, "patience_minutes": 0.02}  # fmt: skip
    values |= {"limits": {"error_rate": 1}, "cluster": {"address": "none", "shard_size": 3}}
    return config_file(values)


def done(path: str, *settings: str) -> Path:
    return run_in_process(prepared_job(path, *settings))


def texts_of(folder: Path) -> dict[str, list[str]]:
    """query_id -> its query and its rewrite."""
    asked = {row["query_id"]: [row["query"]] for row in rows(folder, "queries")}
    for row in rows(folder, "rewrites"):
        asked[row["query_id"]].append(row["text"])
    return asked


def pages_of(server: WebServer, query_id: str, texts: Sequence[str]) -> dict[tuple[str, str], Row]:
    """(searched text, doc_id) -> the row of web/ that a query must have."""
    return {
        (text, str(document_id(url))): {
            "query_id": query_id, "arm": "run", "retriever": "web", "searched": text, "rank": rank, "doc_id": document_id(url),
            "url": url, "title": title, "text": said,
        }
        for text in texts for rank, (url, title, said) in enumerate(server.found(text), start=1)
    }  # fmt: skip


@pytest.mark.parametrize(
    "server", ["tavily", *(pytest.param(form, marks=pytest.mark.slow) for form in ("searxng", "brave"))], indirect=True
)
def test_a_run_has_the_pages_that_were_found_and_reranks_their_texts(
    path: str, server: WebServer, reranker: FakeModels, passages: dict[str, str]
) -> None:
    folder = done(path)
    assert sorted(server.texts) == sorted(TEXTS)
    asked = texts_of(folder)
    wanted = [row for query_id, texts in asked.items() for row in pages_of(server, query_id, texts).values()]
    key = lambda row: (row["query_id"], row["searched"], row["rank"])  # noqa: E731
    assert sorted(rows(folder, "web"), key=key) == sorted(wanted, key=key)
    lists = [row for row in rows(folder, "runs") if row["retriever"] == "web"]
    assert {(row["query_id"], row["doc_id"]) for row in lists} == {(row["query_id"], row["doc_id"]) for row in wanted}
    scored = {(row["query_id"], row["doc_id"]): row["score"] for row in rows(folder, "scores")}
    of_the_web = 0
    for (query_id, doc_id), value in scored.items():
        query, rewrite = asked[query_id]
        text = passages.get(doc_id)
        if text is None:  # what was said of it where the original was searched, else where the rewrite was
            known = {**pages_of(server, query_id, [rewrite]), **pages_of(server, query_id, [query])}
            said = next(known[at, doc_id] for at in (query, rewrite) if (at, doc_id) in known)
            text, of_the_web = f"{said['title']}. {said['text']}", of_the_web + 1
        assert value == pytest.approx(score(query, [text])[0], abs=1e-3)
    assert of_the_web >= 5
    assert any(row["doc_id"].startswith("web:") for row in rows(folder, "results"))
    assert not [row for row in rows(folder, "errors") if row["reason"] != "no_hits"]
    spent = [row for row in rows(folder, "costs") if row["component"] == "web" and row["query_id"]]
    assert sum(row["searches"] for row in spent) == sum(row["requests"] for row in spent) == len(server.texts)
    assert {(row["model"], row["provider"], row["stage"]) for row in spent} == {(server.form, "127.0.0.1", "retrieve")}


def refined(query: str) -> str:
    return f"{query} sea light"


@pytest.fixture
def refiner() -> Iterator[FakeServer]:
    def said(body: Row) -> str:
        return json.dumps({"query": refined(body["messages"][-1]["content"].rpartition("Query: ")[2])})

    with FakeServer(["refiner-8b"], text=said) as fake:
        yield fake


def rounds(refiner: FakeServer, **more: Any) -> str:
    engine = {"kind": "openai", "model": "refiner-8b", "base_url": refiner.address, "attempts": 1}
    return f"iterate={json.dumps({'by': 'bm25', 'below': 1.2, 'documents': 3, 'engine': engine} | more)}"


def ranked(folder: Path) -> dict[str, list[str]]:
    words = {row["query_id"]: row["query"] for row in rows(folder, "queries")}
    found: dict[str, list[str]] = {query: [] for query in words.values()}
    for row in sorted(rows(folder, "results"), key=lambda row: row["rank"]):
        found[words[row["query_id"]]].append(row["doc_id"])
    return found


@pytest.mark.slow
def test_rounds_search_the_web(path: str, server: WebServer, refiner: FakeServer, passages: dict[str, str]) -> None:
    """A round is what a run finds that asks the refined queries themselves, and both rankings are fused by RRF."""
    no_reranker = ["rerank={kind: none}", "fuse.redundancy=none"]
    pq.write_table(pa.table({"query": [refined(query) for query in QUERIES]}), "refined.parquet")
    plain = done(path, *no_reranker, "name=plain", "store=null")
    own = ["log.path=refined.parquet", "rewrite.strategies=[]", "name=refined", "store=null"]
    first, again = ranked(plain), ranked(done(path, *no_reranker, *own))
    best = dict.fromkeys(QUERIES, 0.0)
    words = {query_id: texts[0] for query_id, texts in texts_of(plain).items()}
    for row in rows(plain, "runs"):
        if (row["strategy"], row["retriever"]) == ("original", "bm25"):
            best[words[row["query_id"]]] = max(best[words[row["query_id"]]], row["score"])
    half = sorted(best.values())[len(best) // 2]
    by_half = rounds(refiner, documents=8, below=half)
    server.texts.clear()
    folder = done(path, *no_reranker, by_half)
    prompts = {prompt.rpartition("Query: ")[2]: prompt for prompt in (one["messages"][-1]["content"] for one in refiner.bodies)}
    low = prompts.keys()
    assert low == {query for query in QUERIES if best[query] < half}
    assert sorted(server.texts) == sorted([*TEXTS, *map(refined, low)])
    asked = texts_of(folder)
    query_ids = {texts[0]: query_id for query_id, texts in asked.items()}
    shown_pages = 0
    for query in QUERIES:
        scores: dict[str, float] = {}
        for part in (first[query], again[refined(query)] if query in low else []):
            for rank, doc_id in enumerate(part, start=1):
                scores[doc_id] = scores.get(doc_id, 0.0) + 1 / (60 + rank)
        wanted = sorted(scores, key=lambda doc_id: (-scores[doc_id], doc_id)) if query in low else first[query]
        assert ranked(folder)[query] == wanted, query
        pages = pages_of(server, query_ids[query], [*asked[query_ids[query]]][::-1])
        for doc_id in first[query][:8] if query in low else ():
            if doc_id in passages:
                assert passages[doc_id] in prompts[query]
                continue
            said = next(pages[text, doc_id] for text in asked[query_ids[query]] if (text, doc_id) in pages)
            assert f"{said['title']}. {said['text']}" in prompts[query]
            assert said["url"] in prompts[query]
            shown_pages += 1
    assert shown_pages
    found = {(row["query_id"], row["searched"]) for row in rows(folder, "web")}
    assert found >= {(query_ids[query], refined(query)) for query in low if server.found(refined(query))}
    server.texts.clear()
    sent = len(refiner.bodies)
    assert ranked(done(path, *no_reranker, by_half, "label=again")) == ranked(folder)
    assert (server.texts, len(refiner.bodies)) == ([], sent)


@pytest.mark.slow
def test_pages_of_rounds_are_reranked_by_the_text_that_came_first(
    path: str, server: WebServer, refiner: FakeServer, reranker: FakeModels, passages: dict[str, str]
) -> None:
    settings = [rounds(refiner, by="rerank", below=1.5, rounds=2), "store=null"]
    folder = done(path, *settings)
    asked, of_rounds = texts_of(folder), defaultdict(list)
    for row in sorted(rows(folder, "rounds"), key=lambda row: row["round"]):
        of_rounds[row["query_id"]].append(row["text"])
    pairs = [(row["query_id"], row["doc_id"]) for row in rows(folder, "scores")]
    assert len(pairs) == len(set(pairs))
    later = 0
    for row in rows(folder, "scores"):
        texts = [*asked[row["query_id"]], *of_rounds[row["query_id"]]]
        text = passages.get(row["doc_id"])
        if text is None:
            pages = pages_of(server, row["query_id"], texts)
            at, said = next((at, pages[at, row["doc_id"]]) for at in texts if (at, row["doc_id"]) in pages)
            text, later = f"{said['title']}. {said['text']}", later + (at in of_rounds[row["query_id"]])
        assert row["score"] == pytest.approx(score(texts[0], [text])[0], abs=1e-3)
    assert later
    words = {texts[0]: query_id for query_id, texts in asked.items()}
    assert {(words[query], doc_id) for query, ids in ranked(folder).items() for doc_id in ids} <= set(pairs)
    arms = {"once": {"iterate.rounds": 1}, "fewer": {"fuse.keep": 5}, "alone": {"rewrite.strategies": []}}
    ablation = run_in_process(
        prepare_ablation(load_config(path, [*settings, f"ablate={json.dumps({'arms': arms, 'keep': 20})}"]), path)
    )
    for arm, changes in {"full": {}, **arms}.items():
        alone = done(path, *settings, *(f"{key}={value}" for key, value in changes.items()), "label=alone")
        columns = ("query_id", "rank", "doc_id", "score", "rerank_score")
        of_arm = sorted(tuple(row[name] for name in columns) for row in rows(ablation, "results") if row["arm"] == arm)
        assert of_arm == sorted(tuple(row[name] for name in columns) for row in rows(alone, "results")), arm


@pytest.mark.slow
def test_a_second_run_asks_nothing(path: str, server: WebServer) -> None:
    first = done(path, "label=one")
    server.texts.clear()
    second = done(path, "label=two")
    assert server.texts == []
    assert rows(second, "web") == rows(first, "web")
    assert rows(second, "results") == rows(first, "results")
    spent = [row for row in rows(second, "costs") if row["component"] == "web"]
    assert (sum(row["searches"] for row in spent), sum(row["reused"] for row in spent)) == (0, len(TEXTS))
    done(path, "label=six", f"{WEB}.results=3")  # another question
    assert sorted(server.texts) == sorted(TEXTS)


@pytest.mark.slow
def test_an_answer_is_found_under_every_query_that_asked_it(path: str, server: WebServer) -> None:
    """Of two queries of a shard with one rewrite the second may be in another shard of the next night, or be alone there."""
    lines = [{"query": query, "completions": {"general": "bread yeast gas"}} for query in QUERIES]
    Path("recorded.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    done(path, "label=one", "cluster.shard_size=6")
    assert Counter(server.texts)["bread yeast gas"] == 1
    for query in [*QUERIES][1:4]:
        pq.write_table(pa.table({"query": [query]}), "log.parquet")
        server.texts.clear()
        done(path, f"label={query.replace(' ', '-')}")
        assert server.texts == []


@pytest.mark.slow
@pytest.mark.parametrize(
    "faults", [{"500": "server_error", "html": "bad_answer", "400": "refused"}, {"503": "unavailable"}, {"429": "rate_limited"}]
)
def test_a_search_that_fails_is_an_error_row_and_the_next_run_asks_it_again(
    path: str, server: WebServer, faults: dict[str, str]
) -> None:
    queries = ["yeast of beer", "moon and tides", "lamp of a lighthouse"][: len(faults)]
    for query, fault in zip(queries, faults, strict=True):
        server.fail(QUERIES[query], fault)
    folder = done(path, "label=one", "cluster.shard_size=6")
    errors = [row for row in rows(folder, "errors") if row["reason"] != "no_hits"]
    ids = {row["query"]: row["query_id"] for row in rows(folder, "queries")}
    assert {(row["stage"], row["component"]) for row in errors} == {("retrieve", "web")}
    assert sorted((row["query_id"], row["reason"], row["raw"]) for row in errors) == sorted(
        (ids[query], reason, QUERIES[query]) for query, reason in zip(queries, faults.values(), strict=True)
    )
    for query in queries:
        lists = [row for row in rows(folder, "runs") if row["query_id"] == ids[query] and row["strategy"] == "general"]
        assert {row["retriever"] for row in lists} == {"bm25"}
        assert any(row["query_id"] == ids[query] for row in rows(folder, "results"))
        server.fail(QUERIES[query], "500", 0)
    server.texts.clear()
    again = done(path, "label=two", "cluster.shard_size=6")
    assert sorted(server.texts) == sorted(QUERIES[query] for query in queries)
    assert len(rows(again, "errors")) == len(rows(folder, "errors")) - len(errors)


def test_the_error_rate_counts_failed_searches_and_a_wrong_key_ends_the_run(path: str, server: WebServer) -> None:
    for text in TEXTS:
        server.fail(text, "400")
    with pytest.raises(Stopped, match="queries have errors"):
        done(path, "limits.error_rate=0.1", "label=one")
    server.key = "another"
    with pytest.raises(Stopped, match=r"web: tavily at .* refuses the key in WEB_KEY"):
        done(path, "label=two")


@pytest.mark.slow
@pytest.mark.parametrize("settings", [[], ["store=null"], ["retrieve.store=false"]])
def test_what_was_answered_before_a_run_stopped_is_not_asked_again_also_without_a_store(
    path: str, server: WebServer, reranker: FakeModels, settings: list[str]
) -> None:
    job = prepared_job(path, *settings)
    for query in QUERIES:
        reranker.fail(query, OVERLOADED)
    with pytest.raises(Stopped, match="no good answer"):
        run_in_process(job)
    for query in QUERIES:
        reranker.fail(query, OVERLOADED, 0)
    assert len(server.texts) == 6  # of the first shard
    folder = done(path, *settings)
    assert sorted(server.texts) == sorted(TEXTS)
    spent = [row for row in rows(folder, "costs") if row["component"] == "web"]
    assert (sum(row["searches"] for row in spent), sum(row["reused"] for row in spent)) == (len(TEXTS), 0)


@pytest.mark.slow
def test_a_run_that_was_killed_repeats_no_call_but_those_in_flight(path: str, server: WebServer, tmp_path: Path) -> None:
    """SIGKILL while a shard's searches are under way; then the same command."""
    server.seconds = 0.2
    command = [sys.executable, "-m", "jobs", "run", path, "--set", "cluster.shard_size=6", "--set", f"{WEB}.max_in_flight=2"]
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    killed = subprocess.Popen(command, cwd=tmp_path, env=environment, stderr=subprocess.PIPE, stdout=subprocess.PIPE)
    end = time.monotonic() + 300
    while sum(server.answered.values()) < 6 and time.monotonic() < end and killed.poll() is None:
        time.sleep(0.01)
    os.kill(killed.pid, signal.SIGKILL)
    killed.communicate()
    time.sleep(0.5)  # what was in flight is answered to nobody
    before = Counter(server.texts)
    assert 6 <= before.total() < len(TEXTS)
    server.seconds = 0.0
    folder = done(path, "cluster.shard_size=6", f"{WEB}.max_in_flight=2")
    twice = {text: count for text, count in Counter(server.texts).items() if count > 1}
    assert len(twice) <= 2, twice
    assert all(count == 2 for count in twice.values())
    assert set(server.texts) == set(TEXTS)
    spent = [row for row in rows(folder, "costs") if row["component"] == "web"]
    assert sum(row["searches"] for row in spent) == len(TEXTS)
    lost = [row for row in spent if row["error"] == "lost"]
    assert sum(row["requests"] for row in lost) == len(twice)
    assert sum(row["requests"] for row in spent) == len(server.texts)
    calm = done(path, "cluster.shard_size=6", "store=null", "label=calm")
    for table in ("web", "runs", "results", "scores"):
        assert rows(calm, table) == rows(folder, table)


ARMS = {
    "web of rewrites": {"retrieve.routes": {"original": ["bm25"], "general": ["web"]}},
    "not reranked": {"rerank.kind": "none"},
    "distinct": {"fuse.duplicates": "drop"},
}
MORE_ARMS = {
    "no web": {"retrieve.routes": {"original": ["bm25"], "general": ["bm25"]}},
    "web alone": {"retrieve.routes": {"original": ["web"], "general": ["web"]}},
    "no weight": {"fuse.weights": {"original": 0}},
}


def results(folder: Path, arm: str) -> dict[str, list[tuple[Any, ...]]]:
    found = defaultdict(list)
    for row in sorted(rows(folder, "results"), key=lambda row: row["rank"]):
        if row["arm"] == arm:
            scores = [None if row[name] is None else pytest.approx(row[name], abs=1e-6) for name in ("score", "rerank_score")]
            found[row["query_id"]].append((row["doc_id"], *scores))
    return found


@pytest.mark.slow
@pytest.mark.parametrize("arms", [ARMS, ARMS | MORE_ARMS])
def test_each_arm_of_an_ablation_is_what_a_run_of_it_alone_is_and_searches_are_shared(
    path: str, server: WebServer, arms: dict[str, Any]
) -> None:
    ablation = prepare_ablation(load_config(path, [f"ablate={json.dumps({'arms': arms, 'keep': 5})}", "store=null"]), path)
    folder = run_in_process(ablation)
    assert sorted(server.texts) == sorted(TEXTS)
    assert {row["arm"] for row in rows(folder, "web")} <= {arm.name for arm in ablation.compiled.arms}
    texts = set()
    for arm in ablation.compiled.arms:
        changes = [f"{key}={json.dumps(value)}" for key, value in arm.changes.items()]
        alone = done(path, *changes, f"label=alone-{len(texts)}", "store=null", "fuse.keep=50")
        wanted = {query_id: of[:5] for query_id, of in results(alone, "run").items()}
        assert results(folder, arm.name) == wanted, arm.name
        texts.add(arm.name)
    assert {"full", "original", "general", *arms} <= texts


def test_a_page_has_in_each_arm_the_text_that_a_run_of_it_alone_has(path: str) -> None:
    """Of one page a search engine says something else for each text: the arm of the rewrite alone has that of the rewrite."""
    settings = ["ablate={keep: 5}", "store=null", "retrieve.routes={original: [bm25]}"]
    ablation = prepare_ablation(load_config(path, settings), path)
    folder = run_in_process(ablation)
    of_query = {row["query_id"]: row["query"] for row in rows(folder, "queries")}
    by_pair = defaultdict(set)
    for row in rows(folder, "scores"):
        by_pair[row["query_id"], row["doc_id"]].add(round(row["score"], 4))
    said = {(row["query_id"], row["doc_id"]): row for row in rows(folder, "web")}
    assert said
    for (query_id, doc_id), row in said.items():
        text = f"{row['title']}. {row['text']}"
        assert by_pair[query_id, doc_id] == {round(score(of_query[query_id], [text])[0], 4)}


@pytest.fixture
def web_only(path: str, server: WebServer, values: dict[str, Any], config_file: Callable[[Any], str]) -> str:
    values["retrieve"] = {"retrievers": {"web": server.block(attempts=2, patience_minutes=0.02)}}
    return config_file(values)


def test_the_web_alone_needs_no_index(web_only: str, server: WebServer, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["index", web_only, "--corpus", "none"]) == 0
    said = capsys.readouterr()
    assert said.out == ""
    assert "retrieve.retrievers.web searches the web, so it has no index to build" in said.err
    folder = done(web_only, "fuse.duplicates=drop")
    found = {row["doc_id"] for row in rows(folder, "results")}
    assert found
    assert all(doc_id.startswith("web:") for doc_id in found)
    ((name, identity),) = json.loads((folder / "run.json").read_text())["identity"]["indexes"].items()
    assert (name, identity) == ("web", {"kind": "web", "version": 1, "provider": "tavily", "results": 10})


def test_of_pages_with_one_text_the_better_placed_is_a_candidate(web_only: str, server: WebServer) -> None:
    said = {"a": "rises", "b": "rises", "c": "bakes"}
    server.pages = {f"https://{letter}.example": ("Bread", text) for letter, text in said.items()}
    more = ["rerank.kind=none", "rewrite.strategies=[]"]
    kept = {row["doc_id"] for row in rows(done(web_only, *more), "results")}
    distinct = {row["doc_id"] for row in rows(done(web_only, *more, "fuse.duplicates=drop"), "results")}
    ids = [document_id(f"https://{letter}.example") for letter in "abc"]
    assert (kept, distinct) == (set(ids), {min(ids[:2]), ids[2]})


def test_texts_that_are_too_long_are_cut_and_noted(path: str, server: WebServer) -> None:
    words = " ".join(f"word{number}" for number in range(80))
    pq.write_table(pa.table({"query": [f"{query} {words}" for query in QUERIES]}), "log.parquet")
    folder = done(path, "limits.error_rate=0", "rewrite.strategies=[]")
    notes = [row for row in rows(folder, "errors") if row["reason"] == "text_cut"]
    assert len(notes) == len(QUERIES) == len(server.texts)
    assert {row["component"] for row in notes} == {"web"}
    assert 390 <= max(map(len, server.texts)) <= 400
    assert {row["raw"] for row in notes} == set(server.texts)
    assert {row["searched"] for row in rows(folder, "web")} <= set(server.texts)


def test_together_sends_one_text_and_where_it_finds_nothing_the_original_alone(path: str, server: WebServer) -> None:
    done(path, f"{WEB}.together=true")
    joined = {f"{query} {text}" for query, text in QUERIES.items()}
    assert sorted(server.texts) == sorted([*joined, "zzz"])


def test_try_shows_addresses_and_texts_of_pages(path: str, server: WebServer, capsys: pytest.CaptureFixture[str]) -> None:
    with LoadedConfig(load_config(path), path, "config") as loaded:
        trial = loaded.try_query("moon and tides", lambda _: None)
    found = trial_values(trial)["results"]
    page_of = next(one for one in found if one["doc_id"].startswith("web:"))
    assert page_of["url"] in PAGES
    assert page_of["text"].startswith(PAGES[page_of["url"]][0])
    assert all(one["url"] is None for one in found if not one["doc_id"].startswith("web:"))
    out = io.StringIO()
    Console(file=out, width=120).print(try_page([trial]))
    assert page_of["url"] in out.getvalue()


def test_the_report_shows_addresses_and_texts_of_pages(path: str) -> None:
    html = report(open_run(str(done(path))), None, None)
    assert "https://sea.example/lighthouses Lighthouses. A lamp of a lighthouse" in html


def test_an_answer_is_made_from_the_texts_of_pages(web_only: str, server: WebServer) -> None:
    with FakeServer(["answerer-8b"], text=lambda body: "It is so [1].") as llm:
        engine = {"kind": "openai", "model": "answerer-8b", "base_url": llm.address, "attempts": 1}
        folder = done(web_only, f"answer={json.dumps({'documents': 2, 'engine': engine})}", "rerank.kind=none")
        prompts = [one["messages"][-1]["content"] for one in llm.bodies]
    answers = rows(folder, "answers")
    assert len(answers) == len(QUERIES)
    first = {row["query_id"]: row["doc_id"] for row in rows(folder, "results") if row["rank"] == 1}
    asked = texts_of(folder)
    for one in (one for one in answers if one["query_id"] in first):
        query, rewrite = asked[one["query_id"]]
        assert one["cited"] == [first[one["query_id"]]]
        known = {**pages_of(server, one["query_id"], [rewrite]), **pages_of(server, one["query_id"], [query])}
        page_of = next(known[text, one["cited"][0]] for text in (query, rewrite) if (text, one["cited"][0]) in known)
        assert any(f"{page_of['title']}. {page_of['text']}" in prompt and query in prompt for prompt in prompts)
        assert any(page_of["url"] in prompt for prompt in prompts)


@pytest.mark.slow
def test_plan_counts_searches_and_their_price_by_provider(path: str) -> None:
    Path(path).with_name("prices.yaml").write_text("searches: {tavily: 8000}\n")
    planned = plan(prepare(load_config(path), path), LiveDisplay(io.StringIO()))
    assert planned["left"]["searches"] == 4 * len(QUERIES)
    assert planned["expected"]["usd"] == pytest.approx(2 * len(QUERIES) * 0.008)
    folder = open_run(str(done(path)))
    assert folder.record["costs"]["retrieve"]["web@tavily"]["searches"] == len(TEXTS)


def test_judgements_of_pages_measure_and_tune_a_run(path: str, tmp_path: Path) -> None:
    qrels = tmp_path / "qrels.tsv"
    wanted = {"why does bread rise": "https://bread.example/yeast", "moon and tides": "https://moon.example/tides?page=2"}
    judged = [(query, document_id(url)) for query, url in wanted.items()] + [("moon and tides", "web:else")]
    qrels.write_text("".join(f"{query}\t{doc_id}\t1\n" for query, doc_id in judged))
    folder = open_run(str(done(path)))
    judgements = read_qrels(str(qrels), "QRELS", "query")
    assert unknown_documents(folder, judgements) is None
    assert tune(folder, judgements, 2, 0, lambda _: None) is not None


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        (["retrieve.filters={tenant: shop}"], "web has no fields to filter by"),
        (['retrieve.retrievers.both={kind: hybrid, of: {a: {kind: local, index: i}, b: {kind: web, provider: brave}}}'],
         "a hybrid is not made of the web"),
        ([f"{WEB}.api_key_env=null"], "tavily wants a key"),
        (["iterate={by: web, below: 1, documents: 2}"], "iterate.by: web searches no index, and its scores say little"),
    ],
)  # fmt: skip
def test_what_the_web_cannot_do_is_refused_with_the_config(path: str, settings: list[str], words: str) -> None:
    with pytest.raises(ConfigError, match=words) as refused:
        load_config(path, settings)
    assert "\n" not in str(refused.value)


def test_a_missing_key_is_refused_before_the_run(path: str, monkeypatch: pytest.MonkeyPatch, server: WebServer) -> None:
    monkeypatch.delenv("WEB_KEY")
    with pytest.raises(DmqrError, match="WEB_KEY") as refused:
        prepare(load_config(path), path)
    assert refused.value.exit_code == 2
    assert server.texts == []
