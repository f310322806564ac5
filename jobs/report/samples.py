"""Sample queries with their rewrites, the hits of the original alone, and the results.

The choice is deterministic for a run: some queries with errors, and others evenly spread over the queries by query_id.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Any

from cluster.errors import ClusterError, RetrieverError
from jobs.index.opening import open_documents
from jobs.report.failures import Failures
from jobs.report.figures import Figures
from jobs.report.lists import comparable
from jobs.report.reading import database, files, queries_of, spread
from jobs.run.folder import RunFolder
from jobs.run.request_shares import worker_settings
from jobs.tables import ORIGINAL

TOP = 10
SHARDS = 25  # to take samples from; the lists of each are read
DOCUMENT_CHARACTERS = 160


@dataclass(frozen=True)
class Hit:
    """A document with its rank in a list of the original or among the results."""

    rank: int
    doc_id: str
    score: float
    fused_score: float | None = None
    sources: dict[str, list[tuple[str, int]]] = field(default_factory=dict)
    """Strategy (with its position from 2 on) -> retriever and rank in each list that has the document."""
    new: bool = False
    """Whether no list of the original has the document within the depth of fusion."""


@dataclass
class Sample:
    """One query. Texts are present even if the page leaves them out."""

    query_id: str
    query: str
    log_count: int
    rewrites: list[dict[str, Any]] = field(default_factory=list)
    lists: dict[str, list[Hit]] = field(default_factory=dict)
    """Retriever -> the first hits of the original's list."""
    hits: list[Hit] = field(default_factory=list)
    errors: list[dict[str, Any]] = field(default_factory=list)


@dataclass(frozen=True)
class Samples:
    """The samples. `documents`: doc_id -> the beginning of its text; `without`: why there are no texts, in one line."""

    queries: list[Sample]
    documents: dict[str, str]
    without: str | None


def samples(figures: Figures, failed: Failures, count: int, *, texts: bool) -> Samples:
    """Returns at most `count` sample queries.

    Args:
        figures: of the run.
        failed: errors of the run; a fifth of the samples at most is chosen from them.
        count: the most samples.
        texts: whether to read the texts of the documents.
    """
    run = figures.run
    chosen = _chosen(run, failed, count)
    if not chosen:
        return Samples([], {}, None)
    depth, kept = run.config.fuse.depth, run.config.retrieve.keep_runs
    # unknown if fusion left the original out and no list was kept
    known_original = comparable(run)
    by_number = {manifest.shard: manifest for manifest in run.manifests}
    manifests = [by_number[number] for number in sorted(chosen)]
    place = {name: number for number, name in enumerate([ORIGINAL, *figures.strategies])}
    found = {sample.query_id: sample for number in sorted(chosen) for sample in chosen[number]}
    with database() as connection:

        def rows(table: str, columns: str, condition: str = "true", order: str = "query_id") -> list[dict[str, Any]]:
            names = files(run, table, manifests)
            if not names:
                return []
            query = (
                f"SELECT {columns} FROM read_parquet($names) WHERE query_id IN (SELECT unnest($ids)) AND {condition} "
                f"ORDER BY {order}"
            )
            result = connection.execute(query, {"names": names, "ids": list(found)})
            keys = [column[0] for column in result.description]
            return [dict(zip(keys, row, strict=True)) for row in result.fetchall()]

        for row in rows("rewrites", "query_id, strategy, position, text, parsed_as", order="query_id, position"):
            found[row["query_id"]].rewrites.append(row)
        for row in rows("errors", "query_id, stage, component, reason"):
            found[row["query_id"]].errors.append(row)
        known = {
            (row["query_id"], row["doc_id"])
            for row in rows("runs", "query_id, doc_id", f"strategy = '{ORIGINAL}' AND rank <= {depth}")
        }
        listed = f"strategy = '{ORIGINAL}' AND rank <= {TOP}"
        for row in rows("runs", "query_id, retriever, rank, doc_id, score", listed, "query_id, retriever, rank"):
            hit = Hit(row["rank"], row["doc_id"], row["score"])
            found[row["query_id"]].lists.setdefault(row["retriever"], []).append(hit)
        results = "query_id, rank, doc_id, score, fused_score, sources"
        for row in rows("results", results, f"rank <= {TOP}", "query_id, rank"):
            hit = _hit(row, place)
            new = known_original and ORIGINAL not in hit.sources and (row["query_id"], hit.doc_id) not in known
            found[row["query_id"]].hits.append(replace(hit, new=new))
        if not kept:
            _lists_from_results(rows("results", "query_id, doc_id, sources", order="query_id, rank"), found)
    for sample in found.values():
        sample.rewrites.sort(key=lambda row: (place.get(row["strategy"], len(place)), row["strategy"], row["position"]))
    documents, without = _documents(run, found.values()) if texts else ({}, None)
    return Samples(list(found.values()), documents, without)


