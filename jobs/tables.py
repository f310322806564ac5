"""The schemas of all tables, in flight and on storage.

In flight one row is one query, and each stage adds columns. On storage the tables are flat. Ranks start at 1.
"""

from collections.abc import Iterable, Mapping, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cluster.cause import KilledWorkerError, one_line
from cluster.costs import COST, COSTS, OVERHEAD
from cluster.http import encodable
from rewriters.reasons import FELL_BACK, GUARDED, MASKED, SENT_WITHOUT, TRIED_AGAIN

ORIGINAL = "original"  # the strategy name of the query as it was asked
ITERATE = "iterate"  # that of the refined queries of further rounds; their position is the round
READERS = ("json", "labelled", "numbered", "lines", "marked", "salvage", "original")  # values of `parsed_as`, best first
READER_WORDS = {"salvage": "repaired"}  # `parsed_as` -> what a person is shown for it

WRONG_CITATION = "wrong_citation"  # the reason of a note on an answer that cites a document which it was not given
REPEATED_QUERY = "repeated_query"  # of a note on a round whose refined query is one that was searched already
_ERROR_TEXTS = ("stage", "component", "reason", "message", "raw")
ERROR = pa.struct([*((name, pa.string()) for name in _ERROR_TEXTS), ("attempts", pa.int32())])
# Reasons in errors/ that are notes, not failures: the query was answered as well as possible.
NOTES = (
    "no_hits", "original_stands_in", "texts_dropped", "text_cut", "partial_list", "not_classified", "wrong_cell", FELL_BACK,
    MASKED, SENT_WITHOUT, TRIED_AGAIN, WRONG_CITATION, REPEATED_QUERY, *GUARDED,
)  # fmt: skip
# Reasons in errors/ of requests that a server did not answer, or only with its own failures: another try may help.
OUTAGES = frozenset({"unavailable", "rate_limited", "timeout", "server_error", "bad_answer"})
# Reasons in errors/ of queries on which a stage's worker raised, or under which its workers died: its fallback stands in.
FAILED, KILLED = "failed", "killed_worker"

# Of the tables that LLMs make after retrieval, without query and arm.
_SHOWN = pa.list_(pa.struct([("doc_id", pa.string()), ("label", pa.string())]))
# An LLM's answer to a query, from the first results: `documents` in the order of their numbers in the prompt, with the labels
# of relevance that they have there; `cited` are those that the answer cites.
ANSWER = pa.struct(
    [
        ("text", pa.string()),
        ("cut", pa.bool_()),  # by the token limit
        ("cited", pa.list_(pa.string())),
        ("documents", _SHOWN),
        ("left_out", pa.int32()),  # documents for which `answer.context_tokens` left no room
        ("cut_documents", pa.int32()),
        ("model", pa.string()),
        ("prompt_hash", pa.string()),
    ]
)
# The grade of one of the first results of a query in an arm, and what is kept of an ambiguous one.
GRADE = pa.struct(
    [
        ("rank", pa.int32()),
        ("doc_id", pa.string()),
        ("grade", pa.float64()),  # null: it could not be graded, and stays
        ("verdict", pa.string()),  # relevant, ambiguous, irrelevant; null without a grade
        ("strips", pa.string()),  # the sentences of an ambiguous document that are kept; null: all of it
        ("model", pa.string()),  # null: the reranker's score
        ("prompt_hash", pa.string()),
    ]
)
# What was made of the grades of a query in an arm.
CORRECTION = pa.struct(
    [
        ("question", pa.string()),  # made of the query and its rewrites; null: the query itself
        ("question_model", pa.string()),
        ("web_query", pa.string()),  # null: the web was not asked
        ("web_model", pa.string()),
        ("hits", pa.int32()),  # of the web, behind the documents that are kept; null: it was not asked, or is away
    ]
)
# What a judge, an LLM, says of a result or an answer. `sample`: from 0, of several judgements of the same.
JUDGEMENT = pa.struct(
    [
        ("kind", pa.string()),
        ("doc_id", pa.string()),  # null: an answer is judged
        ("arm", pa.string()),  # whose answer; null: a result is judged, for all arms
        ("grade", pa.int32()),
        ("sample", pa.int32()),
        ("model", pa.string()),
        ("prompt_hash", pa.string()),
    ]
)
# A further round of a query: its best score before, the refined query that was searched, how many of the first results of
# its arm are new, and the documents that it was written from.
ROUND = pa.struct(
    [
        ("round", pa.int32()),
        ("best", pa.float64()),  # null without a hit
        ("text", pa.string()),
        ("new", pa.int32()),
        ("model", pa.string()),
        ("prompt_hash", pa.string()),
        ("documents", _SHOWN),
    ]
)
REWRITE = pa.struct(
    [
        ("strategy", pa.string()),
        ("position", pa.int32()),
        ("text", pa.string()),
        ("weight", pa.float64()),
        ("search_as", pa.string()),  # query or passage: selects the encoder's prefix
        ("model", pa.string()),
        ("prompt_hash", pa.string()),
        ("parsed_as", pa.string()),
        ("selected_reason", pa.string()),
        ("position_weight", pa.float64()),  # multiplies the weight, also one of `fuse.weights`
        ("guards", pa.list_(pa.string())),  # flags of `rewriters/guards/guards.py`
    ]
)
# What guards left out of the texts of a query; only counted.
LEFT_OUT = pa.struct([("strategy", pa.string()), ("guard", pa.string()), ("texts", pa.int32())])
# What was chosen for a query: the strategies, in the order of the pool; null in runs where every strategy rewrites every query.
SELECTION = pa.struct([("query_type", pa.string()), ("strategies", pa.list_(pa.string())), ("reason", pa.string())])
HIT = pa.struct([("doc_id", pa.string()), ("score", pa.float64())])
SOURCE = pa.struct(
    [
        ("strategy", pa.string()),
        ("position", pa.int32()),
        ("retriever", pa.string()),
        ("rank", pa.int32()),
        ("score", pa.float64()),
    ]
)
SCORE = pa.struct([("doc_id", pa.string()), ("model", pa.string()), ("score", pa.float64())])
VALUES = pa.map_(pa.string(), pa.string())  # column of the log -> the query's value, null if it has none
# A page of the web that a search has found.
WEB_PAGE = pa.struct([("doc_id", pa.string()), ("url", pa.string()), ("title", pa.string()), ("text", pa.string())])
FILE = pa.struct([("table", pa.string()), ("key", pa.string()), ("rows", pa.int64()), ("size", pa.int64())])

