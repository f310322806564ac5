"""Thresholds that are quantiles in whole jobs in this process: of what, over which queries, and what keeps them."""

from __future__ import annotations

import io
import json
import random
import shutil
from bisect import bisect_left
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from cluster.errors import ConfigError
from jobs.config.load import load_config
from jobs.job.prepare import prepare
from jobs.plan.plan import plan
from jobs.plan.table import plan_table
from jobs.runs.folder import RunFolder
from jobs.terminal.live_display import LiveDisplay
from jobs.try_one.stages import LoadedConfig
from rewriters.normalise import query_id
from tests.support.jobs.in_process_runs import finished, job_in_process, prepared_work, rows
from tests.support.rewriters.fake_server import FakeServer

WORDS = ["yeast", "moon", "lamp", "sea", "bread", "harbour", "mirror", "galaxies", "wick", "rye", "linen", "week"]
QUERIES = sorted({" ".join(random.Random(seed).sample(WORDS, 1 + seed % 4)) for seed in range(60)} | {"zzz", "qqq"})
SHARE, SAMPLE, SEED = 0.4, 20, 3


def said(body: dict[str, Any]) -> str:
    prompt = body["messages"][-1]["content"]
    if "Tried before" in prompt:
        return json.dumps({"query": "a faint light far across the sea"})
    return json.dumps({"general": "light of a lighthouse"})


@pytest.fixture
def server() -> Iterator[FakeServer]:
    with FakeServer(["some-8b"], text=said) as one:
        yield one


@pytest.fixture
def job(
    tmp_path: Path, values: dict[str, Any], bm25: dict[str, Any], config_file: Callable[[Any], str], server: FakeServer,
    monkeypatch: pytest.MonkeyPatch,
) -> str:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    values["rewrite"]["engine"] = {"kind": "openai", "model": "some-8b", "base_url": server.address, "attempts": 1}
    job_in_process(tmp_path, values, bm25, config_file)
    pq.write_table(pa.table({"query": QUERIES}), tmp_path / "log.parquet")
    return config_file(values | {"cluster": {"address": "none", "shard_size": 30}})  # two shards


QUANTILE = f"{{quantile: {SHARE}, sample: {SAMPLE}, seed: {SEED}}}"
GATE = f"rewrite.gate={{by: bm25, below: {QUANTILE}}}"
ROUNDS = f"iterate={{by: bm25, below: {QUANTILE}, documents: 2, merge: best}}"


def best_scores(run: RunFolder) -> dict[str, float]:
    texts = {one["query_id"]: one["query"] for one in rows(run, "queries")}
    found = dict.fromkeys(QUERIES, float("-inf"))
    for one in rows(run, "runs"):
        if one["strategy"] == "original":
            query = texts[one["query_id"]]
            found[query] = max(found[query], one["score"])
    return found


def threshold(best: dict[str, float], share: float = SHARE, size: int = SAMPLE, seed: int = SEED) -> float:
    """The quantile as the documentation has it, computed apart: a stretch of the ids from a drawn one on."""
    ordered = sorted(QUERIES, key=query_id)
    begin = bisect_left(ordered, f"{random.Random(seed).getrandbits(128):032x}")
    sample = sorted(best[query] for query in (ordered[begin:] + ordered[:begin])[:size])
    value = sample[int(share * len(sample))]
    return value if value > float("-inf") else min(one for one in sample if one > float("-inf"))


def rewritten(run: RunFolder, table: str = "rewrites") -> set[str]:
    texts = {one["query_id"]: one["query"] for one in rows(run, "queries")}
    return {texts[one["query_id"]] for one in rows(run, table)}


def stored(run: RunFolder) -> list[dict[str, Any]]:
    return list(json.loads((Path(run.storage.root) / "shards.json").read_text())["thresholds"].values())


@pytest.mark.slow
@pytest.mark.parametrize("size", [3, 30])
def test_a_quantile_is_taken_once_of_a_seeded_sample(job: str, size: int) -> None:
    best = best_scores(finished(prepared_work(job, ["rewrite.strategies=[]", "name=plain"], None)))
    value = threshold(best)
    low = {query for query in QUERIES if best[query] < value}
    assert 0 < len(low) < len(QUERIES)
    run = finished(prepared_work(job, [GATE, f"cluster.shard_size={size}"], None))
    (taken,) = stored(run)
    assert taken["value"] == pytest.approx(value)
    assert (taken["where"], taken["by"], taken["queries"]) == ("rewrite.gate.below", "bm25", SAMPLE)
    assert taken["below"] == pytest.approx(SHARE * SAMPLE, abs=1) or any(one == float("-inf") for one in best.values())
    assert run.record["thresholds"] == [taken]
    assert rewritten(run) == low
    rounds = finished(prepared_work(job, [ROUNDS, "rewrite.strategies=[]", f"cluster.shard_size={size}"], None))
    (of_rounds,) = stored(rounds)
    assert (of_rounds["where"], of_rounds["value"]) == ("iterate.below", taken["value"])
    assert rewritten(rounds, "rounds") == low


