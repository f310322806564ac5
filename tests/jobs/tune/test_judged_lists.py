"""What is read of a run for tuning: texts, weights, lists, cosines; whether fusing it again gives the run's own results."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from jobs.log.judgements import Judgements
from jobs.runs.folder import open_run
from jobs.tune import judged_lists as module
from jobs.tune.judged_lists import gather
from jobs.tune.search import Objective, equal_weights
from retrievers.fusion import fuse
from retrievers.retriever import SearchText
from tests.support.jobs.run_folders import Query, RunMaker, query_id, stored
from tests.support.jobs.tuned_runs import half, judged_run, names_of


class Letters:
    """Vectors of texts by the letters that they begin with."""

    def encode(self, texts: Sequence[SearchText]) -> np.ndarray:
        vectors = np.array([[1.0, ord(one.text[0]) % 7, len(one.text) % 5] for one in texts], dtype=np.float32)
        unit: np.ndarray = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
        return unit


@pytest.mark.parametrize("fusion", [{"method": "rrf", "k": 60}, {"method": "minmax", "depth": 4}, {"method": "weighted"}])
def test_fused_again_it_is_the_run(tmp_path: Path, fusion: dict[str, object], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "BLOCK", 7)
    judged = judged_run(tmp_path, half, names_of(30), fuse=fusion)
    gathered = gather(judged.run, judged.judgements, None, "none", 0)
    assert [len(block.hits.pair_offsets) > 1 for block in gathered.blocks] == [True] * 5
    settings = equal_weights(judged.run.config, gathered)
    again: dict[str, list[str]] = {}
    names = iter(gathered.query_ids)
    for block in gathered.blocks:
        fused = fuse(block.hits, settings, block.similarity)
        for begin, end in zip(fused.offsets[:-1], fused.offsets[1:], strict=True):
            again[next(names)] = fused.doc_ids[begin:end].to_pylist()
    before: dict[str, list[str]] = {}
    for row in sorted(stored(judged.run, "results"), key=lambda row: row["rank"]):
        before.setdefault(row["query_id"], []).append(row["doc_id"])
    assert again == before


def test_cuts_of_a_strategy_hold(tmp_path: Path) -> None:
    own = {"general": {"depth": 2, "name": "short"}}
    query = Query("tea", {"short": "green tea"}, hits={("original", "bm25"): ["a"], ("short", "bm25"): ["b", "c", "d"]})
    run = RunMaker(tmp_path)([query], ("short",), rewrite=_rewrite([own]))
    gathered = gather(run, Judgements("q", {query_id(0): {"a": 1}}, "query_id"), None, "none", 0)
    (block,) = gathered.blocks
    assert block.hits.doc_ids.to_pylist() == ["a", "b", "c"]
    assert gathered.own_weights == {"original": 1.0, "short": 1.0}


def test_the_original_is_encoded_as_it_was_searched(tmp_path: Path) -> None:
    heard: list[str] = []

    class Hearing(Letters):
        def encode(self, texts: Sequence[SearchText]) -> np.ndarray:
            heard.extend(one.text for one in texts)
            return super().encode(texts)

    name = "a lighthouse and its keeper"
    query = Query(name, {"general": "the lamp"}, hits={("original", "bm25"): ["a"], ("general", "bm25"): ["b"]})
    retrieve = {"retrievers": {"bm25": {"kind": "local", "index": "nowhere"}}}
    run = RunMaker(tmp_path)([query], ("general",), retrieve=retrieve)
    gather(run, Judgements("q", {query_id(0): {"a": 1}}, "query_id"), Hearing(), None, 0)
    assert heard == [name, "the lamp"]


def _rewrite(strategies: list[object]) -> dict[str, object]:
    return {"engine": {"kind": "recorded", "path": "r.jsonl"}, "strategies": strategies}


def test_of_many_judged_queries_some_are_drawn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST_QUERIES", 12)
    judged = judged_run(tmp_path, half, names_of(30))
    one, again, other = (gather(judged.run, judged.judgements, None, "none", seed) for seed in (0, 0, 1))
    assert len(one.query_ids) == 12
    assert one.query_ids == again.query_ids != other.query_ids
    assert one.notes == ("12 of 30 judged queries were drawn (--seed)",)


def test_a_query_counts_once_whatever_is_judged_of_it(tmp_path: Path) -> None:
    queries = [Query("tea", hits={("original", "bm25"): ["a", "b"]}), Query("bread", hits={("original", "bm25"): ["c"]})]
    run = RunMaker(tmp_path)(queries, ("general",))
    judgements = Judgements("q", {query_id(0): {"b": 1}, query_id(1): {"c": 1}, "other": {"a": 1}}, "query_id")
    gathered = gather(run, judgements, None, "none", 0)
    two = module.GatheredQueries(
        **{name: getattr(gathered, name) for name in gathered.__dataclass_fields__} | {"keys": (("l1", "l2"), ("l3",))}
    )
    grades = {"l1": {"a": 1}, "l2": {"b": -1, "none": 2}, "l3": {"c": 1}}
    objective = Objective(run.config, two, Judgements("q", grades))
    assert objective.values(equal_weights(run.config, two)) == pytest.approx([0.5, 1.0])
    assert gathered.notes == ("left out of what is judged: 1 not in the log",)
    assert pa.types.is_string(gathered.blocks[0].hits.doc_ids.type)


def test_queries_after_other_turns_are_no_near_duplicates(tmp_path: Path) -> None:
    """The clusters are those of `ablate`: by the words of earlier turns, too."""
    judged = judged_run(tmp_path, half, ["and there", "and  there", "and there"])
    (queries,) = judged.run.tables["queries"]
    table = pq.read_table(queries)
    turns = pa.array(["rain in rome", "trains to oslo", "trains to oslo"])
    pq.write_table(table.append_column("context", turns), queries)
    assert gather(open_run(judged.run.storage.root), judged.judgements, None, "none", 0).clusters.tolist() == [0, 1, 1]