# In flight: the input and the output of the first stage, and the output of the last. The other stages declare their columns
# as `ADDS`; `jobs/chain/pipeline.py` links them.
SHARD = pa.schema([("shard", pa.int32()), ("key", pa.string()), ("row_group", pa.int32())])
QUERIES = pa.schema(
    [
        ("shard", pa.int32()),
        ("query_id", pa.string()),
        ("query", pa.string()),
        ("log_count", pa.int64()),
        ("context", pa.string()),
        ("values", VALUES),
        ("costs", COSTS),
        ("errors", pa.list_(ERROR)),
        ("overhead", pa.list_(OVERHEAD)),  # on the first row of the block
    ]
)
# `traffic`: JSON of the requests to S3 of the last stage that the manifest does not count, by quantity: its own PUT.
COMMITTED = pa.schema([("shard", pa.int32()), ("manifest", pa.string()), ("traffic", pa.string())])

# On storage, under <output>/<name>-<fingerprint>/. Planning writes the first two, each shard the others.
STORED: dict[str, pa.Schema] = {
    "queries": pa.schema(
        [("query_id", pa.string()), ("query", pa.string()), ("normalised", pa.string()), ("log_count", pa.int64())]
    ),
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
    "web": pa.schema(
        [
            ("query_id", pa.string()),
            ("arm", pa.string()),
            ("retriever", pa.string()),
            ("searched", pa.string()),
            ("rank", pa.int32()),
            *WEB_PAGE,
        ]
    ),
    "candidates": pa.schema(
        [("query_id", pa.string()), ("rank", pa.int32()), ("doc_id", pa.string()), ("score", pa.float64())]
    ),
    "results": pa.schema(
        [
            ("query_id", pa.string()),
            ("arm", pa.string()),
            ("rank", pa.int32()),
            ("doc_id", pa.string()),
            ("score", pa.float64()),
            ("fused_score", pa.float64()),
            ("rerank_score", pa.float64()),
            ("sources", pa.list_(SOURCE)),
        ]
    ),
    "selections": pa.schema([("query_id", pa.string()), *SELECTION]),
    "scores": pa.schema([("query_id", pa.string()), *SCORE]),
    "rounds": pa.schema([("query_id", pa.string()), ("arm", pa.string()), *ROUND]),
    "grades": pa.schema([("query_id", pa.string()), ("arm", pa.string()), *GRADE]),
    "corrections": pa.schema([("query_id", pa.string()), ("arm", pa.string()), *CORRECTION]),
    "answers": pa.schema([("query_id", pa.string()), ("arm", pa.string()), *ANSWER]),
    "judgements": pa.schema([("query_id", pa.string()), *JUDGEMENT]),
    "costs": pa.schema([("query_id", pa.string()), *COST]),
    "errors": pa.schema([("query_id", pa.string()), ("log_id", pa.string()), *ERROR]),
}
# Columns of queries/ after those of STORED, each only where the config asks for it.
OPTIONAL_QUERIES = pa.schema([("context", pa.string()), ("query_type", pa.string()), ("values", VALUES)])
ELAPSED = "elapsed"  # `costs.stage` of a row per query: its `latency` are the seconds from the first stage to the last
LOST = "lost"  # `costs.error` of requests that a killed attempt has sent, without an answer that was kept
# Raw completions, stored as soon as they are made; private to the run.
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
        ("sample", pa.int32()),  # from 0, of several answers to one prompt
        ("variables", pa.string()),  # hash of the values of the prompt's variables other than query and context
        # sends by killed attempts without an answer that was kept; `text` is null if none came later; null: not merged yet
        ("lost", pa.int32()),
        ("latency", pa.float64()),  # seconds from the last send to the answer
        ("left_out", pa.string()),  # what the request was sent without, since the server does not take it
        ("cache_write_tokens", pa.int64()),
        ("tier", pa.string()),  # of the provider's prices, as the answer reports it
    ]
)
# What the web has answered, stored as soon as it has; private to the run.
WEB_ANSWERS = pa.schema(
    [
        ("space", pa.string()),  # hash of the provider and of what is asked of it
        ("text", pa.string()),  # as it was sent
        ("hits", pa.list_(pa.struct([*WEB_PAGE, ("score", pa.float64())]))),  # null where no answer was kept
        ("requests", pa.int32()),  # sends
        ("asked_by", pa.string()),  # where it was asked: a stage or round, a retriever, and the first query
        ("lost", pa.int32()),  # sends by killed attempts without an answer that was kept; null: not merged yet
    ]
)


