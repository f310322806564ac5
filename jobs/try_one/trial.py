"""The verb `try`: sends one query through every stage of a config, in this process and without Ray.

The workers are those of a run (`jobs/pipeline.py`), in a temporary folder, so that the result is that of a run.
"""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from cluster import costs
from cluster.errors import ConfigError
from cluster.run.session import InProcessSession
from cluster.run.stage import Meter
from jobs.config.config import Config
from jobs.index.opening import open_documents
from jobs.log.judge import Rejection, judge
from jobs.pipeline import stages
from jobs.run.pools import requested_pools
from jobs.run.prepare import Prepared, check_engine, prepare_query
from jobs.run.request_shares import worker_settings
from jobs.tables import ORIGINAL, QUERIES
from retrievers.fusion import list_weight

SKIPPED = ("read", "write")  # the query is given, and nothing is committed
Row = dict[str, Any]


@dataclass(frozen=True)
class Trial:
    """The result of one config for the query."""

    label: str
    config: Config
    row: Row
    """The row before the last stage, as Python values: rewrites, candidates, hits, errors; and the retrieved `lists`."""
    texts: dict[str, str]
    """doc_id -> indexed text, for the results."""
    document_counts: dict[str, int]
    """`found`, `results`, and reason -> number of documents that were found but are not results."""
    spent: costs.Totals
    """Costs without start-up."""
    usd: float | None
    start_up: dict[str, float] = field(default_factory=dict)
    """Stage -> seconds of loading models and indexes, once per worker."""


def try_query(config: Config, config_file: str, query: str, label: str, report_phase: Callable[[str], object]) -> Trial:
    """Returns the result of sending one query through all stages.

    Args:
        config: the config to try.
        config_file: its path.
        query: the text to try.
        label: names the config in the output.
        report_phase: is called with the current phase.

    Raises:
        ConfigError: the text is not a valid query.
        DmqrError: `run` would refuse the config.
    """
    if query != query.encode("utf-8", "replace").decode():
        raise ConfigError("argument", "QUERY: is not UTF-8; give it in a terminal that is")
    query_id = judge(query, config.log.max_chars)
    if isinstance(query_id, Rejection):
        raise ConfigError(
            "argument", f"QUERY: {query_id.message}; a run would reject such a log row as {query_id.reason!r}; give another"
        )
    config = config.model_copy(update={"retrieve": config.retrieve.model_copy(update={"keep_runs": True})})
    with tempfile.TemporaryDirectory(prefix="dmqr-try-") as folder:
        prepared = prepare_query(config, config_file, folder)
        check_engine(prepared)
        (row,) = _run_stages(prepared, _row(query_id.hex(), query), report_phase).to_pylist()
        row["lists"] = _lists(prepared, row)
    own = [entry for entry in row["costs"] if not entry["component"].startswith(costs.START_UP)]
    start_up: Counter[str] = Counter()
    for entry in row["costs"]:
        if entry["component"].startswith(costs.START_UP):
            start_up[entry["stage"]] += entry["seconds"]
    spent = costs.totals(pa.array(own, costs.COST))
    usd = None if prepared.prices is None else prepared.prices.usd(spent)
    return Trial(label, config, row, _texts(prepared, row), document_counts(config, row), spent, usd, dict(start_up))


def _row(query_id: str, query: str) -> pa.Table:
    values = {"shard": 0, "query_id": query_id, "query": query, "log_count": 1, "costs": [], "errors": []}
    return pa.Table.from_pylist([values], QUERIES)


def _run_stages(prepared: Prepared, table: pa.Table, report_phase: Callable[[str], object]) -> pa.Table:
    for stage in stages(prepared, InProcessSession(requested_pools(prepared.config)).pools, 1):
        if stage.name in SKIPPED:
            continue
        report_phase(f"{prepared.config.name}: {stage.name}")
        meter = Meter(stage, 1)
        try:
            table = meter(table)
        finally:
            meter.close()
    return table


