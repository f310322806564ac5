"""What differs between a version and an earlier one of the same target: by key and digest."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from cluster.errors import ConfigError
from jobs.publish.rows import LookUpRows
from jobs.publish.target import Target, served_file
from jobs.runs.reading import database

_BATCH = 1 << 14
_COMPARED = """
CREATE TEMP TABLE compared AS SELECT coalesce(new.key, old.key) AS key, CASE WHEN old.key IS NULL THEN 'new'
  WHEN new.key IS NULL THEN 'gone' WHEN new.digest <> old.digest THEN 'changed' ELSE 'same' END AS what
FROM (SELECT key, digest FROM rows_of($new)) AS new
FULL JOIN (SELECT key, digest FROM rows_of($old)) AS old USING (key)
"""
_CHANGED = """
SELECT * FROM rows_of($rows) SEMI JOIN (FROM compared WHERE what IN ('new', 'changed')) USING (key) ORDER BY key
"""


@dataclass(frozen=True)
class Delta:
    """What differs from an earlier version.

    Attributes:
        since: The earlier version.
        counts: `since`, and rows that are `new`, `changed`, `gone` and `same`.
        changed: The rows that are new or changed, in a local file.
        gone_file: A local file with the keys of the rows that are gone.
    """

    since: str
    counts: Mapping[str, Any]
    changed: LookUpRows
    gone_file: Path

    def puts(self) -> Iterator[tuple[str, str]]:
        """Yields key and JSON of each row that is new or changed, sorted by key."""
        return self.changed.lines()

    def gone(self) -> Iterator[str]:
        """Yields the keys of the rows that are gone, sorted."""
        with pq.ParquetFile(self.gone_file) as file:
            for batch in file.iter_batches(_BATCH):
                yield from batch.column(0).to_pylist()


def compared(target: Target, since: str, rows: LookUpRows, folder: Path) -> Delta:
    """Returns what differs between rows and a version of the target, with files in a local folder.

    Raises:
        ConfigError: There is no such version, or it is not complete, or damaged.
    """
    if (record := target.read(since)) is None:
        raise ConfigError(
            "publish-version", f"--since {since}: is no complete version in {target.place}; export it, or leave --since out"
        )
    target.check_whole(record)
    old, changed, gone = (folder / f"{name}.parquet" for name in ("old", "changed", "gone"))
    served_file(target, since, old)
    with database() as connection:
        connection.execute(_COMPARED, {"new": str(rows.path), "old": str(old)})
        found = dict(connection.execute("SELECT what, count(*) FROM compared GROUP BY what").fetchall())
        connection.sql(_CHANGED, params={"rows": str(rows.path)}).write_parquet(str(changed))
        connection.sql("SELECT key FROM compared WHERE what = 'gone' ORDER BY key").write_parquet(str(gone))
    counts = {what: int(found.get(what, 0)) for what in ("new", "changed", "gone", "same")}
    put = LookUpRows(changed, rows.version, rows.counts, rows.left_out, rows.choice)
    return Delta(since, {"since": since, **counts}, put, gone)
