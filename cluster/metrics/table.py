"""The metrics that a run exports, written once: `METRICS`.

No label has a value of a query or a document, so the number of series does not grow with the log. Blocks are counted in
`tracked.py`; `jobs/run/progress.py` sets what the driver knows.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

RUN_LABELS = ("run", "run_id")  # of every metric: the config's name, and the run's folder


class Metric(NamedTuple):
    """Description of a metric before any value; `labels` are those beside RUN_LABELS."""

    kind: Literal["counter", "gauge", "histogram"]
    about: str
    labels: tuple[str, ...] = ()
    buckets: tuple[float, ...] = ()  # upper bounds, above 0: Ray takes no others


METRICS: dict[str, Metric] = {
    "dmqr_queries": Metric("counter", "Queries that a stage has finished.", ("stage",)),
    "dmqr_requests": Metric(
        "counter",
        "Requests to LLMs by request and model, and to a reranker's server (component server); those without an answer "
        "included (model empty): costs.requests.",
        ("component", "model"),
    ),
    "dmqr_tokens": Metric(
        "counter",
        "Tokens by kind: prompt (those of the next two included), cached, cache_write, completion: costs.*_tokens.",
        ("model", "kind"),
    ),
    "dmqr_reused": Metric("counter", "Results taken from a store that runs share: costs.reused.", ("component",)),
    "dmqr_searches": Metric("counter", "Searches by retriever: costs.searches.", ("component",)),
    "dmqr_pairs": Metric("counter", "Pairs of query and document that were scored: costs.pairs.", ("model",)),
    "dmqr_retries": Metric("counter", "Blocks that a stage began anew, since their worker had died.", ("stage",)),
    "dmqr_errors": Metric(
        "counter",
        "Rows of errors/ by stage and reason; notes (a query without hits, a text that a guard left out) are among them.",
        ("stage", "reason"),
    ),
    "dmqr_failed_queries": Metric(
        "counter",
        "Queries with an error that is no note, by the stage of the first one; limits.error_rate is of them.",
        ("stage",),
    ),
    "dmqr_queries_waiting": Metric("gauge", "Queries that no worker of the stage has begun.", ("stage",)),
    "dmqr_queries_in_flight": Metric("gauge", "Queries that workers of the stage are processing.", ("stage",)),
    "dmqr_busy_share": Metric("gauge", "Share of the workers' time with a block, 0 to 1, over the last 10 s.", ("stage",)),
    "dmqr_workers": Metric("gauge", "Workers that have started; CPUs for tasks in a stage without a pool.", ("stage",)),
    "dmqr_shards_planned": Metric("gauge", "Shards of the run."),
    "dmqr_shards_committed": Metric("gauge", "Shards that are committed, by all starts of the run."),
    "dmqr_cost_usd": Metric("gauge", "Price of what is committed and in flight, in USD, by the file of prices."),
    "dmqr_cost_limit_usd": Metric("gauge", "limits.max_cost_usd, where it is set."),
    "dmqr_seconds_since_progress": Metric("gauge", "Seconds since a worker was heard of, or a shard was committed."),
    "dmqr_outage_seconds": Metric("gauge", "Seconds for which a service has not answered; 0 once it has.", ("service",)),
    "dmqr_lease_lost": Metric("gauge", "1 if another driver has, or may have, taken the run over, else 0."),
    "dmqr_started_timestamp_seconds": Metric("gauge", "When this start of the run began, in seconds since the epoch."),
    "dmqr_finished_timestamp_seconds": Metric("gauge", "When _SUCCESS.json was put, in seconds since the epoch."),
    "dmqr_block_seconds": Metric(
        "histogram",
        "Busy seconds of a stage for a block (one shard), by its rows of costs/ without start-up; of a stage without such "
        "rows from the block's begin to its end.",
        ("stage",),
        (0.01, 0.03, 0.1, 0.3, 1, 3, 10, 30, 60, 120, 300, 600, 1200, 3600),
    ),
}
