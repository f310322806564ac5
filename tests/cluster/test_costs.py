"""Costs: the seconds of a call are shared out whole, nothing is counted twice, and prices do plain arithmetic."""

from collections import defaultdict
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from cluster.costs import COST, COSTS, QUANTITIES, BusyTime, Totals, add_totals, entry, settle, stage_sums, totals
from cluster.errors import ClusterError
from cluster.prices import Prices, load_prices
from tests.support.cluster.clock import Clock

SECONDS = st.floats(0, 1e4)
ENTRIES = st.builds(
    lambda stage, component, seconds, model, start, requests, searches: entry(
        stage, component, seconds, model=model, start=start, requests=requests, searches=searches, device_seconds=seconds / 2
    ),
    st.sampled_from(["rewrite", "retrieve"]),
    st.sampled_from(["dmqr", "bm25", "dense"]),
    SECONDS,
    st.sampled_from([None, "m1", "m2"]),
    st.integers(0, 2),
    st.integers(0, 5),
    st.integers(0, 5),
)
ROWS = st.lists(st.lists(ENTRIES, max_size=4), min_size=1, max_size=6)


def table(rows: list[list[dict[str, Any]]]) -> pa.Table:
    return pa.table({"n": list(range(len(rows))), "costs": pa.array(rows, COSTS)})


def flat(rows: list[list[dict[str, Any]]]) -> pa.StructArray:
    return pa.array([one for row in rows for one in row], COST)


# ---------------------------------------------------------------- settle


@given(ROWS, SECONDS, st.sampled_from([0.0, 0.5, 1.0, 4.0]), st.integers(1, 9))
@example([[entry("s", "a")], [entry("s", "b"), entry("s", "c")]], 8.0, 2.0, 1)
def test_fresh_entries_share_the_seconds_of_the_call_and_settled_ones_stay(
    rows: list[list[dict[str, Any]]], seconds: float, devices: float, start: int
) -> None:
    after = settle(table(rows), seconds, devices, start)[0].column("costs").to_pylist()
    assert [len(row) for row in after] == [len(row) for row in rows]
    pairs = [pair for before, now in zip(rows, after, strict=True) for pair in zip(before, now, strict=True)]
    fresh = [now for before, now in pairs if before["start"] == 0]
    assert [now for before, now in pairs if before["start"]] == [before for before, _ in pairs if before["start"]]
    assert {one["start"] for one in fresh} <= {start}
    measured = [before["seconds"] for before, _ in pairs if before["start"] == 0]
    parts = measured if sum(measured) else [1.0] * len(measured)  # equal ones where nothing was measured
    shares = [seconds * part / sum(parts) for part in parts]
    assert [one["seconds"] for one in fresh] == pytest.approx(shares)
    assert [one["device_seconds"] for one in fresh] == pytest.approx([devices * share for share in shares])
    untouched = ("stage", "component", "engine", "model", "attempt", "error", *QUANTITIES)
    assert all(before[name] == now[name] for before, now in pairs for name in untouched)


@given(ROWS, st.integers(0, 5))
def test_a_slice_of_a_chunked_table_settles_like_a_table_of_its_own(rows: list[list[dict[str, Any]]], cut: int) -> None:
    chunked = pa.concat_tables([table(rows), table(rows[::-1])]).slice(min(cut, len(rows)))
    own = table((rows + rows[::-1])[min(cut, len(rows)) :])
    assert (
        settle(chunked, 7.0, 1.0, 3)[0].column("costs").to_pylist() == settle(own, 7.0, 1.0, 3)[0].column("costs").to_pylist()
    )


def test_an_entry_of_what_was_taken_from_a_store_alone_has_no_seconds() -> None:
    hit = entry("s", "hit", reused=2)
    rows, charged = settle(table([[hit], [entry("s", "a"), entry("s", "some", searches=1, reused=3)]]), 6.0, 2.0, 1)
    assert [one["seconds"] for row in rows.column("costs").to_pylist() for one in row] == [0.0, 3.0, 3.0]
    assert charged
    rows, charged = settle(table([[hit], [hit]]), 6.0, 2.0, 1)
    assert [(one["seconds"], one["start"]) for row in rows.column("costs").to_pylist() for one in row] == [(0.0, 1)] * 2
    assert not charged


# ---------------------------------------------------------------- totals


