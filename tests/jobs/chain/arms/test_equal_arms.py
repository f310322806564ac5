"""A system that stands in an ablation under two names is one arm, or is said to be one, and is tested once."""

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from jobs.chain.arms.arms import arms_of
from jobs.chain.arms.compile import ArmLists
from jobs.chain.cuts import Cuts
from jobs.config.config import Config
from jobs.config.load import load_config
from jobs.run.ablation import prepare_ablation
from jobs.run.job import Job
from tests.support.jobs.in_process_runs import run_in_process
from tests.support.jobs.whole_runs import rows

Make = Callable[..., Job]


@pytest.fixture
def make(small_job: Callable[..., str]) -> Make:
    def made(ablate: dict[str, Any], **sections: dict[str, Any]) -> Job:
        path = small_job(ablate=ablate, **{"rewrite": {"strategies": ["general", "keyword"]}} | sections)
        return prepare_ablation(load_config(path), path)

    return made


def noted(ablation: Job) -> dict[str, dict[str, Any]]:
    return {one["name"]: one for one in ablation.prepared.notes["ablation"]["arms"]}


def test_a_grid_point_that_is_an_arm_already_is_that_arm(make: Make) -> None:
    grid = {"fuse.method": ["minmax", "rrf"], "fuse.k": [10, 60], "fuse.redundancy": ["cosine", "none"]}
    ablation = make({"grid": grid})
    arms = noted(ablation)
    assert arms["full"]["also"] == [f"method=minmax k={k} redundancy=cosine" for k in (10, 60)]
    assert arms["method=minmax k=10 redundancy=none"]["also"] == ["method=minmax k=60 redundancy=none"]
    assert len(arms) == 4 + 1 + 4  # minmax without redundancy, and four of rrf
    run_in_process(ablation)
    assert {row["arm"] for row in rows(Path(ablation.prepared.storage.root), "results")} == set(arms)


ALIKE: tuple[dict[str, Any], ...] = (
    {"fuse.k": 7},  # of minmax
    {"fuse.weights": {"general": 0.3, "general/bm25": 1}},
    {"fuse.retriever_weights": {"bm25": 1}},
    {"rewrite.strategies": ["keyword", "general"]},
    {"rerank.combine": "replace"},
    {"fuse.duplicate_chars": 5},
    {"fuse.divide": "max"},
    {"retrieve.keep_runs": False},
    {"fuse.keep_candidates": True},
    {"fuse.keep": 40},  # no measure looks as deep, and nothing is reranked
)
OTHERS: tuple[dict[str, Any], ...] = (
    {"fuse.weights": {"general": 0.5}},
    {"fuse.keep": 3},
    {"fuse.method": "rrf"},
    {"fuse.depth": 5},
    {"retrieve.depth": 7},
    {"retrieve.routes": {"general": []}},
    {"fuse.duplicates": "drop"},
    {"fuse.original_floor": 0.1},
    {"retrieve.retrievers.bm25.score_floor": 0.1},
    {"rewrite.guards.near_duplicates": "drop"},
    {"rewrite.strategies": ["keyword"]},
)


def test_what_cannot_matter_makes_no_other_system(make: Make) -> None:
    arms = noted(make({"arms": {str(changes): changes for changes in (*ALIKE, *OTHERS)}}))
    same_as = {str(changes): arms[str(changes)]["same_as"] for changes in (*ALIKE, *OTHERS)}
    assert same_as == dict.fromkeys(map(str, ALIKE), "full") | dict.fromkeys(map(str, OTHERS))


def test_the_original_is_the_config_where_nothing_is_rewritten(make: Make) -> None:
    arms = noted(make({"subsets": "all"}, rewrite={"strategies": []}))
    assert list(arms) == ["full", "original"]
    assert arms["original"]["same_as"] == "full"


@pytest.mark.parametrize("key", ["fuse.k", "fuse.keep"])
def test_rounds_are_merged_by_ranks_of_all_candidates(make: Make, values: dict[str, Any], key: str) -> None:
    rounds = {"by": "bm25", "below": 9, "engine": values["rewrite"]["engine"]}
    assert not noted(make({"grid": {key: [40]}}, iterate=rounds))["full"]["also"]


def test_arms_that_ask_the_same_call_it_by_one_name(make: Make, values: dict[str, Any]) -> None:
    changes = {"answer.decoding": {"max_tokens": 99}}
    arms = {"one": changes, "two": changes | {"fuse.method": "rrf"}}
    work = make({"arms": arms}, answer={"engine": values["rewrite"]["engine"]}).compiled.work
    assert {one.tasks["answer"].name for one in work.answers} == {"answer", "answer of one"}


def test_an_oracle_chooses_among_arms_that_are_made(make: Make) -> None:
    arms = {"both": {"rewrite.select": {"kind": "oracle_k", "k": 2}}, "best": {"rewrite.select": {"kind": "oracle_k", "k": 1}}}
    found = noted(make({"arms": {"two": {"rewrite.strategies": ["general"]}} | arms}))
    assert found["best"]["members"] == ["two", "original+keyword"]
    assert found["both"]["members"] == ["full"]


def test_the_baseline_may_be_named_by_a_grid_point_that_is_another_arm(make: Make) -> None:
    ablation = make({"grid": {"fuse.k": [7, 60]}}, evaluate={"baseline": "k=7"})
    assert noted(ablation)["full"]["also"] == ["k=7", "k=60"]


def test_a_deeper_arm_changes_no_approximate_list_of_another(values: dict[str, Any]) -> None:
    dense = {"kind": "elastic", "index": "d", "encoder": {"kind": "openai", "model": "m", "base_url": "http://none"}}
    values["retrieve"] = {"depth": 30, "retrievers": {"dense": dense, "bm25": {"kind": "elastic", "index": "b"}}}
    arms = arms_of(Config.model_validate(values | {"ablate": {"arms": {"deep": {"retrieve.depth": 300}}}}))
    indexes = {name: {"kind": "elastic", "index": name} for name in ("dense", "bm25")}
    checked = {arm.name: SimpleNamespace(config=arm.config, indexes=indexes, facts={}) for arm in arms}
    lists = ArmLists(checked.values())
    found = {name: lists.searches[lists.search(arm, 0, Cuts())] for name, arm in checked.items()}
    of = {
        name: {retriever: lists.retrievers[key].depth for retriever, key in one.retrievers.items()}
        for name, one in found.items()
    }
    assert of["full"] == {"dense": 30, "bm25": 300}  # an exact list is the beginning of a deeper one
    assert of["deep"] == {"dense": 300, "bm25": 300}
