"""The arithmetic of arms over the lists of a block: each is fused, and the documents of all arms are numbered per query."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from jobs.chain.ablate.shared_work import Answer, SharedWork
from jobs.chain.ablate.stages.users import Users
from jobs.chain.ablate.tables import DOCUMENT, FUSED
from jobs.chain.stages.fuse import fuse_candidates, similarity_of, source_lists
from jobs.tables import nested
from retrievers.fusion import Fused
from retrievers.lists import Hits, Lists, by_document
from retrievers.ranking import encode, offsets_of, ranks
from retrievers.retriever import DocumentStore
from retrievers.settings import FuseSettings


class _Fused(NamedTuple):
    """One fused arm: its candidates row by row, best first, as indexes of the pairs of its lists."""

    arm: int
    row: np.ndarray
    pair: np.ndarray
    score: np.ndarray
    sources: pa.ListArray | None


class _Pairs(NamedTuple):
    """The pairs of query and document of some lists that an arm uses: indexes of `Hits`, and what they are."""

    pairs: np.ndarray
    rows: np.ndarray
    doc_ids: pa.StringArray


class Fusing:
    """Collects the fused candidates of the arms of a block."""

    def __init__(self, work: SharedWork, rows: int, documents: Mapping[str, DocumentStore]) -> None:
        """Begins without arms.

        Args:
            work: of all arms.
            rows: queries of the block.
            documents: the texts, where an arm drops duplicates, by `Answer.documents`.
        """
        self._work, self._rows, self._documents = work, rows, documents
        self._fused: list[list[_Fused]] = []  # by search
        self._pairs: list[_Pairs] = []
        self.counts: Counter[str] = Counter()

    def add(
        self,
        answers: Sequence[tuple[int, Answer]],
        lists: Lists,
        cosines: pa.ListArray,
        strategies: set[str],
        chosen: Mapping[int, np.ndarray],
    ) -> None:
        """Fuses the lists for each of the arms that share them.

        Args:
            answers: with their indexes.
            lists: of all strategies of these arms.
            cosines: of the texts of each query, a column `similarity`.
            strategies: those that have lists.
            chosen: index of an answer -> the number of the text of each row whose lists alone it fuses.
        """
        hits, similar = by_document(lists, self._rows), similarity_of(cosines)
        used = np.zeros(len(hits.pair_query), dtype=bool)
        found, done = [], dict[tuple[str, int, int | None], Fused]()
        for at, answer in answers:
            settings = _settings(answer, strategies)
            documents = self._documents[answer.documents] if settings.duplicates == "drop" else None
            unused = {"k"} if settings.method == "minmax" else None
            key = settings.model_dump_json(exclude=unused), id(documents), at if at in chosen else None
            if key not in done:
                done[key] = fuse_candidates(_only(hits, chosen.get(at)), settings, similar, documents)
            fused = done[key]
            used[fused.pairs] = True
            sizes = np.diff(fused.offsets)
            sources = source_lists(lists, fused) if self._work.keep_sources else None
            found.append(_Fused(at, np.repeat(np.arange(self._rows), sizes), fused.pairs, fused.scores, sources))
            self.counts[f"arm/{answer.arm}/stood_in"] = int(fused.stood_in.sum())
            self.counts[f"arm/{answer.arm}/no_hits"] = int((sizes == 0).sum())
        pairs = np.flatnonzero(used)
        self._fused.append(found)
        self._pairs.append(_Pairs(pairs, hits.pair_query[pairs], hits.doc_ids.take(pa.array(hits.pair_document[pairs]))))

    def columns(self) -> list[pa.ListArray]:
        """Returns the columns `documents` and `fused` of a block, and counts the pairs of each arm."""
        work, parts, rows = self._work, self._pairs, self._rows
        row = np.concatenate([part.rows for part in parts])
        code, names = encode(pa.concat_arrays([part.doc_ids for part in parts]))
        key, place = np.unique(row * max(1, len(names)) + code, return_inverse=True)
        document_row, document_code = np.divmod(key, max(1, len(names)))
        per_row = np.bincount(document_row, minlength=rows)
        starts = offsets_of(per_row)
        bounds = np.cumsum([0, *(len(part.pairs) for part in parts)])
        scored = np.zeros((len(work.rerankers), len(key)), dtype=bool)
        users = [Users(len(key)) for _ in work.rerankers]
        arms, of_row, document, score, sources = [], [], [], [], []
        for number, (found, part) in enumerate(zip(self._fused, parts, strict=True)):
            numbered = np.zeros(int(part.pairs.max(initial=-1)) + 1, dtype=np.int64)
            numbered[part.pairs] = place[bounds[number] : bounds[number + 1]]
            for one in found:
                answer, pairs = work.answers[one.arm], numbered[one.pair]
                if answer.reranker is not None:
                    given = pairs[ranks(np.bincount(one.row, minlength=rows)) <= answer.candidates]
                    scored[answer.reranker, given] = True
                    users[answer.reranker].add([answer.arm], given)
                arms.append(np.full(len(pairs), one.arm, dtype=np.int16))
                of_row.append(one.row)
                document.append((pairs - starts[one.row]).astype(np.int32))
                score.append(one.score)
                sources.append(one.sources)
        for model, of_model in zip(work.rerankers, users, strict=True):
            self.counts.update(of_model.counts(f"pairs/{model.settings.kind}@{model.model}"))
        flat_row = np.concatenate(of_row)
        order = np.lexsort((np.concatenate(arms), flat_row))  # stable: candidates keep their ranks
        arm = pa.array(np.concatenate(arms)[order])
        kept = pa.concat_arrays(sources).take(pa.array(order)) if work.keep_sources else None
        values = [
            arm,
            pa.array(np.concatenate(document)[order]),
            pa.array(np.concatenate(score)[order]),
            pa.nulls(len(order), FUSED.field("sources").type) if kept is None else kept,
        ]
        fused = pa.StructArray.from_arrays(values, fields=list(FUSED))
        by = [np.flatnonzero(mask) for mask in scored.T] if len(work.rerankers) else [np.empty(0)] * len(key)
        scored_by = nested(
            offsets_of(np.array([len(one) for one in by], dtype=np.int64)),
            pa.array(np.concatenate([np.empty(0), *by]).astype(np.int16)),
            pa.list_(pa.int16()),
        )
        documents = pa.StructArray.from_arrays([names.take(pa.array(document_code)), scored_by], fields=list(DOCUMENT))
        return [
            nested(starts, documents, pa.list_(DOCUMENT)),
            nested(offsets_of(np.bincount(flat_row, minlength=rows)), fused, pa.list_(FUSED)),
        ]


def _only(hits: Hits, chosen: np.ndarray | None) -> Hits:
    """Returns the hits with the weight 0 for the lists of all texts but one of each query; None: as they are."""
    if chosen is None:
        return hits
    return hits._replace(position_weight=np.where(hits.text == chosen[hits.query], hits.position_weight, 0.0))


def _settings(answer: Answer, strategies: set[str]) -> FuseSettings:
    """Returns the fusion of an arm over the lists of all strategies that share them: those that it lacks weigh 0."""
    others = strategies - answer.strategies
    own = {key: weight for key, weight in answer.fuse.weights.items() if key.partition("/")[0] not in others}
    return answer.fuse.model_copy(update={"weights": own | dict.fromkeys(others, 0.0)})