@given(ROWS)
def test_totals_are_the_sums_by_stage_component_and_model(rows: list[list[dict[str, Any]]]) -> None:
    wanted: dict[tuple[str, str, str], float] = defaultdict(float)
    for one in (one for row in rows for one in row):
        for name in ("seconds", "device_seconds", *QUANTITIES):
            wanted[one["stage"], f"{one['component']}@{one['model'] or ''}", name] += one[name]
    found = {
        (stage, key, name): value
        for stage, components in totals(flat(rows)).items()
        for key, sums in components.items()
        for name, value in sums.items()
    }
    assert found == pytest.approx({key: value for key, value in wanted.items() if value})


# ---------------------------------------------------------------- prices

PRICES = Prices(cpu_worker_hour=0.36, device_hour=3.6, tokens={"org/m@rev": {"prompt": 1.0}})


@pytest.mark.parametrize(
    ("sums", "model", "usd"),
    [
        ({"seconds": 100.0}, "", 0.01),
        ({"seconds": 100.0, "device_seconds": 100.0}, "", 0.1),  # the accelerator's hour includes its worker
        ({"seconds": 100.0, "prompt_tokens": 1000}, "org/m@rev", 0.011),
    ],
)
def test_money(sums: dict[str, float], model: str, usd: float) -> None:
    assert PRICES.usd({"rewrite": {f"dmqr@{model}": sums}}) == pytest.approx(usd)


def test_searches_requests_to_s3_and_the_driver_have_prices() -> None:
    prices = Prices(searches={"bm25": 20.0}, storage_requests={"put": 5.0, "get": 0.4}, driver_hour=3.6)
    assert prices.usd({"retrieve": {"bm25@": {"searches": 1000}, "dense@m": {"searches": 1000}}}) == pytest.approx(0.02)
    requests = {"put": 10, "get": 100, "delete": 1000, "sent_bytes": 1e9}
    assert prices.usd({"write": {"storage@": requests}, "driver": {"storage@": requests}}) == pytest.approx(2 * 0.09)
    assert prices.usd({"driver": {"log@": {"driver_seconds": 1000.0}}}) == pytest.approx(1.0)


@pytest.mark.parametrize("name", ["cpu_worker_hour", "device_hour", "driver_hour"])
def test_time_is_not_billed_twice(tmp_path: Path, name: str) -> None:
    path = tmp_path / "prices.yaml"
    path.write_text(f"node_hour: 1\n{name}: 2\n")
    with pytest.raises(ClusterError, match=f"node_hour bills all time; remove {name}, or node_hour"):
        load_prices(path)


def test_prices_are_read_from_their_file(tmp_path: Path) -> None:
    path = tmp_path / "prices.yaml"
    assert load_prices(path) is None
    path.write_text("device_hour: 2.5\ntokens: {m: {prompt: 1, tiers: {flex: {completion: 5}}}}\n")
    assert load_prices(path) == Prices(device_hour=2.5, tokens={"m": {"prompt": 1, "tiers": {"flex": {"completion": 5}}}})
    path.write_text("# nothing yet\n")
    assert load_prices(path) == Prices()


@pytest.mark.parametrize(
    ("text", "where"),
    [
        ("device_hours: 2.5", "device_hours"), ("- 1", "the file"), ("device_hour: much", "device_hour"),
        ("tokens: [m]", "tokens"), ("tokens: {m: 3}", "tokens.m"), ("node_hour: {tpu: 1}", "node_hour"),
        ("storage_requests: {post: 1}", "storage_requests.post"), ("tokens: {m: {prompt: -1}}", "tokens.m.prompt"),
        ("tokens: {m: {flex: {prompt: 1}}}", "tokens.m.flex"), ("tokens: {m: {tiers: {flex: 1}}}", "tokens.m.tiers.flex"),
        ("tokens: {m: {tiers: {flex: {tiers: {}}}}}", "tokens.m.tiers.flex.tiers"),
    ],
)  # fmt: skip
def test_prices_that_are_not_understood_are_refused_in_one_line(tmp_path: Path, text: str, where: str) -> None:
    path = tmp_path / "prices.yaml"
    path.write_text(text)
    with pytest.raises(ClusterError) as refused:
        load_prices(path)
    assert f"{path}: {where}" in str(refused.value)
    assert "known keys: cpu_worker_hour, device_hour, tokens" in str(refused.value)
    assert "\n" not in str(refused.value)


# ---------------------------------------------------------------- tokens, by the tiers of their provider