def nested(offsets: np.ndarray, flat: pa.Array, kind: pa.ListType) -> pa.ListArray:
    """Returns a list array of n lists over `flat`, split at `offsets`, shape (n + 1,)."""
    return pa.ListArray.from_arrays(pa.array(offsets.astype(np.int32)), flat, type=kind)


def unnested(table: pa.Table, column: str) -> tuple[np.ndarray, pa.Array]:
    """Returns the items of all lists of a column, with the row of each."""
    lists = table.column(column).combine_chunks()
    return pc.list_parent_indices(lists).to_numpy(zero_copy_only=False), lists.flatten()


def with_columns(table: pa.Table, schema: pa.Schema, columns: Iterable[pa.Array]) -> pa.Table:
    """Returns the table with further columns."""
    for field, column in zip(schema, columns, strict=True):
        table = table.append_column(field, column)
    return table


def with_values(table: pa.Table, columns: Mapping[str, pa.Array]) -> pa.Table:
    """Returns the table with other values in some of its columns."""
    for name, values in columns.items():
        at = table.schema.get_field_index(name)
        table = table.set_column(at, table.schema.field(at), values)
    return table


def with_empty_columns(table: pa.Table, schema: pa.Schema) -> pa.Table:
    """Returns the table with further columns of lists, which are empty."""
    return with_columns(table, schema, (pa.array([[]] * table.num_rows, field.type) for field in schema))


def without_columns(table: pa.Table, names: Iterable[str]) -> pa.Table:
    """Returns the table without those of some columns that it has."""
    return table.drop_columns([name for name in names if name in table.column_names])


def with_appended(table: pa.Table, column: str, more: Sequence[Sequence[Mapping[str, object]]]) -> pa.Table:
    """Returns the table with `more[i]` appended to the list of row i in `column` (costs, errors)."""
    index = table.schema.get_field_index(column)
    field = table.schema.field(index)
    old, new = table.column(index).combine_chunks(), pa.array(more, field.type)
    lengths = [pc.list_value_length(lists).to_numpy() for lists in (old, new)]
    row = np.concatenate([np.repeat(np.arange(table.num_rows), each) for each in lengths])
    flat = pa.concat_arrays([old.flatten(), new.flatten()]).take(pa.array(np.argsort(row, kind="stable")))
    offsets = np.concatenate([[0], np.cumsum(lengths[0] + lengths[1])])
    return table.set_column(index, field, nested(offsets, flat, field.type))


def with_first(table: pa.Table, column: str, entries: Sequence[Mapping[str, object]]) -> pa.Table:
    """Returns the table with entries appended to the list of its first row: they are of the whole block."""
    return with_appended(table, column, [entries, *[()] * (table.num_rows - 1)])


def error_row(
    stage: str, component: str | None, reason: str | None, message: str, raw: str | None = None, attempts: int = 1
) -> dict[str, object]:
    """Returns an ERROR."""
    values = (stage, component, reason, message, raw, attempts)
    return {field.name: value for field, value in zip(ERROR, values, strict=True)}


def failure_row(stage: str, error: Exception, component: str | None = None) -> dict[str, object]:
    """Returns the ERROR of a query on which a worker raised, or under which its workers died."""
    reason = KILLED if isinstance(error, KilledWorkerError) else FAILED
    return error_row(stage, component, reason, encodable(f"{type(error).__name__}: {one_line(error)}"))
