"""What `plan` expects of engines that ask for a tier: its prices."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from cluster.costs import Prices
from cluster.run.shards import Manifest
from jobs.config.load import load_config
from jobs.job.prepare import Prepared, prepare
from jobs.plan.estimate import Estimate, estimate
from jobs.plan.plan import plan
from jobs.run.ablation import prepare_ablation
from jobs.run.job import Job
from jobs.runs.tally import summed
from jobs.terminal.live_display import LiveDisplay

PRICES = Prices(
    cpu_worker_hour=3.6,
    tokens={"tiny": {"prompt": 2.0, "completion": 20.0, "tiers": {"flex": {"prompt": 1.0, "completion": 10.0}}}},
)
FLEX = {"service_tier": "flex"}
TOKENS = {"prompt_tokens": 1000.0, "completion_tokens": 100.0}  # 4,000 millionths of a USD at the standard tier
WORK = 10 * 1e-3  # USD of ten seconds of work
Make = Callable[..., Prepared]


@pytest.fixture
def make(
    tmp_path: Any, values: dict[str, Any], bm25: dict[str, Any], config_file: Callable[[Any], str],
    monkeypatch: pytest.MonkeyPatch,
) -> Make:  # fmt: skip
    """A job for a server that nobody asks."""
    monkeypatch.chdir(tmp_path)
    pq.write_table(pa.table({"query": ["sea", "bread"]}), "log.parquet")

    def one(**engine: Any) -> Prepared:
        values["rewrite"] = {"engine": {"kind": "openai", "model": "tiny", "base_url": "http://127.0.0.1:9/v1"} | engine}
        values["retrieve"]["retrievers"] = {"bm25": bm25}
        values["rerank"] = {"kind": "none"}
        path = config_file(values)
        return replace(prepare(load_config(path), path), prices=PRICES)

    return one


def manifest(**sums: float) -> Manifest:
    return Manifest(0, 1, {}, {"queries": 1}, {"rewrite": {"dmqr@tiny": {"seconds": 10.0, **TOKENS, **sums}}})


def expected(job: Prepared, done: Manifest | None = None) -> Estimate:
    found = estimate(job, 1000, summed([] if done is None else [done]), ["sea", "bread"])
    assert found is not None
    return found


def test_counted_prompts_have_the_prices_of_the_tier(make: Make) -> None:
    plain, flex = expected(make()), expected(make(args=FLEX))
    assert plain.usd is not None
    assert flex.usd == pytest.approx(plain.usd / 2)
    assert (flex.prompt_tokens, flex.completion_tokens) == (plain.prompt_tokens, plain.completion_tokens)


@pytest.mark.parametrize(
    "before", [{}, {"prompt_tokens@flex": 1000.0, "completion_tokens@flex": 100.0}, {"prompt_tokens@flex": 400.0}]
)
def test_what_was_done_is_priced_by_the_tier_that_is_asked_for_now(make: Make, before: dict[str, float]) -> None:
    """Whichever answered: the money of 1,000 queries, by one that is committed."""
    standard, cheap = 1000 * (WORK + 0.004), 1000 * (WORK + 0.002)
    plain, flex = expected(make(), manifest(**before)), expected(make(args=FLEX), manifest(**before))
    assert (plain.usd, flex.usd) == (pytest.approx(standard), pytest.approx(cheap))


def test_engines_of_strategies_ask_for_tiers_of_their_own(make: Make) -> None:
    """Of one model at two tiers it is not known which answers, so it is priced as standard."""
    job = make(args=FLEX)
    assert job.engine is not None
    own = tuple(one.model_copy(update={"engine": job.engine}) for one in job.rewriting.pool)
    both = replace(job, rewriting=replace(job.rewriting, pool=own), engine=make().engine)
    assert expected(both, manifest()).usd == pytest.approx(1000 * (WORK + 0.004))


@pytest.mark.slow
def test_arms_are_priced_by_the_tiers_of_their_own_engines(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever the run asks for that they change."""
    monkeypatch.setattr(Job, "check_engines", lambda _: None)
    of_small = {"prompt": 4.0, "completion": 40.0, "tiers": {"flex": {"prompt": 1.0, "completion": 10.0}}}
    prices = PRICES.model_copy(update={"tokens": {**PRICES.tokens, "small": Prices(tokens={"x": of_small}).tokens["x"]}})
    own = {"small": {"rewrite.engine.model": "small", "rewrite.engine.args": FLEX}}
    run = replace(make(), prices=prices)
    job = prepare_ablation(load_config(run.config_file, [f"ablate={json.dumps({'arms': own})}"]), run.config_file)
    job = replace(job, prepared=replace(job.prepared, prices=prices))
    missing = plan(run, LiveDisplay(io.StringIO()), job)["ablation"]["missing"]
    small = replace(make(model="small", args=FLEX), prices=prices)
    alone = [plan(one, LiveDisplay(io.StringIO()))["missing"] for one in (run, small)]
    for end in ("low", "expected", "high"):
        assert missing["usd"][end] == pytest.approx(sum(one["usd"][end] for one in alone))
