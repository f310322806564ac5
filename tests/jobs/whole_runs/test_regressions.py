"""Shapes of configs in which an arm was once not what a run of it alone is, or might be: each arm equals its run."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from jobs.config.load import load_config
from jobs.run.ablation import prepare_ablation
from jobs.run.job import Job
from tests.support.jobs.arms_alone import Alone, asked_again, failed_stages, world_in, wrong_arms
from tests.support.jobs.drawn_ablations import World, write_files
from tests.support.jobs.in_process_runs import run_in_process

pytestmark = pytest.mark.overlapping
Changes = dict[str, Any]
SERVED = "a reranker at a server, in place of this text"
ROUNDS = {"iterate": {"by": "bm25", "below": 1e9, "documents": 2, "engine": "b"}}
TWICE = {"iterate.rounds": 2}
GRADES = {"grade": {"documents": 2, "engine": "b", "question": {"engine": "b"}, "strips": {"engine": "b"}},
          "web": {"engine": "a", "documents": 1, "search": "web"}, "answer": {"documents": 3, "engine": "a"}}  # fmt: skip
UNIONS = {"retrieve.retrievers": {"bm25": ("union", "bm25"), "dense": ("union", "dense")}}
SHAPES: dict[str, tuple[Changes, dict[str, Changes]]] = {
    "rounds merge all candidates, also where measures read fewer":
        ({**ROUNDS, "evaluate.measures": ["P@2"]},
         {"all": {"fuse.keep": 9}, "best": {"iterate.merge": "best"}, "twice": TWICE}),
    "a document that an earlier round has dropped as a duplicate is compared in the next":
        ({**ROUNDS, **TWICE, "fuse.duplicates": "drop", "fuse.duplicate_chars": 10}, {"kept": {"fuse.duplicates": "keep"}}),
    "rounds by a reranker's score, where measures read further than candidates":
        ({**ROUNDS, "rerank": SERVED, "fuse.keep": 2, "rerank.keep": 2, "iterate.by": "rerank", "iterate.below": 2.0},
         {"deep": {"fuse.keep": 8, "rerank.keep": 8}, "best": {"iterate.merge": "best"}, "twice": TWICE}),
    "the best score of a list that is not fused ends the rounds":
        ({**ROUNDS, "iterate.rounds": 3, "iterate.below": 2.0, "retrieve.retrievers.dense": ("dense", "whole")},
         {"dense alone": {"fuse.retriever_weights": {"bm25": 0}}}),
    "refined queries by the labels of an LLM, whose grades serve grading and judging":
        ({**ROUNDS, **GRADES, "iterate.prompt": "refine", "iterate.labels": {"by": "llm", "grades": {"engine": "b"}},
          "judge": {"engine": "b", "relevance": {"documents": 2}}}, {"twice": TWICE, "ungraded": {"grade": None, "web": None}}),
    "a gate over two retrievers and two engines":
        ({"rewrite.gate": {"by": "bm25", "below": 1.2}, "retrieve.retrievers.dense": ("dense", "whole")},
         {"other": {"rewrite.engine.model": "b"}, "by dense": {"rewrite.gate": {"by": "dense", "below": 0.5}}}),
    "a gate beside an arm that joins texts":
        ({"rewrite.gate": {"by": "bm25", "below": 1.2}},
         {"joined": {"rewrite.gate": None, "retrieve.retrievers.bm25.together": True}, "never": {"rewrite.gate": None}}),
    "the text of a web page is that of the first search of the arm":
        ({"retrieve.retrievers.web": "web", "rerank": SERVED},
         {"of rewrites": {"retrieve.routes": {"original": ["bm25"], "general": ["web"]}}, "as found": {"rerank.kind": "none"},
          "distinct": {"fuse.duplicates": "drop"}, "alone": {"retrieve.routes": {"original": ["web"]}}}),
    "web pages of rounds are reranked by the text that came first":
        ({**ROUNDS, **TWICE, "retrieve.retrievers.web": "web", "rerank": SERVED, "iterate.by": "rerank", "iterate.below": 1.5},
         {"once": {"iterate.rounds": 1}, "fewer": {"fuse.keep": 3}, "no rewrites": {"rewrite.strategies": []}}),
    "corrective RAG":
        (GRADES, {"any": {"web.when": "any"}, "whole": {"grade.strips": None}, "dry": {"web": None},
                  "query": {"grade.against": "query"}}),
    "unions":
        (UNIONS, {"law alone": {"retrieve.retrievers.bm25.of": {"law": ("bm25", "whole")}},
                  "score": {"retrieve.retrievers.dense.merge": "score"},
                  "distinct": {"fuse.duplicates": "drop"}, "routed": {"retrieve.routes": {"keyword": ["bm25"]}}}),
    "unions in rounds, reranked":
        ({**UNIONS, **ROUNDS, "rerank": SERVED}, {"best": {"iterate.merge": "best"}, "rrf": {"fuse.method": "rrf"}}),
    "a hybrid retriever":
        ({}, {"hybrid": {"retrieve.retrievers.bm25": ("hybrid", "whole")},
              "together": {"retrieve.retrievers.bm25": ("hybrid", "whole"), "retrieve.retrievers.bm25.together": True}}),
    "texts of a strategy as one, beside the same texts apart":
        ({"rewrite.strategies": [{"rag_fusion": {"n": 3, "as_one": "texts"}}]},
         {"apart": {"rewrite.strategies": [{"rag_fusion": {"n": 3}}]},
          "of two": {"rewrite.strategies": ["general", {"rag_fusion": {"n": 3, "as_one": "with_original"}}]}}),
    "arms over other corpora of the same ids":
        ({"rerank": SERVED, "fuse.duplicates": "drop"},
         {"short": {"retrieve.retrievers.bm25": ("bm25", "short")}, "other": {"retrieve.retrievers.bm25": ("bm25", "other")}}),
    "floors of strategies and retrievers":
        ({"rewrite.strategies": [{"general": {"score_floor": 0.7}}], "fuse.original_floor": 1.0},
         {"of all": {"retrieve.retrievers.bm25.score_floor": 1.0},
          "none": {"rewrite.strategies": ["general"], "fuse.original_floor": None}}),
    "answers of which two arms have the same are judged once":
        ({"answer": {"documents": 2, "engine": "a"}, "judge": {"engine": "b", "accuracy": {}, "criteria": {}}},
         {"rrf": {"fuse.method": "rrf"}, "one": {"answer.documents": 1}}),
}  # fmt: skip
FAST = 3


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    with world_in(tmp_path_factory.mktemp("shapes")) as made:
        yield made


def named(value: Any, world: World, key: str = "") -> Any:
    """A value of the table with the servers and indexes that it names."""
    if isinstance(value, tuple):
        kind, index = value
        return getattr(world, kind)(index)
    if value == "web":
        return world.web.block()
    if value == SERVED:
        return world.rerankings[0] | {"keep": 4}
    if key == "engine":
        return world.engine(value)
    return {name: named(one, world, name) for name, one in value.items()} if isinstance(value, dict) else value


def with_changes(values: Changes, changes: Changes) -> Changes:
    """Puts values under dotted keys."""
    for key, value in changes.items():
        *path, last = key.split(".")
        place = values
        for name in path:
            place = place.setdefault(name, {})
        place[last] = value
    return values


@pytest.mark.parametrize(
    "shape", [pytest.param(name, marks=[pytest.mark.slow] * (place >= FAST)) for place, name in enumerate(SHAPES)]
)
def test_each_arm_of_the_shape_is_its_run(
    shape: str, world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, config_file: Callable[[Any], str]
) -> None:
    monkeypatch.chdir(tmp_path)
    write_files(tmp_path)
    changes, arms = (named(one, world) for one in SHAPES[shape])
    values: Changes = {
        "name": "shape", "log": {"path": "log.parquet", "query_column": "query"}, "output": "runs",
        "rewrite": {"engine": world.engine("a"), "strategies": ["general", "keyword"]},
        "retrieve": {"retrievers": {"bm25": world.bm25("whole")}, "depth": 6}, "rerank": {"kind": "none"},
        "evaluate": {"measures": ["nDCG@5"], "answers": "gold.tsv", "key": "query"}, "limits": {"error_rate": 1},
        "cluster": {"address": "none", "shard_size": 3},
    }  # fmt: skip
    path = config_file(with_changes(values, changes))

    def ablation(**more: Any) -> Job:
        return prepare_ablation(load_config(path, [f"ablate={json.dumps({'arms': arms} | more)}"]), path)

    first, alone = ablation(), Alone(world)
    folder = run_in_process(first)
    looked = [one for one in first.compiled.arms if one.family == "arms" or one.name == "full"]
    wrong = wrong_arms(first, folder, first.prepared.config, alone, looked)
    repeated, words = asked_again(ablation(keep=9), world, folder, list(first.compiled.arms))
    assert not (wrong := wrong + words + failed_stages([folder, repeated, *alone.folders])), "\n".join(wrong)
