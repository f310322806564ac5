"""Ablations drawn at random: each arm is what a run of it alone is, and what is stored makes no other ablation wrong."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from jobs.chain.arms.arms import BASELINE, FULL, Arm
from jobs.chain.arms.requests import SAMPLES_APART
from jobs.config.config import Config
from jobs.config.load import load_config
from jobs.job.measure_checks import deepest_rank
from jobs.job.prepare import prepare
from jobs.job.rewriting import read_rewriting
from jobs.run.ablation import prepare_ablation
from jobs.run.job import Job
from rewriters.calls import calls_of
from rewriters.settings import SelectAdaptive, SelectAll
from tests.support.jobs.drawn_ablations import Drawing, World, answered, build_indexes, embed, score, write_files
from tests.support.jobs.in_process_runs import run_in_process
from tests.support.jobs.whole_runs import rows
from tests.support.retrievers.fake_models import FakeModels
from tests.support.rewriters.fake_server import FakeServer

pytestmark = pytest.mark.overlapping
FAR = 1e-5  # vectors of one text differ in the seventh decimal between batches
Rows = list[tuple[Any, ...]]


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    with (
        FakeServer(["a", "b"], text=answered) as llm,
        FakeModels("vllm", "reranker", score=score) as rerankers,
        FakeModels("tei", "encoder", embed=embed) as encoders,
    ):
        yield World(llm, rerankers, encoders, build_indexes(tmp_path_factory.mktemp("drawn"), encoders))


def results(folder: Path, arm: str) -> dict[str, Rows]:
    """query_id -> the ranks of an arm."""
    found = defaultdict(list)
    for row in rows(folder, "results"):
        if row["arm"] == arm:
            found[row["query_id"]].append((row["rank"], row["doc_id"], row["score"], row["rerank_score"]))
    return {query: sorted(of) for query, of in found.items()}


def difference(found: dict[str, Rows], wanted: dict[str, Rows], keep: int) -> str:
    """In words, the first query whose ranks differ; empty: none does."""
    if found.keys() != wanted.keys():
        return f"{len(found)} queries have results, not {len(wanted)}"
    for query, of in wanted.items():
        own, due = found[query][:keep], of[:keep]
        if [one[:2] for one in own] != [one[:2] for one in due]:
            return f"{query}: {[one[1] for one in own]}, not {[one[1] for one in due]}"
        for one, other in zip(own, due, strict=True):
            if one[2:] != pytest.approx(other[2:], abs=FAR):
                return f"{query}: scores {one[2:]}, not {other[2:]}"
    return ""


def joint_names(config: Config) -> list[str]:
    rewriting = read_rewriting(config)
    calls = calls_of(rewriting.pool, rewriting.calls, rewriting.decoding, "", None, False) if rewriting.pool else []
    return [one.name for call in calls if call.kind == "joint" for one in call.strategies]


def reads_a_part(config: Config, arm: Config) -> bool:
    """Whether an arm reads a part of the config's own joint answer, by the rule in docs/ablations.md."""
    alike = [one.rewrite.model_dump(exclude={"strategies", "select", "guards", "store"}) for one in (config, arm)]
    if alike[0] != alike[1] or not arm.rewrite.planned or isinstance(arm.rewrite.select, SelectAdaptive):
        return False
    own, whole = joint_names(arm), joint_names(config)
    return bool(own) and set(own) < set(whole)


def recorded(folder: Path, whole: Path, path: Path) -> None:
    """Writes a recording of a run's answers, whose joint ones are another run's."""
    texts: dict[str, dict[str, str]] = defaultdict(dict)
    for of, wanted in ((folder, lambda name: name != "dmqr"), (whole, lambda name: name == "dmqr")):
        names = {row["query_id"]: row["query"] for row in rows(of, "queries")}
        for file in (of / "completions").rglob("*.parquet"):
            for row in pq.read_table(file).to_pylist():
                if wanted(row["request"]) and row["text"] is not None:
                    texts[names[row["query_id"]]][row["request"].partition("(")[0]] = row["text"]
    path.write_text("".join(json.dumps({"query": query, "completions": of}) + "\n" for query, of in texts.items()))


class Alone:
    """Runs of arms by themselves, each once."""

    def __init__(self, world: World) -> None:
        self._world, self._folders, self.bodies = world, dict[str, Path](), dict[str, set[str]]()

    def folder(self, config: Config) -> Path:
        """The folder of a run of a config, and what it sent in `bodies`."""
        key = config.model_dump_json(exclude={"output", "ablate"})
        if key not in self._folders:
            before = len(self._world.llm.bodies)
            job = prepare(config.model_copy(update={"output": f"alone/{len(self._folders)}"}), "config.yaml")
            self._folders[key] = run_in_process(job)
            self.bodies[key] = {json.dumps(one, sort_keys=True) for one in self._world.llm.bodies[before:]}
        return self._folders[key]

    def sent(self, config: Config) -> set[str]:
        """What a run of a config sends."""
        self.folder(config)
        return self.bodies[config.model_dump_json(exclude={"output", "ablate"})]


