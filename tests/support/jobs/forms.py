"""Rows of text as a file of any form that is read, by the ending of its name."""

from __future__ import annotations

import gzip
import io
import json
from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

Row = tuple[str | None, ...]


def as_form(name: str, names: Sequence[str], rows: Sequence[Row], *, delimiter: str = ",", newline: str = "\n") -> bytes:
    """The rows: TSV without quotes; in CSV a null is an empty field, and an empty text stands in quotes, as in pandas."""
    form, _, packed = name.lower().partition(".")[2].partition(".")
    if form in ("parquet", "pq"):
        columns = zip(names, zip(*rows, strict=True), strict=True)
        out = io.BytesIO()
        pq.write_table(pa.table({name: pa.array(column, pa.string()) for name, column in columns}), out)
        return out.getvalue()
    if form == "csv":
        fields = (("" if one is None else '"' + one.replace('"', '""') + '"' for one in row) for row in (names, *rows))
        lines = [delimiter.join(row) for row in fields]
    elif form == "tsv":
        lines = ["\t".join(one or "" for one in row) for row in (names, *rows)]
    else:
        lines = [json.dumps(dict(zip(names, row, strict=True)), ensure_ascii=False) for row in rows]
    data = "".join(line + newline for line in lines).encode()
    return gzip.compress(data) if packed == "gz" else pa.compress(data, "zstd", asbytes=True) if packed == "zst" else data


def write_form(path: Path, names: Sequence[str], rows: Sequence[Row]) -> str:
    """Writes the rows in the form that the path says; returns the path."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(as_form(path.name, names, rows))
    return str(path)
