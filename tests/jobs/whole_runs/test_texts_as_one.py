"""Strategies with `as_one`: several texts, one search and one list, as HyDE and MuGI are published."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import bm25s
import numpy as np
import pytest

from retrievers.analyzer import open_analyzer
from retrievers.encoder import open_encoder
from retrievers.retriever import SearchText
from tests.support.jobs.workers import DEPTH, STRATEGIES, Block, Row, Watched, query, retriever, searches, written
from tests.support.jobs.workers import rewritten as block
from tests.support.retrievers.blocks import typed

QUERY = "light of a lamp"
PASSAGES = [
    "A lens threw the light of a lamp over the sea at night, and sailors saw it from afar.",
    "Harbours fill with the tide while a keeper trims the wick of the lighthouse lamp.",
    "The mirror of a telescope gathers faint light.",
]


def sampled(*passages: str, **other: str) -> Row:
    """A query with these texts of `hyde`, and one of each other strategy."""
    row = query(QUERY, **other)
    base = query(QUERY, hyde="")["rewrites"][0] | {"search_as": "passage"}
    row["rewrites"] += [base | {"text": text, "position": place} for place, text in enumerate(passages, start=1)]
    return row


def worker(retrievers: dict[str, Block], as_one: str, run: Path | None = None, **fuse: Any) -> Watched:
    strategies = [*STRATEGIES, {"hyde": {"n": 3, "temperature": 0.7, "name": "hyde", "as_one": as_one}}]
    return retriever(retrievers, run=run, strategies=strategies, **fuse)


def listed(row: Row) -> list[tuple[str, int, str, int, float]]:
    """Of each list: strategy, position, retriever, text, weight."""
    return [(one["strategy"], one["position"], one["retriever"], one["text"], one["weight"]) for one in row["runs"]]


def hits(row: Row, strategy: str, retriever: str) -> list[tuple[str, float]]:
    (found,) = [one for one in row["runs"] if (one["strategy"], one["retriever"]) == (strategy, retriever)]
    return [(hit["doc_id"], hit["score"]) for hit in found["hits"]]


def vectors(encoder: Any, texts: list[str], kind: str) -> np.ndarray:
    """Each text encoded by itself."""
    return np.concatenate([encoder.encode([SearchText(text, kind)]) for text in texts]).astype(np.float64)


@pytest.mark.slow
@pytest.mark.parametrize("as_one", ["with_original", "texts"])
def test_a_dense_list_is_that_of_the_mean_of_the_vectors(as_one: str, dense: Block, passages: dict[str, str]) -> None:
    _, (row,) = worker({"dense": dense}, as_one).seen(block(sampled(*PASSAGES)))
    encoder = open_encoder(typed(dense).encoder)  # type: ignore[arg-type]
    parts = vectors(encoder, PASSAGES, "passage")
    if as_one == "with_original":
        parts = np.concatenate([vectors(encoder, [QUERY], "query"), parts])
    mean = parts.mean(axis=0)
    documents = vectors(encoder, list(passages.values()), "passage")
    cosines = dict(zip(passages, documents @ (mean / np.linalg.norm(mean)), strict=True))
    found = hits(row, "hyde", "dense")
    assert [doc_id for doc_id, _ in found] == sorted(cosines, key=lambda one: -cosines[one])[:DEPTH]
    assert [score for _, score in found] == pytest.approx([cosines[doc_id] for doc_id, _ in found], abs=2e-6)
    assert listed(row) == [("original", 1, "dense", 0, 1.0), ("hyde", 1, "dense", 1, 1.0)]
    alone = float(vectors(encoder, [QUERY], "query")[0] @ (mean / np.linalg.norm(mean)))
    assert row["similarity"] == pytest.approx([1, alone, alone, 1], abs=2e-6)  # two texts: the query, and the mean


@pytest.mark.parametrize("as_one", ["with_original", "texts"])
def test_a_bm25_list_is_that_of_all_words_with_the_original_repeated(as_one: str, bm25: Block, tmp_path: Path) -> None:
    passages = [*PASSAGES[:2], PASSAGES[2] + " zeta" * 40]  # unknown words count for the repetitions
    result, (row,) = worker({"bm25": bm25}, as_one, run=tmp_path).seen(block(sampled(*passages)))
    words = sum(len(text.replace(",", " ").replace(".", " ").split()) for text in passages)
    times = words // (5 * 4) if as_one == "with_original" else 0  # "light of a lamp"
    assert times in (0, 3, 4)
    analyze = open_analyzer("english")
    terms = [term for text in [QUERY] * times + passages for term in analyze(text)]
    folder = next(Path(bm25["index"]).rglob("vocab*")).parent
    model = bm25s.BM25.load(str(folder))
    known = [term for term in terms if term in model.vocab_dict]
    scores = sum(np.asarray(model.get_scores([term]), dtype=np.float64) for term in known)
    best = np.sort(scores)[::-1][:DEPTH]  # type: ignore[arg-type]
    assert [score for _, score in hits(row, "hyde", "bm25")] == pytest.approx(best.tolist(), rel=1e-5)
    assert written(tmp_path, result)[QUERY, "hyde", "bm25"] == hits(row, "hyde", "bm25")
    assert (searches(result), searches(result, "saved")) == ([{"bm25": 2}], [{"bm25": 2}])


def test_it_has_one_weight_and_shares_its_vote_by_the_mean(dense: Block) -> None:
    row = sampled(PASSAGES[0], PASSAGES[0] + " Or not.", keyword="lamp, light")
    row["rewrites"] = [one | {"weight": 3.0} if one["strategy"] == "hyde" else one for one in row["rewrites"]]
    fusing = {"weights": {name: 0 for name in STRATEGIES if name != "keyword"}, "method": "rrf"}
    (_, (of_row,)), (_, (plain,)) = (
        worker({"dense": dense}, "with_original", redundancy=redundancy, **fusing).seen(block(row))
        for redundancy in ("cosine", "none")
    )
    assert [one[::4] for one in listed(of_row)] == [("original", 1.0), ("keyword", 1.0), ("hyde", 3.0)]
    assert len(of_row["similarity"]) == 9
    cosines = np.array(of_row["similarity"]).reshape(3, 3)
    weights = np.array([1.0, 1.0, 3.0])
    due = (weights / (cosines.clip(0) ** 4).sum(axis=1)) / 61
    best = [one["hits"][0]["doc_id"] for one in of_row["runs"]]
    ranks = [{hit["doc_id"]: rank for rank, hit in enumerate(one["hits"], start=1)} for one in of_row["runs"]]
    wanted = sum(due[i] * 61 / (60 + ranks[i][best[2]]) for i in range(3) if best[2] in ranks[i])
    assert {one["doc_id"]: one["score"] for one in of_row["candidates"]}[best[2]] == pytest.approx(wanted, abs=1e-6)
    assert of_row["candidates"] != plain["candidates"]
