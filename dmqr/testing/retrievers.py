"""The contract of retrievers."""

import json
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise

import numpy as np
import pyarrow as pa

from dmqr.testing.settings import HOSTILE, SettingsContract, refusal_of
from retrievers.kinds import RetrieverSettings
from retrievers.retriever import (
    Embedder,
    RankedLists,
    Retriever,
    SearchText,
    open_documents,
    open_retriever,
    retriever_identity,
)


def hits_of(lists: RankedLists) -> list[list[tuple[str, float]]]:
    """Returns lists as (doc_id, score) pairs."""
    ids = lists.doc_ids.to_pylist()
    return [list(zip(ids[a:b], lists.scores[a:b].tolist(), strict=True)) for a, b in pairwise(lists.offsets.tolist())]


class RetrieverContract(SettingsContract[RetrieverSettings]):
    """The contract of retrievers over an existing index."""

    texts: Sequence[SearchText] = (
        SearchText("light of a lamp at sea"), SearchText("bread and yeast"), SearchText("the moon", "passage"),
        SearchText("water"),
    )  # fmt: skip
    """Searched for; the index need not have hits for them, but a contract without any says little."""
    name = "under_test"

    def opened(self) -> Retriever:
        """Returns an open retriever; may be overridden to open it once."""
        return open_retriever(self.name, self.settings())

    def test_lists_are_ordered_and_bounded(self) -> None:
        """Best first, equal scores by doc_id in code point order; no document twice; at most as deep as asked."""
        retriever = self.opened()
        assert isinstance(retriever, Retriever), "it has search and identity"
        for depth in (1, 3, 1000):
            lists = retriever.search(list(self.texts), depth)
            assert lists.offsets.dtype == np.int64
            assert lists.scores.dtype == np.float64
            assert lists.doc_ids.type == pa.string(), f"doc_ids are strings of Arrow, not {lists.doc_ids.type}"
            assert int(lists.offsets[0]) == 0
            assert int(lists.offsets[-1]) == len(lists.doc_ids) == len(lists.scores)
            assert len(lists.offsets) == len(self.texts) + 1, "one list per text, in their order"
            assert np.isfinite(lists.scores).all(), "a score is a number"
            for hits in hits_of(lists):
                assert len(hits) <= depth
                assert hits == sorted(hits, key=lambda hit: (-hit[1], hit[0])), "best first, equal scores by doc_id"
                assert len({doc_id for doc_id, _ in hits}) == len(hits), "a document is in a list once"

    def test_a_shallow_list_begins_a_deep_one(self) -> None:
        """Lists are stored at one depth and read at another; not so where settings say `is_approximate`."""
        if self.settings().is_approximate:
            return
        retriever = self.opened()
        deep, shallow = hits_of(retriever.search(list(self.texts), 8)), hits_of(retriever.search(list(self.texts), 3))
        assert [hits[:3] for hits in deep] == shallow

    def test_a_text_finds_the_same_alone_and_in_a_batch(self) -> None:
        """The texts that are searched in one call depend on the shard and on what is stored."""
        retriever, texts = self.opened(), [*self.texts, self.texts[0]]
        batch = hits_of(retriever.search(texts, 5))
        assert batch[0] == batch[-1]
        for text, hits in zip(texts, batch, strict=True):
            (alone,) = hits_of(retriever.search([text], 5))
            assert [doc_id for doc_id, _ in alone] == [doc_id for doc_id, _ in hits]
            scores = [s for _, s in alone], [s for _, s in hits]
            np.testing.assert_allclose(*scores, rtol=1e-6, atol=2e-6)  # the last digits of single precision

    def test_hostile_texts_are_no_errors(self) -> None:
        """Whatever a log has: blank, long, of any script, in the syntax of some query language."""
        retriever = self.opened()
        assert retriever.search([], 5).offsets.tolist() == [0]
        alone = [hits_of(retriever.search([SearchText(text)], 3))[0] for text in HOSTILE]
        batch = hits_of(retriever.search([SearchText(text) for text in HOSTILE], 3))
        assert [[doc_id for doc_id, _ in hits] for hits in batch] == [[doc_id for doc_id, _ in hits] for hits in alone]

    def test_it_says_that_it_is_alive(self) -> None:
        """A search that says nothing for `limits.stall_minutes` is taken for one that hangs."""
        heard: list[object] = []
        self.opened().search(list(self.texts), 3, lambda: heard.append(None))
        assert heard, "search calls `alive` while it works"

    def test_identity_is_known_before_anything_is_loaded(self) -> None:
        """JSON values, the same from both functions, and it can be opened with them."""
        settings = self.settings()
        planned = retriever_identity(self.name, settings)
        assert json.loads(json.dumps(planned)) == planned, "an identity is made of JSON values"
        if self.name in settings.indexed(self.name):  # it has an index of its own
            assert "corpus" in planned, "an index says of which corpus it is"
        own = self.opened().identity()
        assert own == {key: value for key, value in planned.items() if key in own}
        assert open_retriever(self.name, settings, expect_identity=planned).identity() == own

    def test_another_index_than_planned_is_refused(self) -> None:
        """So that no query of a run is searched in another corpus than the rest; by `check_planned`."""
        planned = retriever_identity(self.name, self.settings()) | {"corpus": "sha256:of another time"}
        line = refusal_of(
            lambda: open_retriever(self.name, self.settings(), expect_identity=planned),
            "an index of another corpus than the planned one is searched; see check_planned",
        )
        assert "of another time" in line, "it names what differs"

    def test_two_of_it_work_at_the_same_time(self) -> None:
        """Workers are threads of one process with `cluster.address: none`."""
        wanted = [[doc_id for doc_id, _ in hits] for hits in hits_of(self.opened().search(list(self.texts), 5))]
        two = [open_retriever(self.name, self.settings()) for _ in range(2)]

        def searched(retriever: Retriever) -> list[list[list[str]]]:
            lists = [hits_of(retriever.search(list(self.texts), 5)) for _ in range(3)]
            return [[[doc_id for doc_id, _ in hits] for hits in each] for each in lists]

        with ThreadPoolExecutor(2) as threads:
            assert [*threads.map(searched, two)] == [[wanted] * 3] * 2

    def test_documents_have_the_texts_of_hits(self) -> None:
        """Rerankers and reports read them; not asked of what brings its texts with its hits."""
        settings = self.settings()
        if not settings.indexed(self.name):
            return
        documents = open_documents(self.name, settings)
        doc_ids = self.opened().search(list(self.texts), 3).doc_ids.to_pylist()
        texts = documents.texts(doc_ids)
        assert len(texts) == len(doc_ids)
        assert all(isinstance(text, str) for text in texts)
        assert documents.known([*doc_ids, "no such document"]) == [True] * len(doc_ids) + [False]
        assert len(documents.places(doc_ids)) == len(doc_ids)
        assert len(documents.some(2)) <= 2
        refusal_of(
            lambda: documents.texts(["no such document"]), "a document that is not there has no text: raise RetrieverError"
        )

    def test_vectors_have_length_1(self) -> None:
        """Of a dense retriever: those that it searches with."""
        retriever = self.opened()
        if isinstance(retriever, Embedder):
            vectors = retriever.embed(list(self.texts))
            assert vectors.dtype == np.float32
            np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1, atol=1e-5)
            assert retriever.embed([]).shape == (0, vectors.shape[1])
