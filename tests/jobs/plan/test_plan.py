"""What `plan` expects: by a tokenizer, by what is committed, by the night before."""

from __future__ import annotations

import io
import json
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml

from cluster.costs import Prices
from cluster.errors import ConfigError, RetrieverError
from cluster.run.pool_sizes import local_pools
from cluster.run.shards import Manifest, Plan, Shard
from jobs.chain.arms.requests import most_requests
from jobs.config.config import Config
from jobs.config.load import load_config
from jobs.job.pools import requested_pools
from jobs.job.prepare import Prepared, prepare
from jobs.job.rewriting import read_rewriting
from jobs.plan.estimate import estimate
from jobs.plan.plan import plan
from jobs.plan.table import plan_table
from jobs.run.job import Job, run_of
from jobs.run.planning.draft import plan_words
from jobs.run.spending import expected_requests
from jobs.runs.tally import Tally, summed
from jobs.terminal.formats import money
from jobs.terminal.live_display import LiveDisplay
from rewriters import steps
from rewriters.engines.openai.token_count import TokenCounter
from rewriters.pool import OF_THE_QUERY
from rewriters.query import Query
from rewriters.rewriter import Rewriter
from tests.support.jobs.in_process_runs import run_in_process

Values = dict[str, Any]


@pytest.fixture
def prepared(
    tmp_path: Path, values: Values, bm25: Values, config_file: Callable[[Any], str], monkeypatch: pytest.MonkeyPatch
) -> Prepared:
    """A job for a server that nobody asks."""
    monkeypatch.chdir(tmp_path)
    pq.write_table(pa.table({"query": ["sea", "bread"]}), "log.parquet")
    values["rewrite"]["engine"] = {"kind": "openai", "model": "tiny", "base_url": "http://127.0.0.1:9/v1"}
    values["retrieve"]["retrievers"] = {"bm25": bm25}
    values["rerank"] = {"kind": "none"}
    path = config_file(values)
    return replace(prepare(load_config(path), path), prices=Prices(cpu_worker_hour=3.6, tokens={"tiny": {"prompt": 2.0}}))


def manifest(shard: int, queries: int, **sums: float) -> Manifest:
    return Manifest(shard, 1, {}, {"queries": queries}, {"rewrite": {"dmqr@tiny": dict(sums)}})


def test_prompts_are_counted_where_nothing_was_done_yet(prepared: Prepared) -> None:
    expected = estimate(prepared, 1000, Tally(), ["sea", "bread"])
    assert expected is not None
    requests = [r for text in ("sea", "bread") for r in Rewriter(prepared.rewriting).requests(Query("", text))]
    assert expected.prompt_tokens == 500 * sum(TokenCounter("tiny").count(request.prompt) for request in requests)
    assert (expected.completion_tokens, expected.at_most) == (512 * 1000, True)
    assert expected.usd == pytest.approx(expected.prompt_tokens * 2e-6)
    assert "prompts of 2 queries counted" in expected.basis
    least = Plan([], {"queries": 1, "log_rows": 1}, 1, {}, [Shard(0, "q", 0, 1)])
    assert plan_words(least) == "1 distinct query of 1 log row, in 1 shard"


def test_of_a_joint_prompt_from_a_file_its_own_tokens_are_counted(prepared: Prepared) -> None:
    rewriting = replace(prepared.rewriting, joint_prompt="Go: {query}")
    expected = estimate(replace(prepared, rewriting=rewriting), 2, Tally(), ["sea", "bread"])
    assert expected is not None
    assert expected.prompt_tokens == TokenCounter("tiny").count("Go: sea") + TokenCounter("tiny").count("Go: bread")


def test_what_is_committed_says_what_is_left(prepared: Prepared) -> None:
    done = [
        manifest(0, 10, seconds=5.0, prompt_tokens=1000, cached_tokens=400, completion_tokens=100),
        manifest(1, 10, seconds=5.0),
    ]
    expected = estimate(prepared, 40, summed(done), [])
    assert expected is not None
    assert (expected.prompt_tokens, expected.cached_tokens, expected.completion_tokens) == (2000, 800, 200)
    assert expected.seconds == pytest.approx(20)
    assert expected.usd == pytest.approx(
        20 * 3.6 / 3600 + (2000 - 800 + 800) * 2e-6
    )  # cached ones have the price of the others
    assert not expected.at_most


