"""The retrieval worker on small blocks, and what comes out of it as plain values."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from blocks import typed
from in_flight import REWRITTEN

from jobs.chain.cuts import Cuts
from jobs.chain.stages.retrieve import Retrieve
from jobs.tables import STORED
from retrievers.retriever import retriever_identity
from retrievers.settings import FuseSettings

Row = dict[str, Any]
Block = dict[str, Any]
DEPTH = 5
KINDS = {"pseudo_answer": "passage"}  # all others are searched as queries


def worker(
    retrievers: dict[str, Block],
    routes: dict[str, list[str]] | None = None,
    dense: str | None = None,
    *,
    run: Path | None = None,
    cuts: Cuts | None = None,
    **fuse: Any,
) -> Retrieve:
    identities = {name: retriever_identity(name, typed(block)) for name, block in retrievers.items()}
    where = None if run is None else str(run)
    settings = {name: typed(block) for name, block in retrievers.items()}
    fusing = FuseSettings(**({"depth": DEPTH} | fuse))
    return Retrieve(settings, identities, routes or {}, DEPTH, fusing, dense, "cpu", where, cuts)


def query(text: str, **rewrites: str) -> Row:
    made = [
        {"strategy": strategy, "position": 1, "text": rewrite, "weight": 1.0, "search_as": KINDS.get(strategy, "query"),
         "model": "m", "prompt_hash": "h", "parsed_as": "json", "selected_reason": None, "position_weight": 1.0}
        for strategy, rewrite in rewrites.items()
    ]  # fmt: skip
    return {"shard": 0, "query_id": text, "query": text, "log_count": 1, "costs": [], "errors": [], "rewrites": made}


def block(*rows: Row) -> pa.Table:
    return pa.Table.from_pylist(list(rows), REWRITTEN)


def searches(result: pa.Table, quantity: str = "searches") -> list[dict[str, int]]:
    return [{one["component"]: one[quantity] for one in row} for row in result.column("costs").to_pylist()]


Lists = dict[tuple[str, str, str], list[tuple[str, float]]]  # (query_id, strategy, retriever) -> hits


def passed(result: pa.Table) -> Lists:
    return {
        (row["query_id"], run["strategy"], run["retriever"]): [(hit["doc_id"], hit["score"]) for hit in run["hits"]]
        for row in result.select(["query_id", "runs"]).to_pylist() for run in row["runs"]
    }  # fmt: skip


def written(folder: Path, result: pa.Table) -> Lists:
    """The lists in the one file that the block names, on its first row."""
    first, *others = result.column("stored").to_pylist()
    assert others == [[]] * (result.num_rows - 1)
    ((table, key, count, size),) = [tuple(one.values()) for one in first]
    path = folder / key
    assert (table, size) == ("runs", path.stat().st_size)
    assert [one.relative_to(folder).as_posix() for one in folder.rglob("*.parquet")] == [key]
    rows = pq.read_table(path)
    assert (rows.schema, rows.num_rows) == (STORED["runs"], count)
    lists: Lists = {}
    for row in rows.to_pylist():
        hits = lists.setdefault((row["query_id"], row["strategy"], row["retriever"]), [])
        hits.append((row["doc_id"], row["score"]))
        assert (row["rank"], row["position"]) == (len(hits), 1)
    return lists
