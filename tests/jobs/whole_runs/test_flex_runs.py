"""Whole runs whose engine asks for the tier flex: the bill by the tier that answered, and what stays as it is without one."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from cluster.errors import Stopped
from jobs.__main__ import main
from jobs.config.load import load_config
from jobs.job.prepare import Prepared, prepare
from jobs.measure.compare.arm_costs import arm_costs
from jobs.pages.report import report
from jobs.pages.summary import closing_values
from jobs.run.job import run_of
from jobs.runs.folder import RunFolder, open_run
from jobs.runs.tiers import tier_words
from rewriters.engines.openai import aimd, flex
from rewriters.outcome.retries import FIRST_TRY
from tests.support.jobs.in_process_runs import finished, rows, run_in_process
from tests.support.rewriters.fake_server import refusal
from tests.support.rewriters.flex_server import AS_ASKED, FlexServer

COUNT, REFUSED = 12, 4  # queries, and those of them that flex refuses
FLEX, STANDARD = 0.09, 0.18  # USD of an answer: 600 tokens of the prompt, 400 cached ones, 100 written
PRICES = """
tokens:
  tiny: {prompt: 100, cached: 50, completion: 1000, tiers: {flex: {prompt: 50, cached: 25, completion: 500}}}
"""
Night = Callable[..., str]


def is_refused(prompt: str) -> bool:
    return "zanzibar" in prompt


def refusing(prompt: str) -> float:
    return float("inf") if is_refused(prompt) else 0


@pytest.fixture(autouse=True)
def short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(flex, "FIRST_PAUSE", 0.02)
    monkeypatch.setattr(aimd, "LONGEST_BACKOFF", 0.1)


@pytest.fixture
def night(
    tmp_path: Path, values: dict[str, Any], bm25: dict[str, Any], config_file: Callable[[Any], str],
    monkeypatch: pytest.MonkeyPatch,
) -> Night:  # fmt: skip
    """The path of a config with a priced server, in three shards."""
    monkeypatch.chdir(tmp_path)
    texts = [f"{'zanzibar' if n < REFUSED else 'tides'} {n}" for n in range(COUNT)]
    pq.write_table(pa.table({"query": texts}), "log.parquet")
    Path("prices.yaml").write_text(PRICES)

    def make(server: FlexServer, **more: Any) -> str:
        engine = {
            "kind": "openai", "model": "tiny", "base_url": server.address, "max_in_flight": 4, "tier": "flex",
            "flex": {"refusals": 2},
        }  # fmt: skip
        values["rewrite"] = {"engine": engine, "strategies": ["keyword"], "calls": "separate"}
        values["retrieve"] |= {"retrievers": {"bm25": bm25}}
        values.update({"rerank": {"kind": "none"}, "cluster": {"address": "none", "shard_size": COUNT // 3}})
        values["limits"] = {"error_rate": 1}
        return config_file(values | more)

    return make


NO_TIER = ("rewrite.engine.tier=null", "rewrite.engine.flex={}")


def prepared(path: str, *settings: str) -> Prepared:
    return prepare(load_config(path, list(settings)), path)


def answers(run: RunFolder, stage: str = "rewrite") -> Counter[tuple[str | None, str | None]]:
    """The answers in costs/ by tier and note."""
    found = [one for one in rows(run, "costs") if one["stage"] == stage and one["requests"]]
    return Counter((one["tier"], one["tier_note"]) for one in found)


def usd(run: RunFolder, job: Prepared) -> float:
    assert job.prices is not None
    return run.bill(job.prices).usd


def tier_counts(run: RunFolder) -> dict[str, int]:
    return {key: n for key, n in run.counts.items() if key.startswith("tier/")}


# ---------------------------------------------------------------- one run


@pytest.mark.slow
def test_a_run_is_billed_by_the_tiers_that_answered(night: Night) -> None:
    with FlexServer(refusing) as server:
        job = prepared(night(server))
        run = finished(job)
    assert answers(run) == {("flex", None): COUNT - REFUSED, ("standard", "refused"): REFUSED}
    wanted = (COUNT - REFUSED) * FLEX + REFUSED * STANDARD
    assert usd(run, job) == pytest.approx(wanted)
    assert tier_counts(run) == {"tier/rewrite/flex/served": COUNT - REFUSED, "tier/rewrite/standard/refused": REFUSED}
    sums = run.spent["rewrite"]["keyword@tiny"]
    assert (sums["prompt_tokens"], sums["prompt_tokens@flex"]) == (COUNT * 1000, (COUNT - REFUSED) * 1000)
    assert sums["requests"] == COUNT + 2 * REFUSED
    saved = (COUNT - REFUSED) * (STANDARD - FLEX)
    words = tier_words(run.counts, job.prices, run.spent)
    assert words == f"flex 8, standard 4 (refused 4): ${saved:.3f} less than at the standard tier"
    values = closing_values(run, job.prices, None)
    assert (values["counts"]["tier/rewrite/standard/refused"], values["usd"]) == (REFUSED, pytest.approx(wanted))
    page = report(run, job.prices, None)
    assert "Answers by tier" in page
    assert "flex had no capacity" in page
    assert "Answers by tier" in report(run, None, None)


@pytest.mark.slow
def test_the_closing_table_says_what_fell_back(night: Night, capfd: pytest.CaptureFixture[str]) -> None:
    with FlexServer(refusing) as server:
        assert main(["run", night(server)]) == 0
    said = " ".join(capfd.readouterr().out.split())
    assert "flex 8, standard 4 (refused 4): $0.720 less than at the standard tier" in said


def test_what_the_answers_report_counts_and_not_what_was_asked_for(night: Night) -> None:
    def reports(prompt: str) -> object:
        return "default" if is_refused(prompt) else None if prompt.endswith(("4", "5")) else AS_ASKED

    with FlexServer(reports=reports) as server:
        job = prepared(night(server))
        run = finished(job)
        assert server.by_tier("flex") == COUNT
    assert answers(run) == {("flex", None): COUNT - REFUSED - 2, ("standard", "other"): REFUSED, (None, "unnamed"): 2}
    assert usd(run, job) == pytest.approx((COUNT - REFUSED - 2) * FLEX + (REFUSED + 2) * STANDARD)
    assert tier_counts(run) == {
        "tier/rewrite/flex/served": COUNT - REFUSED - 2, "tier/rewrite/standard/other": REFUSED,
        "tier/rewrite/unnamed/unnamed": 2,
    }  # fmt: skip


def test_after_the_deadline_a_run_ends_at_the_standard_tier(night: Night) -> None:
    with FlexServer(slow=lambda prompt: True) as server:
        job = prepared(night(server), "rewrite.engine.flex.deadline_minutes=0.00001")
        run = finished(job)
        assert server.by_tier("flex") == 0
    assert answers(run) == {("standard", "deadline"): COUNT}
    assert usd(run, job) == pytest.approx(COUNT * STANDARD)


@pytest.mark.slow
def test_answers_that_are_too_slow_fall_back(night: Night) -> None:
    with FlexServer(slow=is_refused) as server:
        run = finished(prepared(night(server), "rewrite.engine.flex.timeout_seconds=2"))
    assert answers(run) == {("flex", None): COUNT - REFUSED, ("standard", "timeout"): REFUSED}


def test_a_model_without_flex_ends_the_run_before_anything_is_paid(night: Night, capfd: pytest.CaptureFixture[str]) -> None:
    wording = refusal(400, "Invalid service_tier argument", param="service_tier")
    with FlexServer(lambda prompt: float("inf"), wording=wording) as server:
        assert main(["run", night(server)]) == 1
        assert server.answered.total() == 0
    last = capfd.readouterr().err.splitlines()[-1]
    assert "has no tier flex for the model 'tiny'" in last
    assert last.endswith("[engine-setting]")


@pytest.mark.slow
def test_a_run_without_a_tier_says_nothing_of_tiers(night: Night) -> None:
    with FlexServer() as server:
        job = prepared(night(server), *NO_TIER)
        run = finished(job)
    assert answers(run) == {("standard", None): COUNT}
    assert tier_counts(run) == {}
    assert tier_words(run.counts, job.prices, run.spent) == ""
    assert usd(run, job) == pytest.approx(COUNT * STANDARD)
    assert "Answers by tier" not in report(run, job.prices, None)


@pytest.mark.slow
def test_every_stage_that_asks_an_llm_has_its_tier(night: Night) -> None:
    """Rewriting at flex, answers at the standard tier of the same server."""
    with FlexServer() as server:
        own = {"kind": "openai", "model": "tiny", "base_url": server.address}
        job = prepared(night(server, answer={"documents": 1, "engine": own}))
        run = finished(job)
        at_standard = sum(n for (_, tier), n in server.sent.items() if tier == "standard")
    assert answers(run) == {("flex", None): COUNT}
    assert answers(run, "answer") == {("standard", None): COUNT}
    assert at_standard == COUNT
    assert usd(run, job) == pytest.approx(COUNT * (FLEX + STANDARD))
    assert tier_counts(run) == {"tier/rewrite/flex/served": COUNT}


def test_a_run_may_be_silent_for_as_long_as_flex_takes(night: Night) -> None:
    with FlexServer() as server:
        path = night(server)
        assert run_of(prepared(path, *NO_TIER)).stall_minutes == 15
        assert run_of(prepared(path)).stall_minutes == 15 + 900 / 60
        assert (run_of(prepared(path)).answer_wait, run_of(prepared(path, *NO_TIER)).answer_wait) == (900, 0)


# ---------------------------------------------------------------- store, resume, budget


@pytest.mark.slow
def test_the_tier_renames_no_run_and_the_next_night_asks_nothing(night: Night) -> None:
    with FlexServer(refusing) as server:
        path = night(server)
        first = prepared(path)
        assert prepared(path, *NO_TIER).identity == first.identity
        assert prepared(path, "rewrite.engine.flex.deadline_minutes=9").run_id == first.run_id
        one = finished(first)
        asked = len(server.bodies)
        for number, settings in enumerate([NO_TIER, ()]):
            job = prepared(path, f"label=again-{number}", *settings)
            run = finished(job)
            assert len(server.bodies) == asked
            assert usd(run, job) == 0
            assert tier_counts(run) == {}
            assert sum(row["reused"] for row in rows(run, "costs") if row["stage"] == "rewrite") == COUNT
            assert rows(run, "rewrites") == rows(one, "rewrites")


@pytest.mark.slow
def test_answers_of_the_standard_tier_serve_a_night_at_flex(night: Night) -> None:
    with FlexServer() as server:
        path = night(server)
        finished(prepared(path, *NO_TIER))
        assert server.answered == {"standard": COUNT}
        run = finished(prepared(path, "label=again"))
        assert server.answered == {"standard": COUNT}
        assert tier_counts(run) == {}


@pytest.mark.slow
@pytest.mark.parametrize("store", ["store=null", "limits.error_rate=1"])
def test_a_run_that_stopped_goes_on_at_another_tier(night: Night, store: str) -> None:
    """What was paid at flex is paid once, and billed as it was."""
    with FlexServer() as server:
        path = night(server)
        limit = 6 * FLEX
        with pytest.raises(Stopped):
            run_in_process(prepared(path, store, f"limits.max_cost_usd={limit}"))
        paid = server.answered["flex"]
        assert 0 < paid < COUNT
        assert paid * FLEX <= limit + 1e-9
        with pytest.raises(Stopped):  # what lies in journals is counted at its tier
            run_in_process(prepared(path, store, f"limits.max_cost_usd={limit}"))
        assert server.answered["flex"] * FLEX <= limit + 1e-9
        paid = server.answered["flex"]
        job = prepared(path, store, *NO_TIER)
        run = finished(job)
        assert server.answered == {"flex": paid, "standard": COUNT - paid}
    assert answers(run) == {("flex", None): paid, ("standard", None): COUNT - paid}
    assert usd(run, job) == pytest.approx(paid * FLEX + (COUNT - paid) * STANDARD)
    assert tier_counts(run) == {"tier/rewrite/flex/served": paid}


def test_a_budget_holds_where_flex_ends_in_the_middle(night: Night) -> None:
    with FlexServer() as server:
        server.refusals = lambda prompt: float("inf") if server.answered["flex"] >= 4 else 0
        limit = 4 * FLEX + 4.5 * STANDARD
        with pytest.raises(Stopped) as stopped:
            run_in_process(prepared(night(server), f"limits.max_cost_usd={limit}"))
        paid = server.answered["flex"] * FLEX + server.answered["standard"] * STANDARD
    assert stopped.value.code == "stopped-cost"
    assert 0.5 * limit < paid <= limit + 1e-9


# ---------------------------------------------------------------- arms


@pytest.mark.slow
def test_arms_share_answers_at_flex_and_cost_what_these_cost(night: Night, capfd: pytest.CaptureFixture[str]) -> None:
    arms = {"arms": {"best": {"fuse.method": "best"}}}
    with FlexServer(refusing) as server:
        path = night(server)
        assert main(["ablate", path, "--set", f"ablate={json.dumps(arms)}"]) == 0
        assert server.answered == {"flex": COUNT - REFUSED, "standard": REFUSED}
    out = capfd.readouterr().out
    assert "flex 8, standard 4 (refused 4): $0.720 less than at the standard tier" in " ".join(out.split())
    run, prices = open_run(out.splitlines()[-1]), prepared(path).prices
    assert prices is not None
    assert "Answers by tier" in Path(run.storage.root, "report.html").read_text()
    wanted = (COUNT - REFUSED) * FLEX + REFUSED * STANDARD
    assert run.bill(prices).usd == pytest.approx(wanted)
    costs = {one.arm: one.standalone_usd for one in arm_costs(run, prices, {})}
    assert costs["full"] == pytest.approx(wanted)
    assert costs["best"] == pytest.approx(wanted)


@pytest.mark.slow
def test_arms_that_differ_in_their_tier_alone_share_their_answers(night: Night) -> None:
    """Whichever engine is asked first answers for both: the tier is no part of what a request is known by."""
    arms = {"arms": {"standard": {"rewrite.engine.tier": None, "rewrite.engine.flex": {}, "fuse.method": "best"}}}
    with FlexServer() as server:
        assert main(["ablate", night(server), "--set", f"ablate={json.dumps(arms)}"]) == 0
        assert server.answered.total() == COUNT


@pytest.mark.slow
def test_tries_are_asked_of_flex_too(night: Night) -> None:
    """Of an answer that does not serve, and a shard of which some requests are refused."""

    def said(body: dict[str, Any]) -> str:
        return "I'm sorry, but I can't help with that request." if body["seed"] < FIRST_TRY else "tides and moon"

    with FlexServer(refusing, text=said) as server:
        job = prepared(night(server), "rewrite.retries=1")
        run = finished(job)
    assert answers(run) == {("flex", None): 2 * (COUNT - REFUSED), ("standard", "refused"): 2 * REFUSED}
    assert usd(run, job) == pytest.approx(2 * ((COUNT - REFUSED) * FLEX + REFUSED * STANDARD))
    assert len(rows(run, "rewrites")) == COUNT


# ---------------------------------------------------------------- what else tells money


@pytest.mark.slow
def test_rows_for_others_have_the_money_of_each_tier(night: Night) -> None:
    with FlexServer(refusing, text=lambda body: "tides [1]") as server:
        path = night(server, answer={"documents": 1})
        job = prepared(path)
        run = finished(job)
    folder = run.storage.root
    assert main(["evaluate", folder, "--rows", "rows.parquet", "--prices", "prices.yaml"]) == 0
    found = pq.read_table("rows.parquet").to_pylist()
    wanted = {one["query_id"]: STANDARD if is_refused(one["query"]) else FLEX for one in rows(run, "queries")}
    assert {one["query_id"]: one["answer_usd"] for one in found} == pytest.approx(wanted)
    assert sum(one["usd"] for one in found) == pytest.approx(usd(run, job))
    assert sum(one["usd"] for one in found) == pytest.approx(2 * ((COUNT - REFUSED) * FLEX + REFUSED * STANDARD))
    for path in Path(folder, "costs").iterdir():  # of a run of before
        pq.write_table(pq.read_table(path).drop_columns(["tier", "tier_note"]), path)
    assert main(["evaluate", folder, "--rows", "rows.parquet", "--prices", "prices.yaml"]) == 0
    assert sum(one["usd"] for one in pq.read_table("rows.parquet").to_pylist()) == pytest.approx(2 * COUNT * STANDARD)


@pytest.mark.parametrize(
    ("query", "tier", "note", "price"), [("moon", "flex", None, FLEX), ("zanzibar", "standard", "refused", STANDARD)]
)
def test_a_trial_tells_the_tier(
    night: Night, capfd: pytest.CaptureFixture[str], query: str, tier: str, note: str | None, price: float
) -> None:
    with FlexServer(refusing) as server:
        path = night(server)
        assert main(["try", path, query, "--json"]) == 0
        (values,) = json.loads(capfd.readouterr().out)
        (request,) = values["requests"]
        assert (request["tier"], request["tier_note"]) == (tier, note)
        assert values["usd"] == pytest.approx(price)
        assert main(["try", path, f"{query} again", "--prompts"]) == 0
        assert (f"tier {tier} ({note})" if note else f"tier {tier}") in " ".join(capfd.readouterr().out.split())


def test_the_record_of_a_run_has_its_costs_by_tier(night: Night) -> None:
    with FlexServer(refusing) as server:
        folder = run_in_process(prepared(night(server)))
    record = json.loads((folder / "run.json").read_text())
    assert record["costs"]["rewrite"]["keyword@tiny"]["completion_tokens@flex"] == (COUNT - REFUSED) * 100
    assert record["counts"]["committed"]["tier/rewrite/standard/refused"] == REFUSED
    assert open_run(str(folder)).counts["tier/rewrite/flex/served"] == COUNT - REFUSED
