"""The lists of a run's judged queries, read once for all settings that `tune` tries.

Read are the lists that were retrieved (runs/), the weights of their rewrites and the reranker's scores. The vectors of the
texts are computed again, since a run stores none. A run of an ablation is read as its arm `full`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cluster.errors import ConfigError, RetrieverError
from jobs.chain.arms.arms import FULL
from jobs.chain.cuts import Cuts, cuts_of
from jobs.chain.search_texts import Text, joined, query_texts
from jobs.chain.stages import cosines
from jobs.job.rewriting import read_rewriting
from jobs.log.judgements import Judgements
from jobs.measure.clusters import query_clusters
from jobs.measure.judged_rows import CountedKeys, above_cuts, asked_queries, counted_keys, database
from jobs.measure.notes import counts_in_words, nothing_measured
from jobs.measure.significance import Floats, Numbers
from jobs.runs.folder import RunFolder
from jobs.tables import ITERATE
from retrievers.encoder import TextEncoder, encoder_differences, encoder_identity, open_encoder
from retrievers.joined import search_vectors
from retrievers.lists import ORIGINAL, TOGETHER, Hits, Lists, by_document
from retrievers.ranking import offsets_of
from retrievers.redundancy import Similarity
from rewriters.strategy import searched_as_one

MOST_QUERIES = 5000  # of more judged queries so many are drawn: memory and time are bounded
BLOCK = 250  # queries whose lists are read and grouped at a time


class GatheredBlock(NamedTuple):
    """Some of the queries.

    Attributes:
        hits: Their lists.
        similarity: Cosines of their texts; None without an encoder.
        scores: The reranker's, of each pair of `hits`; None where some pair of the run has none.
    """

    hits: Hits
    similarity: Similarity | None
    scores: Floats | None


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
    no_cosine: str | None
    """Why there are no cosines; None: there are, or the config does not ask for them."""
    reranked: bool
    """Whether every pair of query and document in the lists has a score."""
    notes: tuple[str, ...]
    """What was left out, a sentence each."""

    @property
    def strategies(self) -> list[str]:
        """Returns the names of the strategies that have a list, sorted; without the original."""
        found = {name for block in self.blocks for name in block.hits.strategies}
        return sorted(found - {ORIGINAL, TOGETHER})

    @property
    def retrievers(self) -> list[str]:
        """Returns the names of the retrievers that have a list, sorted."""
        return sorted({name for block in self.blocks for name in block.hits.retrievers})


def open_vectors(run: RunFolder) -> tuple[TextEncoder | None, str | None]:
    """Returns the encoder of the run's first dense retriever, or None and why there is none.

    The index is not opened: vectors of texts need the weights alone.
    """
    name = run.config.dense_retriever
    settings = None if name is None else run.config.retrieve.retrievers[name].encoder
    if name is None or settings is None:
        return None, "no retriever is dense"
    indexes: Mapping[str, Any] = run.record.get("identity", {}).get("indexes", {})
    stored = indexes.get(name, {}).get("encoder")
    try:
        differences = encoder_differences(stored, encoder_identity(settings)) if stored else ""
        if differences:
            return None, f"the encoder of {name} is not the run's any more ({differences})"
        return open_encoder(settings), None
    except RetrieverError as error:
        return None, f"the encoder of {name} cannot be opened ({error})"


def gather(
    run: RunFolder, judgements: Judgements, vectors: TextEncoder | None, no_cosine: str | None, seed: int
) -> GatheredQueries:
    """Returns the judged queries of a run's committed shards with their lists.

    Args:
        run: The run, or an ablation.
        judgements: Of log rows or queries.
        vectors: Encodes texts; None: there shall be no cosines.
        no_cosine: Why there are none.
        seed: Of the drawing, where more than `MOST_QUERIES` are judged.

    Raises:
        ConfigError: The lists were not kept, nothing is judged, or files cannot be read.
    """
    where = run.storage.root
    if not run.config.retrieve.keep_runs or "runs" not in run.tables:
        why = "has no lists" if run.config.retrieve.keep_runs else "did not keep its lists"
        raise ConfigError("run-missing", f"{where}: {why}; run it again with retrieve.keep_runs: true, and tune that run")
    with database(run) as connection:
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
        pool = read_rewriting(run.config)
        connection.register("wanted", pa.table({"query_id": pa.array(query_ids, pa.string())}))
        asked = asked_queries(connection, run)
        _copy_lists(connection, run, cuts_of(run.config, pool.cuts))
        scored = _copy_scores(connection, run)
        blocks = []
        for begin in range(0, len(query_ids), BLOCK):
            some = query_ids[begin : begin + BLOCK]
            connection.register("block", pa.table({"query_id": pa.array(some, pa.string())}))
            texts = _texts(
                connection, run, [(query_id, str(asked[query_id].query)) for query_id in some], searched_as_one(pool.pool)
            )
            hits = by_document(_lists(connection, run, some, texts), len(some))
            between = None if vectors is None else similarity(vectors, texts)
            blocks.append(GatheredBlock(hits, between, _pair_scores(connection, some, hits) if scored else None))
        reranked = all(block.scores is not None for block in blocks)
        return GatheredQueries(
            tuple(query_ids),
            query_clusters([asked[query_id].words for query_id in query_ids]),
            tuple(tuple(keys_of[query_id]) for query_id in query_ids),
            tuple(blocks),
            {ORIGINAL: 1.0} | {strategy.name: strategy.weight for strategy in pool.pool},
            no_cosine,
            reranked,
            tuple(notes),
        )


def _left_out(counted: CountedKeys) -> list[str]:
    """Returns what of the judgements is not counted, and how. No setting can change the zero of a rejected log row."""
    rejected, queries = len(counted.rejected), len(counted.of_query)
    keys = len(counted.keys) - rejected
    waiting = (counted.not_committed, "not committed yet")
    left = counts_in_words((counted.missing, "not in the log"), (rejected, "rejected"), waiting)
    notes = [f"left out of what is judged: {left}"] if left else []
    if keys > queries:
        notes.append(f"a query counts once, with the mean of its judged log rows ({keys:,} of {queries:,} queries)")
    return notes


def _copy_lists(connection: duckdb.DuckDBPyConnection, run: RunFolder, cuts: Cuts) -> None:
    """Copies the hits of the wanted queries that are fused into the table `judged_hits`, which DuckDB spills to disk.

    Lists of refined queries are left out: `fuse` weighs the lists before further rounds.
    """
    connection.execute(
        "CREATE TEMP TABLE judged_hits AS SELECT query_id, strategy, position, retriever, doc_id, rank, score"
        " FROM rows_of($files) SEMI JOIN wanted USING (query_id)"
        f" WHERE strategy <> '{ITERATE}' AND {above_cuts(run, cuts)}",
        {"files": run.tables["runs"]},
    )


def _copy_scores(connection: duckdb.DuckDBPyConnection, run: RunFolder) -> bool:
    """Copies the reranker's scores of the wanted queries into the table `judged_scores`; returns whether there are any."""
    mine = run.own_reranker if run.is_ablation else None
    if run.config.rerank.kind == "none" or "scores" not in run.tables or (run.is_ablation and mine is None):
        return False
    connection.execute(
        "CREATE TEMP TABLE judged_scores AS SELECT query_id, doc_id, score FROM rows_of($files)"
        f" SEMI JOIN wanted USING (query_id){' WHERE reranker = $mine' if mine else ''}",
        {"files": run.tables["scores"]} | ({"mine": mine} if mine else {}),
    )
    several = "SELECT 1 FROM judged_scores GROUP BY query_id, doc_id HAVING count(*) > 1 LIMIT 1"
    if connection.execute(several).fetchone() is not None:
        why = "scored pages of the web by several texts, as its arms have them; tune a run of its config"
        raise ConfigError("run-missing", f"{run.storage.root}: {why}")
    return True


