"""Rules for every retriever: the contract that a plug-in's author runs, and more. A new kind joins by a line in KINDS."""

from typing import Any

import numpy as np
import pytest

from dmqr.testing import RetrieverContract, hits_of
from retrievers.hybrid.retriever import Hybrid
from retrievers.join import joined_text, repetitions
from retrievers.kinds import RetrieverSettings
from retrievers.retriever import Embedder, JoinedText, Retriever, SearchText, open_retriever
from retrievers.web.retriever import Web
from tests.support.retrievers.blocks import typed
from tests.support.retrievers.passages import PASSAGES

TEXTS = [
    SearchText("light of a lamp at sea"),
    SearchText("bread and yeast"),
    SearchText("the moon fills the harbour", "passage"),
    SearchText("東京タワー"),
    SearchText("light of a lamp at sea"),
]


KINDS = [
    "bm25",
    "dense",
    "hybrid",
    "union",
    "served tei",
    "served vllm",
    "elastic bm25",
    "elastic dense",
    "elastic served",
    "web",
]


@pytest.fixture(scope="module", params=KINDS)
def settings(request: pytest.FixtureRequest) -> dict[str, Any]:
    kind, _, own = request.param.partition(" ")
    if own or kind == "web":
        blocks = request.getfixturevalue(f"{kind}_blocks" if own else "web_block")
        return dict(blocks[own] if own else blocks)
    if kind in ("bm25", "union"):
        bm25 = {"kind": "local", "index": str(request.getfixturevalue("bm25_index")), "analyzer": "english"}
        return bm25 if kind == "bm25" else {"kind": "union", "of": {"law": bm25}, "merge": "score"}
    bm25 = {"kind": "local", "index": str(request.getfixturevalue("both_index"))}
    dense = bm25 | {"encoder": request.getfixturevalue("encoder_block")}
    # by scores: ranks do not tie, though passages do
    return dense if kind == "dense" else {"kind": "hybrid", "of": {"bm25": bm25, "dense": dense}, "method": "minmax"}


def own_id(doc_id: str) -> str:
    """A document's id in its index."""
    return doc_id.removeprefix("law:")


@pytest.fixture(scope="module")
def retriever(settings: dict[str, Any]) -> Retriever:
    return open_retriever("under_test", typed(settings))


class TestEveryRetriever(RetrieverContract):
    texts = TEXTS

    @pytest.fixture(autouse=True)
    def given(self, settings: dict[str, Any], retriever: Retriever) -> None:
        self._settings, self._retriever = typed(settings), retriever

    def settings(self) -> RetrieverSettings:
        return self._settings

    def opened(self) -> Retriever:
        return self._retriever


def test_finds_what_was_asked_for(retriever: Retriever) -> None:
    if isinstance(retriever, Web):
        pytest.skip("ids are of addresses")
    best = [own_id(hits[0][0]) for hits in hits_of(retriever.search(TEXTS, 3))]
    assert best[0] == "d02"
    assert best[1] in ("d03", "d04", "d05")
    assert best[3] == "d09"


def test_equal_passages_tie_and_stand_in_order(retriever: Retriever) -> None:
    if isinstance(retriever, Web):
        pytest.skip("scores are by rank")
    (hits,) = hits_of(retriever.search([SearchText("sour dough and wild yeast")], 2))
    assert [own_id(doc_id) for doc_id, _ in hits] == ["d03", "d10"]
    assert hits[0][1] == hits[1][1]


JOINED = JoinedText(SearchText("light of a lamp"), (SearchText("lamp, sea; moon lamp"), SearchText("yeast " * 40, "passage")))


def test_texts_searched_as_one_count_as_often_as_they_are_repeated(retriever: Retriever) -> None:
    if isinstance(retriever, Web):
        pytest.skip("texts are sent once")
    if isinstance(retriever, Embedder):
        pytest.skip("searches by vectors")
    assert repetitions(JOINED) == 2
    single, one, again, other = hits_of(
        retriever.search([TEXTS[1], JOINED, SearchText(joined_text(JOINED)), JoinedText(None, (TEXTS[0], TEXTS[1]))], 8)
    )
    assert [single] == hits_of(retriever.search([TEXTS[1]], 8))
    assert [doc_id for doc_id, _ in one] == [doc_id for doc_id, _ in again]
    np.testing.assert_allclose([score for _, score in one], [score for _, score in again], rtol=1e-6)
    together = dict(hits_of(retriever.search([TEXTS[0]], 100))[0])
    for doc_id, score in hits_of(retriever.search([TEXTS[1]], 100))[0]:
        together[doc_id] = together.get(doc_id, 0.0) + score
    for doc_id, score in other:
        assert score == pytest.approx(together[doc_id], rel=1e-5)


def test_a_joined_vector_is_the_mean_of_those_of_its_texts(retriever: Retriever) -> None:
    if not isinstance(retriever, Embedder) or isinstance(retriever, Hybrid):
        pytest.skip("scores are no cosines")
    ids = list(PASSAGES)
    passages = retriever.embed([SearchText(". ".join(filter(None, PASSAGES[one])), "passage") for one in ids])
    mean = retriever.embed(JOINED.texts).mean(axis=0)
    wanted = dict(zip(ids, passages @ (mean / np.linalg.norm(mean)), strict=True))
    single, hits = hits_of(retriever.search([TEXTS[1], JOINED], 5))
    assert [one for one, _ in single] == [one for one, _ in hits_of(retriever.search([TEXTS[1]], 5))[0]]
    assert hits[0][0] == max(wanted, key=lambda one: wanted[one])
    for doc_id, score in hits:
        if doc_id != "e1":  # its text is empty
            assert score == pytest.approx(wanted[doc_id], abs=2e-5)