OF = {
    "prompt": 2.0, "cached": 0.5, "cache_write": 3.0, "completion": 10.0,
    "tiers": {"flex": {"prompt": 1.0, "cached": 0.25, "completion": 5.0}, "priority": {"prompt": 4.0, "completion": 20.0}},
}  # fmt: skip
TOKENS: dict[str, Any] = {"m": OF, "plain": {"prompt": 1.0, "completion": 2.0}}
TIERED = Prices(tokens=TOKENS)


def row(prompt: int, cached: int, written: int, completion: int, tier: str | None, model: str) -> dict[str, Any]:
    return entry(
        "rewrite", "dmqr", model=model, requests=1, prompt_tokens=prompt + cached + written, cached_tokens=cached,
        cache_write_tokens=written, completion_tokens=completion, tier=tier,
    )  # fmt: skip


BILLED_ROWS = st.lists(
    st.builds(
        row, *[st.integers(0, 1000)] * 4, st.sampled_from([None, "standard", "flex", "priority", "several"]),
        st.sampled_from(["m", "plain", "free"]),
    ),
    max_size=12,
)  # fmt: skip


def by_hand(one: dict[str, Any]) -> float:
    """The USD of a row, by the prices as they stand in the file."""
    own: dict[str, Any] = TOKENS.get(one["model"], {})
    of = own.get("tiers", {}).get(one["tier"], own)
    fresh = one["prompt_tokens"] - one["cached_tokens"] - one["cache_write_tokens"]
    usd = fresh * of.get("prompt", 0) + one["completion_tokens"] * of.get("completion", 0)
    usd += one["cached_tokens"] * of.get("cached", of.get("prompt", 0))
    usd += one["cache_write_tokens"] * of.get("cache_write", of.get("prompt", 0))
    return float(usd / 1e6)


def summed(rows: list[dict[str, Any]]) -> Totals:
    return totals(pa.array(rows, COST))


@given(BILLED_ROWS, BILLED_ROWS)
def test_sums_cost_what_their_rows_cost(some: list[dict[str, Any]], others: list[dict[str, Any]]) -> None:
    both = summed(some)
    add_totals(both, summed(others))
    wanted = sum(map(by_hand, [*some, *others]))
    assert TIERED.usd(both) == pytest.approx(wanted)
    assert TIERED.usd(summed(some + others)) == pytest.approx(wanted)
    third = {stage: {key: {name: n / 3 for name, n in sums.items()} for key, sums in of.items()} for stage, of in both.items()}
    assert TIERED.usd(third) == pytest.approx(wanted / 3)


@given(BILLED_ROWS)
def test_parts_by_tier_are_parts_of_the_sums(rows: list[dict[str, Any]]) -> None:
    sums = stage_sums(summed(rows))
    for name in (name for name in sums if "@" not in name):
        assert sum(value for part, value in sums.items() if part.startswith(f"{name}@")) <= sums[name]


# ---------------------------------------------------------------- calls that overlap


def test_calls_that_overlap_share_the_time_and_nothing_is_counted_twice() -> None:
    clock = Clock()
    busy = BusyTime(clock.monotonic)
    with busy.share() as first:
        clock.sleep(4)
        with busy.share() as second:
            clock.sleep(6)
            assert second() == pytest.approx(3)
        clock.sleep(1)
        assert first() == pytest.approx(4 + 3 + 1)
        clock.sleep(2)
        assert first() == pytest.approx(2)  # since it was asked last
    clock.sleep(50)  # nobody is there
    with busy.share() as third:
        clock.sleep(1)
        assert third() == pytest.approx(1)


@given(st.lists(st.tuples(st.integers(0, 4), st.floats(0, 10)), max_size=40))
def test_the_shares_add_up_to_the_time_in_which_there_was_a_call(events: list[tuple[int, float]]) -> None:
    clock = Clock()
    busy, total, shares = BusyTime(clock.monotonic), 0.0, 0.0
    open_calls: dict[int, tuple[ExitStack, Callable[[], float]]] = {}
    for call, seconds in [*events, *((call, 0.0) for call in range(5))]:
        total += seconds if open_calls else 0.0
        clock.sleep(seconds)
        if call in open_calls:
            stack, share = open_calls.pop(call)
            shares += share()
            stack.close()
        elif len(events):
            stack = ExitStack()
            open_calls[call] = stack, stack.enter_context(busy.share())
    for stack, share in open_calls.values():
        shares += share()
        stack.close()
    assert shares == pytest.approx(total)
