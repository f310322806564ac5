"""Costs of arms whose stages share answers: each arm's bill is that of a run of it, in jobs drawn at random."""

import json
import random
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from cluster.prices import Prices
from jobs.counts import QUANTITIES, cost_quantity
from jobs.measure.costs import arm_costs
from jobs.pages.ablation import closing_page, compared
from jobs.runs.folder import RunFolder
from jobs.runs.savings import saved
from jobs.runs.sums import arm_needs
from retrievers.local.build import build_local_index
from tests.support.jobs.corrective_llm import kind_of, prompt_of
from tests.support.jobs.corrective_llm import said as corrective
from tests.support.jobs.in_process_runs import QUERIES, finished, prepared_work, record, rows
from tests.support.jobs.terminals import printed
from tests.support.retrievers.blocks import index_fields
from tests.support.retrievers.fake_models import FakeModels
from tests.support.retrievers.web_server import WebServer
from tests.support.rewriters.fake_server import FakeServer, Reply, completion

MODEL = "grader-8b"
SEARCH = 2.0  # USD of a search of the web
PRICES = Prices(tokens={MODEL: {"prompt": 1e4, "cached": 1e4, "completion": 1e5}}, searches={"searxng": SEARCH * 1e6})
USD = (7 * 1e4 + 3 * 1e5) / 1e6  # of each request: they are equally long
STAGES = ("iterate", "grade", "web", "answer", "judge")


def answer(body: dict[str, Any]) -> Reply:
    prompt = prompt_of(body)
    if "Tried before" in prompt:
        query = prompt.rpartition("Query: ")[2]
        again = "" if "Tried before:\n(none)" in prompt else " galaxies"
        text = json.dumps({"reinforce": "", "missing": "", "leave_out": "", "query": f"{query} full moon harbours{again}"})
    else:
        text = corrective(body)
    made = completion(text, {"prompt_tokens": 7, "completion_tokens": 3})
    return Reply(content=json.dumps(made).encode(), headers={"Content-Type": "application/json"})


@pytest.fixture
def server() -> Iterator[FakeServer]:
    with FakeServer([MODEL], answer=answer) as one:
        yield one


@pytest.fixture
def job(small_job: Callable[..., str], values: dict[str, Any], server: FakeServer) -> str:
    """Rounds, grades and the judge ask the same model the same of a document."""
    engine = {"kind": "openai", "model": MODEL, "base_url": server.address}
    labels = {"by": "llm", "grades": {"engine": engine}}
    values["iterate"] = {"by": "bm25", "below": 2.0, "prompt": "refine", "documents": 3, "labels": labels, "engine": engine}
    values["grade"] = {"documents": 2, "against": "query", "engine": engine}
    values["answer"] = {"documents": 6, "engine": engine}
    values["judge"] = {"engine": engine, "relevance": {"prompt": "three_grades", "documents": 4}, "accuracy": {}}
    values["store"] = None
    return small_job()


Changes = dict[str, Any]


def drawn(seed: int) -> tuple[Changes, dict[str, Changes]]:
    """Changes of the config, and arms."""
    pick = random.Random(seed)

    def changes() -> Changes:
        grade: Changes = pick.choice([{"grade": None}, {"grade": None}, {"grade.documents": pick.randint(1, 6)}, {}])
        rounds: Changes = pick.choice([{"iterate": None}, {"iterate.rounds": 2}, {"iterate.below": 1.2}, {}])
        other: Changes = pick.choice(
            [{"rewrite.strategies": []}, {"fuse.method": "rrf"}, {"answer.documents": 7}, {"fuse.keep": 49}]
        )
        return grade | rounds | other

    base: Changes = pick.choice([{}, {"grade": None}, {"iterate": None}, {"judge.relevance.documents": 2}])
    keys = [key.partition(".")[0] for key, value in base.items() if value is None]
    arms = {f"arm {n}": changes() for n in range(pick.randint(2, 3))}
    if keys:  # a section that the config lacks is whole in an arm, or not there
        arms = {name: {key: one for key, one in of.items() if key.partition(".")[0] not in keys} for name, of in arms.items()}
    return base, arms


def settings(changes: Changes) -> list[str]:
    return [f"{key}={json.dumps(value)}" for key, value in changes.items()]


