"""The arms of a config: which are there, under which names, as which configs; and what is refused."""

from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobs.chain.arms.arms import FULL, Arm, arms_of
from jobs.config.config import Config
from retrievers.fusion import list_weight

FOUR = ["general", "keyword", "pseudo_answer", "core_content"]
Make = Callable[..., dict[str, Arm]]


@pytest.fixture
def arms(values: dict[str, Any]) -> Make:
    """Returns the arms of a small config with these sections changed, by name."""

    def made(ablate: dict[str, Any] | None = None, **changed: dict[str, Any]) -> dict[str, Arm]:
        for section, keys in (changed | ({"ablate": ablate} if ablate else {})).items():
            values[section] = values.get(section, {}) | keys
        found = arms_of(Config.model_validate(values))
        assert len({arm.name for arm in found}) == len(found)
        return {arm.name: arm for arm in found}

    return made


def test_the_original_and_each_strategy_are_always_arms(arms: Make) -> None:
    found = arms()
    assert list(found) == [FULL, "original", *FOUR]
    assert found["original"].strategies == []
    assert found["keyword"].strategies == ["keyword"]
    assert not found["keyword"].with_original
    assert found[FULL].with_original
    assert {arm.family for arm in found.values()} == {"always"}


def test_all_subsets_of_four_are_sixteen_with_the_original_and_fifteen_without(arms: Make) -> None:
    found = arms({"subsets": "all"}).values()
    of = Counter(arm.with_original for arm in found)
    assert (of[True], of[False]) == (16, 15)
    assert len({(arm.with_original, tuple(arm.strategies)) for arm in found}) == 31


def test_leave_one_out_and_add_one(arms: Make) -> None:
    assert arms({"subsets": "leave_one_out"})["without keyword"].strategies == ["general", "pseudo_answer", "core_content"]
    added = arms({"subsets": "add_one"})["original+keyword"]
    assert (added.strategies, added.with_original) == (["keyword"], True)


def test_a_grid_is_the_product_named_by_its_values(arms: Make) -> None:
    found = arms({"grid": {"fuse.k": [10, 60], "rerank.kind": ["none", "cross_encoder"]}})
    names = [arm.name for arm in found.values() if arm.family == "grid"]
    assert names == ["k=10 kind=none", "k=10 kind=cross_encoder", "k=60 kind=none", "k=60 kind=cross_encoder"]
    assert found["k=10 kind=none"].config.fuse.k == 10
    assert found["k=10 kind=none"].config.rerank.kind == "none"


def test_numbers_of_a_grid_are_no_truth_values(arms: Make) -> None:
    found = arms({"grid": {"fuse.k": [1], "fuse.retriever_weights": [{"bm25": 0}], "rewrite.gate": [None]}})
    assert "k=1 retriever_weights=bm25:0 gate=null" in found
    assert "fuse.keep=20 rerank.keep=5" in arms({"grid": {"fuse.keep": [20], "rerank.keep": [5]}})  # keys of one last part
    assert "together=true" in arms({"grid": {"retrieve.retrievers.bm25.together": [True, False]}})


def test_weights_and_routes_of_strategies_that_an_arm_lacks_are_left_out(arms: Make) -> None:
    found = arms(
        {"arms": {"general, too": {"rewrite.strategies": ["general"]}}},
        fuse={"weights": {"keyword": 0.5, "keyword/bm25": 2, "general": 1, "original+keyword": 0.5, "original+general": 2}},
        retrieve={"routes": {"keyword": ["bm25"]}},
    )
    assert found["keyword"].config.fuse.weights == {"keyword": 0.5, "keyword/bm25": 2, "original": 0}
    assert found["general"].config.fuse.weights == {"general": 1, "original": 0}
    assert found["general, too"].config.fuse.weights == {"general": 1, "original+general": 2}
    assert found["general"].config.retrieve.routes == {}


@pytest.mark.parametrize("weights", [{}, {"original/bm25": 2}, {"original/bm25": 2, "original/more.words": 1}])
def test_arms_without_the_original_have_none_of_its_lists(arms: Make, weights: dict[str, float]) -> None:
    both = {name: {"kind": "local", "index": name} for name in ("bm25", "more.words")}
    found = arms({"subsets": "all"}, fuse={"weights": weights}, retrieve={"retrievers": both})
    for arm in found.values():
        fuse = arm.config.fuse
        lists = [list_weight(fuse.weights, "original", name, 1.0) for name in both]
        assert arm.with_original == any(lists), arm.name
        assert arm.with_original == (arm.name == FULL or arm.name.startswith("original")), arm.name
    assert {arm.name for arm in found.values() if not arm.with_original} >= {*FOUR, "general+keyword"}


def test_an_arm_says_whether_lists_of_the_original_count(arms: Make) -> None:
    both = {name: {"kind": "local", "index": name} for name in ("bm25", "dense")}
    found = arms(
        {
            "arms": {
                "off": {"fuse.weights.original": 0},
                "one list": {"fuse.weights": {"original": 0, "original/dense": 1}},
                "no list": {"fuse.weights": {"original": 1, "original/dense": 0, "original/bm25": 0}},
                "routed off": {"fuse.weights": {"original": 0, "original/dense": 1}, "retrieve.routes": {"original": ["bm25"]}},
                "retriever off": {"fuse.weights.original/bm25": 0, "fuse.retriever_weights": {"dense": 0}},
            }
        },
        retrieve={"retrievers": both},
    )
    assert {name: arm.with_original for name, arm in found.items() if arm.family == "arms"} == {
        "off": False, "one list": True, "no list": False, "routed off": False, "retriever off": False,
    }  # fmt: skip


def test_where_strategies_are_selected_the_single_ones_rewrite_every_query(arms: Make) -> None:
    found = arms({"subsets": "all"}, rewrite={"select": {"kind": "random_k", "k": 2}})
    assert found[FULL].config.rewrite.select.kind == "random_k"
    assert found["keyword"].config.rewrite.select.kind == "all"
    assert found["original+general+keyword+pseudo_answer+core_content"].config.rewrite.select.kind == "all"


def test_samples_are_the_config_again(arms: Make) -> None:
    found = arms({"samples": 3})
    assert [arm.sample for arm in found.values() if arm.config == found[FULL].config] == [0, 1, 2]


@given(st.lists(st.sampled_from(FOUR), min_size=1, unique=True), st.sampled_from(["none", "all", "leave_one_out", "add_one"]))
def test_every_arm_is_a_config_that_loads_again(pool: list[str], subsets: str) -> None:
    values = {
        "name": "small",
        "log": {"path": "log.parquet", "query_column": "query"},
        "rewrite": {"engine": {"kind": "recorded", "path": "r.jsonl"}, "strategies": pool},
        "retrieve": {"retrievers": {"bm25": {"kind": "local", "index": "index"}}},
        "output": "runs",
        "ablate": {"subsets": subsets},
    }
    for arm in arms_of(Config.model_validate(values)):
        assert Config.model_validate(arm.config.model_dump()) == arm.config
        assert set(arm.strategies) <= set(pool)