def test_a_run_goes_on_with_the_threshold_that_its_plan_keeps(job: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The plan's number counts, whatever a sample would say now."""
    from jobs.chain.stages.order import Order

    order = Order.__call__

    def broken(self: Order, table: Any) -> Any:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Order, "__call__", broken)
    with pytest.raises(OSError, match="No space"):
        finished(prepared_work(job, [GATE], None))
    monkeypatch.setattr(Order, "__call__", order)
    (path,) = Path("runs").glob("small-*/shards.json")
    body = json.loads(path.read_text())
    for one in body["thresholds"].values():
        one["value"] = 0.01
    path.write_text(json.dumps(body))
    run = finished(prepared_work(job, [GATE], None))
    best = best_scores(run)
    assert rewritten(run) == {query for query in QUERIES if best[query] < 0.01}


@pytest.mark.slow
@pytest.mark.parametrize("setting", [GATE, ROUNDS])
def test_a_run_goes_on_over_an_index_that_was_moved(
    job: str, bm25: dict[str, Any], monkeypatch: pytest.MonkeyPatch, setting: str
) -> None:
    """Addresses and limits are no part of what a threshold is known by."""
    from jobs.chain.stages.order import Order

    shutil.copytree(bm25["index"], "moved")
    order = Order.__call__

    def broken(self: Order, table: Any) -> Any:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Order, "__call__", broken)
    with pytest.raises(OSError, match="No space"):
        finished(prepared_work(job, [setting], None))
    monkeypatch.setattr(Order, "__call__", order)
    run = finished(prepared_work(job, [setting, "retrieve.retrievers.bm25.index=moved"], None))
    assert len(list(Path("runs").glob("small-*"))) == 1
    (taken,) = stored(run)
    best = best_scores(run)
    low = {query for query in QUERIES if best[query] < taken["value"]}
    assert rewritten(run, "rewrites" if setting == GATE else "rounds") == low


@pytest.mark.slow
def test_arms_with_quantiles_are_their_runs(job: str, server: FakeServer) -> None:
    arms = {
        "gated": {"rewrite.gate": {"by": "bm25", "below": {"quantile": SHARE, "sample": SAMPLE}}},
        "lead": {"rewrite.gate": {"by": "bm25", "lead": {"quantile": 0.5, "sample": SAMPLE, "seed": 1}}},
        "rounds": {"iterate.below": {"quantile": 0.2, "sample": SAMPLE}},
    }
    base = "iterate={by: bm25, below: 0.5, documents: 2, merge: best}"
    ablation = finished(prepared_work(job, [base], {"arms": arms}))
    assert [one["where"] for one in ablation.record["thresholds"]].count("rewrite.gate.below") == 1
    sent = len(server.bodies)
    for arm, changes in arms.items():
        alone = finished(prepared_work(job, [base, *(f"{k}={json.dumps(v)}" for k, v in changes.items()), "name=alone"], None))
        for table, columns in (("results", ("query_id", "rank", "doc_id", "score")), ("rounds", ("query_id", "round", "text"))):
            own = sorted(tuple(one[name] for name in columns) for one in rows(alone, table))
            of_arm = sorted(tuple(one[name] for name in columns) for one in rows(ablation, table) if one["arm"] == arm)
            assert own == of_arm, (arm, table)
    assert len(server.bodies) == sent


def test_plan_tells_the_threshold_and_how_many_are_rewritten(job: str) -> None:
    best = best_scores(finished(prepared_work(job, ["rewrite.strategies=[]", "name=plain"], None)))
    planned = plan(prepare(load_config(job, [GATE]), job), LiveDisplay(io.StringIO()))
    low = sum(best[query] < threshold(best) for query in QUERIES)  # the sample of 200 is all of them
    assert planned["left"]["requests_expected"] == low
    assert planned["thresholds"][0]["value"] == pytest.approx(threshold(best))
    assert "as the gate decides" in " ".join(map(str, plan_table(planned).columns[1].cells))
    assert not list(Path("runs").glob("small-*"))


@pytest.mark.slow
def test_try_knows_the_threshold_of_the_newest_run(job: str, server: FakeServer) -> None:
    best = best_scores(finished(prepared_work(job, ["rewrite.strategies=[]", "name=plain"], None)))
    sure = max(QUERIES, key=lambda query: best[query])
    config = load_config(job, [GATE, "store=null"])
    with LoadedConfig(config, job, "a") as loaded:
        assert any("which no finished run of this name has taken yet" in words for words in loaded.warnings)
        assert loaded.try_query(sure, lambda _: None).row["rewrites"]
    finished(prepared_work(job, [GATE, "store=null"], None))
    before = len(server.bodies)
    with LoadedConfig(config, job, "a") as loaded:
        assert any("as the newest run of this name took it" in words for words in loaded.warnings)
        trial = loaded.try_query(sure, lambda _: None)
        assert not trial.row["rewrites"]
        assert not trial.requests
        assert trial.not_selected == ["general"]
        assert trial.why_selected.startswith("gate: bm25 is sure: best score")
        assert loaded.try_query("zzz", lambda _: None).row["rewrites"]
    assert len(server.bodies) == before + 1


def test_a_quantile_of_a_reranker_is_refused(job: str) -> None:
    rerank = "rerank={kind: cross_encoder, model: tiny}"
    with pytest.raises(ConfigError, match="a quantile is of the scores of a retriever"):
        prepared_work(job, [rerank, ROUNDS.replace("by: bm25", "by: rerank")], None)
