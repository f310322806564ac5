"""Invented exports of User Behavior Insights: searches, events, and the files that hold them."""

from __future__ import annotations

import gzip
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from jobs.config.config import Config

Row = dict[str, Any]
NESTED = pa.schema(
    [
        ("action_name", pa.string()),
        ("query_id", pa.string()),
        ("client_id", pa.string()),
        (
            "event_attributes",
            pa.struct(
                [("object", pa.struct([("object_id", pa.string())])), ("position", pa.struct([("ordinal", pa.int32())]))]
            ),
        ),
    ]
)
QUERIES = pa.schema(
    [
        ("query_id", pa.string()),
        ("client_id", pa.string()),
        ("user_query", pa.string()),
        ("query_response_hit_ids", pa.list_(pa.string())),
        ("timestamp", pa.string()),
    ]
)


def search(
    ubi_id: str, text: str | None, hits: Sequence[str] | None = ("a", "b", "c"), client: str = "c1", second: int = 0
) -> Row:
    """A query of UBI 1.3, asked at this second of a minute."""
    row: Row = {"query_id": ubi_id, "client_id": client, "user_query": text, "timestamp": f"2026-11-23T10:00:{second:02d}Z"}
    return row if hits is None else row | {"query_response_hit_ids": list(hits)}


def event(ubi_id: str | None, document: str | None, ordinal: int | None = None, action: str = "click") -> Row:
    """An event of UBI 1.3."""
    found: Row = {"object": {"object_id": document}} if document is not None else {}
    found |= {"position": {"ordinal": ordinal}} if ordinal is not None else {}
    return {"action_name": action, "query_id": ubi_id, "client_id": "c1", "event_attributes": found}


def write_lines(path: Path, rows: Sequence[Row], *, wrapped: bool = False) -> None:
    """Writes lines of JSON, packed if the name says so."""
    path.parent.mkdir(parents=True, exist_ok=True)
    lines = "".join(
        json.dumps({"_index": path.name, "_id": str(n), "_source": row} if wrapped else row, ensure_ascii=False) + "\n"
        for n, row in enumerate(rows)
    )
    path.write_bytes(gzip.compress(lines.encode()) if path.suffix == ".gz" else lines.encode())


def write_parquet(path: Path, rows: Sequence[Row], schema: pa.Schema) -> None:
    """Writes the fields of a schema to Parquet."""
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.Table.from_pylist(list(rows), schema), path)


def ubi_config(path: Path | str, **log: Any) -> Config:
    """A config whose log is this export."""
    return Config.model_validate(
        {
            "name": "ubi", "log": {"path": str(path), "format": "ubi", **log}, "rewrite": {"strategies": []},
            "retrieve": {"retrievers": {"bm25": {"kind": "local", "index": "index"}}}, "rerank": {"kind": "none"},
            "output": "runs", "cluster": {"address": "none"},
        }
    )  # fmt: skip


def write_export(folder: Path, searches: Sequence[Row], events: Sequence[Row]) -> Config:
    """Writes searches and events as lines of JSON; returns a config that reads them."""
    write_lines(folder / "ubi_queries.ndjson", searches)
    write_lines(folder / "ubi_events.ndjson", events)
    return ubi_config(folder)
