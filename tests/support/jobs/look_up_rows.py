"""Look-up rows made apart from the product: from a run's Parquet files, row by row, in plain Python."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from tests.support.jobs import whole_runs

Row = dict[str, Any]
HOSTILE = [
    '"quoted" => \\ SYNONYM: x', "a, b => c", "line\nbreak\ttab", "{}[]():;@#$%^&*~`'", "日本語 の 検索", "ﬁne ﬂour",
    "İstanbul ΣΑΣ ß", "🙂 emoji \u200d joined", "nul \x00 inside", "\u2028 separators \u2029", "'; DROP TABLE rows; --",
    "a" * 900,
]  # fmt: skip
GENERAL = "general(weight=0.5)"
"""How the second strategy of these nights is called."""


def rows(folder: Path, table: str) -> list[Row]:
    """The rows of a table; of one that has no file, none."""
    return whole_runs.rows(folder, table) if (folder / table).is_dir() else []


def expected_rows(
    folder: Path, *, strategies: list[str] | None = None, min_added: int = 0, hits: int = 10, buckets: int = 100, salt: str = ""
) -> tuple[dict[str, Row], dict[str, int]]:
    """key -> its row without digest and version, and what is left out by reason."""
    planned = [
        one if isinstance(one, str) else next(iter(one))
        for one in json.loads((folder / "run.json").read_text())["config"]["rewrite"]["strategies"]
    ]
    found, left = {}, {"strategy": 0, "value": 0}
    for one in rows(folder, "queries"):
        key = one["query_id"]
        number = int.from_bytes(hashlib.sha256(f"{salt}\n{key}".encode()).digest()[:8], "big")
        found[key] = {"key": key, "query": one["normalised"], "context": one.get("context"), "bucket": number % buckets}
        found[key] |= {"rewrites": [], "hits": []}
    added: dict[tuple[str, str, int], set[str]] = {}
    for one in sorted(rows(folder, "results"), key=lambda row: row["rank"]):
        if one["rank"] > hits:
            continue
        found[one["query_id"]]["hits"].append({"doc_id": one["doc_id"], "score": one["score"]})
        lists = [(source["strategy"], source["position"]) for source in one["sources"]]
        if all(strategy != "original" for strategy, _ in lists):
            for strategy, position in lists:
                added.setdefault((one["query_id"], strategy, position), set()).add(one["doc_id"])
    for one in sorted(
        rows(folder, "rewrites"), key=lambda row: (planned.index(row["strategy"].partition("(")[0]), row["position"])
    ):
        if strategies is not None and one["strategy"] not in strategies:
            left["strategy"] += 1
        elif len(added.get((one["query_id"], one["strategy"], one["position"]), ())) < min_added:
            left["value"] += 1
        else:
            weight = one["weight"] * one["position_weight"]
            text = {name: one[name] for name in ("strategy", "position", "text")}
            found[one["query_id"]]["rewrites"].append(text | {"weight": weight, "search_as": one["search_as"]})
    return dict(sorted(found.items())), {why: count for why, count in left.items() if count}


def exported(folder: Path, version: str) -> tuple[list[Row], list[Row], Row]:
    """The rows of a version in a folder as Parquet and as JSON lines, and its export.json."""
    record = json.loads((folder / version / "export.json").read_text())
    files = {one["name"]: folder / version / one["key"] for one in record["files"]}
    parquet = pq.read_table(files["rows.parquet"]).to_pylist()
    lines = [json.loads(line) for line in files["rows.jsonl"].read_text(encoding="utf-8").split("\n")[:-1]]
    return parquet, lines, record


def bare(row: Row) -> Row:
    """A row without digest and version, `context` always there."""
    return {"context": None} | {name: value for name, value in row.items() if name not in ("digest", "version")}
