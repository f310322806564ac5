"""The rows of the stored tables of a block."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cluster import costs
from jobs.chain.arms.shared_work import SharedWork
from jobs.chain.stages.candidates import Candidates
from jobs.chain.tables import ARM_STORED
from jobs.tables import STORED, unnested
from retrievers.ranking import ranks

Columns = dict[str, Any]


def flattened(ids: pa.Array, table: pa.Table, column: str) -> Columns:
    """Returns the structs of a list column as columns, with the query_id of their row and their rank in it, from 1."""
    rows, flat = unnested(table, column)
    columns = {field.name: flat.field(field.name) for field in flat.type}
    return {"query_id": ids.take(pa.array(rows)), "rank": pa.array(ranks(np.bincount(rows)))} | columns


def costs_columns(columns: Columns) -> Columns:
    """Returns the columns of costs/ with a null query_id for start-up costs, which belong to no query."""
    own = pc.invert(pc.starts_with(columns["component"], costs.START_UP))
    return columns | {"query_id": pc.if_else(own, columns["query_id"], pa.scalar(None, pa.string()))}


def stored_table(schema: pa.Schema, columns: Columns) -> pa.Table:
    """Returns a stored table; a column that is not given is null, one that is a string has it in every row."""
    rows = len(columns["query_id"])
    arrays = []
    for field in schema:
        values = columns.get(field.name)
        if values is None or isinstance(values, str):
            values = pa.repeat(pa.scalar(values, field.type), rows)
        arrays.append(values.cast(field.type))
    return pa.Table.from_arrays(arrays, schema=schema)


class FirstRanked(NamedTuple):
    """The first documents of each query in one arm, by query and rank.

    Attributes:
        row: Of each.
        document: Its index in `Candidates.doc_ids`.
        score: By which it has its rank.
    """

    row: np.ndarray
    document: np.ndarray
    score: np.ndarray


class Rankings:
    """The ranks of every arm as rows of results/, and of tails/, where measures read further."""

    def __init__(self, table: pa.Table, block: Candidates, work: SharedWork) -> None:
        """Reads the column `ranked` of a block."""
        self._ids, self._block, self._work = table.column("query_id").combine_chunks(), block, work
        row, flat = unnested(table, "ranked")
        arm = flat.field("arm").to_numpy()
        by_arm = np.argsort(arm, kind="stable")
        self._bounds = np.searchsorted(arm[by_arm], np.arange(len(work.answers) + 1))
        self._row = row[by_arm]
        self._at = block.first[self._row] + flat.field("fused").to_numpy()[by_arm]
        self._score = flat.field("score").to_numpy()[by_arm]

    def first(self, number: int, most: int) -> FirstRanked:
        """Returns the first documents of each query in one arm, at most so many."""
        row, at, score = self._of(number)
        kept = ranks(np.bincount(row, minlength=self._block.rows)) <= most
        return FirstRanked(row[kept], self._block.document[at[kept]], score[kept])

    def tables(self, number: int) -> tuple[pa.Table, pa.Table]:
        """Returns the rows of one arm in results/, and those in tails/."""
        block, answer = self._block, self._work.answers[number]
        row, at, score = self._of(number)
        rank = ranks(np.bincount(row, minlength=block.rows))
        kept, behind = rank <= answer.keep, (rank > answer.keep) & (rank <= answer.looked)
        reranked = np.full(len(at), np.nan)
        if answer.reranker is not None:
            given = block.rank[at] <= block.pairs(number, answer)[row]
            reranked[given] = block.reranked[answer.reranker][block.document[at[given]]]
        results = [
            self._ids.take(pa.array(row[kept])),
            pa.repeat(pa.scalar(answer.arm), int(kept.sum())),
            pa.array(rank[kept].astype(np.int32)),
            block.doc_ids.take(pa.array(block.document[at[kept]])),
            pa.array(score[kept]),
            pa.array(block.score[at[kept]]),
            pa.array(reranked[kept], from_pandas=True),  # NaN: no score
            block.sources.take(pa.array(at[kept])),
        ]
        tails = [
            self._ids.take(pa.array(row[behind])),
            pa.repeat(pa.scalar(answer.arm), int(behind.sum())),
            pa.array(rank[behind].astype(np.int32)),
            block.doc_ids.take(pa.array(block.document[at[behind]])),
        ]
        return pa.table(results, schema=STORED["results"]), pa.table(tails, schema=ARM_STORED["tails"])

    def _of(self, number: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Returns the rows, the places among the block's candidates, and the scores of what one arm has ranked."""
        part = slice(self._bounds[number], self._bounds[number + 1])
        return self._row[part], self._at[part], self._score[part]


def candidates_table(ids: pa.Array, block: Candidates, keep: int) -> pa.Table:
    """Returns the rows of candidates/: the first `keep` of the first arm, as they were fused."""
    of = block.of(0)
    rank = ranks(np.bincount(of.row, minlength=block.rows))
    kept = rank <= keep
    columns = [
        ids.take(pa.array(of.row[kept])),
        pa.array(rank[kept].astype(np.int32)),
        block.doc_ids.take(pa.array(of.document[kept])),
        pa.array(of.score[kept]),
    ]
    return pa.table(columns, schema=STORED["candidates"])


def scores_table(schema: pa.Schema, ids: pa.Array, block: Candidates, work: SharedWork) -> pa.Table:
    """Returns the rows of scores/: every scored pair."""
    parts = [(number, np.flatnonzero(~np.isnan(scores))) for number, scores in enumerate(block.reranked)]
    at = np.concatenate([of for _, of in parts])
    columns = {
        "query_id": ids.take(pa.array(block.document_row[at])),
        "doc_id": block.doc_ids.take(pa.array(at)),
        "model": pa.concat_arrays([pa.repeat(pa.scalar(work.rerankers[number].model), len(of)) for number, of in parts]),
        "score": pa.array(np.concatenate([block.reranked[number][of] for number, of in parts])),
        "reranker": pa.concat_arrays([pa.repeat(pa.scalar(work.rerankers[number].label), len(of)) for number, of in parts]),
    }
    return stored_table(schema, columns)


def of_arms(ids: pa.Array, table: pa.Table, work: SharedWork, column: str) -> pa.Table:
    """Returns the rows of a table of what LLMs generate for arms, from a column in flight of the same name."""
    columns = flattened(ids, table, column)
    arms = pa.array([one.arm for one in work.answers], pa.string())
    return stored_table(STORED[column], columns | {"arm": arms.take(columns["answer"])})


def judged_table(ids: pa.Array, table: pa.Table) -> pa.Table:
    """Returns the rows of judgements/."""
    return stored_table(STORED["judgements"], flattened(ids, table, "judgements"))
