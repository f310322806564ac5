"""Predictors of query performance against counts by hand, over a local BM25 index."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from retrievers.local.build import build_local_index
from retrievers.predictors import TermStatistics, lexical_retriever, predicted, statistics_of
from retrievers.retriever import JoinedText, SearchText, open_retriever
from tests.support.retrievers.blocks import index_fields, typed

DOCUMENTS = ["moon tide sea", "moon lamp", "moon bread bread bread", "moon moon tide", "moon"]
WORDS = st.sampled_from(["moon", "tide", "sea", "lamp", "bread", "zzz", "the"])
BM25, DENSE = {"kind": "local", "index": "a"}, {"kind": "local", "index": "b", "encoder": {"model": "m"}}
ELASTIC = {"kind": "elastic", "index": "c"}


def hybrid(**of: dict[str, Any]) -> dict[str, Any]:
    return {"kind": "hybrid", "of": of}


@pytest.fixture(scope="module")
def index(tmp_path_factory: pytest.TempPathFactory) -> str:
    place = tmp_path_factory.mktemp("terms")
    pq.write_table(pa.table({"doc_id": [f"d{i}" for i in range(5)], "text": DOCUMENTS}), place / "corpus.parquet")
    build_local_index(place / "index", place / "corpus.parquet", index_fields("english"))
    return str(place / "index")


@pytest.fixture(scope="module")
def statistics(index: str) -> TermStatistics:
    return statistics_of(open_retriever("bm25", typed({"kind": "local", "index": index})))


@given(words=st.lists(WORDS, max_size=8), name=st.sampled_from(["avg_idf", "max_idf"]))
def test_it_is_the_mean_or_highest_idf_of_the_distinct_known_terms(
    statistics: TermStatistics, words: list[str], name: str
) -> None:
    held = {word: sum(word in text.split() for text in DOCUMENTS) for word in set(words)}
    idf = [math.log(len(DOCUMENTS) / n) for n in held.values() if n]  # "the" is a stop word, and in no document
    reduce: Callable[[list[float]], Any] = np.mean if name == "avg_idf" else max
    wanted = reduce(idf) if idf else -math.inf
    (found,) = predicted([SearchText(" ".join(words))], name, statistics).tolist()
    assert found == pytest.approx(wanted, abs=1e-6)


def test_what_is_searched_as_one_is_predicted_as_it_is_searched(statistics: TermStatistics) -> None:
    one = JoinedText(SearchText("tide"), (SearchText("lamp", "passage"), SearchText("zzz", "passage")))
    (found,) = predicted([one], "avg_idf", statistics).tolist()
    assert found == pytest.approx((math.log(5 / 2) + math.log(5)) / 2, abs=1e-6)


def test_filters_do_not_matter(statistics: TermStatistics) -> None:
    plain, filtered = predicted([SearchText("tide"), SearchText("tide", only=(("year", "1"),))], "max_idf", statistics)
    assert plain == filtered


@pytest.mark.parametrize(
    ("retrievers", "wanted"),
    [
        ({"x": BM25}, "x"), ({"x": DENSE, "y": BM25}, "y"), ({"x": hybrid(d=DENSE, b=BM25), "y": BM25}, "x"),
        ({"x": DENSE}, None), ({"x": ELASTIC, "y": DENSE}, None), ({"x": hybrid(d=DENSE, e=ELASTIC)}, None),
    ],
)  # fmt: skip
def test_the_first_local_bm25_index_has_the_terms(retrievers: dict[str, Any], wanted: str | None) -> None:
    assert lexical_retriever({name: typed(one) for name, one in retrievers.items()}) == wanted


def test_a_hybrid_has_those_of_its_bm25(index: str, statistics: TermStatistics) -> None:
    part = {"kind": "local", "index": index}
    opened = open_retriever("both", typed(hybrid(one=part, two=part)))
    assert statistics_of(opened).document_frequencies(SearchText("tide moon")).tolist() == [5, 2]
    assert statistics_of(opened).documents == statistics.documents == 5
