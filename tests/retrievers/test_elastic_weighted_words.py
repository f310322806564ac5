"""Weighted words as a text: Elasticsearch and a local index count a repeated word as often as it stands there."""

from __future__ import annotations

import math
from typing import Any

import pytest

from retrievers.retriever import SearchText, open_retriever, single_lists
from rewriters.python.words import weighted_words
from tests.support.retrievers.blocks import typed

WEIGHTS = {"lamp": 0.5, "sea": 0.3, "moon": 0.15, "yeast": 0.05}


@pytest.mark.parametrize("kind", ["elastic", "local"])
def test_a_list_is_the_weighted_sum_of_the_lists_of_its_words(kind: str, elastic_blocks: Any, bm25_index: Any) -> None:
    block = elastic_blocks["bm25"] if kind == "elastic" else {"kind": "local", "index": str(bm25_index)}
    retriever = open_retriever("under_test", typed(block))
    text, *words = single_lists(retriever.search([SearchText(one) for one in (weighted_words(WEIGHTS), *WEIGHTS)], 1000))
    sums: dict[str, float] = {}
    for weight, of in zip(WEIGHTS.values(), words, strict=True):
        for doc_id, score in zip(of.doc_ids.to_pylist(), of.scores.tolist(), strict=True):
            sums[doc_id] = math.fsum((sums.get(doc_id, 0.0), 100 * weight * score))
    found = dict(zip(text.doc_ids.to_pylist(), text.scores.tolist(), strict=True))
    assert found == pytest.approx(sums, rel=1e-4)
    assert len(found) > 3
