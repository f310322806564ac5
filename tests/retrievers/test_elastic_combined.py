"""`combined_fields` of Elasticsearch is the BM25F of local `fields`: an independent answer to both.

What `dmqr index` builds there has the title in `title` and, before the text, in `text`: its weight there is one less.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import ir_measures
import pyarrow.parquet as pq
import pytest

from cluster.errors import RetrieverError
from retrievers.elastic.build import build_elastic_index
from retrievers.elastic.fields import elastic_indexes
from retrievers.local.build import build_local_index
from retrievers.local.fields import local_indexes
from retrievers.retriever import JoinedText, SearchText, open_retriever
from tests.support.retrievers.blocks import typed

pytestmark = pytest.mark.slow
Block = dict[str, Any]
Hits = list[dict[str, float]]
WORDS = [
    "amber", "birch", "cedar", "delta", "ember", "fjord", "grove", "heath", "inlet", "juniper", "kelp", "larch", "marsh",
    "oasis",
]  # fmt: skip
SCALE = 2.2  # Elasticsearch's scores have the factor k1 + 1, which orders nothing


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Documents short enough for Lucene to keep their lengths as they are: it keeps 4 bits of lengths from 40 on."""
    import pyarrow as pa

    drawn = random.Random(7)
    titles = [" ".join(drawn.choices(WORDS, k=drawn.randint(0, 3))) for _ in range(60)]
    texts = [" ".join(drawn.choices(WORDS, k=drawn.randint(1, 12))) for _ in range(60)]
    path = tmp_path_factory.mktemp("combined") / "corpus.parquet"
    pq.write_table(pa.table({"doc_id": [f"{n:03}" for n in range(60)], "title": titles, "text": texts}), path)
    return path


def searched(block: Block, corpus: Path, texts: list[Any], depth: int = 100) -> Hits:
    settings = typed(block)
    if block["kind"] == "local":
        ((path, fields),) = local_indexes({"bm25": settings}).items()
        build_local_index(path, corpus, fields)
    else:
        ((_, there),) = elastic_indexes({"bm25": settings}).items()
        build_elastic_index(there, corpus)
    found = open_retriever("bm25", settings).search(texts, depth)
    ids, scores, ends = found.doc_ids.to_pylist(), found.scores.tolist(), found.offsets.tolist()
    return [dict(zip(ids[a:b], scores[a:b], strict=True)) for a, b in pairwise(ends)]


@pytest.fixture
def blocks(elasticsearch: str, new_name: Callable[[], str], tmp_path: Path) -> Callable[..., list[Block]]:
    alias = new_name()

    def both(title: int, ours: str, theirs: str, **query: Any) -> list[Block]:
        local = {"kind": "local", "index": str(tmp_path / f"index-{title}"), "analyzer": ours, "fields": {"title": title}}
        asked = {"fields": {"text": 1} | ({"title": title - 1} if title > 1 else {}), "type": "combined_fields"} | query
        return [local, {"kind": "elastic", "index": alias, "replicas": 0, "analyzer": theirs, "query": asked}]

    return both


@pytest.mark.parametrize("title", [1, 2, 3])
def test_scores_are_those_of_combined_fields(blocks: Callable[..., list[Block]], corpus: Path, title: int) -> None:
    drawn = random.Random(title)
    texts = [SearchText(" ".join(drawn.choices(WORDS, k=drawn.randint(1, 5)))) for _ in range(40)]
    local, elastic = (searched(block, corpus, texts) for block in blocks(title, "unicode", "standard"))
    for ours, theirs in zip(local, elastic, strict=True):
        assert {doc_id: score * SCALE for doc_id, score in ours.items()} == pytest.approx(theirs, rel=1e-5)


def test_texts_searched_together_are_combined_too(blocks: Callable[..., list[Block]], corpus: Path) -> None:
    rewrites = tuple(SearchText(text) for text in ("amber amber cedar", "delta cedar kelp", "oasis"))
    joined = [JoinedText(SearchText("amber birch"), rewrites), JoinedText(None, rewrites)]
    local, elastic = (searched(block, corpus, joined) for block in blocks(3, "unicode", "standard"))
    for ours, theirs in zip(local, elastic, strict=True):
        assert {doc_id: score * SCALE for doc_id, score in ours.items()} == pytest.approx(theirs, rel=1e-5)


def test_long_texts_are_as_those_of_most_fields(blocks: Callable[..., list[Block]], corpus: Path) -> None:
    texts = [SearchText(" ".join(WORDS[:8]))]
    _, long = blocks(3, "unicode", "standard", max_terms=4)
    _, most = blocks(3, "unicode", "standard", max_terms=4, type="most_fields")
    assert searched(long, corpus, texts) == searched(most, corpus, texts) != [{}]


@pytest.mark.parametrize("title", [1, 3])
def test_quality_is_that_of_elasticsearch(blocks: Callable[..., list[Block]], shared: Path, title: int) -> None:
    """SciFact, whose documents are longer than Lucene keeps lengths exactly, by each side's own English."""
    folder = shared / "data" / "scifact"
    queries = pq.read_table(folder / "queries.parquet").to_pylist()
    judged = (line.split("\t") for line in (folder / "qrels.tsv").read_text().splitlines())
    qrels = [ir_measures.Qrel(query_id, doc_id, int(relevance)) for query_id, doc_id, relevance in judged]
    texts = [SearchText(row["query"]) for row in queries]
    figures = []
    for block in blocks(title, "english", "english"):
        found = searched(block, folder / "corpus.parquet", texts, 10)
        run = [
            ir_measures.ScoredDoc(row["query_id"], doc_id, score)
            for row, hits in zip(queries, found, strict=True)
            for doc_id, score in hits.items()
        ]
        figures.append(ir_measures.calc_aggregate([ir_measures.nDCG @ 10], qrels, run)[ir_measures.nDCG @ 10])
    assert figures[0] == pytest.approx(figures[1], abs=0.015), figures


def test_fields_that_the_server_does_not_combine_are_refused_in_one_line(
    blocks: Callable[..., list[Block]], corpus: Path
) -> None:
    _, block = blocks(2, "unicode", "standard")
    searched(block, corpus, [SearchText("kelp")])
    block["query"]["fields"] = {"text": 1, "doc_id": 1}
    with pytest.raises(RetrieverError, match=r"refuses the query: .*; correct query") as refused:
        open_retriever("bm25", typed(block))
    assert "\n" not in str(refused.value)
