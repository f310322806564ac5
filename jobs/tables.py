"""The tables, in flight and on storage: names and types, written once.

In flight one row is one query, and each stage adds columns. On storage the tables are flat. Ranks start at 1.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pyarrow as pa

from cluster.costs import COST, COSTS

ORIGINAL = "original"  # the un-rewritten query, as a strategy
STAGES = ("read", "rewrite", "retrieve", "fuse", "rerank", "write")  # in their order; jobs/pipeline.py builds them
RUNGS = ("json", "labelled", "numbered", "salvage")  # of the parser (`parsed_as`), best first

ERROR = pa.struct(
    [
        ("stage", pa.string()),
        ("component", pa.string()),
        ("reason", pa.string()),
        ("message", pa.string()),
        ("raw", pa.string()),
        ("attempts", pa.int32()),
    ]
)
# Notes about a query that are not failures: it was answered as well as it can be.
NOTES = ("no_hits", "original_stands_in")

REWRITE = pa.struct(
    [
        ("strategy", pa.string()),
        ("position", pa.int32()),
        ("text", pa.string()),
        ("weight", pa.float64()),
        ("model", pa.string()),
        ("prompt_hash", pa.string()),
        ("parsed_as", pa.string()),
        ("selected_reason", pa.string()),
    ]
)
HIT = pa.struct([("doc_id", pa.string()), ("score", pa.float64())])
RUN = pa.struct([("strategy", pa.string()), ("position", pa.int32()), ("retriever", pa.string()), ("hits", pa.list_(HIT))])
SOURCE = pa.struct(
    [
        ("strategy", pa.string()),
        ("position", pa.int32()),
        ("retriever", pa.string()),
        ("rank", pa.int32()),
        ("score", pa.float64()),
    ]
)
CANDIDATE = pa.struct([("doc_id", pa.string()), ("score", pa.float64()), ("sources", pa.list_(SOURCE))])
RESULT = pa.struct(
    [("doc_id", pa.string()), ("score", pa.float64()), ("fused_score", pa.float64()), ("sources", pa.list_(SOURCE))]
)

# In flight.
SHARD = pa.schema([("shard", pa.int32()), ("key", pa.string()), ("row_group", pa.int32())])
QUERIES = pa.schema(
    [
        ("shard", pa.int32()),
        ("query_id", pa.string()),
        ("query", pa.string()),
        ("log_count", pa.int64()),
        ("costs", COSTS),
        ("errors", pa.list_(ERROR)),
    ]
)
REWRITTEN = QUERIES.append(pa.field("rewrites", pa.list_(REWRITE)))
# `similarity`: cosines of the searched texts (original first, then the rewrites), row by row; null without a dense retriever.
RETRIEVED = REWRITTEN.append(pa.field("runs", pa.list_(RUN))).append(pa.field("similarity", pa.list_(pa.float32())))
FUSED = RETRIEVED.append(pa.field("candidates", pa.list_(CANDIDATE)))
RERANKED = FUSED.append(pa.field("hits", pa.list_(RESULT)))
COMMITTED = pa.schema([("shard", pa.int32()), ("manifest", pa.string())])

# On storage, under <output>/<name>-<fingerprint>/. The first two are written by planning, the others by shard.
STORED: dict[str, pa.Schema] = {
    "queries": pa.schema([("query_id", pa.string()), ("query", pa.string()), ("log_count", pa.int64())]),
    "query_map": pa.schema([("log_id", pa.string()), ("query_id", pa.string())]),
    "rewrites": pa.schema([("query_id", pa.string()), *REWRITE]),
    "runs": pa.schema(
        [
            ("query_id", pa.string()),
            ("strategy", pa.string()),
            ("position", pa.int32()),
            ("retriever", pa.string()),
            ("doc_id", pa.string()),
            ("rank", pa.int32()),
            ("score", pa.float64()),
        ]
    ),
    "results": pa.schema(
        [
            ("query_id", pa.string()),
            ("arm", pa.string()),
            ("rank", pa.int32()),
            ("doc_id", pa.string()),
            ("score", pa.float64()),
            ("fused_score", pa.float64()),
            ("sources", pa.list_(SOURCE)),
        ]
    ),
    "costs": pa.schema([("query_id", pa.string()), *COST]),
    "errors": pa.schema([("query_id", pa.string()), ("log_id", pa.string()), *ERROR]),
}
# Raw completions, durable as soon as they are made; private to the run.
COMPLETIONS = pa.schema(
    [
        ("query_id", pa.string()),
        ("request", pa.string()),
        ("prompt_hash", pa.string()),
        ("prompt", pa.string()),
        ("text", pa.string()),
        ("finish_reason", pa.string()),
        ("model", pa.string()),
        ("prompt_tokens", pa.int64()),
        ("cached_tokens", pa.int64()),
        ("completion_tokens", pa.int64()),
        ("usage", pa.string()),
        ("seconds", pa.float64()),
        ("device_seconds", pa.float64()),
        ("attempts", pa.int32()),
        ("start", pa.int32()),
    ]
)


def with_appended(table: pa.Table, column: str, more: Sequence[Sequence[Mapping[str, object]]]) -> pa.Table:
    """The table with each row's `more` appended to its list in `column` (costs, errors)."""
    index = table.schema.get_field_index(column)
    kind = table.schema.field(index).type
    joined = [[*old, *new] for old, new in zip(table.column(column).to_pylist(), more, strict=True)]
    return table.set_column(index, pa.field(column, kind), pa.array(joined, kind))


def failed(stage: str, error: Exception) -> dict[str, object]:
    """The ERROR of a query on which a stage's worker raised."""
    message = f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"
    return {"stage": stage, "component": None, "reason": "failed", "message": message, "raw": None, "attempts": 1}
