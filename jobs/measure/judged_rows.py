"""The rows of a run that are measured, read by DuckDB: what is judged, its queries, and the documents of these queries.

No table is held in memory whole: rows joined to the judgements come some thousand at a time.
"""

from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cluster.storage.sql import text_literal
from jobs.chain.cuts import cuts_of
from jobs.log.judgements import Judgements, Key
from jobs.runs.folder import RunFolder
from jobs.runs.tables import committed_queries, create_view, create_views
from jobs.tables import ORIGINAL
from retrievers.fusion import fuse
from retrievers.lists import Lists, by_document
from retrievers.ranking import encode
from retrievers.settings import FuseSettings
from rewriters.normalise import normalise

BATCH_ROWS = 1 << 14
ARM_LISTS = ("results", "tails")  # the tables that hold the lists of an ablation's arms
_PLACES: dict[Key, tuple[str, str]] = {  # the table and column in which a judged key stands
    "log_id": ("query_map", "log_id"),
    "query_id": ("queries", "query_id"),
    "query": ("queries", "normalised"),
}
TextId = tuple[str, int]  # strategy and position


class CountedKeys(NamedTuple):
    """The judged keys of a run: those that count are in the log, and their query is committed or they are rejected log rows."""

    query_of: dict[str, str | None]  # judged key in the log -> its query_id, None for a rejected row
    of_query: dict[str, list[str]]  # committed query_id -> its judged keys, in order
    keys: list[str]  # those that count, in order of their queries, rejected log rows last
    rejected: list[str]  # the judged log rows that were rejected; they count zero
    judged: int
    missing: int  # judged keys that are not in the log
    not_committed: int  # judged keys whose query is not committed yet
    unmatched: tuple[str, str] | None


def counted_keys(connection: duckdb.DuckDBPyConnection, run: RunFolder, judgements: Judgements) -> CountedKeys:
    """Returns the judged keys that count; registers the query_ids of those in the log as table `wanted`."""
    table, column = _PLACES[judgements.key]
    connection.register("judged", pa.table({"judged": pa.array(list(judgements.grades), pa.string())}))
    create_views(connection, run, [table])
    # a judged text is a query on its own: after earlier turns the same words are another one
    alone = " WHERE context IS NULL" * (judgements.key == "query")
    # a log_id may have several rows, some of them rejected: its query_id is the one that is not null
    query = f"SELECT judged, max(query_id) FROM {table} JOIN judged ON judged = {column}{alone} GROUP BY judged"
    query_ids: dict[str, str | None] = dict(connection.execute(query).fetchall())
    wanted = sorted({query_id for query_id in query_ids.values() if query_id is not None})
    connection.register("wanted", pa.table({"query_id": pa.array(wanted, pa.string())}))
    pending: set[str] = set()
    if len(run.manifests) < len(run.plan.shards):
        committed_queries(connection, run)
        waiting = connection.execute("SELECT query_id FROM wanted ANTI JOIN committed USING (query_id)").fetchall()
        pending = {query_id for (query_id,) in waiting}
    of_query: dict[str, list[str]] = {}
    for key, query_id in sorted(query_ids.items(), key=lambda pair: (pair[1] or "", pair[0])):
        if query_id is not None and query_id not in pending:
            of_query.setdefault(query_id, []).append(key)
    example = None
    if not query_ids and judgements.grades:
        logged = connection.execute(f"SELECT {column} FROM {table} LIMIT 1").fetchall()
        example = (next(iter(judgements.grades)), str(logged[0][0])) if logged else None
    rejected = sorted(key for key, query_id in query_ids.items() if query_id is None)
    keys, judged = [key for keys in of_query.values() for key in keys] + rejected, len(judgements.grades)
    missing, not_committed = judged - len(query_ids), len(query_ids) - len(keys)
    return CountedKeys(query_ids, of_query, keys, rejected, judged, missing, not_committed, example)


class AskedQuery(NamedTuple):
    """A query of the log."""

    query: str | None
    context: str | None  # its earlier turns; None: there are none
    log_count: int

    @property
    def words(self) -> str | None:
        """Returns its words in normal form, those of earlier turns, too."""
        return None if self.query is None else normalise(f"{self.context or ''} {self.query}")


NOT_ASKED = AskedQuery(None, None, 1)  # of a rejected log row


def asked_queries(connection: duckdb.DuckDBPyConnection, run: RunFolder) -> dict[str, AskedQuery]:
    """Returns wanted query_id -> its query."""
    create_views(connection, run, ["queries"])
    rows = connection.execute("SELECT query_id, query, context, log_count FROM queries SEMI JOIN wanted USING (query_id)")
    return {query_id: AskedQuery(*asked) for query_id, *asked in rows.fetchall()}


