"""What `plan` expects of engines that ask for a tier: its prices."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from cluster.prices import Prices
from jobs.config.load import load_config
from jobs.job.prepare import Prepared, prepare
from jobs.plan.plan import plan
from jobs.run.ablation import prepare_ablation
from jobs.run.job import Job
from jobs.terminal.live_display import LiveDisplay

OF_MODEL = {"prompt": 2.0, "completion": 20.0, "tiers": {"flex": {"prompt": 1.0, "completion": 10.0}}}
PRICES = Prices.model_validate({"tokens": {"tiny": OF_MODEL, "small": OF_MODEL}})
FLEX = {"service_tier": "flex"}


@pytest.mark.slow
def test_arms_are_priced_by_the_tiers_of_their_own_engines(
    tmp_path: Path, values: dict[str, Any], bm25: dict[str, Any], config_file: Callable[[Any], str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """Whatever the run asks for that they change."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(Job, "check_engines", lambda _: None)
    pq.write_table(pa.table({"query": ["sea", "bread"]}), "log.parquet")

    def job(**engine: Any) -> Prepared:
        values["rewrite"] = {"engine": {"kind": "openai", "model": "tiny", "base_url": "http://127.0.0.1:9/v1"} | engine}
        values["retrieve"]["retrievers"], values["rerank"] = {"bm25": bm25}, {"kind": "none"}
        path = config_file(values)
        return replace(prepare(load_config(path), path), prices=PRICES)

    own = {"small": {"rewrite.engine.model": "small", "rewrite.engine.args": FLEX}}
    run = job()
    both = prepare_ablation(load_config(run.config_file, [f"ablate={json.dumps({'arms': own})}"]), run.config_file)
    both = replace(both, prepared=replace(both.prepared, prices=PRICES))
    missing = plan(run, LiveDisplay(io.StringIO()), both)["ablation"]["missing"]
    alone = [plan(one, LiveDisplay(io.StringIO()))["missing"] for one in (run, job(model="small", args=FLEX))]
    standard = plan(job(model="small"), LiveDisplay(io.StringIO()))["missing"]
    for end in ("low", "expected", "high"):
        assert missing["usd"][end] == pytest.approx(sum(one["usd"][end] for one in alone))
        assert standard["usd"][end] == pytest.approx(2 * alone[1]["usd"][end], abs=2e-6)
