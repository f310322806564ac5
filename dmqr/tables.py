"""The tables of a run as Arrow tables and DuckDB relations."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING

from cluster.errors import ConfigError, nearest

if TYPE_CHECKING:
    import duckdb
    import pyarrow as pa

    from jobs.runs.folder import RunFolder


class Tables(Mapping[str, "pa.Table"]):
    """The committed tables of a run by name; each is read when it is asked for."""

    def __init__(self, folder: RunFolder) -> None:
        """Reads nothing yet."""
        self._folder = folder

    @cached_property
    def _files(self) -> dict[str, list[str]]:
        """Returns table -> its files; those without rows have one, once the run is finished."""
        from cluster.run.shards import SUCCESS
        from jobs.runs.folder import stored_json

        folder = self._folder
        named = stored_json(folder.storage, SUCCESS).get("tables", {}) if folder.finished else {}
        return {table: [folder.storage.url(key) for key in keys] for table, keys in named.items()} | folder.tables

    def files(self, name: str) -> list[str]:
        """Returns the paths or URLs of a table's files.

        Raises:
            ConfigError: the run has no such table.
        """
        if name not in self._files:
            known = nearest(name, list(self._files))
            raise ConfigError("argument", f"{self._folder.storage.root}: no table {name!r}{known}")
        return self._files[name]

    def read(self, name: str, columns: Sequence[str] | None = None) -> pa.Table:
        """Returns a table as a `pyarrow.Table`, with these columns alone, or all.

        Raises:
            ConfigError: the run has no such table, or the table no such column.
        """
        import pyarrow as pa
        import pyarrow.parquet as pq

        from cluster.storage import open_file

        parts = []
        for url in self.files(name):
            with open_file(url) as file:
                opened = pq.ParquetFile(file)
                for column in columns or ():
                    if column not in opened.schema_arrow.names:
                        known = nearest(column, opened.schema_arrow.names)
                        raise ConfigError("argument", f"{name}: no column {column!r}{known}")
                parts.append(opened.read(None if columns is None else list(columns)))
        return pa.concat_tables(parts)

    def relation(self, name: str, connection: duckdb.DuckDBPyConnection | None = None) -> duckdb.DuckDBPyRelation:
        """Returns a table as a DuckDB relation, which reads the files when it is used.

        Args:
            name: of the table.
            connection: of DuckDB; None: a new one, which also reads s3://.
        """
        from cluster.storage.s3_duckdb import open_duckdb

        files = self.files(name)
        return (open_duckdb() if connection is None else connection).read_parquet(files, hive_partitioning=False)

    def __getitem__(self, name: str) -> pa.Table:
        """Returns a table as a `pyarrow.Table`."""
        if name not in self._files:
            raise KeyError(name)
        return self.read(name)

    def __iter__(self) -> Iterator[str]:
        """Yields the names."""
        return iter(self._files)

    def __len__(self) -> int:
        """Returns the number of tables."""
        return len(self._files)

    def __repr__(self) -> str:
        """Returns the names."""
        return f"Tables({', '.join(self)})"