def sampled(arm: Arm) -> Config:
    """The config of an arm, whose seed is that of its sample."""
    if not arm.sample:
        return arm.config
    decoding = arm.config.rewrite.decoding
    decoding = decoding.model_copy(update={"seed": decoding.seed + arm.sample * SAMPLES_APART})
    return arm.config.model_copy(update={"rewrite": arm.config.rewrite.model_copy(update={"decoding": decoding})})


def wrong_arms(ablation: Job, folder: Path, config: Config, alone: Alone, sent: set[str]) -> list[str]:
    """In words, the arms whose results are not those of a run; adds what these runs have sent to `sent`.

    Of an arm that reads a part of the config's joint answer, the run is one over a recording of that answer.
    """
    found = []
    for arm in ablation.compiled.arms:
        own = sampled(arm)
        keep = own.rerank.keep if own.rerank.kind != "none" else own.fuse.keep
        keep = min(keep, config.ablate.keep or deepest_rank(config.evaluate.measures))
        if arm.sample == 0 and reads_a_part(config, own):
            path = Path(f"part-{len(list(Path().glob('part-*')))}.jsonl")
            recorded(alone.folder(own), alone.folder(for_every_query(config)), path)
            wanted = alone.folder(answered_by(own, str(path)))
        else:
            wanted = alone.folder(own)
            sent |= alone.sent(own)
        assert (wanted / "_SUCCESS.json").exists()
        words = difference(results(folder, arm.name), results(wanted, "run"), keep)
        if words:
            found.append(f"{arm.name} {dict(arm.changes)}: {words}")
    return found


def for_every_query(config: Config) -> Config:
    """The config with all strategies for every query, whose joint request is that of the config."""
    return config.model_copy(update={"rewrite": config.rewrite.model_copy(update={"select": SelectAll(kind="all")})})


def answered_by(config: Config, recording: str) -> Config:
    """The config with a recording in place of all engines."""
    values = config.model_dump()
    values["rewrite"]["engine"] = {"kind": "recorded", "path": recording}
    for one in values["rewrite"]["strategies"]:
        for parameters in one.values() if isinstance(one, dict) else ():
            parameters.pop("engine", None)
    values["rewrite"]["strategies"] = [
        next(iter(one)) if isinstance(one, dict) and not next(iter(one.values())) else one
        for one in values["rewrite"]["strategies"]
    ]
    return Config.model_validate(values)


def is_single(arm: Arm) -> bool:
    """Whether an arm is a strategy alone, which is always there."""
    return arm.family == "always" and arm.name not in (FULL, BASELINE)


def has_original(config: Config) -> bool:
    """Whether any list of the original has a weight, by the rule in docs/config.md: the retriever's own entry wins."""
    weights = config.fuse.weights
    return any(weights.get(f"original/{name}", weights.get("original", 1.0)) > 0 for name in config.retrieve.retrievers)


def check(seed: int, world: World, config_file: Callable[[Any], str]) -> None:
    drawing = Drawing(seed, world)
    path = config_file(drawing.values)

    def ablation(values: dict[str, Any], ablate: dict[str, Any]) -> Job:
        return prepare_ablation(load_config(config_file(values), [f"ablate={json.dumps(ablate)}"]), path)

    def asked() -> list[str]:
        return [json.dumps(one, sort_keys=True) for one in world.llm.bodies]

    config, alone, before = load_config(path), Alone(world), len(world.llm.bodies)
    first = ablation(drawing.values, drawing.ablate)
    folder = run_in_process(first)
    bodies, sent = set(asked()[before:]), set[str]()
    wrong = wrong_arms(first, folder, config, alone, sent)
    wrong += [f"{arm.name} is not alone" for arm in first.compiled.arms if is_single(arm) and has_original(arm.config)]
    if not sent <= bodies:
        wrong.append(f"{len(sent - bodies)} requests of runs were not sent")
    # A second ablation, whose config was an arm of the first: what was stored must be its own.
    changes = drawing.ablate["arms"]["arm 1"]
    arm = next(one for one in first.compiled.arms if dict(one.changes) == changes)
    second = ablation(json.loads(arm.config.model_dump_json(exclude={"ablate"})), {"arms": {"rrf": {"fuse.method": "rrf"}}})
    over_it = run_in_process(second)
    wrong += [f"second: {one}" for one in wrong_arms(second, over_it, arm.config, alone, set())]
    # The first once more, with its arms in another order: the same rows, and no request.
    before = len(world.llm.bodies)
    again = ablation(drawing.values, drawing.ablate | {"arms": dict(reversed(drawing.ablate["arms"].items())), "keep": 9})
    repeated = run_in_process(again)
    if len(world.llm.bodies) != before:
        wrong.append(f"again: {len(world.llm.bodies) - before} requests were sent once more")
    for one in first.compiled.arms:
        made, after = results(folder, one.name), results(repeated, one.name)
        words = difference(after, made, min(map(len, made.values()), default=0))
        wrong += [f"again: {one.name}: {words}"] if words else []
    assert not wrong, "\n".join(wrong)


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    write_files(tmp_path)
    return tmp_path


def test_each_drawn_arm_is_what_a_run_of_it_alone_is(world: World, place: Path, config_file: Callable[[Any], str]) -> None:
    check(0, world, config_file)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(1, 200))
def test_two_hundred_of_them(seed: int, world: World, place: Path, config_file: Callable[[Any], str]) -> None:
    check(seed, world, config_file)
