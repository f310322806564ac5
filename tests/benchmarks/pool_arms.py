"""The arms of pool_table.py: which texts are fused, the lists gathered once for all of them, and the arithmetic of one arm.

An arm is named by its parts, joined by " + ": `original`, `four`, a strategy, `adaptive`. Without `original` the original's
lists have weight 0, as in a config. `together` says which retrievers search all texts of a query as one.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import ir_measures
import numpy as np
import pyarrow as pa
from recorded_sets import DEPTH, LABELS, measured, read_qrels, recorded_rows, recording, retrievers

from jobs.chain.search_texts import Text, joined
from retrievers.fusion import fuse
from retrievers.lists import ORIGINAL, Lists, by_document
from retrievers.ranking import offsets_of
from retrievers.redundancy import Similarity
from retrievers.retriever import RankedList, SearchText, single_lists
from retrievers.settings import FuseSettings
from rewriters.adaptive import load_demonstrations
from rewriters.engines.recorded import RecordedEngine
from rewriters.pool import load_pool
from rewriters.query import Query
from rewriters.rewriter import Rewriter, Rewriting
from rewriters.settings import SelectAdaptive

FOUR = tuple(LABELS.values())
SINGLE = (*FOUR, "rag_fusion", "hyde", "step_back", "decompose", "expand")
ADAPTIVE = "adaptive."  # before the names of the strategies that the LLM chose
TOGETHER: dict[str, tuple[str, ...]] = {"lists": (), "bm25": ("bm25",), "dense": ("dense",), "both": ("bm25", "dense")}
RETRIEVERS = ("bm25", "dense")


class Arm(NamedTuple):
    """Texts that are fused."""

    name: str

    @property
    def parts(self) -> list[str]:
        return self.name.split(" + ")

    @property
    def strategies(self) -> tuple[str, ...]:
        """Those of the pool, without the adaptive ones."""
        found = [FOUR if part == "four" else SINGLE if part == "all" else (part,) for part in self.parts]
        return tuple(name for names in found for name in names if name in SINGLE)

    def has(self, strategy: str) -> bool:
        return strategy in self.strategies or ("adaptive" in self.parts and strategy.startswith(ADAPTIVE))

    def settings(self, **changed: Any) -> FuseSettings:
        """The default `fuse`, with changes, and weight 0 for the original where it is no part."""
        return FuseSettings(**changed, weights={} if ORIGINAL in self.parts else {ORIGINAL: 0})


class Gathered(NamedTuple):
    """One set: the texts of each query, the original first, and what was found for every search.

    `lists` is by retriever and search; `vectors` are of the texts.
    """

    name: str
    query_ids: list[str]
    texts: list[list[Text]]
    qrels: list[ir_measures.Qrel]
    lists: dict[tuple[str, Any], RankedList]
    vectors: dict[SearchText, np.ndarray]


class Outcome(NamedTuple):
    """What an arm gives: the measures, and the number of fused texts and of searches, each of every query."""

    query_ids: list[str]
    values: dict[Any, np.ndarray]
    texts: np.ndarray
    searches: np.ndarray


def gather(
    name: str, indexes: Path, arms: Iterable[tuple[Arm, str]], encoder: dict[str, Any], passage_as: str = "passage"
) -> Gathered:
    """A set with all searches that the arms need.

    Args:
        name: Of the set.
        indexes: Their folder.
        arms: Each with a key of TOGETHER.
        encoder: Of the dense retriever.
        passage_as: What the texts of strategies that search passages are searched as: "passage" or "query".
    """
    query_ids, texts = read_texts(name, passage_as)
    opened = retrievers(name, indexes, encoder)
    plain = list(dict.fromkeys(text.search for of_query in texts for text in of_query))
    found = Gathered(name, query_ids, texts, read_qrels(name, set(query_ids)), {}, {})
    found.vectors.update(zip(plain, opened["dense"].embed(plain), strict=True))  # type: ignore[attr-defined]
    wanted: dict[str, list[Any]] = {retriever: list(plain) for retriever in RETRIEVERS}
    for arm, mode in arms:
        for retriever in TOGETHER[mode]:
            wanted[retriever] += [text.search for text in _searched(found, arm, retriever, True, arm.settings())]
    for retriever, searches in wanted.items():
        distinct = list(dict.fromkeys(searches))
        lists = single_lists(opened[retriever].search(distinct, DEPTH))
        found.lists.update({(retriever, search): one for search, one in zip(distinct, lists, strict=True)})
    return found


def read_texts(name: str, passage_as: str = "passage") -> tuple[list[str], list[list[Text]]]:
    """The queries of a set, and the texts that the product reads from their recorded completions."""
    pool = Rewriter(Rewriting(load_pool(SINGLE)))
    chosen = Rewriter(
        Rewriting(load_pool(FOUR), select=SelectAdaptive(kind="adaptive"), demonstrations=load_demonstrations(None))
    )
    engine = RecordedEngine(recording(name))
    query_ids, texts = [], []
    for row, line in enumerate(recorded_rows(name)):
        query = Query(line["query_id"], line["query"])
        of_query = [Text(row, 0, ORIGINAL, 1, 1.0, 1.0, SearchText(query.text))]
        for rewriter, prefix in ((pool, ""), (chosen, ADAPTIVE)):
            for one in rewriter.read(query, list(engine.complete(rewriter.requests(query)))).rewrites:
                search = SearchText(one.text, passage_as if one.search_as == "passage" else one.search_as)
                of_query.append(Text(row, 0, prefix + one.strategy, one.position, one.weight, one.position_weight, search))
        query_ids.append(query.query_id)
        texts.append(of_query)
    engine.close()
    return query_ids, texts


def answer(found: Gathered, arm: Arm, mode: str = "lists", **changed: Any) -> Outcome:
    """One arm, fused with the default settings and the changes."""
    settings = arm.settings(**changed)
    of = [
        (text, retriever)
        for retriever in RETRIEVERS
        for text in _searched(found, arm, retriever, retriever in TOGETHER[mode], settings)
    ]
    hits = [found.lists[retriever, text.search] for text, retriever in of]
    lengths = np.array([min(settings.depth, len(one.scores)) for one in hits])
    lists = Lists(
        np.array([text.row for text, _ in of]),
        pa.array([text.strategy for text, _ in of]),
        np.array([text.position for text, _ in of], dtype=np.int32),
        pa.array([retriever for _, retriever in of]),
        np.array([text.index for text, _ in of]),
        np.array([text.weight for text, _ in of]),
        np.array([text.position_weight for text, _ in of]),
        offsets_of(lengths),
        pa.concat_arrays([one.doc_ids[:length] for one, length in zip(hits, lengths.tolist(), strict=True)]),
        np.concatenate([one.scores[:length] for one, length in zip(hits, lengths.tolist(), strict=True)]),
    )
    texts = arm_texts(found, arm)
    fused = fuse(by_document(lists, len(texts)), settings, _similarity(found, texts))
    values = measured(found.query_ids, fused.offsets, fused.doc_ids.to_pylist(), found.qrels)
    counts = np.array([len(of_query) - (ORIGINAL not in arm.parts) for of_query in texts])
    distinct = {(text.row, retriever, text.search) for text, retriever in of}
    searches = np.bincount([row for row, _, _ in distinct], minlength=len(texts))
    return Outcome(found.query_ids, values, counts, searches)


def arm_texts(found: Gathered, arm: Arm) -> list[list[Text]]:
    """The texts of an arm's queries, numbered within the query, the original always first."""
    kept = ([text for text in texts if text.strategy == ORIGINAL or arm.has(text.strategy)] for texts in found.texts)
    return [[text._replace(index=index) for index, text in enumerate(texts)] for texts in kept]


def _searched(found: Gathered, arm: Arm, retriever: str, together: bool, settings: FuseSettings) -> list[Text]:
    """What a retriever is searched with for an arm."""
    texts = [text for of_query in arm_texts(found, arm) for text in of_query]
    return joined(texts, retriever, settings) if together else texts


def _similarity(found: Gathered, texts: Sequence[Sequence[Text]]) -> Similarity:
    """Cosines, rounded as the retrieving stage rounds them."""
    vectors = (np.stack([found.vectors[text.search] for text in of_query]) for of_query in texts)
    squares = [(own @ own.T).ravel() for own in vectors]
    offsets = offsets_of(np.array([len(square) for square in squares]))
    return Similarity(offsets, np.concatenate(squares).round(6).astype(np.float32))