def test_the_night_before_says_it_where_only_the_log_is_another(prepared: Prepared) -> None:
    night = prepared.output.url("small-0123456789ab")
    last = replace(prepared, run_id="small-0123456789ab")
    storage, name = last.storage, prepared.config.name
    prepared.output.put(f"{name}/latest.json", json.dumps({"path": night}).encode())
    storage.put("shards.json", json.dumps({"inputs": [], "counts": {}, "shard_size": 1, "tables": {}, "shards": []}).encode())
    storage.put("commits/000000.json", json.dumps(vars(manifest(0, 10, prompt_tokens=1000))).encode())
    record = {
        "run_id": last.run_id,
        "status": "finished",
        "config": prepared.config.model_dump(),
        "identity": prepared.identity | {"config": prepared.identity["config"] | {"log": {"path": "other"}}},
    }
    storage.put("run.json", json.dumps(record).encode())
    expected = estimate(prepared, 20, Tally(), ["sea"])
    assert expected is not None
    assert (expected.prompt_tokens, expected.at_most) == (2000, True)
    assert expected.basis == "by small-0123456789ab, the last run of this kind; what the store has costs nothing"
    assert expected.wall_seconds is None
    away = [{"service": "S3", "reason": "gone", "began": 100.0, "seconds": 30.0}]
    away += [{"service": "Elasticsearch", "reason": "gone", "began": 120.0, "seconds": 20.0}]
    start = {"start": 1, "status": "finished", "wall_seconds": 100.0, "outages": away, "pools": {"rewrite": {"workers": 2}}}
    storage.put("run.json", json.dumps(record | {"starts": [start]}).encode())
    walled = estimate(prepared, 20, Tally(), ["sea"])
    assert walled is not None
    assert (walled.wall_seconds, walled.waited, walled.pools) == (120.0, 40.0, "rewrite 2")  # (100 - 40) s for 10 queries
    storage.put("run.json", json.dumps(record | {"identity": {"rewrite": "other"}}).encode())
    other = estimate(prepared, 20, Tally(), ["sea"])
    assert other is not None
    assert other.at_most


def test_starting_up_is_paid_once_whatever_is_left(prepared: Prepared) -> None:
    shard = manifest(0, 10, seconds=10.0)
    shard.costs["rewrite"]["start_up.load@"] = {"seconds": 60.0}
    expected = estimate(prepared, 100, summed([shard]), [])
    assert expected is not None
    assert expected.seconds == pytest.approx(100 + 60)
    assert expected.usd == pytest.approx((100 + 60) * 3.6 / 3600)


def test_nothing_is_left(prepared: Prepared) -> None:
    assert estimate(prepared, 0, Tally(), ["sea"]) is None


@pytest.mark.parametrize("verb", ["plan", "run"])
def test_more_workers_than_requests_in_flight_are_refused_before_anything_is_written(
    prepared: Prepared, monkeypatch: pytest.MonkeyPatch, verb: str
) -> None:
    changed: Values = {
        "retrieve": {"retrievers": {"bm25": {"kind": "elastic", "index": "docs", "max_in_flight": 2}}},
        "cluster": {"address": "local", "retrieve": {"workers": 3}},
    }
    config = Config.model_validate(prepared.config.model_dump() | changed)
    monkeypatch.setattr(Job, "check_engines", lambda _: None)
    pools = local_pools(requested_pools(config), 0)
    monkeypatch.setattr("jobs.run.run.open_session", lambda *_: SimpleNamespace(pools=pools, close=lambda: None, nodes=dict))
    prepared = replace(prepared, config=prepared.config.model_copy(update={"cluster": config.cluster}))
    job = replace(run_of(prepared), pooled=config)
    verbs = {"plan": lambda: plan(prepared, LiveDisplay(io.StringIO()), job), "run": lambda: run_in_process(job)}
    with pytest.raises(ConfigError, match=r"3 workers cannot share 2 requests in flight \(retrieve 3\)"):
        verbs[verb]()
    assert list(prepared.storage.list()) == []


