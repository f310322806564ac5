"""The lists of a run's judged queries, read once for all settings that `tune` tries.

Read are the lists that were retrieved (runs/), the weights of their rewrites and the reranker's scores. The vectors of the
texts are computed again, since a run stores none. A run of an ablation is read as its arm `full`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cluster.errors import ConfigError, RetrieverError
from cluster.storage.sql import text_literal
from jobs.chain.arms.arms import FULL
from jobs.chain.cuts import cut_from
from jobs.chain.search_texts import Text, joined, query_texts
from jobs.chain.stages.fuse import text_similarity
from jobs.job.rewrite import read_rewriting
from jobs.log.judgements import Judgements
from jobs.measure.clusters import query_clusters
from jobs.measure.judged_rows import CountedKeys, above_cuts, asked_queries, counted_keys, own_cuts
from jobs.measure.notes import counts_in_words, nothing_measured
from jobs.measure.significance import Floats, Numbers
from jobs.runs.folder import RunFolder
from jobs.runs.tables import database, searched_rewrites
from jobs.tables import ITERATE
from retrievers.encoder import TextEncoder, encoder_differences, encoder_identity, open_encoder
from retrievers.join import search_vectors
from retrievers.lists import ORIGINAL, TOGETHER, Hits, Lists, by_document
from retrievers.ranking import offsets_of
from retrievers.redundancy import Similarity
from rewriters.strategy import searched_as_one

MOST_QUERIES = 5000  # drawn from more judged queries, so that memory and time are bounded
BLOCK = 250  # queries whose lists are read and grouped at a time


class GatheredBlock(NamedTuple):
    """Some of the queries."""

    hits: Hits
    similarity: Similarity | None  # None without an encoder
    scores: Floats | None  # of each pair of `hits`, NaN where it failed; None where some pair of the run has none


@dataclass(frozen=True)
class GatheredQueries:
    """The judged queries of a run with their lists."""

    query_ids: tuple[str, ...]
    clusters: Numbers
    """(queries,): number of the cluster of near-duplicates of each."""
    keys: tuple[tuple[str, ...], ...]
    """The judged keys of each: log rows, or the query itself."""
    blocks: tuple[GatheredBlock, ...]
    """Of the queries in order, `BLOCK` each."""
    own_weights: Mapping[str, float]
    """Strategy -> the weight that its file gives it; the original 1."""
    whole_below: int
    """Results of a query that are fewer were not cut off."""
    no_cosine: str | None
    """Reason why there are no cosines; None: there are, or the config does not ask for them."""
    notes: tuple[str, ...]
    """Notes on what was left out, a sentence each."""

    @property
    def reranked(self) -> bool:
        """Returns True if every pair of query and document in the lists has a score."""
        return all(block.scores is not None for block in self.blocks)

    @property
    def strategies(self) -> list[str]:
        """Returns the names of the strategies that have a list, sorted; without the original."""
        names = {name for block in self.blocks for name in block.hits.strategies}
        return sorted(names - {ORIGINAL, TOGETHER})

    @property
    def retrievers(self) -> list[str]:
        """Returns the names of the retrievers that have a list, sorted."""
        return sorted({name for block in self.blocks for name in block.hits.retrievers})


def open_vectors(run: RunFolder) -> TextEncoder | str:
    """Returns the encoder of the run's first dense retriever, or why there is none.

    The index is not opened: vectors of texts need the weights alone.
    """
    name = run.config.dense_retriever
    settings = None if name is None else run.config.retrieve.retrievers[name].encoder
    if name is None or settings is None:
        return "no retriever is dense"
    indexes: Mapping[str, Any] = run.record.get("identity", {}).get("indexes", {})
    stored = indexes.get(name, {}).get("encoder")
    try:
        differences = encoder_differences(stored, encoder_identity(settings)) if stored else ""
        if differences:
            return f"the encoder of {name} is not the run's any more ({differences})"
        return open_encoder(settings)
    except RetrieverError as error:
        return f"the encoder of {name} cannot be opened ({error})"


def gather(run: RunFolder, judgements: Judgements, vectors: TextEncoder | str, seed: int) -> GatheredQueries:
    """Returns the judged queries of a run's committed shards with their lists, `MOST_QUERIES` at most, drawn by `seed`.

    `vectors`: what `open_vectors` returns; where that is a reason, there are no cosines.

    Raises:
        ConfigError: The lists were not kept, nothing is judged, or files cannot be read.
    """
    where = run.storage.root
    if not run.config.retrieve.keep_runs or "runs" not in run.tables:
        why = "has no lists" if run.config.retrieve.keep_runs else "did not keep its lists"
        raise ConfigError("run-missing", f"{where}: {why}; run it again with retrieve.keep_runs: true, and tune that run")
    with database(run, tables=["runs", "scores"]) as connection:
        counted = counted_keys(connection, run, judgements)
        keys_of, notes = counted.of_query, _left_out(counted)
        if run.config.iterate is not None:
            notes.append("the lists of refined queries (iterate) are left out, since weights are of the lists before them")
        if not keys_of:
            why = "nothing is measured: all judged log rows were rejected; give other judgements"
            if not counted.rejected:
                why = nothing_measured(counted.judged, counted.not_committed, counted.unmatched, judgements.key)
            raise ConfigError("judgements", f"{judgements.path}: {why}")
        query_ids = sorted(keys_of)
        if len(query_ids) > MOST_QUERIES:
            drawn = np.random.default_rng(seed).choice(len(query_ids), MOST_QUERIES, replace=False)
            notes.append(f"{MOST_QUERIES:,} of {len(query_ids):,} judged queries were drawn (--seed)")
            query_ids = [query_ids[place] for place in sorted(drawn.tolist())]
        pool = read_rewriting(run.config).pool
        rows = {"query_id": pa.array(query_ids, pa.string()), "row": np.arange(len(query_ids))}
        connection.register("wanted", pa.table(rows))
        asked, rewrites = asked_queries(connection, run), searched_rewrites(connection, run, query_ids, FULL)
        as_one = searched_as_one(pool)
        texts = [
            query_texts(row % BLOCK, str(asked[query_id].query), rewrites.get(query_id, ()), as_one)
            for row, query_id in enumerate(query_ids)
        ]
        _copy_hits(connection, run)
        blocks = [
            _block(connection, run, first, texts[first : first + BLOCK], vectors) for first in range(0, len(query_ids), BLOCK)
        ]
        if any(block.scores is None for block in blocks):
            blocks = [block._replace(scores=None) for block in blocks]
        return GatheredQueries(
            tuple(query_ids),
            query_clusters([asked[query_id].words for query_id in query_ids]),
            tuple(tuple(keys_of[query_id]) for query_id in query_ids),
            tuple(blocks),
            {ORIGINAL: 1.0} | {strategy.name: strategy.weight for strategy in pool},
            min(run.config.results, cut_from(run.config, own_cuts(run))),
            vectors if isinstance(vectors, str) else None,
            tuple(notes),
        )


def _left_out(counted: CountedKeys) -> list[str]:
    """Returns notes on judgements that are not counted. No setting can change the zero of a rejected log row."""
    rejected, queries = len(counted.rejected), len(counted.of_query)
    keys = len(counted.keys) - rejected
    waiting = (counted.not_committed, "not committed yet")
    left = counts_in_words((counted.missing, "not in the log"), (rejected, "rejected"), waiting)
    notes = [f"left out of what is judged: {left}"] if left else []
    if keys > queries:
        notes.append(f"a query counts once, with the mean of its judged log rows ({keys:,} of {queries:,} queries)")
    return notes


def _copy_hits(connection: duckdb.DuckDBPyConnection, run: RunFolder) -> None:
    """Copies the fused hits of the wanted queries, each with the reranker's score, into a table that DuckDB spills to disk.

    Lists of refined queries are left out: `fuse` weighs the lists before further rounds.
    """
    connection.execute("CREATE TEMP TABLE scored (query_id VARCHAR, doc_id VARCHAR, reranked DOUBLE)")
    mine = run.arms[0].get("reranker") if run.is_ablation else None  # the first arm is the config itself
    if run.config.rerank.kind != "none" and bool(mine) == run.is_ablation:
        own = "true" if mine is None else f"reranker = {text_literal(mine)}"
        connection.execute(
            f"INSERT INTO scored SELECT query_id, doc_id, score FROM scores SEMI JOIN wanted USING (query_id) WHERE {own}"
        )
        several = "SELECT 1 FROM scored GROUP BY query_id, doc_id HAVING count(*) > 1 LIMIT 1"
        if connection.execute(several).fetchone() is not None:
            why = "scored pages of the web by several texts, as its arms have them; tune a run of its config"
            raise ConfigError("run-missing", f"{run.storage.root}: {why}")
    connection.execute(
        "CREATE TEMP TABLE judged_hits AS SELECT row, strategy, position, retriever, doc_id, rank, score, reranked"
        " FROM runs JOIN wanted USING (query_id) LEFT JOIN scored USING (query_id, doc_id)"
        f" WHERE strategy <> '{ITERATE}' AND {above_cuts(run)}"
    )


def _block(
    connection: duckdb.DuckDBPyConnection,
    run: RunFolder,
    first: int,
    texts: Sequence[Sequence[Text]],
    vectors: TextEncoder | str,
) -> GatheredBlock:
    table = connection.sql(
        "SELECT row - $first AS query, strategy, position, retriever, list(doc_id ORDER BY rank) AS doc_ids,"
        " list(score ORDER BY rank) AS scores, list(reranked ORDER BY rank) AS reranked"
        " FROM judged_hits WHERE row >= $first AND row < $end GROUP BY row, strategy, position, retriever",
        params={"first": first, "end": first + len(texts)},
    ).to_arrow_table()
    columns = {name: table.column(name).combine_chunks() for name in table.column_names}
    named = {(text.row, text.strategy, text.position): text for of_query in texts for text in of_query}
    of_list = []
    for row, strategy, position, retriever in zip(*(column.to_pylist() for column in list(columns.values())[:4]), strict=True):
        if strategy == TOGETHER:
            routed = [text for text in texts[row] if retriever in run.config.retrieve.route(text.strategy)]
            of_list.append(joined(routed, retriever, run.config.fuse)[0])
        elif (text := named.get((row, strategy, position))) is not None:
            of_list.append(text)
        else:
            what = (
                f"runs/ has a list of {strategy} {position} of query {texts[row][0].search.text!r}, rewrites/ has no such text"
            )
            raise ConfigError("run-damaged", f"{run.storage.root}: {what}; restore the changed files")
    lists = Lists(
        columns["query"].to_numpy(),
        columns["strategy"],
        columns["position"].to_numpy(),
        columns["retriever"],
        np.array([text.number for text in of_list], dtype=np.int64),
        np.array([text.weight for text in of_list], dtype=np.float64),
        np.array([text.position_weight for text in of_list], dtype=np.float64),
        offsets_of(pc.list_value_length(columns["doc_ids"]).to_numpy(zero_copy_only=False)),
        columns["doc_ids"].flatten(),
        columns["scores"].flatten().to_numpy(zero_copy_only=False),
    )
    reranked, scores, cosines = columns["reranked"].flatten(), None, None
    if not reranked.null_count:
        scored = by_document(lists._replace(scores=reranked.to_numpy()), len(texts))
        scores = scored.score[scored.by_pair[scored.pair_offsets[:-1]]]
    if not isinstance(vectors, str):
        flat = [text for of_query in texts for text in of_query]
        vectors_of_texts = search_vectors([text.search for text in flat], vectors.encode)
        cosines = text_similarity([text.row for text in flat], len(texts), vectors_of_texts)
    return GatheredBlock(by_document(lists, len(texts)), cosines, scores)
