"""The retrieval worker on small blocks, and what comes out of it as plain values."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from jobs.tables import STORED
from tests.support.jobs.workers import Row, plain, rewrite, rewritten

KINDS = {"pseudo_answer": "passage"}  # all others are searched as queries


def query(text: str, **rewrites: str) -> Row:
    made = [rewrite(name, one, search_as=KINDS.get(name, "query")) for name, one in rewrites.items()]
    return {"query_id": text, "query": text, "rewrites": made}


def block(*rows: Row) -> pa.Table:
    return rewritten(*rows)


def searches(result: pa.Table, quantity: str = "searches") -> list[dict[str, int]]:
    return [{one["component"]: one[quantity] for one in row} for row in result.column("costs").to_pylist()]


Lists = dict[tuple[str, str, str], list[tuple[str, float]]]  # (query_id, strategy, retriever) -> hits


def passed(result: pa.Table) -> Lists:
    return {
        (row["query_id"], run["strategy"], run["retriever"]): [(hit["doc_id"], hit["score"]) for hit in run["hits"]]
        for row in plain(result) for run in row["runs"]
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
