"""What fusion must keep, whatever the lists: checked on generated ones with few documents and many equal scores."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from retrievers.fusion import METHODS
from retrievers.lists import ORIGINAL
from retrievers.redundancy import REDUNDANCY
from tests.support.retrievers.fusion_oracle import RunList, Similarity, fuse

STRATEGIES = [ORIGINAL, "general", "keyword"]


@st.composite
def run_lists(draw: st.DrawFn) -> list[RunList]:
    keys = draw(
        st.lists(
            st.tuples(st.sampled_from(STRATEGIES), st.integers(1, 2), st.sampled_from(["bm25", "dense"])),
            unique=True,
            max_size=6,
        )
    )
    runs = []
    for key in keys:
        doc_ids = draw(st.lists(st.sampled_from("abcdefgh"), unique=True, max_size=8))
        # quarters: sums and differences are exact
        scores = sorted((draw(st.integers(0, 12)) / 4 for _ in doc_ids), reverse=True)
        runs.append(RunList(*key, doc_ids, scores, weight=draw(st.sampled_from([1.0, 1.0, 0.5, 2.0, 0.0]))))
    return runs


@st.composite
def settings_of(draw: st.DrawFn) -> dict[str, Any]:
    cosines = np.eye(6) * 0.5 + 0.5 * draw(st.sampled_from([0.0, 0.5, 1.0]))
    texts = [(strategy, position) for strategy in STRATEGIES for position in (1, 2)]
    return {
        "method": draw(st.sampled_from(list(METHODS))),
        "redundancy": draw(st.sampled_from(REDUNDANCY)),
        "depth": draw(st.integers(1, 9)),
        "keep": draw(st.integers(1, 9)),
        "k": draw(st.sampled_from([1, 60])),
        "similarity": draw(st.sampled_from([None, Similarity(texts, cosines)])),
    }


@given(run_lists(), settings_of(), st.randoms())
def test_the_order_of_lists_does_not_matter(runs: list[RunList], settings: dict[str, Any], random: Any) -> None:
    shuffled = list(runs)
    random.shuffle(shuffled)
    assert fuse(shuffled, **settings) == fuse(runs, **settings)


@given(run_lists(), settings_of())
def test_candidates_are_ordered_distinct_and_bounded(runs: list[RunList], settings: dict[str, Any]) -> None:
    fused = fuse(runs, **settings)
    found = fused.candidates
    assert len(found) <= settings["keep"]
    assert len({candidate.doc_id for candidate in found}) == len(found)
    assert all((-a.score, a.doc_id) < (-b.score, b.doc_id) for a, b in pairwise(found))
    whole = fuse(runs, **(settings | {"keep": 100})).candidates
    assert found == whole[: settings["keep"]]
    taking_part = [run for run in runs if run.weight > 0 and run.doc_ids]
    if not taking_part:
        taking_part = [run for run in runs if run.strategy == ORIGINAL and run.doc_ids]
        assert fused.stood_in == bool(taking_part)
    else:
        assert not fused.stood_in
    assert {c.doc_id for c in whole} == {doc for run in taking_part for doc in run.doc_ids[: settings["depth"]]}


@given(run_lists(), settings_of())
def test_sources_are_complete_and_true(runs: list[RunList], settings: dict[str, Any]) -> None:
    fused = fuse(runs, **settings)
    by_key = {run[:3]: run for run in runs}
    alive = {key for key, run in by_key.items() if run.weight > 0 and run.doc_ids}
    if fused.stood_in:
        alive = {key for key, run in by_key.items() if key[0] == ORIGINAL and run.doc_ids}
    for candidate in fused.candidates:
        assert list(candidate.sources) == sorted(candidate.sources)
        for source in candidate.sources:
            run = by_key[source[:3]]
            assert source.rank <= settings["depth"]
            assert run.doc_ids[source.rank - 1] == candidate.doc_id
            assert run.scores[source.rank - 1] == source.score
        holding = {key for key in alive if candidate.doc_id in by_key[key].doc_ids[: settings["depth"]]}
        assert {source[:3] for source in candidate.sources} == holding


@given(run_lists(), settings_of(), st.data())
def test_a_repeated_document_changes_nothing(runs: list[RunList], settings: dict[str, Any], data: st.DataObject) -> None:
    repeated = []
    for run in runs:
        pairs = list(zip(run.doc_ids, run.scores, strict=True))
        if pairs:
            again = data.draw(st.integers(0, len(pairs) - 1))
            place = data.draw(st.integers(again + 1, len(pairs)))
            pairs.insert(place, (pairs[again][0], pairs[place - 1][1]))
        repeated.append(run._replace(doc_ids=[d for d, _ in pairs], scores=[s for _, s in pairs]))
    assert fuse(repeated, **settings) == fuse(runs, **settings)


@given(run_lists(), settings_of(), st.sampled_from([0.25, 2.0, 1024.0]), st.sampled_from([-8.0, 0.0, 3.0]))
def test_minmax_knows_no_scale_and_no_zero(runs: list[RunList], settings: dict[str, Any], scale: float, shift: float) -> None:
    settings = settings | {"method": "minmax"}
    moved = [run._replace(scores=[score * scale + shift for score in run.scores]) for run in runs]
    before, after = fuse(runs, **settings), fuse(moved, **settings)
    assert [(c.doc_id, c.score) for c in after.candidates] == [(c.doc_id, c.score) for c in before.candidates]


@given(run_lists(), settings_of())
def test_rrf_knows_ranks_only(runs: list[RunList], settings: dict[str, Any]) -> None:
    settings = settings | {"method": "rrf"}
    flat = [run._replace(scores=[0.0] * len(run.doc_ids)) for run in runs]
    before, after = fuse(runs, **settings), fuse(flat, **settings)
    assert [(c.doc_id, c.score) for c in after.candidates] == [(c.doc_id, c.score) for c in before.candidates]


@given(run_lists(), settings_of(), st.data())
def test_a_better_rank_never_hurts(runs: list[RunList], settings: dict[str, Any], data: st.DataObject) -> None:
    """A document that changes places with the one above it in a list does not fall. Without redundancy weights: these
    look at which documents are among the first ten, so they may move for all."""
    settings = settings | {"redundancy": "none", "keep": 100, "depth": 9}
    if settings["method"] in ("weighted", "best") and len({run.retriever for run in runs}) > 1:
        runs = [run for run in runs if run.retriever == "bm25"]
    swappable = [i for i, run in enumerate(runs) if len(run.doc_ids) > 1]
    if not swappable:
        return
    i = data.draw(st.sampled_from(swappable))
    place = data.draw(st.integers(1, len(runs[i].doc_ids) - 1))
    doc_ids = list(runs[i].doc_ids)
    risen = doc_ids[place]
    doc_ids[place - 1], doc_ids[place] = doc_ids[place], doc_ids[place - 1]
    better = [*runs[:i], runs[i]._replace(doc_ids=doc_ids), *runs[i + 1 :]]
    ranks = [[c.doc_id for c in fuse(lists, **settings).candidates] for lists in (runs, better)]
    if risen in ranks[0]:
        assert ranks[1].index(risen) <= ranks[0].index(risen)


@given(run_lists(), settings_of(), st.sampled_from(STRATEGIES))
def test_weight_0_is_as_if_the_list_were_not_there(runs: list[RunList], settings: dict[str, Any], out: str) -> None:
    settings = settings | {"redundancy": "none"}
    left = [run for run in runs if run.strategy != out]
    if not any(run.weight > 0 and run.doc_ids for run in left):
        return
    assert fuse(runs, weights={out: 0}, **settings) == fuse(left, **settings)


@given(run_lists(), settings_of())
def test_weighing_all_lists_alike_orders_alike(runs: list[RunList], settings: dict[str, Any]) -> None:
    double = [run._replace(position_weight=2.0) for run in runs]
    before, after = fuse(runs, **settings), fuse(double, **settings)
    assert [c.doc_id for c in after.candidates] == [c.doc_id for c in before.candidates]