def _chosen(run: RunFolder, failed: Failures, count: int) -> dict[int, list[Sample]]:
    """Returns shard -> samples, not yet filled: a fifth at most with errors, the others evenly spread."""
    committed = [manifest.shard for manifest in run.manifests if manifest.counts["queries"]]
    if count < 1 or not committed:
        return {}
    preferred: dict[int, set[str]] = {}
    for query_id, shard in list(failed.failed_ids.items())[: max(1, count // 5)]:
        preferred.setdefault(shard, set()).add(query_id)
    wanted = count - sum(map(len, preferred.values()))
    enough = max(SHARDS, 2 * -(-wanted // run.plan.shard_size))  # more shards if they are small and cheap to read
    shards = spread(committed, min(enough, max(1, wanted)))
    rows = {one.number: one.rows for one in run.plan.shards}
    quotas = _quotas([rows[shard] - len(preferred.get(shard, ())) for shard in shards], wanted)
    chosen: dict[int, list[Sample]] = {}
    for shard, quota in (dict.fromkeys(preferred, 0) | dict(zip(shards, quotas, strict=True))).items():
        queries = queries_of(run, shard)
        mine = preferred.get(shard, set())
        take = mine | {row[0] for row in spread([row for row in queries if row[0] not in mine], quota)}
        chosen[shard] = [Sample(*row) for row in queries if row[0] in take]
    return {shard: found for shard, found in chosen.items() if found}


def _quotas(rows: list[int], wanted: int) -> list[int]:
    """Returns the number of samples to take from each shard: equal numbers, as far as the shards have enough rows."""
    quotas = [0] * len(rows)
    left = min(wanted, sum(rows))
    while left > 0:
        open_ones = [i for i, quota in enumerate(quotas) if quota < rows[i]]
        for number, i in enumerate(open_ones):
            more = min(rows[i] - quotas[i], -(-left // (len(open_ones) - number)))
            quotas[i] += more
            left -= more
    return quotas


def _hit(row: dict[str, Any], place: dict[str, int]) -> Hit:
    sources: dict[str, list[tuple[str, int]]] = {}
    for source in sorted(row["sources"] or [], key=lambda one: place.get(one["strategy"], len(place))):
        name = source["strategy"] if source["position"] == 1 else f"{source['strategy']}/{source['position']}"
        sources.setdefault(name, []).append((source["retriever"], source["rank"]))
    return Hit(row["rank"], row["doc_id"], row["score"], row["fused_score"], sources)


def _lists_from_results(rows: list[dict[str, Any]], found: dict[str, Sample]) -> None:
    """Fills the original's lists of each sample from the sources of results, if runs were not kept."""
    for row in rows:
        for source in row["sources"] or []:
            if source["strategy"] == ORIGINAL and source["rank"] <= TOP:
                hit = Hit(source["rank"], row["doc_id"], source["score"])
                found[row["query_id"]].lists.setdefault(source["retriever"], []).append(hit)
    for sample in found.values():
        sample.lists = {name: sorted(hits, key=lambda hit: hit.rank) for name, hits in sorted(sample.lists.items())}


def _documents(run: RunFolder, found: Iterable[Sample]) -> tuple[dict[str, str], str | None]:
    """Returns doc_id -> beginning of the text, and the reason if the texts cannot be read: the index is gone or replaced."""
    wanted = sorted({hit.doc_id for one in found for hits in (one.hits, *one.lists.values()) for hit in hits})
    if not wanted:
        return {}, None
    name, retriever = next(iter(run.config.retrieve.retrievers.items()))
    index = run.record["indexes"].get(name, {})
    try:
        documents = open_documents(name, worker_settings(retriever, index, 1), cached_only=True)
        corpus = index.get("corpus")
        current = getattr(documents, "entry", {}).get("corpus")
        if corpus and current and corpus != current:
            return {}, f"the index of {name} ({retriever.index}) holds other documents now than those that were searched"
        texts = documents.texts(wanted)
    except (RetrieverError, ClusterError, OSError) as error:
        return {}, " ".join(str(error).split())
    return {doc_id: text[: DOCUMENT_CHARACTERS + 1] for doc_id, text in zip(wanted, texts, strict=True)}, None
