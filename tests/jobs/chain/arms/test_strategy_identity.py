"""A strategy is its content: two that share a name are asked apart, and what one arm is, no other arm changes."""

import json
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from cluster.errors import ConfigError
from jobs.measure.costs import arm_costs
from jobs.measure.judged_rows import own_cuts
from jobs.run.job import Job
from jobs.runs.folder import open_run
from tests.support.jobs.in_process_runs import QUERIES, prepared_work, run_in_process
from tests.support.jobs.whole_runs import rows
from tests.support.rewriters.fake_server import Body, FakeServer, Reply, completion

Make = Callable[..., Job]


def said(body: Body) -> str:
    return body["messages"][-1]["content"].rpartition("Query: ")[2] + " by itself"


@pytest.fixture
def server() -> Iterator[FakeServer]:
    with FakeServer(["model-a"], text=said) as one:
        yield one


@pytest.fixture
def make(small_job: Callable[..., str], values: dict[str, Any], server: FakeServer) -> Make:
    """Checks an ablation of a small job whose LLM is a server."""
    values["rewrite"] |= {"engine": served(server, "model-a"), "calls": "separate"}
    return lambda ablate=None, rewrite=None: prepared_work(small_job(rewrite=rewrite or {}), [], ablate or {})


def served(server: FakeServer, model: str) -> dict[str, Any]:
    return {"kind": "openai", "model": model, "base_url": server.address}


def test_requests_of_another_decoding_or_other_arguments_cost_what_they_cost(make: Make, server: FakeServer) -> None:
    def answer(body: Body) -> Reply:  # as long as its request allows
        usage = {"prompt_tokens": 10, "completion_tokens": body.get("max_completion_tokens") or body["max_tokens"]}
        return Reply(content=json.dumps(completion(said(body), usage)).encode(), headers={"Content-Type": "application/json"})

    server.answer = answer
    arms = {"long": {"rewrite.decoding.max_tokens": 96}, "longer": {"rewrite.engine.args": {"max_tokens": 200}}}
    folder = run_in_process(make({"arms": arms}, {"decoding": {"max_tokens": 32}}))
    found = {one["arm"]: one["completion_tokens"] for one in arm_costs(open_run(str(folder)), None)[0]}
    assert {arm: found[arm] for arm in ("full", *arms)} == {
        arm: tokens * len(QUERIES) for arm, tokens in {"full": 32, "long": 96, "longer": 200}.items()
    }
    named = {row["component"] for row in rows(folder, "costs") if row["stage"] == "rewrite" and row["query_id"]}
    assert named == {"general", "general of long", "general of longer"}


def test_strategies_that_differ_in_how_their_texts_are_searched_share_their_requests(make: Make, server: FakeServer) -> None:
    arms = {
        "weighed": {"rewrite.strategies": [{"rag_fusion": {"n": 3, "position_weights": [1, 0.5]}}]},
        "as one": {"rewrite.strategies": [{"rag_fusion": {"n": 3, "as_one": "texts"}}]},
    }
    server.text = lambda body: "\n".join(f"{number}. {said(body)} {number}" for number in (1, 2, 3))
    run = open_run(str(run_in_process(make({"arms": arms}, {"strategies": [{"rag_fusion": {"n": 3, "depth": 2}}]}))))
    assert len(server.bodies) == len(QUERIES)
    assert list(own_cuts(run).values()) == [(2, None)]  # those of `full`
    costs = {one["arm"]: one["requests"] for one in arm_costs(run, None)[0]}
    assert {costs[arm] for arm in ("full", *arms)} == {len(QUERIES)}


def test_strategies_that_share_their_requests_fail_each_by_its_name(
    small_job: Callable[..., str], values: dict[str, Any], server: FakeServer
) -> None:
    values["rewrite"] |= {"calls": "separate", "retries": 1, "engine": served(server, "model-a")}
    strategies = ["general", {"general": {"search_as": "passage"}}]
    server.text = lambda body: ""
    folder = run_in_process(prepared_work(small_job(rewrite={"strategies": strategies}), ["store=null"], None))
    asked = len(rows(folder, "queries"))
    failed = Counter(one["component"] for one in rows(folder, "errors") if one["reason"] == "empty")
    assert failed == dict.fromkeys(("general", "general(search_as=passage)"), asked)
    spent = [one["requests"] for one in rows(folder, "costs") if one["stage"] == "rewrite"]
    assert sum(spent) == len(server.bodies) == 2 * asked


def test_samples_that_cannot_differ_are_refused(make: Make, tmp_path: Path) -> None:
    warm = {"decoding": {"temperature": 0.7}}
    with pytest.raises(ConfigError, match=r"ablate\.samples: 2: answers at temperature 0 are all the same"):
        make({"samples": 2})
    (tmp_path / "recorded.jsonl").write_text('{"query": "yeast", "completions": {"general": "bread"}}\n')
    recorded = {"engine": {"kind": "recorded", "path": "recorded.jsonl"}} | warm
    with pytest.raises(ConfigError, match="recorded answers are the same each time"):
        make({"samples": 2}, recorded)
    with pytest.raises(ConfigError, match="nothing is rewritten"):
        make({"samples": 2}, warm | {"strategies": []})
    make({"samples": 2}, warm)
    make({"samples": 2}, {"strategies": [{"general": {"temperature": 1}}]})
    make({"samples": 1})


def test_what_a_strategys_own_engine_resolves_to_is_in_the_fingerprint(make: Make, tmp_path: Path) -> None:
    for name, text in (("a", "bread"), ("same", "bread"), ("b", "moon")):
        line = {"query": "yeast", "completions": {"general": text}}
        (tmp_path / f"{name}.jsonl").write_text(json.dumps(line) + "\n")

    def fingerprint(path: str) -> str:
        own, common = ({"kind": "recorded", "path": name} for name in (path, "a.jsonl"))
        return make(None, {"engine": common, "strategies": [{"general": {"engine": own}}]}).prepared.run_id

    assert fingerprint("a.jsonl") == fingerprint("same.jsonl") != fingerprint("b.jsonl")
