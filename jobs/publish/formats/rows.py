"""The look-up rows as they are: `rows.parquet` and `rows.jsonl`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from jobs.publish.rows import LOOK_UP, LookUpRows
from jobs.runs.folder import RunFolder


class RowsFormat:
    """The rows as Parquet and as JSON lines."""

    name = "rows"
    defaults: Mapping[str, Any] = {}

    def write(self, run: RunFolder, rows: LookUpRows, folder: Path, options: Mapping[str, Any]) -> Mapping[str, int]:
        """Writes both files; what they hold is counted with the rows."""
        with pq.ParquetWriter(folder / "rows.parquet", LOOK_UP, compression="zstd") as file:
            for batch in rows.batches():
                file.write_batch(batch)
        with (folder / "rows.jsonl").open("w", encoding="utf-8", newline="\n") as lines:
            lines.writelines(f"{line}\n" for _, line in rows.lines())
        return {}


FORMAT = RowsFormat()