def test_a_reranker_that_a_run_would_fetch_is_said_with_what_does_without(
    prepared: Prepared, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Job, "check_engines", lambda _: None)
    monkeypatch.setattr("jobs.plan.plan.bytes_to_fetch", lambda name: 2_270_000_000)
    rerank = prepared.config.rerank.model_copy(update={"kind": "cross_encoder", "model": "somebody/reranker"})
    config = prepared.config.model_copy(update={"rerank": rerank})
    planned = plan(replace(prepared, config=config), LiveDisplay(io.StringIO()))
    assert planned["downloads"] == {"somebody/reranker": 2_270_000_000}
    table = plan_table(planned)
    cells = dict(zip(*(list(column.cells) for column in table.columns), strict=True))
    assert cells["reranker"] == (
        "somebody/reranker, 2.3 GB from its hub, on every machine that reranks; --set rerank.kind=none does without one"
    )
    assert plan(prepared, LiveDisplay(io.StringIO()))["downloads"] == {}


POOL = ["general", "hyde", {"rag_fusion": {"n": 3}}]


@pytest.mark.parametrize(
    ("select", "requests", "words"),
    [
        ("all", (3, None), "3 a query"),  # rag_fusion has one answer of three lines
        ("adaptive", (1, None), "1 a query"),
        ({"kind": "random_k", "k": 1}, (3, 2), "at most 3 a query, as select chooses for some of the queries"),
        ({"kind": "column", "column": "x"}, (3, None), "at most 3 a query"),
    ],
)
def test_requests_of_a_selection_are_a_bound_and_what_is_known_before_the_llm(
    prepared: Prepared, monkeypatch: pytest.MonkeyPatch, select: Any, requests: tuple[int, int | None], words: str
) -> None:
    monkeypatch.setattr(Job, "check_engines", lambda _: None)
    rewrite = prepared.config.rewrite.model_dump() | {"strategies": POOL, "select": select}
    config = Config.model_validate(prepared.config.model_dump() | {"rewrite": rewrite})
    planned = plan(replace(prepared, config=config, rewriting=read_rewriting(config)), LiveDisplay(io.StringIO()))
    left = planned["left"]
    assert (left["requests_per_query"], left["requests_expected"]) == requests
    assert left["searches"] == 2 * (1 + 1 + 1 + 3)  # three texts of one strategy
    table = plan_table(planned)
    assert dict(zip(*(list(column.cells) for column in table.columns), strict=True))["requests"] == words


@pytest.mark.parametrize(("retries", "times"), [(0, None), (1, "1 more time"), (2, "2 more times")])
def test_tries_are_no_part_of_the_estimate_and_it_says_so(
    prepared: Prepared, monkeypatch: pytest.MonkeyPatch, retries: int, times: str | None
) -> None:
    monkeypatch.setattr(Job, "check_engines", lambda _: None)
    rewrite = prepared.config.rewrite.model_copy(update={"retries": retries})
    limits = prepared.config.limits.model_copy(update={"max_cost_usd": 1e-9})
    config = prepared.config.model_copy(update={"rewrite": rewrite, "limits": limits})
    planned = plan(replace(prepared, config=config, rewriting=read_rewriting(config)), LiveDisplay(io.StringIO()))
    cells = dict(zip(*(list(column.cells) for column in plan_table(planned).columns), strict=True))
    again = f"; each up to {times} where its answer does not serve (rewrite.retries)" if times else ""
    assert cells["requests"] == f"1 a query{again}"
    usd = planned["missing"]["usd"]
    said = f"about {money(usd['expected'])} ({money(usd['low'])} to {money(usd['high'])}) are expected"
    said += ", tries apart" if retries else ""
    assert f"the run will stop before its end: {said}, limits.max_cost_usd is" in str(cells["warning"])
    assert (planned["left"]["tries"], planned["expected"]["tries_apart"]) == (retries, retries)
    done = estimate(replace(prepared, config=config), 10, summed([manifest(0, 10, requests=15, completion_tokens=100)]), [])
    assert done is not None
    assert done.tries_apart == 0  # those of the shards that are committed are counted


