"""A union: the lists of several indexes become one list per text, and their ids are qualified."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cluster.errors import RetrieverError
from dmqr.testing import hits_of
from retrievers.hybrid.retriever import Hybrid
from retrievers.retriever import Alive, JoinedText, RankedLists, SearchText, lists_of, no_heartbeat
from retrievers.union.documents import UnionDocuments, all_documents
from retrievers.union.settings import UnionSettings

Ranking = list[tuple[str, float]]
IDS = ["d1", "d2", "d10", "é", "", "law:d1"]  # of every index


class Listed:
    """A retriever with the same lists for any texts."""

    def __init__(self, lists: Sequence[Ranking]) -> None:
        self._lists = lists

    def search(self, texts: Sequence[SearchText | JoinedText], depth: int, alive: Alive = no_heartbeat) -> RankedLists:
        return lists_of(self._lists, depth)

    def identity(self) -> dict[str, Any]:
        return {}


def rankings(texts: int) -> st.SearchStrategy[list[Ranking]]:
    hits = st.dictionaries(st.sampled_from(IDS), st.integers(-5, 9).map(float)).map(lambda found: list(found.items()))
    return st.lists(hits, min_size=texts, max_size=texts)


@given(st.data(), st.sampled_from(["rrf", "score"]), st.integers(1, 8), st.integers(0, 3))
def test_lists_are_merged_as_by_hand(data: st.DataObject, merge: str, depth: int, texts: int) -> None:
    lists = {name: data.draw(rankings(texts)) for name in ("med", "law", "notes")}
    settings = UnionSettings.model_validate(
        {"kind": "union", "of": {name: {"kind": "local", "index": name} for name in lists}, "merge": merge}
    )
    opened = Hybrid(settings, {name: Listed(one) for name, one in lists.items()}, {})
    for place, found in enumerate(hits_of(opened.search([SearchText("any")] * texts, depth))):
        wanted = [
            (-score if merge == "score" else -1 / (60 + rank), f"{name}:{doc_id}")
            for name, of_texts in lists.items()
            for rank, (doc_id, score) in enumerate(sorted(of_texts[place], key=lambda hit: (-hit[1], hit[0])), start=1)
        ]
        wanted = sorted(wanted)[:depth]
        assert [doc_id for doc_id, _ in found] == [doc_id for _, doc_id in wanted]
        np.testing.assert_allclose([score for _, score in found], [-value for value, _ in wanted], atol=1e-9)


class Documents:
    """Documents of one index, which remembers what it was asked."""

    def __init__(self, name: str) -> None:
        self._name, self.asked, self.entry = name, list[list[str]](), {"corpus": name}

    def texts(self, doc_ids: Sequence[str], alive: Alive = no_heartbeat) -> list[str]:
        self.asked.append(list(doc_ids))
        return [f"{self._name} has {doc_id}" for doc_id in doc_ids]

    def places(self, doc_ids: Sequence[str]) -> list[str]:
        return [f"{self._name}.pdf" for _ in doc_ids]

    def known(self, doc_ids: Sequence[str]) -> list[bool]:
        return [doc_id == "d1" for doc_id in doc_ids]

    def some(self, count: int) -> list[str]:
        return [self._name] * count


def test_documents_are_read_from_their_index() -> None:
    law, med = Documents("law"), Documents("med")
    both = all_documents({"law": law, "med": med})
    assert isinstance(both, UnionDocuments)
    assert both.texts(["med:d1", "law:d1", "law:a:b"]) == ["med has d1", "law has d1", "law has a:b"]
    assert (law.asked, med.asked) == ([["d1", "a:b"]], [["d1"]])
    assert both.places(["med:x", "law:y"]) == ["med.pdf", "law.pdf"]
    assert both.known(["law:d1", "d1", "med:d2", "old:d1"]) == [True, False, False, False]
    assert both.some(2) == ["law", "law", "med", "med"]
    assert both.entry == {"corpus": {"law": "law", "med": "med"}}
    with pytest.raises(RetrieverError, match="no document 'd1': ids of this union begin with law: or med:"):
        both.texts(["law:d1", "d1"])
    assert all_documents({"": law}) is law