def _texts(
    connection: duckdb.DuckDBPyConnection, run: RunFolder, asked: Sequence[tuple[str, str]], as_one: Mapping[str, str]
) -> list[list[Text]]:
    """Returns the texts of each query of the block as they were searched."""
    searched = [query for _, query in asked]
    rewrites: dict[str, list[dict[str, Any]]] = {query_id: [] for query_id, _ in asked}
    if "rewrites" not in run.tables:
        return [query_texts(row, query, [], as_one) for row, query in enumerate(searched)]
    files = run.tables["rewrites"]
    named = connection.execute("SELECT * FROM rows_of(?) LIMIT 0", [files]).description or []
    of_arm = f" WHERE arm = '{FULL}'" if "arm" in {column[0] for column in named} else ""
    rows = connection.sql(
        "SELECT query_id, strategy, position, text, coalesce(search_as, 'query') AS search_as, coalesce(weight, 1) AS weight,"
        " coalesce(position_weight, 1) AS position_weight"
        f" FROM rows_of($files) SEMI JOIN block USING (query_id){of_arm} ORDER BY query_id, strategy, position",
        params={"files": files},
    ).to_arrow_table()
    for one in rows.to_pylist():
        rewrites[one["query_id"]].append(one)
    return [
        query_texts(row, query, rewrites[query_id], as_one)
        for row, (query, (query_id, _)) in enumerate(zip(searched, asked, strict=True))
    ]


