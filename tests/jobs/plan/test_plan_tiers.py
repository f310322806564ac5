"""What `plan` expects of engines that ask for a tier: its prices, and what it costs if all falls back."""

from __future__ import annotations

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
from jobs.plan.table import over_budget
from jobs.plan.tiers import tier_words

PRICES = Prices(
    cpu_worker_hour=3.6,
    tokens={"tiny": {"prompt": 2.0, "completion": 20.0, "tiers": {"flex": {"prompt": 1.0, "completion": 10.0}}}},
)
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
    found = estimate(job, 1000, [] if done is None else [done], ["sea", "bread"])
    assert found is not None
    return found


def test_counted_prompts_have_the_prices_of_the_tier(make: Make) -> None:
    plain, flex = expected(make()), expected(make(tier="flex"))
    assert plain.usd is not None
    assert (plain.tiers, plain.fallen_usd, tier_words(plain.values())) == ((), None, "")
    assert flex.usd == pytest.approx(plain.usd / 2)
    assert (flex.tiers, flex.fallen_usd) == (("flex",), pytest.approx(plain.usd))
    assert (flex.prompt_tokens, flex.completion_tokens) == (plain.prompt_tokens, plain.completion_tokens)
    said = tier_words(flex.values() | {"fallen_usd": 0.25})
    assert said == ", at the prices of tier flex; $0.250 if all falls back to the standard tier"


@pytest.mark.parametrize(
    "before", [{}, {"prompt_tokens@flex": 1000.0, "completion_tokens@flex": 100.0}, {"prompt_tokens@flex": 400.0}]
)
def test_what_was_done_is_priced_by_the_tier_that_is_asked_for_now(make: Make, before: dict[str, float]) -> None:
    """Whichever answered: the money of 1,000 queries, by one that is committed."""
    standard, cheap = 1000 * (WORK + 0.004), 1000 * (WORK + 0.002)
    plain, flex = expected(make(), manifest(**before)), expected(make(tier="flex"), manifest(**before))
    assert (plain.usd, plain.fallen_usd) == (pytest.approx(standard), None)
    assert (flex.usd, flex.fallen_usd) == (pytest.approx(cheap), pytest.approx(standard))


def test_the_estimate_is_what_the_budget_is_compared_with(make: Make) -> None:
    values = expected(make(tier="flex"), manifest()).values()
    assert over_budget({"max_cost_usd": 12.1, "expected": values}) is None
    assert "the run will stop before its end" in str(over_budget({"max_cost_usd": 11.9, "expected": values}))


def test_engines_of_strategies_ask_for_tiers_of_their_own(make: Make) -> None:
    """Of one model at two tiers it is not known which answers, so it is priced as standard."""
    job = make(tier="flex")
    assert job.engine is not None
    own = tuple(one.model_copy(update={"engine": job.engine}) for one in job.rewriting.pool)
    both = replace(job, rewriting=replace(job.rewriting, pool=own), engine=make().engine)
    assert expected(both, manifest()).usd == pytest.approx(1000 * (WORK + 0.004))
