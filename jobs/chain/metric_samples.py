"""Whether there are metrics, and figures of a stage's output block for them, by query type.

There are none in runs that select no strategies by type.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cluster.costs import START_UP
from cluster.metrics.table import METRICS, MetricSample
from cluster.run.session import IN_PROCESS
from jobs.chain.stages.candidates import Candidates
from jobs.config.config import Config
from jobs.tables import unnested


def exports_metrics(config: Config) -> bool:
    """Returns whether a run exports metrics: it is asked for, and there is a Ray."""
    return config.cluster.metrics and config.cluster.address != IN_PROCESS


def rewrite_samples(table: pa.Table) -> list[MetricSample]:
    """Returns the texts by strategy, and the requests of each query, of a block after rewriting."""
    types, found = _types(table), []
    rows, flat = unnested(table, "rewrites")
    texts = pa.table({"strategy": flat.field("strategy"), "type": types.take(pa.array(rows))})
    for row in texts.group_by(["strategy", "type"]).aggregate([([], "count_all")]).to_pylist():
        labels = {"strategy": row["strategy"], "query_type": row["type"]}
        found.append(MetricSample("dmqr_rewrites", labels, row["count_all"]))
    return found + list(_by_type("dmqr_calls_per_query_bucket", types, _requests(table), np.ones(table.num_rows, bool)))


def score_samples(table: pa.Table, logits: bool, rerankers: int) -> list[MetricSample]:
    """Returns the best score of each query with results, of a block of one arm after ordering.

    Where a reranker's scores are logits, they are shown between 0 and 1.
    """
    block = Candidates(table, 1, rerankers)
    row, flat = unnested(table, "ranked")
    at = block.first[row] + flat.field("fused").to_numpy()
    reranked = block.reranked[0][block.document[at]] if rerankers else np.full(len(at), np.nan)
    with np.errstate(over="ignore"):
        shown = 1 / (1 + np.exp(-reranked)) if logits else reranked
    best = np.full(table.num_rows, -np.inf)
    np.maximum.at(best, row, np.where(np.isnan(shown), block.score[at], shown))
    return list(_by_type("dmqr_best_score_bucket", _types(table), best, np.isfinite(best)))


def _requests(table: pa.Table) -> np.ndarray:
    """Returns the requests of each query, shape (rows,)."""
    rows, flat = unnested(table, "costs")
    own = pc.and_(pc.equal(flat.field("stage"), "rewrite"), pc.invert(pc.starts_with(flat.field("component"), START_UP)))
    requests = pc.if_else(own, flat.field("requests"), 0).to_numpy(zero_copy_only=False)
    return np.bincount(rows, weights=requests, minlength=table.num_rows)


def _types(table: pa.Table) -> pa.Array:
    """Returns the query type of each row of a block of one arm."""
    rows, flat = unnested(table, "selections")
    types = np.full(table.num_rows, "", dtype=object)
    types[rows] = [one or "" for one in flat.field("query_type").to_pylist()]
    return pa.array(types, pa.string())


def _by_type(name: str, types: pa.Array, values: np.ndarray, counted: np.ndarray) -> Iterator[MetricSample]:
    """Yields how many of the counted values are in each bucket or below, by query type; empty buckets are left out."""
    bounds = [*METRICS[name].buckets, np.inf]
    for query_type in pc.unique(types).to_pylist():
        chosen = np.sort(values[counted & pc.equal(types, query_type).to_numpy(zero_copy_only=False)])
        for bound, amount in zip(bounds, np.searchsorted(chosen, bounds, side="right").tolist(), strict=True):
            if amount:
                yield MetricSample(name, {"query_type": query_type, "le": f"{bound:g}".replace("inf", "+Inf")}, amount)