def originals(connection: duckdb.DuckDBPyConnection, run: RunFolder, kept: int) -> Iterator[pa.Table]:
    """Yields tables of `query_id`, `arm` and `doc_id`: what the original query alone finds, by query and rank.

    Its lists are fused as in the run, without hits below a floor, and cut after `kept` documents, as the results are.
    """
    columns = ("position", "retriever", "doc_id", "score")
    condition = f"{of_original(run)} ORDER BY query_id, retriever, rank"
    for rows in wanted_rows(connection, run, ("runs",), columns, condition):
        alone = fuse_original(rows, run.config.fuse)
        hits = [(query_id, ORIGINAL, doc_id) for query_id, doc_ids in alone.items() for doc_id in doc_ids[:kept]]
        schema = pa.schema([(name, pa.string()) for name in ("query_id", "arm", "doc_id")])
        yield pa.table([list(column) for column in zip(*hits, strict=True)] or [[], [], []], schema=schema)


def fuse_original(rows: pa.Table, settings: FuseSettings) -> dict[str, list[str]]:
    """Returns query_id -> doc_ids, best first, of the original query's lists alone, fused with the same settings.

    `rows` has query_id, position, retriever, doc_id and score of runs/, sorted by query_id, retriever and rank.
    """
    columns = {name: rows.column(name).combine_chunks() for name in rows.column_names}
    query, query_ids = encode(columns["query_id"])
    retriever, _ = encode(columns["retriever"])
    begins = np.flatnonzero((np.diff(query, prepend=-1) != 0) | (np.diff(retriever, prepend=-1) != 0))
    lists = Lists(
        query[begins],
        pa.array([ORIGINAL] * len(begins), pa.string()),
        columns["position"].to_numpy()[begins],
        columns["retriever"].take(pa.array(begins)),
        np.zeros(len(begins), dtype=np.int64),
        np.ones(len(begins)),
        np.ones(len(begins)),
        np.append(begins, len(query)),
        columns["doc_id"],
        columns["score"].to_numpy(),
    )
    # the weights of the original's lists, as the arm `original` has them; none where the run leaves them all out
    own = {name: weight for name, weight in settings.weights.items() if name.partition("/")[0] == ORIGINAL}
    own = own if own.get(ORIGINAL, 1.0) > 0 or any(own.values()) else {}
    alone = settings.model_copy(update={"weights": own, "redundancy": "none"})
    fused = fuse(by_document(lists, len(query_ids)), alone)
    doc_ids = fused.doc_ids.to_pylist()
    of_query = [doc_ids[begin:end] for begin, end in pairwise(fused.offsets.tolist())]
    return dict(zip(query_ids.to_pylist(), of_query, strict=True))


def of_original(run: RunFolder) -> str:
    """Returns the SQL condition of the rows of runs/ that are fused of the original's lists."""
    return f"strategy = '{ORIGINAL}' AND {above_cuts(run)}"


def own_cuts(run: RunFolder) -> dict[str, tuple[int | None, float | None]]:
    """Returns strategy -> the depth and the score floor that are its own, as `run.json` has them."""
    return {one["name"]: (one.get("depth"), one.get("score_floor")) for one in run.strategies}


def above_cuts(run: RunFolder) -> str:
    """Returns the SQL condition of the rows of runs/ that no depth and no score floor keeps out of fusion."""
    cuts = cuts_of(run.config, own_cuts(run))
    conditions = [f"rank <= {run.config.fuse.depth}"]
    for name, (depth, floor) in cuts.strategies.items():
        other = f"strategy != {text_literal(name)}"
        conditions += [] if depth is None else [f"({other} OR rank <= {depth})"]
        conditions += [] if floor is None else [f"({other} OR score >= '{floor!r}'::DOUBLE)"]
    conditions += [
        f"(retriever != {text_literal(name)} OR score >= '{floor!r}'::DOUBLE)" for name, floor in cuts.floors.items()
    ]
    return " AND ".join(conditions)


def wanted_rows(
    connection: duckdb.DuckDBPyConnection, run: RunFolder, tables: Sequence[str], columns: Sequence[str], condition: str
) -> Iterator[pa.Table]:
    """Yields the tables' rows of the wanted queries, some thousands at a time, all rows of a query together."""
    create_view(connection, "wanted_lists", tables[0], [file for table in tables for file in run.tables.get(table, ())])
    rows = connection.sql(
        f"SELECT query_id, {', '.join(columns)} FROM wanted_lists SEMI JOIN wanted USING (query_id) WHERE {condition}"
    ).to_arrow_reader(BATCH_ROWS)
    buffer = rows.schema.empty_table()
    for batch in rows:
        buffer = pa.concat_tables([buffer, pa.Table.from_batches([batch])])
        query_ids = buffer.column("query_id")
        last = pc.index(query_ids, query_ids[-1]).as_py() if buffer.num_rows else 0  # its rows may go on in the next batch
        if last:
            yield buffer.slice(0, last)
            buffer = buffer.slice(last)
    if buffer.num_rows:
        yield buffer


def text_names(texts: Iterable[TextId]) -> dict[TextId, str]:
    """Returns (strategy, position) -> its name: the strategy's, with the position where the strategy has several texts."""
    texts = list(texts)
    several = {strategy for strategy, position in texts if position > 1}
    return {text: f"{text[0]} {text[1]}" if text[0] in several else text[0] for text in texts}
