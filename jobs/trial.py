"""The verb `try`: one query through every stage of a config, in this process and without Ray.

The workers are those of a run (`jobs/pipeline.py`), so what is shown is what a night would do with the query.
"""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from cluster import costs
from cluster.session import local_pools
from cluster.stage import Meter
from jobs.config import Config
from jobs.dedup_texts import Rejection, judge
from jobs.indexes import open_documents
from jobs.part import ConfigError
from jobs.pipeline import stages, wishes
from jobs.prepare import Prepared, check_engine, prepare_query
from jobs.retriever_opening import opened
from jobs.tables import ORIGINAL, QUERIES, STAGES
from retrievers.fusion import list_weight

TRIED = STAGES[1:-1]  # all but those that read and write a run's folder
Row = dict[str, Any]


@dataclass(frozen=True)
class Trial:
    """What one config made of the query."""

    label: str
    config: Config
    row: Row
    """Of RERANKED, as Python values: rewrites, runs, candidates, hits, errors."""
    texts: dict[str, str]
    """doc_id -> indexed text, of the results."""
    fell_away: dict[str, int]
    """Why -> how many documents that some list found are no results."""
    spent: costs.Totals
    """Without start-up."""
    usd: float | None
    start_up: dict[str, float] = field(default_factory=dict)
    """Stage -> seconds in which models and indexes were loaded, once per worker."""


def try_query(config: Config, config_file: str, query: str, label: str, tell: Callable[[str], object]) -> Trial:
    """Send one query through all stages; ConfigError where it is no query, and whatever `run` would refuse."""
    if query != query.encode("utf-8", "replace").decode():
        raise ConfigError("QUERY: is not UTF-8; give it in a terminal that is")
    query_id = judge(query, config.log.max_chars)
    if isinstance(query_id, Rejection):
        raise ConfigError(f"QUERY: {query_id.message}; a run would reject such a log row as {query_id.reason!r}; give another")
    with tempfile.TemporaryDirectory(prefix="dmqr-try-") as folder:
        prepared = prepare_query(config, config_file, folder)
        check_engine(prepared)
        table = _through(prepared, _row(query_id.hex(), query), tell)
    (row,) = table.to_pylist()
    own = [entry for entry in row["costs"] if not entry["component"].startswith(costs.START_UP)]
    start_up: Counter[str] = Counter()
    for entry in row["costs"]:
        if entry["component"].startswith(costs.START_UP):
            start_up[entry["stage"]] += entry["seconds"]
    spent = costs.totals(pa.array(own, costs.COST))
    usd = None if prepared.prices is None else prepared.prices.usd(spent)
    return Trial(label, config, row, _texts(prepared, row), fell_away(config, row), spent, usd, dict(start_up))


def _row(query_id: str, query: str) -> pa.Table:
    values = {"shard": 0, "query_id": query_id, "query": query, "log_count": 1, "costs": [], "errors": []}
    return pa.Table.from_pylist([values], QUERIES)


def _through(prepared: Prepared, table: pa.Table, tell: Callable[[str], object]) -> pa.Table:
    wanted = wishes(prepared.config)
    gpus = _gpus() if any(wish.device for wish in wanted.values()) else 0
    pools = {name: local_pools({name: wish}, gpus)[name] for name, wish in wanted.items()}  # one after the other: each has all
    for stage in stages(prepared, pools, 1):
        if stage.name not in TRIED:
            continue
        tell(f"{prepared.config.name}: {stage.name}")
        meter = Meter(stage, 1)
        try:
            table = meter(table)
        finally:
            meter.close()
    return table


def _gpus() -> int:
    import torch

    return torch.cuda.device_count()


def _texts(prepared: Prepared, row: Row) -> dict[str, str]:
    doc_ids = [hit["doc_id"] for hit in row["hits"]]
    name, retriever = next(iter(prepared.config.retrieve.retrievers.items()))
    documents = open_documents(name, opened(retriever, prepared.indexes[name], 1))
    return dict(zip(doc_ids, documents.texts(doc_ids), strict=True))


def fell_away(config: Config, row: Row) -> dict[str, int]:
    """Every document that a list found and that is no result, by the first border that it did not pass; with
    `results` and `found` the counts add up."""
    depth = config.fuse.depth
    own = {rewrite["strategy"]: rewrite["weight"] for rewrite in row["rewrites"]}
    found: set[str] = set()
    reached: set[str] = set()  # stands high enough in a list
    weighed: set[str] = set()  # and the list has a weight
    for run in row["runs"]:
        ids = [hit["doc_id"] for hit in run["hits"]]
        found.update(ids)
        reached.update(ids[:depth])
        strategy = run["strategy"]
        if list_weight(config.fuse.weights, strategy, run["retriever"], own.get(strategy, 1.0)) > 0:
            weighed.update(ids[:depth])
    candidates = {candidate["doc_id"] for candidate in row["candidates"]}
    weighed |= candidates  # where the original stood in
    hits = {hit["doc_id"] for hit in row["hits"]}
    return {
        "found": len(found),
        f"below the first {depth} of every list (fuse.depth)": len(found - reached - weighed),
        "only in lists of weight 0 (fuse.weights)": len(reached - weighed),
        f"beyond the first {config.fuse.keep} after fusion (fuse.keep)": len(weighed - candidates),
        f"beyond the first {config.rerank.keep} after reranking (rerank.keep)": len(candidates - hits),
        "results": len(hits),
    }


def found_by(sources: list[Row]) -> dict[str, list[str]]:
    """strategy -> 'retriever rank' of every list that a result was found in, the original first."""
    lists: dict[str, list[str]] = {}
    for source in sorted(sources, key=lambda one: (one["strategy"] != ORIGINAL, one["strategy"], one["position"])):
        lists.setdefault(source["strategy"], []).append(f"{source['retriever']} {source['rank']}")
    return lists


def as_values(trial: Trial) -> dict[str, Any]:
    """The trial as JSON-able values."""
    row = trial.row
    return {
        "config": trial.label,
        "query": row["query"],
        "query_id": row["query_id"],
        "rewrites": row["rewrites"],
        "errors": row["errors"],
        "lists": [run | {"hits": run["hits"][: trial.config.fuse.depth]} for run in row["runs"]],
        "results": [{"rank": rank, "text": trial.texts[hit["doc_id"]], **hit} for rank, hit in enumerate(row["hits"], start=1)],
        "fell_away": trial.fell_away,
        "costs": trial.spent,
        "usd": trial.usd,
        "start_up_seconds": trial.start_up,
    }
