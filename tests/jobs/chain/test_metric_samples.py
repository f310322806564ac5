"""Figures of a block for the metrics: texts by strategy, requests and best scores of queries, by query type."""

from __future__ import annotations

import math
from typing import Any

import pyarrow as pa
import pytest

from cluster.costs import COSTS, entry
from cluster.metrics.table import METRICS, MetricSample
from jobs.chain.metric_samples import exports_metrics, rewrite_samples, score_samples
from jobs.chain.tables import ARM_SELECTION
from jobs.config.config import Config
from jobs.tables import REWRITE
from tests.support.jobs.workers import orderer, scored


def found(samples: list[MetricSample]) -> dict[tuple[str, ...], float]:
    return {(one.name, *(one.labels[label] for label in METRICS[one.name].labels)): one.amount for one in samples}


def buckets(name: str, query_type: str, *values: float) -> dict[tuple[str, ...], float]:
    """What is expected of these values."""
    bounds = {f"{bound:g}": bound for bound in METRICS[name].buckets} | {"+Inf": math.inf}
    counts = {(name, query_type, le): sum(value <= bound for value in values) for le, bound in bounds.items()}
    return {key: n for key, n in counts.items() if n}


def block(types: list[str | None], **columns: pa.Array) -> pa.Table:
    """A row per type; None: nothing was selected."""
    chosen = [[] if of is None else [{"arm": "run", "query_type": of, "strategies": [], "reason": None}] for of in types]
    return pa.table({"selections": pa.array(chosen, pa.list_(ARM_SELECTION)), **columns})


def texts(*strategies: str) -> list[dict[str, Any]]:
    return [{"strategy": name, "position": n, "text": "t"} for n, name in enumerate(strategies, start=1)]


def test_texts_and_requests_by_query_type() -> None:
    asked = entry("rewrite", "dmqr", requests=1)
    costs = [
        [entry("rewrite", "start_up.load", requests=0), entry("rewrite", "classify", requests=1), asked | {"requests": 3}],
        [asked, entry("rewrite", "dmqr", requests=2, error="lost")],
        [entry("dedup", "other", requests=9)],
        [],
    ]
    rewrites = [texts("general", "keyword", "keyword"), texts("general"), [], texts("keyword")]
    table = block(["fact", "fact", "name", None], rewrites=pa.array(rewrites, pa.list_(REWRITE)), costs=pa.array(costs, COSTS))
    assert found(rewrite_samples(table)) == {
        ("dmqr_rewrites", "general", "fact"): 2,
        ("dmqr_rewrites", "keyword", "fact"): 2,
        ("dmqr_rewrites", "keyword", ""): 1,
        **buckets("dmqr_calls_per_query_bucket", "fact", 4, 3),
        **buckets("dmqr_calls_per_query_bucket", "name", 0),
        **buckets("dmqr_calls_per_query_bucket", "", 0),
    }


def results(types: list[str | None], *rows: list[tuple[float, float | None]]) -> pa.Table:
    """A block with a query's results of these fused scores and the reranker's; it fails on a query with None."""
    made = [
        {
            "query_id": str(number), "query": "q", "candidates": [
                {"doc_id": str(n), "score": fused_score, "sources": []} for n, (fused_score, _) in enumerate(row)
            ],
            "scores": None if any(score is None for _, score in row) else [
                {"doc_id": str(n), "score": score} for n, (_, score) in enumerate(row)
            ],
        }
        for number, row in enumerate(rows)
    ]  # fmt: skip
    ordered = orderer("replace", 3)(scored(made))
    selections = block(types).column("selections")
    return ordered.set_column(ordered.column_names.index("selections"), "selections", selections)


def test_the_best_score_is_the_reranker_s_where_there_is_one() -> None:
    rows: list[Any] = [[(2.0, -1.0), (1.0, 3.0)], [(1.5, None), (0.5, None)], [], [(0.25, -1000.0)]]
    table = results([None, "fact", "fact", "fact"], *rows)
    cosines, logits = (found(score_samples(table, logits, 1)) for logits in (False, True))
    name = "dmqr_best_score_bucket"
    assert cosines == buckets(name, "", 3.0) | buckets(name, "fact", 1.5, -1000.0)
    # The reranker failed on the first of type fact; the logit 3 is .9526.
    assert logits == buckets(name, "", 1 / (1 + math.exp(-3.0))) | buckets(name, "fact", 1.5, 0.0)
    assert (cosines[name, "fact", "0.01"], cosines[name, "fact", "+Inf"], logits[name, "", "0.99"]) == (1, 2, 1)


def test_a_block_without_results_has_no_score() -> None:
    assert score_samples(results(["fact"], []), logits=True, rerankers=1) == []


@pytest.mark.parametrize(("cluster", "exported"), [({}, True), ({"metrics": False}, False), ({"address": "none"}, False)])
def test_metrics_need_a_ray(values: dict[str, Any], cluster: dict[str, Any], exported: bool) -> None:
    assert exports_metrics(Config.model_validate(values | {"cluster": cluster})) is exported
