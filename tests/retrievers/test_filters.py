"""Searches among the documents whose field has a value: the same as leaving the others out of the whole list."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise, product
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cluster.errors import RetrieverError
from retrievers.corpora.filters import Filters, filter_texts
from retrievers.elastic.build import build_elastic_index
from retrievers.elastic.fields import elastic_indexes
from retrievers.local.build import build_local_index
from retrievers.local.dense import nearest_rows
from retrievers.retriever import JoinedText, Only, RankedLists, SearchText, check_filters, open_retriever
from tests.support.retrievers.blocks import index_fields, typed
from tests.support.retrievers.elastic_server import ask
from tests.support.retrievers.fake_models import FakeModels

WORDS = ["sea", "lamp", "moon", "bread", "yeast", "tide", "rye", "lens"]
COUNT = 60
TENANTS = [["a", "b", "c", None][number % 4] for number in range(COUNT)]
LANGUAGES = [[None, ["de"], ["de", "en"], [], ["en", None]][number % 5] for number in range(COUNT)]
YEARS = [2000 + number % 3 for number in range(COUNT)]
TEXTS = [" ".join(WORDS[(number * 7 + step * step) % len(WORDS)] for step in range(3 + number % 4)) for number in range(COUNT)]
CORPUS = pa.table({
    "doc_id": [f"d{number:02d}" for number in range(COUNT)], "text": TEXTS, "tenant": TENANTS,
    "language": pa.array(LANGUAGES, pa.list_(pa.string())), "year": YEARS,
})  # fmt: skip
SEARCHES = ["sea lamp", "bread", "moon tide", "nothing of it"]
FILTERS: list[Only] = [
    (("tenant", "a"),), (("language", "de"),), (("year", "2001"),), (("tenant", "b"), ("year", "2002")), (("tenant", "A"),),
    (("tenant", ""),),
]  # fmt: skip


def passes(number: int, only: Only) -> bool:
    """By plain Python."""
    has = {"tenant": [TENANTS[number]], "language": LANGUAGES[number] or [], "year": [str(YEARS[number])]}
    return all(value in has[field] for field, value in only)


def embed(texts: Sequence[str]) -> list[list[float]]:
    return [[1.0, *np.bincount([zlib.crc32(word.encode()) % 32 for word in text.split()], minlength=32)] for text in texts]


@pytest.fixture(scope="module")
def encoder() -> Iterator[dict[str, Any]]:
    with FakeModels("tei", embed=embed) as server:
        yield {"kind": "openai", "model": server.model, "base_url": server.address}


@pytest.fixture(scope="module")
def local(encoder: dict[str, Any], tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    place = tmp_path_factory.mktemp("filtered")
    pq.write_table(CORPUS, place / "corpus.parquet")
    build_local_index(place / "index", place / "corpus.parquet", index_fields("english", encoder))
    bm25 = {"kind": "local", "index": str(place / "index")}
    return {"bm25": bm25, "dense": bm25 | {"encoder": encoder}}


@pytest.fixture
def elastic(elasticsearch: str, encoder: dict[str, Any], new_name: Callable[[], str], write_corpus: Any) -> dict[str, Any]:
    bm25 = {"kind": "elastic", "index": new_name(), "replicas": 0, "shards": 2}
    blocks = {"bm25": bm25, "dense": bm25 | {"encoder": encoder, "vector": {"type": "flat"}}}
    (fields,) = elastic_indexes({name: typed(one) for name, one in blocks.items()}, ["year", "tenant", "language"]).values()
    build_elastic_index(fields, write_corpus(CORPUS))
    return blocks


def lists_of(found: RankedLists) -> list[list[tuple[str, float]]]:
    ids = found.doc_ids.to_pylist()
    return [list(zip(ids[a:b], found.scores[a:b].tolist(), strict=True)) for a, b in pairwise(found.offsets.tolist())]


def with_filters(text: str, only: Only) -> SearchText | JoinedText:
    if text == "bread":  # several texts as one, too
        return JoinedText(SearchText(text, "query", only), (SearchText("rye yeast", "passage", only),))
    return SearchText(text, "query", only)


@pytest.mark.parametrize("kind", ["bm25", "dense", "hybrid", "elastic bm25", "elastic dense", "elastic hybrid"])
def test_a_filtered_list_is_the_whole_list_without_the_others(kind: str, request: pytest.FixtureRequest) -> None:
    blocks = request.getfixturevalue("elastic" if kind.startswith("elastic") else "local")
    name = kind.removeprefix("elastic ")
    hybrid = {"kind": "hybrid", "of": blocks, "method": "rrf", "depth": COUNT}
    settings_of = typed(blocks[name] if name != "hybrid" else hybrid)
    for fields in ["tenant"], ["tenant", "year", "language"]:
        for key, part in blocks.items() if name == "hybrid" else [(name, blocks[name])]:
            check_filters(key, typed(part), fields)
    retriever = open_retriever("r", settings_of)
    asked = [with_filters(text, only) for text, only in product(SEARCHES, [(), *FILTERS])]
    found = lists_of(retriever.search(asked, 7))
    for (text, only), hits in zip(product(SEARCHES, [(), *FILTERS]), found, strict=True):
        if name == "hybrid":  # ranks depend on the filter: the same search with both lists filtered
            assert all(passes(int(doc_id[1:]), only) for doc_id, _ in hits)
            continue
        (whole,) = lists_of(retriever.search([with_filters(text, ())], COUNT))
        due = [hit for hit in whole if passes(int(hit[0][1:]), only)][:7]
        assert [doc_id for doc_id, _ in hits] == [doc_id for doc_id, _ in due], (text, only)
        assert [score for _, score in hits] == pytest.approx([score for _, score in due], rel=1e-5)
    assert any(hits for (_, only), hits in zip(product(SEARCHES, [(), *FILTERS]), found, strict=True) if only)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(st.data())
def test_the_nearest_of_some_rows_are_those_of_a_brute_force(data: st.DataObject) -> None:
    rows, depth = data.draw(st.integers(1, 40)), data.draw(st.integers(1, 12))
    draw = np.random.default_rng(data.draw(st.integers(0, 1000)))
    vectors = draw.integers(-2, 3, (rows, 3)).astype(np.float32)  # with many equal scores
    queries = draw.integers(-2, 3, (2, 3)).astype(np.float32)
    allowed = draw.random(rows) < data.draw(st.sampled_from([0.0, 0.1, 0.5, 1.0]))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("retrievers.local.dense._ROWS", data.draw(st.sampled_from([1, 7, 100])))
        found = nearest_rows(queries, vectors, depth, allowed)
    for query, (hits, scores) in zip(queries, found, strict=True):
        exact = vectors @ query
        due = sorted(np.flatnonzero(allowed).tolist(), key=lambda row: (-exact[row], row))[:depth]
        assert hits.tolist() == due
        assert scores.tolist() == exact[due].tolist()


@settings(max_examples=60, deadline=None)
@given(
    st.lists(
        st.lists(st.one_of(st.none(), st.lists(st.sampled_from([None, "a", "b", ""]), max_size=3)), max_size=5), min_size=1
    )
)
def test_a_document_with_a_list_has_each_of_its_items(parts: list[list[list[str | None] | None]]) -> None:
    arrays = [pa.array(part, pa.list_(pa.string())) for part in parts]
    filters = Filters([pa.record_batch({"tags": array}) for array in arrays])
    for value in ("a", "", "c"):
        mask = filters.mask((("tags", value),))
        assert mask is not None
        assert mask.tolist() == [value in (row or []) for part in parts for row in part]


@pytest.mark.parametrize(
    ("column", "wanted"),
    [
        (pa.array([7, None]), "7"),
        (pa.array([True, False]), "true"),
        (pa.array(["x", "y"]).dictionary_encode(), "x"),
        (pa.array([20484, 1], pa.date32()), "2026-01-31"),
        (pa.array(["é", "e\u0301"]), "é"),
    ],
)
def test_values_are_compared_as_text(column: pa.Array, wanted: str) -> None:
    mask = Filters([pa.record_batch({"x": column})]).mask((("x", wanted),))
    assert mask is not None
    assert mask.tolist() == [True, False]


@pytest.mark.parametrize("column", [pa.array([1.5]), pa.array([{"a": 1}]), pa.array([b"x"])])
def test_a_column_that_is_no_text_is_refused(column: pa.Array) -> None:
    with pytest.raises(RetrieverError, match=r"retrieve\.filters\.x: the corpus's column holds"):
        Filters([pa.record_batch({"x": column})]).mask((("x", "1"),))


def test_an_index_without_the_column_is_refused(local: dict[str, Any]) -> None:
    with pytest.raises(RetrieverError, match=r"no column 'tenat' to filter by .*it has: tenant, language, year.*tenant"):
        check_filters("bm25", typed(local["bm25"]), ["year", "tenat"])


def test_an_index_with_a_column_that_is_no_text_is_refused_before_any_search(tmp_path: Path) -> None:
    years = pa.array([2001.0, None])  # as pandas writes whole numbers of which one is missing
    corpus = pa.table({"doc_id": ["a", "b"], "text": WORDS[:2], "year": years, "tag": ["x", "y"]})
    pq.write_table(corpus, tmp_path / "corpus.parquet")
    build_local_index(tmp_path / "index", tmp_path / "corpus.parquet", index_fields("english"))
    block = typed({"kind": "local", "index": str(tmp_path / "index")})
    check_filters("bm25", block, ["tag"])
    with pytest.raises(RetrieverError, match=r"retrieve\.filters\.year: the corpus's column holds double, .*; convert it"):
        check_filters("bm25", block, ["tag", "year"])


def test_fields_of_an_index_of_others(elasticsearch: str, new_name: Callable[[], str]) -> None:
    index = new_name()
    properties = {
        "text": {"type": "text"}, "number": {"type": "long"}, "public": {"type": "boolean"}, "day": {"type": "date"},
        "name": {"type": "text", "fields": {"keyword": {"type": "keyword"}}}, "unindexed": {"type": "keyword", "index": False},
    }  # fmt: skip
    ask("PUT", f"/{index}", {"mappings": {"properties": properties}, "settings": {"number_of_replicas": 0}})
    for number in (1, 2):
        body = {
            "text": "sea",
            "number": number,
            "public": number == 1,
            "day": f"2026-01-0{number}",
            "name": f"A B {number}",
        }
        ask("PUT", f"/{index}/_doc/d{number}?refresh=true", body)
    block = typed({"kind": "elastic", "index": index, "filter": {"range": {"number": {"lt": 9}}}})
    check_filters("r", block, ["number", "public", "day", "name.keyword"])
    for field, words in (("nam", "no field"), ("name", "text in the field"), ("unindexed", "no whole values in")):
        with pytest.raises(RetrieverError, match=f"has {words} '{field}', and retrieve.filters needs"):
            check_filters("r", block, [field])
    asked = [("number", "2"), ("public", "false"), ("day", "2026-01-02"), ("name.keyword", "A B 2"), ("number", "two")]
    found = lists_of(open_retriever("r", block).search([SearchText("sea", "query", (only,)) for only in asked], 9))
    assert [[doc_id for doc_id, _ in hits] for hits in found] == [["d2"]] * 4 + [[]]


def test_a_field_of_the_index_is_not_taken_for_a_column(local: dict[str, Any]) -> None:
    block = typed({"kind": "elastic", "index": "docs"})
    with pytest.raises(RetrieverError, match=r"retrieve\.filters: 'title' is another field of the index docs"):
        elastic_indexes({"r": block}, ["title"])
    (plain,), (filtered,) = elastic_indexes({"r": block}).values(), elastic_indexes({"r": block}, ["tenant"]).values()
    assert filtered.mapping(0)["properties"] == plain.mapping(0)["properties"] | {"tenant": {"type": "keyword"}}


@pytest.mark.parametrize(
    "column",
    [
        pa.array(["2026-01-31T10:00:00"]).cast(pa.timestamp("ms")),
        pa.array([b"abcdefghijklmnop"], pa.binary(16)).cast(pa.uuid()),
        pa.array([["a", "b"], None], pa.list_(pa.string(), 2)),
        pa.array([0.5]),
    ],
    ids=lambda column: str(column.type),
)
def test_values_whose_text_depends_on_how_they_are_written_are_refused(column: pa.Array) -> None:
    """A log with another unit, zone or form of the same value would find nothing."""
    with pytest.raises(RetrieverError, match=r"retrieve\.filters\.x: the corpus's column holds .*; convert it"):
        filter_texts("x", column)
