"""What the stages count before a commit adds up to what the manifest counts."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pyarrow as pa

from jobs.chain.counts import BlockErrors, added_failures
from jobs.runs.sums import by_reason
from tests.support.jobs.in_flight import UNSCORED


def error(stage: str, component: str | None, reason: str) -> dict[str, Any]:
    return {"stage": stage, "component": component, "reason": reason, "message": "", "raw": "\x1b[2J", "attempts": 1}


ROWS = [
    [error("rewrite", "keyword", "truncated"), error("rewrite", "general", "truncated"), error("rerank", None, "failed")],
    [],
    [error("fuse", None, "no_hits")],
    [error("retrieve", None, "failed"), error("fuse", None, "no_hits")],
    [error("rewrite", "keyword", "echo")],
    [error("fuse", None, "original_stands_in"), error("rerank", None, "failed")],
]


def block(errors_of_rows: list[list[dict[str, Any]]] = ROWS) -> pa.Table:
    rows = [
        {field.name: None for field in UNSCORED} | {
            "shard": 0, "query_id": str(n), "query": "q", "log_count": 1, "costs": [], "errors": errors, "rewrites": [],
            "stored": [], "candidates": [], "hits": [],
        }
        for n, errors in enumerate(errors_of_rows)
    ]  # fmt: skip
    return pa.Table.from_pylist(rows, UNSCORED)


def test_a_stage_counts_what_it_has_put_there_and_a_query_once() -> None:
    assert BlockErrors(block()).counts("rewrite") == {
        "error/rewrite/keyword/truncated": 1,
        "error/rewrite/general/truncated": 1,
        "error/rewrite/keyword/echo": 1,
        "failed_queries": 2,
    }
    assert BlockErrors(block()).counts("retrieve") == {"error/retrieve//failed": 1, "failed_queries": 1}
    assert BlockErrors(block()).counts("fuse") == {"error/fuse//no_hits": 2, "error/fuse//original_stands_in": 1}
    assert BlockErrors(block()).counts("rerank") == {
        "error/rerank//failed": 2,
        "failed_queries": 1,
    }  # one of them had failed before
    assert BlockErrors(block().slice(1, 1)).counts("rewrite") == {}
    assert BlockErrors(block().slice(3)).counts("rewrite") == {"error/rewrite/keyword/echo": 1, "failed_queries": 1}


def test_of_two_stages_with_one_name_each_counts_what_it_has_added() -> None:
    given = block()
    place, later = given.schema.get_field_index("errors"), error("rewrite", "keyword", "echo")
    field = given.schema.field(place)
    table = given.set_column(place, field, pa.array([[*of, later] for of in ROWS], field.type))
    # Two of the six had not failed before.
    assert added_failures(given, table, "rewrite") == {"error/rewrite/keyword/echo": 6, "failed_queries": 2}
    assert added_failures(given, given, "rewrite") == {}
    assert added_failures(pa.table({"shard": [0]}), given, "rewrite") == BlockErrors(given).counts("rewrite")


def test_all_stages_together_are_what_the_manifest_has() -> None:
    table = block()
    manifest = BlockErrors(table).losses()
    together: Counter[str] = Counter()
    for stage in ("read", "rewrite", "retrieve", "fuse", "rerank"):
        together.update(BlockErrors(table).counts(stage))
    assert together == {name: n for name, n in manifest.items() if name.startswith("error/") or name == "failed_queries"}


def test_a_query_that_outages_failed_in_two_stages_counts_once_and_with_another_failure_not_at_all() -> None:
    away = [error("rewrite", "keyword", "timeout"), error("judge", None, "unavailable")]
    counts = BlockErrors(block([away, [*away, error("rewrite", "general", "echo")], away[1:], []])).losses()
    assert (counts["failed_queries"], counts["failed_by_outages"]) == (3, 2)


def test_reasons_are_those_of_failures_most_often_first() -> None:
    counts = {"error_queries/rewrite/echo": 2, "error_queries/rewrite/truncated": 2, "error_queries/fuse/no_hits": 7,
              "error_queries/judge/truncated": 1, "error/rewrite/keyword/echo": 6}  # fmt: skip
    assert list(by_reason(counts).items()) == [("truncated", 3), ("echo", 2)]
    assert next(iter(by_reason(counts, notes=True))) == "no_hits"