def executed(run: RunFolder) -> Counter[str]:
    """Of each quantity of work what was made, or what another query of the run had made."""
    made: Counter[str] = Counter()
    for kind, stage in QUANTITIES.items():
        for sums in run.spent.get(stage, {}).values():
            made[kind] += int(sums.get(cost_quantity(kind), 0) + sums.get("reused", 0))
    return +made


def needed(run: RunFolder, arm: str, kind: str = "whole") -> Counter[str]:
    names = [one["name"] for one in run.record["ablation"]["arms"]]
    found: Counter[str] = Counter()
    for need in getattr(arm_needs(run.counts, names)[arm], kind):
        found[need.quantity] += need.amount
    return +found


def usd(run: RunFolder) -> float:
    of_the_web = sum(one["searches"] for one in rows(run, "costs") if one["model"] == "searxng")
    asked = sum(one["requests"] for one in rows(run, "costs") if one["model"] == MODEL and one["stage"] in STAGES)
    return USD * asked + SEARCH * of_the_web


def check(job: str, base: Changes, arms: dict[str, Changes]) -> RunFolder:
    """Checks the bill of each arm against that of a run of it, and what it alone needs against an ablation without it."""
    whole = finished(prepared_work(job, settings(base), {"arms": arms}))
    found = {one["arm"]: one for one in arm_costs(whole, PRICES)[0]}
    for arm, changes in {"full": {}, **arms}.items():
        alone = finished(prepared_work(job, [*settings(base | changes), "name=alone"], None))
        assert needed(whole, arm) == executed(alone), (arm, changes)
        assert found[arm]["standalone_usd"] == pytest.approx(usd(alone)), (arm, changes)
    for arm in arms:
        rest = {name: one for name, one in arms.items() if name != arm}
        without = finished(prepared_work(job, [*settings(base), "name=without"], {"arms": rest}))
        # without it another arm's judge may pay for a grade that is left, so that kinds of work are not compared
        assert executed(whole).total() - executed(without).total() == needed(whole, arm, "alone").total(), arm
        assert found[arm]["marginal_usd"] == pytest.approx(usd(whole) - usd(without)), arm
    return whole


@pytest.mark.slow
def test_an_arm_without_grading_pays_for_the_judgements_that_another_s_grades_are(job: str, server: FakeServer) -> None:
    arms: dict[str, Changes] = {"ungraded": {"grade": None, "iterate": None}, "graded": {"iterate": None}}
    run = check(job, {}, arms)
    needs = {arm: needed(run, arm) for arm in ("full", *arms)}
    assert needs["ungraded"]["judgements"] > needs["graded"]["judgements"] > 0
    assert needs["ungraded"]["grades"] == 0
    assert needs["graded"]["grades"] > needs["full"]["grades"]  # rounds have made some of these
    assert executed(run)["judgements"] < needs["ungraded"]["judgements"]
    assert saved(run).naive["judgements"] == sum(
        needed(run, one["name"])["judgements"] for one in run.record["ablation"]["arms"]
    )
    shown = compared(run, None, run.config.evaluate, None)
    costs = {one["arm"]: one for one in shown.costs}
    for arm in arms:
        assert costs[arm]["judgements"] == needed(run, arm)["judgements"]
        assert costs[arm]["alone_judgements"] == needed(run, arm, "alone")["judgements"]
    words = " ".join(printed(closing_page(shown), 160).split())
    assert f"judgements {executed(run)['judgements']:,} in place of {saved(run).naive['judgements']:,}" in words


@pytest.mark.slow
def test_an_arm_pays_for_pairs_of_its_rounds_that_others_have_scored_before(job: str) -> None:
    with FakeModels("tei", score=lambda _, texts: [len(text) / 1000 for text in texts]) as one:
        rerank = {"kind": "server", "model": one.model, "base_url": one.address}
        late: Changes = {"fuse.original_floor": 99, "rewrite.strategies": []}  # nothing before the first round
        base: Changes = {"rerank": rerank, "fuse.keep": 3, "iterate.below": 1e9, "grade": None, "answer": None, "judge": None}
        check(job, base, {"plain": {"iterate": None}, "late": late})


