"""The rows of the stored tables of a block."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa

from cluster.run.shards import write_table
from cluster.run.stage import shard_of
from cluster.storage import Storage
from jobs.chain.arms.shared_work import SharedWork
from jobs.chain.stages.candidates import Candidates
from jobs.chain.tables import ARM_STORED
from jobs.tables import STORED, unnested, with_first
from retrievers.ranking import ranks

Columns = dict[str, Any]


def flattened(ids: pa.Array, table: pa.Table, column: str) -> Columns:
    """Returns the structs of a list column as columns, with the query_id of their row and their rank in it, from 1."""
    rows, flat = unnested(table, column)
    columns = {field.name: flat.field(field.name) for field in flat.type}
    return {"query_id": ids.take(pa.array(rows)), "rank": pa.array(ranks(np.bincount(rows)))} | columns


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


def with_stored(table: pa.Table, storage: Storage, tables: Mapping[str, pa.Table]) -> pa.Table:
    """Writes tables before the shard is committed, and returns the block with their files in its first row."""
    stored = {name: write_table(storage, name, shard_of(table), rows) for name, rows in tables.items() if rows.num_rows}
    return with_first(table, "stored", [{"table": name} | file._asdict() for name, file in stored.items()])


def results_of(ids: pa.Array, block: Candidates, work: SharedWork, number: int) -> tuple[pa.Table, pa.Table]:
    """Returns the rows of one arm in results/, and those behind them in tails/, where measures read further."""
    answer = work.answers[number]
    row, at, score, reranked = block.ranked(number)
    rank = ranks(block.lengths(number))

    def columns(of: np.ndarray) -> list[pa.Array]:
        arm, doc_ids = pa.repeat(pa.scalar(answer.arm), int(of.sum())), block.doc_ids.take(pa.array(block.document[at[of]]))
        return [ids.take(pa.array(row[of])), arm, pa.array(rank[of].astype(np.int32)), doc_ids]

    kept, behind = rank <= answer.keep, (rank > answer.keep) & (rank <= answer.looked)
    scores = [
        pa.array(score[kept]),
        pa.array(block.score[at[kept]]),
        pa.array(reranked[kept], from_pandas=True),  # NaN: no score
        block.sources.take(pa.array(at[kept])),
    ]
    results = pa.table([*columns(kept), *scores], schema=STORED["results"])
    return results, pa.table(columns(behind), schema=ARM_STORED["tails"])


def candidates_table(ids: pa.Array, block: Candidates, keep: int) -> pa.Table:
    """Returns the rows of candidates/: the first `keep` of the first arm, as they were fused."""
    candidates, rank = block.of_arm(0), ranks(block.lengths(0))
    kept = rank <= keep
    columns = [
        ids.take(pa.array(candidates.row[kept])),
        pa.array(rank[kept].astype(np.int32)),
        block.doc_ids.take(pa.array(candidates.document[kept])),
        pa.array(candidates.score[kept]),
    ]
    return pa.table(columns, schema=STORED["candidates"])


def scores_table(schema: pa.Schema, ids: pa.Array, block: Candidates, work: SharedWork) -> pa.Table:
    """Returns the rows of scores/: every scored pair."""
    parts = [(number, np.flatnonzero(~np.isnan(scores))) for number, scores in enumerate(block.reranked)]
    at = np.concatenate([of for _, of in parts])
    columns = {
        "query_id": ids.take(pa.array(block.document_row[at])),
        "doc_id": block.doc_ids.take(pa.array(at)),
        "model": pa.concat_arrays(
            [pa.repeat(pa.scalar(work.rerankers[number].settings.scored_by), len(of)) for number, of in parts]
        ),
        "score": pa.array(np.concatenate([block.reranked[number][of] for number, of in parts])),
        "reranker": pa.concat_arrays([pa.repeat(pa.scalar(work.rerankers[number].label), len(of)) for number, of in parts]),
    }
    return stored_table(schema, columns)


def of_arms(ids: pa.Array, table: pa.Table, work: SharedWork, column: str) -> pa.Table:
    """Returns the rows of a table of what LLMs generate, from a column in flight of the same name."""
    columns = flattened(ids, table, column)
    if "answer" in columns:  # a judge says itself which arm it means
        columns["arm"] = pa.array([one.arm for one in work.answers], pa.string()).take(columns["answer"])
    return stored_table(STORED[column], columns)
