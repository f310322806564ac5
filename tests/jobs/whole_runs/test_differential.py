"""Ablations drawn at random: each arm is what a run of it alone is, and what is stored makes no other ablation wrong.

DMQR_SEEDS=200 python -m pytest -m "slow or not slow" tests/jobs/whole_runs/test_differential.py
"""

import json
import os
import random
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from jobs.chain.arms.arms import BASELINE, FULL, Arm
from jobs.config.config import Config
from jobs.config.load import load_config
from jobs.run.ablation import prepare_ablation
from jobs.run.job import Job
from tests.support.jobs.arms_alone import Alone, asked_again, failed_stages, world_in, wrong_arms
from tests.support.jobs.drawn_ablations import Drawing, World, refused, write_files
from tests.support.jobs.in_process_runs import run_in_process

pytestmark = pytest.mark.overlapping
FAST, ALL = 8, int(os.environ.get("DMQR_SEEDS", "40"))


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    with world_in(tmp_path_factory.mktemp("drawn")) as made:
        yield made


def is_single(arm: Arm) -> bool:
    """Returns True if an arm is a strategy alone, which is always there."""
    return arm.family == "always" and arm.name not in (FULL, BASELINE)


def has_original(config: Config) -> bool:
    """Returns True if any list of the original has a weight, by the rule in docs/config.md: the retriever's own entry wins."""
    weights = config.fuse.weights
    named = config.retrieve.route("original")
    return any(
        weights.get(f"original/{name}", weights.get("original", 1.0)) * config.fuse.retriever_weights.get(name, 1.0) > 0
        for name in named
    )


def check(seed: int, world: World, config_file: Callable[[Any], str]) -> None:
    drawing, pick = Drawing(seed, world), random.Random(f"checks of {seed}")
    path = config_file(drawing.values)

    def ablation(values: dict[str, Any], ablate: dict[str, Any]) -> Job:
        return prepare_ablation(load_config(config_file(values), [f"ablate={json.dumps(ablate)}"]), path)

    config, alone, before = load_config(path), Alone(world), len(world.llm.bodies)
    first = ablation(drawing.values, drawing.ablate)
    folder = run_in_process(first)
    bodies, sent = Counter(json.dumps(one, sort_keys=True) for one in world.llm.bodies[before:]), set[str]()
    made = [arm for arm in first.compiled.arms if not arm.members]
    named = [arm for arm in made if arm.family == "arms" or arm.name == FULL]
    others = [arm for arm in made if arm not in named]
    looked = [*named, *pick.sample(others, min(1, len(others)))]
    wrong = wrong_arms(first, folder, config, alone, looked, sent)
    wrong += [f"{arm.name} is not alone" for arm in made if is_single(arm) and has_original(arm.config)]
    if missing := sent - bodies.keys():
        wrong.append(f"{len(missing)} requests of runs were not sent")
    # refused requests are sent again, and `refine` shows no document without a label, so that two contexts can read the same
    unlike = [one for one in bodies if "Documents that fit:" not in one and refused(json.loads(one)) is None]
    if twice := [one for one in unlike if bodies[one] > 1]:
        wrong.append(f"{len(twice)} requests were sent twice, such as {twice[0][:300]}")
    if pick.random() < 0.2:  # a second ablation, whose config was an arm of the first: what was stored must be its own
        arm = next(one for one in made if one.name == "arm 1")
        values = json.loads(arm.config.model_dump_json(exclude={"ablate"}))
        second = ablation(values, {"arms": {"rrf": {"fuse.method": "rrf"}}})
        over_it = run_in_process(second)
        chosen = pick.sample(list(second.compiled.arms), min(2, len(second.compiled.arms)))
        wrong += [f"second: {one}" for one in wrong_arms(second, over_it, arm.config, alone, chosen)]
    # The first once more, with its arms in another order: the same rows, and nobody is asked.
    again = ablation(drawing.values, drawing.ablate | {"arms": dict(reversed(drawing.ablate["arms"].items())), "keep": 9})
    repeated, words = asked_again(again, world, folder, made)
    wrong += words + failed_stages([folder, repeated, *alone.folders])
    assert not wrong, "\n".join(wrong)


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    write_files(tmp_path)
    return tmp_path


@pytest.mark.parametrize("seed", [*range(FAST), *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(FAST, ALL))])
def test_each_drawn_arm_is_what_a_run_of_it_alone_is(
    seed: int, world: World, place: Path, config_file: Callable[[Any], str]
) -> None:
    check(seed, world, config_file)
