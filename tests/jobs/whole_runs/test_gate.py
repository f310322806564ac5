"""Whole jobs with a gate in this process: which queries are rewritten, what is asked and searched, and what comes of it."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from cluster.errors import ConfigError, Stopped
from jobs.chain.stages.order import Order
from jobs.counts import GateQueries
from jobs.pages.ablation import ablation_report
from jobs.pages.closing import closing_values, compared
from jobs.pages.report import report
from jobs.runs.folder import RunFolder
from jobs.runs.gate import saving_of_run
from jobs.runs.tally import tally_of
from tests.support.jobs.in_process_runs import (
    QUERIES,
    finished,
    job_in_process,
    prepared_job,
    prepared_work,
    rows,
    run_in_process,
)
from tests.support.jobs.report_runs import Page
from tests.support.params import rest_slow
from tests.support.rewriters.fake_server import FakeServer

BELOW, LEAD = 1.2, 0.1


def query_of(prompt: str) -> str:
    """The query that a prompt ends with, with or without quotation marks."""
    return max((one for one in QUERIES if prompt.rstrip(' "').endswith(one)), key=len)


def said(body: dict[str, Any]) -> str:
    prompt = body["messages"][-1]["content"]
    query = query_of(prompt)
    texts = {"general": f"{query} moon", "keyword": f"{query} lamp"}
    if body.get("response_format") or '"general"' in prompt:
        return json.dumps(texts)
    return texts["keyword" if "keywords of the search query" in prompt else "general"]


@pytest.fixture
def server() -> Iterator[FakeServer]:
    with FakeServer(["rewriter-8b"], text=said) as one:
        yield one


@pytest.fixture
def job(
    tmp_path: Path, values: dict[str, Any], bm25: dict[str, Any], config_file: Callable[[Any], str], server: FakeServer,
    monkeypatch: pytest.MonkeyPatch,
) -> str:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    engine = {"kind": "openai", "model": "rewriter-8b", "base_url": server.address, "attempts": 1}
    values["rewrite"] |= {"engine": engine, "gate": {"by": "bm25", "below": BELOW}}
    path = job_in_process(tmp_path, values, bm25, config_file)
    values["rewrite"]["strategies"] = ["general", "keyword"]
    return config_file(values) and path


def asked(server: FakeServer, since: int = 0) -> Counter[str]:
    return Counter(query_of(body["messages"][-1]["content"]) for body in server.bodies[since:])


def original_scores(run: RunFolder, retriever: str = "bm25") -> dict[str, list[float]]:
    """Query -> the scores of its own list, best first."""
    texts = {one["query_id"]: one["query"] for one in rows(run, "queries")}
    found: dict[str, list[float]] = {query: [] for query in QUERIES}
    for one in sorted(rows(run, "runs"), key=lambda one: one["rank"]):
        if (one["strategy"], one["retriever"]) == ("original", retriever):
            found[texts[one["query_id"]]].append(one["score"])
    return found


def by_query(run: RunFolder, table: str, *columns: str, arm: str | None = None) -> dict[str, list[tuple[Any, ...]]]:
    texts = {one["query_id"]: one["query"] for one in rows(run, "queries")}
    found: dict[str, list[tuple[Any, ...]]] = {}
    for one in rows(run, table):
        if arm is None or one["arm"] == arm:
            found.setdefault(texts[one["query_id"]], []).append(tuple(one[name] for name in columns))
    return {query: sorted(of) for query, of in found.items()}


def unsure(scores: dict[str, list[float]], below: float | None = None, lead: float | None = None) -> set[str]:
    """The queries that are to be rewritten, by the rule as the documentation has it."""
    found = set()
    for query, of in scores.items():
        leads = 1.0 if len(of) == 1 else (of[0] - of[1]) / of[0] if of else 0.0
        high = below is None or (bool(of) and of[0] >= below)
        if not of or not high or (lead is not None and leads < lead):
            found.add(query)
    return found


def searches(run: RunFolder) -> Counter[str]:
    found: Counter[str] = Counter()
    for one in rows(run, "costs"):
        found[one["stage"]] += one["searches"]
    return +found


@pytest.mark.parametrize(
    ("gate", "rule"),
    [
        ("{by: bm25, below: 1.2}", {"below": BELOW}),
        ("{by: bm25, lead: 0.1}", {"lead": LEAD}),
        ("{by: bm25, below: 1.2, lead: 0.1}", {"below": BELOW, "lead": LEAD}),
    ],
)
@pytest.mark.parametrize("calls", rest_slow(["joint", "separate"], ["joint"]))
def test_queries_of_which_the_retriever_is_sure_are_not_rewritten(
    job: str, server: FakeServer, gate: str, rule: dict[str, float], calls: str
) -> None:
    plain = finished(prepared_work(job, ["rewrite.gate=null", "name=plain", f"rewrite.calls={calls}"], None))
    alone = finished(prepared_work(job, ["rewrite.strategies=[]", "name=alone"], None))
    low = unsure(original_scores(plain), **rule)
    assert low not in (set(), set(QUERIES)), original_scores(plain)
    before = len(server.bodies)
    settings = [f"rewrite.gate={gate}", f"rewrite.calls={calls}", "store=null"]
    run = finished(prepared_work(job, settings, None))
    assert asked(server, before) == Counter(dict.fromkeys(low, 1 if calls == "joint" else 2))
    assert by_query(run, "rewrites", "strategy", "text").keys() == low
    chosen = by_query(run, "selections", "strategies", "reason")
    assert chosen.keys() == set(QUERIES)
    for query, ((strategies, reason),) in chosen.items():
        assert strategies == (["general", "keyword"] if query in low else [])
        assert reason.startswith("gate: bm25 ")
        assert ("is sure" in reason) == (query not in low)
    assert run.counts[GateQueries("sure").key] == len(QUERIES) - len(low)
    assert run.counts[GateQueries("unsure").key] == len(low)
    results, of_plain, of_alone = (by_query(one, "results", "rank", "doc_id", "score") for one in (run, plain, alone))
    for query in QUERIES:
        assert results.get(query) == (of_plain if query in low else of_alone).get(query)
    assert original_scores(run) == original_scores(plain)
    assert searches(run)["gate"] == len(QUERIES)
    texts = sum(len(of) for of in by_query(run, "rewrites", "text").values())
    assert searches(run)["retrieve"] == texts  # the originals' lists are not made again


@pytest.mark.parametrize(
    "select", ["adaptive", "{kind: random_k, k: 1}", "{kind: classified, by: llm}"], ids=lambda one: one[:16]
)
def test_the_gate_comes_before_any_selection(job: str, server: FakeServer, select: str) -> None:
    plain = finished(prepared_work(job, ["rewrite.strategies=[]", "name=plain"], None))
    low = unsure(original_scores(plain), BELOW)
    more = ["rewrite.strategies=[general, keyword, hyde, step_back, decompose, multi_query]"] if "llm" in select else []
    run = finished(prepared_work(job, [f"rewrite.select={select}", *more], None))
    assert set(asked(server)) == low
    chosen = by_query(run, "selections", "strategies", "reason")
    assert {query for query, ((_, reason),) in chosen.items() if reason and "is sure" in reason} == set(QUERIES) - low
    assert all(not strategies for query, ((strategies, _),) in chosen.items() if query not in low)


@pytest.mark.slow
def test_arms_are_their_runs_and_a_second_run_asks_nothing(job: str, server: FakeServer) -> None:
    arms = {
        "never": {"rewrite.gate": None}, "lead": {"rewrite.gate": {"by": "bm25", "lead": LEAD}},
        "quantile": {"rewrite.gate.below": {"quantile": 0.5}}, "rrf": {"fuse.method": "rrf"},
        "separate": {"rewrite.calls": "separate"}, "one": {"rewrite.select": {"kind": "random_k", "k": 1}},
        "joined": {"rewrite.gate": None, "retrieve.retrievers.bm25.together": True},
    }  # fmt: skip
    grid = {"rewrite.gate.below": [0.5, 2.0]}
    ablation = finished(prepared_work(job, [], {"arms": arms, "grid": grid}))
    sent = asked(server)
    assert set(sent) == set(QUERIES)  # an arm has no gate
    known = {"full": {}, "original": {"rewrite.strategies": []}, "below=0.5": {"rewrite.gate.below": 0.5},
             "below=2.0": {"rewrite.gate.below": 2.0}, **arms}  # fmt: skip
    for arm, changes in known.items():
        settings = [f"{key}={json.dumps(value)}" for key, value in changes.items()]
        alone = finished(prepared_work(job, [*settings, "name=alone"], None))
        columns = ("rank", "doc_id", "score", "fused_score")
        assert by_query(alone, "results", *columns) == by_query(ablation, "results", *columns, arm=arm), arm
        reading = next(one["rewrites_of"] for one in ablation.record["ablation"]["arms"] if one["name"] == arm)
        if arm not in ("original", "joined", "never"):
            found = by_query(ablation, "selections", "reason", "strategies", arm=reading)
            assert found == by_query(alone, "selections", "reason", "strategies"), arm
    assert asked(server) == sent  # also of the arms alone: all is in the store
    ungated = {one["name"]: one.get("without_gate") for one in ablation.record["ablation"]["arms"]}
    assert {arm for arm, other in ungated.items() if other} == {"full", "lead", "quantile", "below=0.5", "below=2.0"}
    assert {ungated[arm] for arm in ("full", "lead", "quantile")} == {"never"}


@pytest.mark.slow
def test_a_run_that_failed_goes_on_with_what_was_asked(job: str, server: FakeServer, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = finished(prepared_work(job, ["name=whole", "store=null"], None))
    sent, order, calls = asked(server), Order.__call__, Counter[str]()

    def broken(self: Order, table: Any) -> Any:
        calls["blocks"] += 1
        if calls["blocks"] == 2:
            raise OSError(28, "No space left on device")
        return order(self, table)

    monkeypatch.setattr(Order, "__call__", broken)
    before = len(server.bodies)
    with pytest.raises(OSError, match="No space"):
        run_in_process(prepared_job(job, "store=null"))
    monkeypatch.setattr(Order, "__call__", order)
    run = finished(prepared_work(job, ["store=null"], None))
    assert asked(server, before) == sent
    for table in ("rewrites", "selections", "results", "runs"):
        assert sorted(map(repr, rows(run, table))) == sorted(map(repr, rows(whole, table))), table


@pytest.mark.slow
def test_a_run_whose_money_ends_is_the_whole_run_once_it_has_more(job: str, tmp_path: Path, server: FakeServer) -> None:
    """The gate searches anew what is not committed; nothing is asked twice, and the way on is told by what it said so far."""
    (tmp_path / "prices.yaml").write_text("tokens: {rewriter-8b: {prompt: 0, completion: 1000000}}\n")
    usd = 3.0  # of a request: the server counts three tokens
    one_by_one = ["store=null", "cluster.shard_size=1", "cluster.rewrite.workers=1", "rewrite.engine.max_in_flight=1"]
    whole = finished(prepared_work(job, [*one_by_one, "name=whole"], None))
    sent = asked(server)
    assert 1 < len(sent) < len(QUERIES)
    before = len(server.bodies)
    for paid in range(1, len(sent)):
        work = prepared_work(job, [*one_by_one, f"limits.max_cost_usd={paid * usd + usd / 2}"], None)
        with pytest.raises(Stopped) as stopped:
            finished(work)
        assert stopped.value.code == "stopped-cost"
        assert len(server.bodies) - before == paid
        counts = tally_of(work.prepared.storage).counts
        sure, unsure = (counts[GateQueries(verdict).key] for verdict in ("sure", "unsure"))
        share = unsure / (sure + unsure) if sure + unsure else 1.0
        said, told = str(stopped.value), float(str(stopped.value).rpartition("limits.max_cost_usd=")[2])
        assert told == pytest.approx(1.1 * len(QUERIES) * share * usd, abs=0.02)
        assert ("to pay for all, at most, go on" in said) == (not sure + unsure)
    run = finished(prepared_work(job, [*one_by_one, "limits.max_cost_usd=1000"], None))
    assert asked(server, before) == sent
    for table in ("rewrites", "selections", "results", "runs"):
        assert sorted(map(repr, rows(run, table))) == sorted(map(repr, rows(whole, table))), table
    assert sum(one["requests"] for one in rows(run, "costs") if one["stage"] == "rewrite") == sum(sent.values())


@pytest.mark.slow
def test_planned_requests_are_those_that_gates_have_let_through(job: str, server: FakeServer) -> None:
    nested = prepared_work(job, [], {"grid": {"rewrite.gate.below": [0.5, 2.0]}})
    assert nested.requests.of_query({}) == (1, True)  # nothing is heard yet
    counts = finished(nested).counts
    assert nested.requests.of_query(counts) == (pytest.approx(asked(server).total() / len(QUERIES)), False)
    apart = prepared_work(job, [], {"arms": {"lead": {"rewrite.gate": {"by": "bm25", "lead": LEAD}}}})
    number, at_most = apart.requests.of_query(finished(apart).counts)
    assert not at_most
    scores = original_scores(finished(prepared_work(job, ["rewrite.strategies=[]", "name=alone"], None)))
    low, close = unsure(scores, BELOW), unsure(scores, lead=LEAD)
    assert len(low | close) / len(QUERIES) <= number <= min(1.0, (len(low) + len(close)) / len(QUERIES)) + 1e-9
    varying = prepared_work(job, ["rewrite.select={kind: random_k, k: 1}", "name=varying"], None)
    assert varying.requests.of_query(counts).at_most


def test_what_people_have_pinned_stays_where_the_gate_lets_nothing_be_rewritten(job: str, tmp_path: Path) -> None:
    plain = finished(prepared_work(job, ["rewrite.strategies=[]", "name=plain"], None))
    (sure, *_) = sorted(set(QUERIES) - unsure(original_scores(plain), BELOW))
    pinned = {"query": sure, "strategy": "general", "text": "a mirror of galaxies", "status": "pinned"}
    (tmp_path / "overrides.jsonl").write_text(json.dumps(pinned) + "\n")
    run = finished(prepared_work(job, ["rewrite.guards.overrides=overrides.jsonl"], None))
    assert by_query(run, "rewrites", "strategy", "text")[sure] == [("general", "a mirror of galaxies")]


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        (["rewrite.gate.by=bm52"], "rewrite.gate.by: no retriever 'bm52'; did you mean 'bm25'"),
        (["rewrite.gate.by=rerank"], "rewrite.gate.by: no retriever 'rerank'"),
        (["retrieve.retrievers.bm25.together=true"], "rewrite.gate.by: bm25 has no list of the original alone"),
        (["rewrite.gate.below=null"], "neither below nor lead is set"),
        (["rewrite.gate.lead=2"], "lead: 2 is no share of the best score"),
        (["rewrite.gate.lead=0.1", "retrieve.depth=1"], "rewrite.gate.lead: is over the second hit, and retrieve.depth is 1"),
        (["rewrite.gate.below={quantile: 1.5}"], "quantile"),
    ],
)
def test_a_gate_without_a_score_is_refused(job: str, settings: list[str], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        prepared_work(job, settings, None)


@pytest.mark.slow
def test_a_gate_over_two_retrievers_and_two_engines(
    job: str, server: FakeServer, bm25: dict[str, Any], served_dense: dict[str, Any]
) -> None:
    """Arms whose common engines differ have stages of their own, which all know what the gate says."""
    retrievers = f"retrieve.retrievers={json.dumps({'bm25': bm25, 'dense': served_dense})}"
    plain = finished(prepared_work(job, [retrievers, "rewrite.strategies=[]", "name=plain"], None))
    with FakeServer(["other-8b"], text=said) as other:
        arms = {
            "other": {"rewrite.engine.model": "other-8b", "rewrite.engine.base_url": other.address},
            "dense": {"rewrite.gate": {"by": "dense", "below": 0.5}},
        }
        ablation = finished(prepared_work(job, [retrievers, "evaluate.baseline=full"], {"arms": arms}))
        for arm, changes in arms.items():
            settings = [f"{key}={json.dumps(value)}" for key, value in changes.items()]
            alone = finished(prepared_work(job, [retrievers, *settings, "name=alone"], None))
            assert by_query(alone, "results", "rank", "doc_id", "score") == by_query(
                ablation, "results", "rank", "doc_id", "score", arm=arm
            )
        low = unsure(original_scores(plain), BELOW)
        assert asked(other) == Counter(low)
    costs = [one for one in rows(ablation, "costs") if one["stage"] == "gate" and one["component"] in ("bm25", "dense")]
    assert {one["component"] for one in costs} == {"bm25", "dense"}
    assert sum(one["searches"] + one["reused"] for one in costs) == 2 * len(QUERIES)


@pytest.mark.slow
def test_what_a_gate_saves_stands_beside_what_it_loses(job: str, tmp_path: Path) -> None:
    judgements = "".join(f"{query}\t{doc_id}\t1\n" for query in QUERIES for doc_id in ("d02", "d07"))  # what rewrites find
    (tmp_path / "qrels.tsv").write_text(judgements)
    (tmp_path / "prices.yaml").write_text("tokens: {rewriter-8b: {prompt: 1000, completion: 2000}}\n")
    arms = {"all": {"rewrite.gate": None}, "two": {"rewrite.calls": "separate"}}
    judged = ["evaluate.qrels=qrels.tsv", "evaluate.key=query", "evaluate.measures=[nDCG@10, R@10]", "fuse.redundancy=none"]
    prepared = prepared_work(job, judged, {"arms": arms})
    folder = finished(prepared)
    found = compared(folder, prepared.prepared.judgements, prepared.prepared.config.evaluate, prepared.prepared.prices)
    gates = {one.arm: one for one in found.gates}
    assert gates.keys() == {"full", "general", "keyword", "two"}
    low = len(unsure(original_scores(folder), BELOW))
    one = gates["full"]
    assert (one.saving.sure, one.saving.unsure, one.without) == (len(QUERIES) - low, low, "all")
    assert one.saving.requests == len(QUERIES) - low
    assert gates["two"].saving.requests == 2 * (len(QUERIES) - low)
    assert gates["two"].without is None
    assert one.saving.usd == pytest.approx(usd_of_a_request(folder) * (len(QUERIES) - low))
    assert found.comparison is not None
    means = {(of.arm, of.measure): of.mean for of in found.comparison.differences}
    for loss in one.losses:
        assert loss.difference == pytest.approx(means["full", loss.measure] - means["all", loss.measure])
    assert {loss.measure for loss in one.losses} == {"nDCG@10", "R@10"}
    assert any(loss.difference for loss in one.losses)
    words = "".join(str(cell) for cell in closing_values(found)["gates"])
    assert "'without': 'all'" in words
    assert "Gates: what they save, and what that loses" in Page(ablation_report(found)).sections["cost"]
    run = finished(prepared_work(job, [*judged, "name=alone", "store=null"], None))
    saving = saving_of_run(run, prepared.prepared.prices)
    assert saving is not None
    assert saving.requests == len(QUERIES) - low
    assert saving.usd == pytest.approx(usd_of_a_request(run) * (len(QUERIES) - low))
    assert f"{len(QUERIES) - low} of {len(QUERIES)} queries" in saving.words
    assert saving.words in Page(report(run, prepared.prepared.prices, None)).sections["selection"]
    assert f"{len(QUERIES) - low} queries not to be rewritten" in report(run, None, None)


def usd_of_a_request(run: RunFolder) -> float:
    costs = [row for row in rows(run, "costs") if row["component"] == "dmqr" and row["requests"]]
    return sum(row["prompt_tokens"] * 1e-3 + row["completion_tokens"] * 2e-3 for row in costs) / len(costs)
