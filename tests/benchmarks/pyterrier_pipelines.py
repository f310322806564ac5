"""The arms of an ablation as pipelines of PyTerrier: rewrites >> vectors >> lists of all retrievers % depth >> fusion.

Each transformer calls our own code, so that what differs is how the arms are run. Up to the fusion all pipelines have the
same transformers, the longest prefix that PyTerrier can share. A frame has a row per text of a query, `query` being the text
and `query_0` the query as it was asked (PyTerrier's name for it), then a row per hit of a list; `rank` is from 0, as there.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

import ir_measures
import numpy as np
import pandas as pd
import pyarrow as pa
import pyterrier as pt

from jobs.chain.arms.arms import Arm
from jobs.config.config import Config
from jobs.job.opening import open_retriever
from jobs.job.pools import with_precisions
from jobs.job.rewriting import read_rewriting
from retrievers.fusion import fuse
from retrievers.lists import ORIGINAL, Lists, by_document
from retrievers.ranking import offsets_of, ranks
from retrievers.redundancy import Similarity
from retrievers.retriever import Embedder, Retriever, SearchText, distinct, joined_lists, single_lists
from retrievers.settings import FuseSettings
from rewriters.engines.recorded import RecordedEngine
from rewriters.engines.settings import RecordedSettings
from rewriters.query import Query
from rewriters.rewriter import Rewriter, Rewriting

Figures = dict[str, dict[tuple[str, str], float]]
"""Arm -> (topic, measure) -> value."""


class Rewrites(pt.Transformer):
    """Gives the texts of each query: the query itself, and the rewrites that are read from its recorded completions."""

    def __init__(self, rewriting: Rewriting, recording: str) -> None:
        self._rewriter, self._engine = Rewriter(rewriting), RecordedEngine(recording)

    def transform(self, inp: pd.DataFrame) -> pd.DataFrame:
        rows = []
        for qid, query in zip(inp["qid"], inp["query"], strict=True):
            asked = Query(qid, query)
            answered = list(self._engine.complete(self._rewriter.requests(asked)))
            rows.append((qid, query, query, 0, ORIGINAL, 1, 1.0, 1.0, "query"))
            rows += [
                (qid, query, one.text, number, one.strategy, one.position, one.weight, one.position_weight, one.search_as)
                for number, one in enumerate(self._rewriter.read(asked, answered).rewrites, start=1)
            ]
        names = ["qid", "query_0", "query", "number", "strategy", "position", "weight", "position_weight", "search_as"]
        return pd.DataFrame(rows, columns=names)


class Only(pt.Transformer):
    """Keeps the texts of some strategies, beside the query itself."""

    def __init__(self, strategies: Collection[str]) -> None:
        self._kept = [ORIGINAL, *strategies]

    def transform(self, inp: pd.DataFrame) -> pd.DataFrame:
        return inp[inp["strategy"].isin(self._kept)]


class Vectors(pt.Transformer):
    """Adds the vector of each text, `query_vec`, by which lists that look alike share a vote."""

    def __init__(self, embedder: Embedder) -> None:
        self._embedder = embedder

    def transform(self, inp: pd.DataFrame) -> pd.DataFrame:
        unique, place = distinct(_searches(inp))
        vectors = self._embedder.embed(unique)
        return inp.assign(query_vec=[vectors[at] for at in place.tolist()])


class Search(pt.Transformer):
    """Gives the hits of each text by each retriever: a row per hit, list after list."""

    def __init__(self, retrievers: Mapping[str, Retriever], depth: int) -> None:
        self._retrievers, self._depth = retrievers, depth

    def transform(self, inp: pd.DataFrame) -> pd.DataFrame:
        unique, place = distinct(_searches(inp))
        parts = []
        for name, retriever in self._retrievers.items():
            found = single_lists(retriever.search(unique, self._depth))
            lists = joined_lists([found[at] for at in place.tolist()])
            sizes = np.diff(lists.offsets)
            part = inp.iloc[np.repeat(np.arange(len(inp)), sizes)]
            docs = pd.array(lists.doc_ids.to_pylist(), dtype="str")
            parts.append(part.assign(retriever=name, docno=docs, score=lists.scores, rank=ranks(sizes) - 1))
        return pd.concat(parts, ignore_index=True)


class Fusion(pt.Transformer):
    """Fuses the lists of some strategies, and of the query itself, into one per topic: the last transformer of an arm."""

    def __init__(self, settings: FuseSettings, strategies: Collection[str]) -> None:
        self._settings, self._kept = settings, [ORIGINAL, *strategies]

    def transform(self, inp: pd.DataFrame) -> pd.DataFrame:
        hits = inp[inp["strategy"].isin(self._kept)]
        begins = np.flatnonzero(hits["rank"].to_numpy() == 0)
        of = hits.iloc[begins]
        query, topics = pd.factorize(of["qid"])
        _, first, text = np.unique(query * len(inp) + of["number"].to_numpy(), return_index=True, return_inverse=True)
        texts = np.bincount(query[first], minlength=len(topics))  # texts are numbered within their topic
        lists = Lists(
            query,
            pa.array(of["strategy"], pa.string()),
            of["position"].to_numpy(),
            pa.array(of["retriever"], pa.string()),
            text - offsets_of(texts)[query],
            of["weight"].to_numpy(),
            of["position_weight"].to_numpy(),
            np.append(begins, len(hits)),
            pa.array(hits["docno"], pa.string()),
            hits["score"].to_numpy(),
        )
        similarity = None
        if self._settings.redundancy == "cosine":
            similarity = _similarity(np.stack(of["query_vec"].to_numpy()[first]), texts)
        fused = fuse(by_document(lists, len(topics)), self._settings, similarity)
        sizes = np.diff(fused.offsets)
        asked = of["query_0"].to_numpy()[np.unique(query, return_index=True)[1]]
        columns = {"qid": np.repeat(topics, sizes), "query": np.repeat(asked, sizes), "docno": fused.doc_ids.to_pylist()}
        return pd.DataFrame(columns | {"score": fused.scores, "rank": ranks(sizes) - 1})


class ByRank(pt.Transformer):
    """Makes the rank the score, so that equal scores stand in the order of the list."""

    def transform(self, inp: pd.DataFrame) -> pd.DataFrame:
        return inp.assign(score=-inp["rank"].astype(float))


def pipelines(config: Config, arms: Sequence[Arm], deepest: int, *, apart: bool = False, by_rank: bool = False) -> list[object]:
    """The pipeline of each arm; the retrievers are opened here.

    Args:
        config: Of the ablation, which the arms change in `fuse` and `rewrite.strategies` only.
        arms: Of the ablation.
        deepest: Results per topic.
        apart: Each arm searches its own texts, as one would write it down; only the rewrites are a common prefix.
        by_rank: Scores of the results are made of their ranks.
    """
    config = with_precisions(config)
    assert isinstance(config.rewrite.engine, RecordedSettings)
    opened = {name: open_retriever(name, settings) for name, settings in config.retrieve.retrievers.items()}
    rewrites = Rewrites(read_rewriting(config), config.rewrite.engine.path)
    lists = Search(opened, config.retrieve.depth) % config.fuse.depth
    if config.dense_retriever is not None:
        dense = opened[config.dense_retriever]
        assert isinstance(dense, Embedder)
        lists = Vectors(dense) >> lists
    shared = rewrites >> lists
    found = []
    for arm in arms:
        settings = arm.config.fuse.model_copy(update={"keep": deepest, "redundancy": arm.config.used_redundancy})
        own = rewrites >> Only(arm.strategies) >> lists if apart else shared
        pipeline = own >> Fusion(settings, arm.strategies)
        found.append(pipeline >> ByRank() if by_rank else pipeline)
    return found


def experiment(
    systems: list[object],
    names: list[str],
    topics: pd.DataFrame,
    qrels: Sequence[ir_measures.Qrel],
    measures: Sequence[str],
    **how: object,
) -> Figures:
    """The values per topic by `pyterrier.Experiment`; `how` has `precompute_prefix` or `plan`."""
    judged = pd.DataFrame([(one.query_id, one.doc_id, one.relevance) for one in qrels], columns=["qid", "docno", "label"])
    wanted = [ir_measures.parse_measure(name) for name in measures]
    frame = pt.Experiment(systems, topics, judged, wanted, names, perquery=True, validate="ignore", verbose=False, **how)
    found: Figures = {name: {} for name in names}
    for name, qid, measure, value in zip(*(frame[column] for column in ("name", "qid", "measure", "value")), strict=True):
        found[name][qid, measure] = float(value)
    return found


def _searches(frame: pd.DataFrame) -> list[SearchText]:
    return [SearchText(*one) for one in zip(frame["query"], frame["search_as"], strict=True)]


def _similarity(vectors: np.ndarray, counts: np.ndarray) -> Similarity:
    """Cosines between the texts of each topic, rounded as the retrieving stage rounds them."""
    squares = [(part @ part.T).ravel() for part in np.split(vectors, np.cumsum(counts)[:-1])]
    return Similarity(offsets_of(counts**2), np.concatenate(squares).round(6).astype(np.float32))
