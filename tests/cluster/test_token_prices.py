"""Prices of tokens by tier: sums are worth what their rows are, however they are added, scaled and stored."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cluster.costs import COST, Prices, Totals, add_totals, entry, load_prices, stage_sums, totals
from cluster.errors import ClusterError
from cluster.token_prices import by_tier, without_tiers

OF = {
    "prompt": 2.0, "cached": 0.5, "cache_write": 3.0, "completion": 10.0,
    "tiers": {"flex": {"prompt": 1.0, "cached": 0.25, "completion": 5.0}, "priority": {"prompt": 4.0, "completion": 20.0}},
}  # fmt: skip
PRICES = Prices(tokens={"m": OF, "plain": {"prompt": 1.0, "completion": 2.0}})


def row(prompt: int, cached: int, written: int, completion: int, tier: str | None, model: str) -> dict[str, Any]:
    return entry(
        "rewrite", "dmqr", model=model, requests=1, prompt_tokens=prompt + cached + written, cached_tokens=cached,
        cache_write_tokens=written, completion_tokens=completion, tier=tier,
    )  # fmt: skip


ROWS = st.lists(
    st.builds(
        row, *[st.integers(0, 1000)] * 4, st.sampled_from([None, "standard", "flex", "priority", "several"]),
        st.sampled_from(["m", "plain", "free"]),
    ),
    max_size=12,
)  # fmt: skip


def by_hand(one: dict[str, Any]) -> float:
    """The USD of a row, by the prices as they stand in the file."""
    own: dict[str, Any] = {"m": OF, "plain": {"prompt": 1.0, "completion": 2.0}}.get(one["model"], {})
    of = own.get("tiers", {}).get(one["tier"], own)
    fresh = one["prompt_tokens"] - one["cached_tokens"] - one["cache_write_tokens"]
    usd = fresh * of.get("prompt", 0) + one["completion_tokens"] * of.get("completion", 0)
    usd += one["cached_tokens"] * of.get("cached", of.get("prompt", 0))
    usd += one["cache_write_tokens"] * of.get("cache_write", of.get("prompt", 0))
    return float(usd / 1e6)


def summed(rows: list[dict[str, Any]]) -> Totals:
    return totals(pa.array(rows, COST))


@given(ROWS, ROWS)
def test_sums_cost_what_their_rows_cost(some: list[dict[str, Any]], others: list[dict[str, Any]]) -> None:
    both = summed(some)
    add_totals(both, summed(others))
    wanted = sum(map(by_hand, [*some, *others]))
    assert PRICES.usd(both) == pytest.approx(wanted)
    assert PRICES.usd(summed(some + others)) == pytest.approx(wanted)
    third = {stage: {key: {name: n / 3 for name, n in sums.items()} for key, sums in of.items()} for stage, of in both.items()}
    assert PRICES.usd(third) == pytest.approx(wanted / 3)


@given(ROWS)
def test_parts_by_tier_are_parts_of_the_sums(rows: list[dict[str, Any]]) -> None:
    sums = stage_sums(summed(rows))
    for name, n in without_tiers(sums).items():
        assert sum(value for part, value in sums.items() if part.startswith(f"{name}@")) <= n
    assert not [name for name in without_tiers(sums) if "@" in name]


def test_a_tier_without_a_price_costs_as_the_standard_one() -> None:
    tokens = {"prompt_tokens": 1_000_000, "completion_tokens": 100_000}
    plain = PRICES.usd({"s": {"c@m": tokens}})
    assert plain == pytest.approx(3.0)
    assert PRICES.usd({"s": {"c@m": tokens | by_tier(tokens, "unheard-of")}}) == pytest.approx(plain)
    assert PRICES.usd({"s": {"c@m": tokens | by_tier(tokens, "flex")}}) == pytest.approx(plain / 2)
    assert PRICES.usd({"s": {"c@m": tokens | by_tier(tokens, None)}}) == pytest.approx(plain)


def test_prices_of_tiers_stand_in_the_file(tmp_path: Path) -> None:
    path = tmp_path / "prices.yaml"
    path.write_text("tokens: {m: {prompt: 2, completion: 10, tiers: {flex: {prompt: 1, completion: 5}}}}\n")
    found = load_prices(path)
    assert found is not None
    assert (found.tokens["m"].prompt, found.tokens["m"].tiers["flex"].completion) == (2, 5)


@pytest.mark.parametrize(
    ("tokens", "where"),
    [("{prompt: -1}", "prompt"), ("{flex: {prompt: 1}}", "flex"), ("{tiers: {flex: 1}}", "tiers.flex"),
     ("{tiers: {flex: {tiers: {}}}}", "tiers.flex.tiers")],
)  # fmt: skip
def test_prices_of_tiers_that_are_not_understood_are_refused(tmp_path: Path, tokens: str, where: str) -> None:
    path = tmp_path / "prices.yaml"
    path.write_text(f"tokens: {{m: {tokens}}}\n")
    with pytest.raises(ClusterError, match=rf"tokens\.m\.{where}: "):
        load_prices(path)