def test_rules_say_how_many_requests_are_made() -> None:
    select = {"kind": "classified"}
    config = Config.model_validate(
        {
            "name": "p", "log": {"path": "l", "query_column": "q"}, "output": "o",
            "retrieve": {"retrievers": {"bm25": {"kind": "local", "index": "i"}}},
            "rewrite": {
                "engine": {"kind": "recorded", "path": "r"}, "select": select,
                "strategies": ["decompose", "step_back", "multi_query", "hyde"],
            },
        }
    )  # fmt: skip
    rewriting = read_rewriting(config)
    texts = ["iceland", "who is the mayor of bergen", "why is the sea salt"]
    chosen = [Rewriter(rewriting).choose(Query("", text)).texts for text in texts]
    assert expected_requests(rewriting, texts) == sum(map(len, chosen)) / 3 < len(most_requests(rewriting))


@pytest.mark.parametrize(
    ("gpus", "words"),
    [(0, "cores here, all stages in one process"), (2, "cores and 2 GPUs here; they go to the last stages first")],
)
def test_accelerators_are_spoken_of_where_there_are_some(
    prepared: Prepared, monkeypatch: pytest.MonkeyPatch, gpus: float, words: str
) -> None:
    monkeypatch.setattr(Job, "check_engines", lambda _: None)
    for module in ("jobs.plan.plan", "cluster.run.session"):
        monkeypatch.setattr(f"{module}.usable_gpus", lambda requested: float(gpus))
    assert plan(prepared, LiveDisplay(io.StringIO()))["there"].endswith(words)


def counted(prepared: Prepared, prompt: str, passages: dict[str, str], n: int) -> float:
    """Tokens of a built-in step's prompt whose query is `sea`, without what else it shows, and with n documents on average."""
    fields = yaml.safe_load((Path(steps.__file__).parent / f"{prompt}.yaml").read_text())
    count = TokenCounter("tiny").count
    text = re.sub(r"\{(?!query)\w+\}", "", fields["prompt"]).replace("{query}", "sea")
    document = fields.get("document", "{text}").replace("{number}", "1").replace("{source}", "").replace("{label}", "")
    lengths = [count(document.replace("{text}", one)) for one in passages.values()]
    system = fields["system"].replace("{language}", OF_THE_QUERY)
    for name, value in fields.get("variables", {}).items():
        system = system.replace(f"{{{name}}}", value)
    return count(system) + count(text) + n * sum(lengths) / len(lengths)


def test_later_steps_are_priced_by_settings_and_lengths_of_documents(
    prepared: Prepared, values: Values, passages: dict[str, str], config_file: Callable[[Any], str]
) -> None:
    """Each request that a query may need, with its documents and what was written before, counted apart from the estimate."""
    values["answer"] = {"documents": 2, "context_tokens": 30}
    values["judge"] = {"relevance": {"documents": 3}, "accuracy": {}, "criteria": {}}
    path = config_file(values)
    job = replace(prepare(load_config(path), path), prices=Prices(tokens={"tiny": {"prompt": 2.0, "completion": 3.0}}))
    alone = estimate(prepared, 10, Tally(), ["sea"])
    found = estimate(job, 10, Tally(), ["sea"])
    assert alone is not None
    assert found is not None
    answer = 512
    empty = {"passages": {"": ""}, "n": 0}
    wanted = {
        "answer": [(1, counted(job, "answer", **empty) + 30, answer)],
        "judge": [
            (3, counted(job, "relevance", {"": ""}, 0) + mean_tokens(passages), 64),
            (1, counted(job, "accuracy", **empty) + answer, 16),
            (1, counted(job, "criteria", passages, 2) + answer, 160),
        ],
    }
    for stage, asked in wanted.items():
        assert found.of_steps[stage]["prompt_tokens"] == pytest.approx(10 * sum(n * prompt for n, prompt, _ in asked), abs=12)
        assert found.of_steps[stage]["completion_tokens"] == 10 * sum(n * most for n, _, most in asked)
    later = {name: sum(of[name] for of in found.of_steps.values()) for name in ("prompt_tokens", "completion_tokens")}
    assert found.prompt_tokens - alone.prompt_tokens == later["prompt_tokens"]
    assert found.completion_tokens - alone.completion_tokens == later["completion_tokens"]
    assert found.usd == pytest.approx(found.prompt_tokens * 2e-6 + found.completion_tokens * 3e-6)
    assert (found.without_steps, alone.of_steps) == (False, {})
    assert f"documents as long as {len(passages)} of the index on average" in found.basis