def rewritten(body: dict[str, Any]) -> Reply:
    """Answers as `answer` does, but for refined queries, and queries to the web, that are rewrites."""
    reply, rewrite = answer(body), "about " + prompt_of(body).rpartition("Query: ")[2].removeprefix("Question: ")
    text = json.loads(reply.content)["choices"][0]["message"]["content"]
    if "full moon" in text and "galaxies" not in text:
        text = json.dumps({"reinforce": "", "missing": "", "leave_out": "", "query": rewrite})
    elif kind_of(prompt_of(body)) == "web":
        text = json.dumps({"query": rewrite})
    made = completion(text, {"prompt_tokens": 7, "completion_tokens": 3})
    return replace(reply, content=json.dumps(made).encode())


@pytest.mark.slow
@pytest.mark.parametrize("shard", [3, 6])
def test_a_text_that_the_web_was_asked_before_is_paid_once(job: str, server: FakeServer, shard: int) -> None:
    server.answer = rewritten
    with WebServer("searxng") as web:
        engine = {"kind": "openai", "model": MODEL, "base_url": server.address}
        base: Changes = {"retrieve.retrievers.web": web.block(), "judge": None, "iterate.below": 1e9, "iterate.rounds": 2}
        base |= {"web": {"search": web.block(), "engine": engine, "when": "any"}, "cluster.shard_size": shard}
        check(job, base, {"once": {"iterate.rounds": 1}, "plain": {"iterate": None}, "no rewrites": {"rewrite.strategies": []}})
        before = len(web.texts)
        run = finished(prepared_work(job, [*settings(base), "name=again"], None))
        spent = [one for one in rows(run, "costs") if one["model"] == "searxng"]
        assert len(web.texts) - before == sum(one["searches"] for one in spent) == sum(one["requests"] for one in spent)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(12))
def test_an_arm_costs_what_a_run_of_it_does(job: str, seed: int) -> None:
    check(job, *drawn(seed))


STRATEGIES = ["general", "keyword"]
RERANKED = {"rerank.kind": "bi_encoder"}
WITHOUT_AN_LLM: dict[str, Changes] = {
    "shared": {"fuse.k": 10},
    "reranked": {**RERANKED, "fuse.keep": 3},
    "reranked, shared": {**RERANKED, "fuse.keep": 3, "rerank.combine": "replace"},
    "reranked deep": RERANKED,
    "several": {"rewrite.strategies": [*STRATEGIES, "hyde", "rag_fusion"]},
    "two of three": {"rewrite.strategies": [{"rag_fusion": {"n": 2}}]},
    "together": {"retrieve.retrievers.bm25.together": True},
    "other model": {"rewrite.engine.path": "other.jsonl"},
    "by chance": {"rewrite.select": {"kind": "random_k", "k": 1}},
}


def recorded(query: str, style: str) -> dict[str, str]:
    texts = {"general": f"{style}tell me about {query}", "keyword": query.partition(" ")[0]}
    several = "\n".join(f"{n}. {style}{query} {word}" for n, word in enumerate(("sea", "flour", "stars"), 1))
    return {"dmqr": json.dumps(texts), "hyde": f"{query} is about the sea.", "rag_fusion": several}


@pytest.mark.slow
def test_arms_with_other_texts_retrievers_and_rerankers(
    small_job: Callable[..., str], values: dict[str, Any], bm25: dict[str, Any], served_dense: dict[str, Any], corpus: Path
) -> None:
    build_local_index(Path("plain").absolute(), corpus, index_fields("unicode"))
    words = {"kind": "local", "index": "plain", "analyzer": "unicode"}
    other = {"retrieve.retrievers": {"words": words}, "rewrite.strategies": ["keyword"]}
    values["store"] = None
    job = small_job(retrieve={"retrievers": {"bm25": bm25, "dense": served_dense}})
    for name, style in (("recorded", ""), ("other", "please ")):
        record({query: recorded(query, style) for query in QUERIES[1:]}, f"{name}.jsonl")
    base = {"rewrite.strategies": STRATEGIES}
    run = check(job, base, WITHOUT_AN_LLM | {"words": other})
    needs = arm_needs(run.counts, [*WITHOUT_AN_LLM, "words", "original", "full"])
    assert not needs["original"].alone
    assert not needs["shared"].alone
    assert {need.quantity for of in needs.values() for need in of.alone} == {"requests", "searches", "pairs"}