def _lists(prepared: Prepared, row: Row) -> list[Row]:
    """Returns every routed list, in the order of the retrieval stage, with its stored hits."""
    texts = [(ORIGINAL, 1), *((one["strategy"], one["position"]) for one in row["rewrites"])]
    lists: dict[tuple[str, int, str], list[Row]] = {
        (*text, retriever): [] for text in texts for retriever in prepared.config.retrieve.route(text[0])
    }
    for file in row["stored"]:
        with prepared.storage.open(file["key"]) as opened_file:
            for hit in pq.read_table(opened_file).to_pylist():
                lists[hit["strategy"], hit["position"], hit["retriever"]].append(hit)
    names = ("strategy", "position", "retriever")
    return [
        dict(zip(names, of, strict=True)) | {"hits": [{"doc_id": hit["doc_id"], "score": hit["score"]} for hit in hits]}
        for of, hits in lists.items()
    ]


def _texts(prepared: Prepared, row: Row) -> dict[str, str]:
    doc_ids = [hit["doc_id"] for hit in row["hits"]]
    name, retriever = next(iter(prepared.config.retrieve.retrievers.items()))
    documents = open_documents(name, worker_settings(retriever, prepared.indexes[name], 1))
    return dict(zip(doc_ids, documents.texts(doc_ids), strict=True))


def document_counts(config: Config, row: Row) -> dict[str, int]:
    """Returns the number of documents found, of results, and of the others by the first cut that dropped them.

    The dropped ones and `results` add up to `found`.
    """
    depth = config.fuse.depth
    own = {rewrite["strategy"]: rewrite["weight"] for rewrite in row["rewrites"]}
    found: set[str] = set()
    reached: set[str] = set()  # within fuse.depth of a list
    weighted: set[str] = set()  # and the list has a weight above 0
    for run in row["lists"]:
        ids = [hit["doc_id"] for hit in run["hits"]]
        found.update(ids)
        reached.update(ids[:depth])
        strategy = run["strategy"]
        if list_weight(config.fuse.weights, strategy, run["retriever"], own.get(strategy, 1.0)) > 0:
            weighted.update(ids[:depth])
    candidates = {candidate["doc_id"] for candidate in row["candidates"]}
    weighted |= candidates  # if the original stood in
    hits = {hit["doc_id"] for hit in row["hits"]}
    return {
        "found": len(found),
        f"below the first {depth} of every list (fuse.depth)": len(found - reached - weighted),
        "only in lists of weight 0 (fuse.weights)": len(reached - weighted),
        f"beyond the first {config.fuse.keep} after fusion (fuse.keep)": len(weighted - candidates),
        f"beyond the first {config.rerank.keep} after reranking (rerank.keep)": len(candidates - hits),
        "results": len(hits),
    }


def found_by(sources: list[Row]) -> dict[str, list[str]]:
    """Returns strategy -> 'retriever rank' of every list with the document, the original first."""
    lists: dict[str, list[str]] = {}
    for source in sorted(sources, key=lambda one: (one["strategy"] != ORIGINAL, one["strategy"], one["position"])):
        lists.setdefault(source["strategy"], []).append(f"{source['retriever']} {source['rank']}")
    return lists


def trial_values(trial: Trial) -> dict[str, Any]:
    """Returns the trial as JSON-able values."""
    row = trial.row
    return {
        "config": trial.label,
        "query": row["query"],
        "query_id": row["query_id"],
        "rewrites": row["rewrites"],
        "errors": row["errors"],
        "lists": [run | {"hits": run["hits"][: trial.config.fuse.depth]} for run in row["lists"]],
        "results": [{"rank": rank, "text": trial.texts[hit["doc_id"]], **hit} for rank, hit in enumerate(row["hits"], start=1)],
        "fell_away": trial.document_counts,
        "costs": trial.spent,
        "usd": trial.usd,
        "start_up_seconds": trial.start_up,
    }