def test_grades_of_rounds_and_hits_of_the_web_are_in_what_later_steps_may_take(
    prepared: Prepared, values: Values, passages: dict[str, str], config_file: Callable[[Any], str]
) -> None:
    """An LLM grades the documents of each round one by one; the web has pages for an answer beyond all results."""
    values["iterate"] = {"by": "bm25", "below": 1.0, "rounds": 2, "documents": 1, "prompt": "refine", "labels": {"by": "llm"}}
    values["grade"] = {"documents": 1}
    values["web"] = {"search": {"kind": "web", "provider": "searxng", "base_url": "http://127.0.0.1:9"}, "documents": 4}
    values["answer"], values["judge"] = {"documents": 6}, {"criteria": {}}
    values["fuse"] = {"keep": 1}
    path = config_file(values)
    found = estimate(prepare(load_config(path), path), 10, Tally(), ["sea"])
    assert found is not None
    empty = {"passages": {"": ""}, "n": 0}
    shown, refined = 1 + 4, 320  # one result, and pages; tokens of a refined query
    wanted = {
        "iterate": [
            (2, counted(prepared, "refine", passages, 1) + 2 * refined, refined),
            (2 * 1, counted(prepared, "three_grades", **empty) + mean_tokens(passages), 16),
        ],
        "answer": [(1, counted(prepared, "answer", passages, shown), 512)],
        "judge": [(1, counted(prepared, "criteria", passages, shown) + 512, 160)],
    }  # fmt: skip
    for stage, asked in wanted.items():
        assert found.of_steps[stage]["completion_tokens"] == 10 * sum(n * most for n, _, most in asked), stage
        assert found.of_steps[stage]["prompt_tokens"] == pytest.approx(10 * sum(n * prompt for n, prompt, _ in asked), abs=12)


def mean_tokens(passages: dict[str, str]) -> float:
    return sum(map(TokenCounter("tiny").count, passages.values())) / len(passages)


def test_where_no_document_can_be_read_later_steps_stay_apart(
    prepared: Prepared, values: Values, config_file: Callable[[Any], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    values["answer"] = {"documents": 2}
    path = config_file(values)
    job = prepare(load_config(path), path)

    def away(*_: Any, **__: Any) -> Any:
        raise RetrieverError("index-missing", "it is gone")

    monkeypatch.setattr("jobs.plan.later_steps.open_documents", away)
    found = estimate(job, 10, Tally(), ["sea"])
    assert found is not None
    assert (found.without_steps, found.of_steps) == (True, {})
    recorded = values | {"answer": {"documents": 2, "engine": {"kind": "recorded", "path": "recorded.jsonl"}}}
    Path("recorded.jsonl").write_text(json.dumps({"query": "sea", "completions": {"answer": "salt"}}) + "\n")
    path = config_file(recorded)
    free = estimate(prepare(load_config(path), path), 10, Tally(), ["sea"])
    assert free is not None
    assert (free.without_steps, free.of_steps) == (False, {}), "a recording costs nothing"
