"""A hybrid: the lists of several retrievers become one list per text, computed here again from their plain lists."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cluster.errors import RetrieverError
from retrievers.hybrid.retriever import fused_lists
from retrievers.hybrid.settings import HybridSettings
from retrievers.kinds import all_indexed
from retrievers.retriever import Embedder, RankedLists, SearchText, open_retriever, retriever_identity
from tests.support.retrievers.blocks import typed

Ranking = list[tuple[str, float]]
TEXTS = [SearchText("light of a lamp at sea"), SearchText("bread and yeast", "passage"), SearchText("xyzzy")]


def lists_of(found: RankedLists) -> list[Ranking]:
    ids = found.doc_ids.to_pylist()
    return [list(zip(ids[a:b], found.scores[a:b].tolist(), strict=True)) for a, b in pairwise(found.offsets.tolist())]


def flat(lists: Sequence[Ranking]) -> RankedLists:
    offsets = np.cumsum([0, *map(len, lists)])
    hits = [hit for one in lists for hit in one]
    return RankedLists(offsets, pa.array([doc_id for doc_id, _ in hits], pa.string()), np.array([score for _, score in hits]))


def by_hand(lists: Sequence[Ranking], method: str, k: float, deep: int, depth: int) -> Ranking:
    """The fused list of one text: sums over its lists, each cut at `deep`."""
    sums: dict[str, float] = {}
    for one in (found[:deep] for found in lists):
        scores = [score for _, score in one]
        for rank, (doc_id, score) in enumerate(one, start=1):
            spread = max(scores) - min(scores)
            points = 1 / (k + rank) if method == "rrf" else (score - min(scores)) / spread if spread else 1.0
            sums[doc_id] = sums.get(doc_id, 0.0) + points
    return sorted(((doc_id, round(score, 9)) for doc_id, score in sums.items()), key=lambda hit: (-hit[1], hit[0]))[:depth]


def ranking(draw: st.DrawFn) -> Ranking:
    ids = draw(st.lists(st.sampled_from([f"d{n}" for n in range(8)]), unique=True, max_size=8))
    scores = draw(st.lists(st.integers(-20, 40), min_size=len(ids), max_size=len(ids)))
    return sorted(zip(ids, map(float, scores), strict=True), key=lambda hit: (-hit[1], hit[0]))


@given(st.data())
def test_the_lists_of_a_text_are_fused_as_by_hand(data: st.DataObject) -> None:
    texts, retrievers = data.draw(st.integers(0, 3)), data.draw(st.integers(2, 3))
    method, k = data.draw(st.sampled_from(["rrf", "minmax"])), data.draw(st.sampled_from([1.0, 60.0]))
    deep, depth = data.draw(st.integers(1, 6)), data.draw(st.integers(1, 9))
    lists = [[ranking(data.draw) for _ in range(texts)] for _ in range(retrievers)]
    settings = HybridSettings.model_construct(of={}, method=method, k=k, depth=deep)  # type: ignore[arg-type]
    found = lists_of(fused_lists([flat(one) for one in lists], settings.fusion(depth)))
    wanted = [by_hand([one[text] for one in lists], method, k, deep, depth) for text in range(texts)]
    for hits, expected in zip(found, wanted, strict=True):
        assert [doc_id for doc_id, _ in hits] == [doc_id for doc_id, _ in expected]
        np.testing.assert_allclose([score for _, score in hits], [score for _, score in expected], atol=1e-9)


@pytest.fixture(scope="module")
def blocks(both_index: Path, encoder_block: dict[str, Any]) -> dict[str, dict[str, Any]]:
    bm25 = {"kind": "local", "index": str(both_index)}
    return {"bm25": bm25, "dense": bm25 | {"encoder": encoder_block}}


def hybrid(blocks: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"kind": "hybrid", "of": blocks} | more


@pytest.mark.slow
def test_it_has_vectors_and_an_encoder_only_with_a_dense_retriever(blocks: dict[str, Any], bm25_index: Path) -> None:
    opened = open_retriever("both", typed(hybrid(blocks)))
    assert isinstance(opened, Embedder)
    dense = open_retriever("dense", typed(blocks["dense"]))
    assert isinstance(dense, Embedder)
    np.testing.assert_allclose(opened.embed(TEXTS), dense.embed(TEXTS), atol=1e-6)
    two = hybrid({"one": blocks["bm25"], "two": {"kind": "local", "index": str(bm25_index)}})
    assert not isinstance(open_retriever("both", typed(two)), Embedder)
    assert typed(two).encoder is None


def test_what_decides_its_hits_is_in_its_identity(blocks: dict[str, Any], bm25_index: Path) -> None:
    plain = retriever_identity("both", typed(hybrid(blocks)))
    assert plain["of"] == {name: retriever_identity(name, typed(one)) for name, one in blocks.items()}
    assert plain["encoder"] == plain["of"]["dense"]["encoder"]
    turned = dict(reversed(blocks.items()))  # another retriever has the texts
    others = [hybrid(blocks, k=1), hybrid(blocks, method="minmax"), hybrid(blocks, depth=7), hybrid(turned)]
    found = [retriever_identity("both", typed(one)) for one in others]
    assert all(one != plain for one in found)
    planned = plain | {"of": plain["of"] | {"bm25": plain["of"]["bm25"] | {"corpus": "sha256:of another time"}}}
    with pytest.raises(RetrieverError, match=r"retrieve\.retrievers\.both\.of\.bm25: index .* was replaced"):
        open_retriever("both", typed(hybrid(blocks)), expect_identity=planned)


def test_the_retrievers_of_a_config_are_named_one_by_one(blocks: dict[str, Any]) -> None:
    both, bm25 = typed(hybrid(blocks)), typed(blocks["bm25"])
    assert list(all_indexed({"both": both, "bm25": bm25})) == ["both.of.bm25", "both.of.dense", "bm25"]
    changed = both.with_indexed("both", lambda key, one: one.model_copy(update={"index": key}))
    assert [one.index for one in all_indexed({"both": changed}).values()] == ["both.of.bm25", "both.of.dense"]
