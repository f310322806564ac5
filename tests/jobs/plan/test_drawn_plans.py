"""Jobs drawn at random: what `plan` says is missing is what the run then pays for.

DMQR_SEEDS=100 python -m pytest -m "slow or not slow" tests/jobs/plan/test_drawn_plans.py
"""

import io
import json
import os
import random
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from jobs.config.load import load_config
from jobs.counts import QUANTITIES, cost_quantity, cost_stages
from jobs.job.prepare import prepare
from jobs.plan.plan import plan
from jobs.run.ablation import prepare_ablation
from jobs.run.job import Job, run_of
from jobs.terminal.live_display import LiveDisplay
from tests.support.jobs.arms_alone import stored, world_in
from tests.support.jobs.drawn_ablations import Drawing, World, write_files
from tests.support.jobs.in_process_runs import run_in_process

pytestmark = pytest.mark.overlapping
FAST, ALL = 2, int(os.environ.get("DMQR_SEEDS", "20"))


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    with world_in(tmp_path_factory.mktemp("drawn")) as made:
        yield made


def paid(folder: Path) -> Counter[str]:
    """Sums what a finished job has made, by kind of work."""
    made, rows = Counter[str](), [row for row in stored(folder, "costs") if row["query_id"] is not None]
    for kind in QUANTITIES:
        made[kind] = sum(row[cost_quantity(kind)] or 0 for row in rows if row["stage"] in cost_stages(kind))
    return made


def missing(job: Job, run: Job) -> dict[str, Any]:
    planned = plan(run.prepared, LiveDisplay(io.StringIO()), None if job is run else job)
    return dict((planned if job is run else planned["ablation"])["missing"])


@pytest.mark.parametrize("seed", [*range(FAST), *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(FAST, ALL))])
def test_what_is_planned_is_paid(
    seed: int, world: World, tmp_path: Path, config_file: Callable[[Any], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    write_files(tmp_path)
    drawing, pick = Drawing(seed, world), random.Random(f"plans of {seed}")
    path = config_file(drawing.values)

    def drawn(*settings: str) -> tuple[Job, Job]:
        run = run_of(prepare(load_config(path, list(settings)), path))
        ablate = f"ablate={json.dumps(drawing.ablate)}"
        return run, run if seed % 4 in (0, 3) else prepare_ablation(load_config(path, [*settings, ablate]), path)

    if seed % 2:  # over a store that knows some of the queries, or what the arms share
        whole = pq.read_table("log.parquet")
        if pick.random() < 0.5:
            pq.write_table(whole.slice(pick.randint(1, 5)), "log.parquet")
        run_in_process(drawn("label=before")[0])
        pq.write_table(whole, "log.parquet")
    run, job = drawn()
    before = missing(job, run)
    made, tries = paid(run_in_process(job)), max(one.rewriting.retries for one in job.compiled.work.readings)
    wrong = []
    for kind, of in before["kinds"].items():
        low, high = of["number"]["low"], of["number"]["high"]
        if not low <= made[kind] <= high * (1 + tries * (kind == "requests")):
            wrong.append(f"{kind}: {made[kind]} were made, not {low} to {high}")
    assert not [kind for kind, number in made.items() if number and kind not in before["kinds"]]
    assert not wrong, "\n".join(wrong)
    # once more, over a store with all of it: only searches of local indexes are left, and what was refused
    run, job = drawn("label=again")
    again, made = missing(job, run), paid(run_in_process(job))
    for kind, of in again["kinds"].items():
        low, high = of["number"]["low"], of["number"]["high"]
        assert low <= made[kind] <= high, (kind, of, made)
    for kind, of in again["kinds"].items():
        if of["note"]:
            break
        if kind == "searches":
            assert of["number"]["low"] == of["number"]["high"] == made[kind], of
        elif of["number"]["high"]:
            assert made[kind], (kind, of)
            break