def _lists(
    connection: duckdb.DuckDBPyConnection, run: RunFolder, query_ids: Sequence[str], texts: Sequence[Sequence[Text]]
) -> Lists:
    """Returns the lists of the block's queries."""
    table = connection.sql(
        "SELECT query_id, strategy, position, retriever, list(doc_id ORDER BY rank) AS doc_ids, list(score ORDER BY rank) AS"
        " scores FROM judged_hits SEMI JOIN block USING (query_id) GROUP BY query_id, strategy, position, retriever"
    ).to_arrow_table()
    columns = {name: table.column(name).combine_chunks() for name in table.column_names}
    query = pc.index_in(columns["query_id"], pa.array(query_ids, pa.string())).to_numpy(zero_copy_only=False)
    strategies, positions = columns["strategy"].to_pylist(), columns["position"].to_pylist()
    named = [{(text.strategy, text.position): text for text in of_query} for of_query in texts]
    of_list = []
    for row, strategy, position, retriever in zip(
        query.tolist(), strategies, positions, columns["retriever"].to_pylist(), strict=True
    ):
        if strategy == TOGETHER:
            routed = [text for text in texts[row] if retriever in run.config.retrieve.route(text.strategy)]
            of_list.append(joined(routed, retriever, run.config.fuse)[0])
        elif (strategy, position) in named[row]:
            of_list.append(named[row][strategy, position])
        else:
            what = f"runs/ has a list of {strategy} {position} of query {query_ids[row]}, rewrites/ has no such text"
            raise ConfigError("run-damaged", f"{run.storage.root}: {what}; put back what was changed there")
    return Lists(
        query.astype(np.int64),
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


def _pair_scores(connection: duckdb.DuckDBPyConnection, query_ids: Sequence[str], hits: Hits) -> Floats | None:
    """Returns the reranker's score of each pair, shape (pairs,), NaN where it failed; None if a pair was not scored."""
    table = connection.sql(
        "SELECT query_id, doc_id, score FROM judged_scores SEMI JOIN block USING (query_id)"
    ).to_arrow_table()
    query = pc.index_in(table.column("query_id"), pa.array(query_ids, pa.string())).to_numpy()
    document = pc.fill_null(pc.index_in(table.column("doc_id"), hits.doc_ids), -1).to_numpy()
    places = hits.pair_query * len(hits.doc_ids) + hits.pair_document  # ascending
    wanted = (query * len(hits.doc_ids) + document)[document >= 0]
    at = np.searchsorted(places, wanted)
    is_pair = (at < len(places)) & (places[np.minimum(at, len(places) - 1)] == wanted) if len(places) else at < 0
    if is_pair.sum() < len(places):
        return None
    scores = np.full(len(places), np.nan)
    scores[at[is_pair]] = table.column("score").to_numpy()[document >= 0][is_pair]
    return scores


def similarity(vectors: TextEncoder, texts: Sequence[Sequence[Text]]) -> Similarity:
    """Returns the cosines between the texts of each query, as those of the run."""
    flat = [text for of_query in texts for text in of_query]
    return cosines.similarity(len(texts), flat, search_vectors([text.search for text in flat], vectors.encode))
