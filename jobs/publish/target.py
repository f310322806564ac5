"""Where versions lie: what a target does, whatever it is."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Protocol

import pyarrow as pa
import pyarrow.parquet as pq

from cluster.errors import ConfigError
from jobs.publish.export import DoneExport, ExportRecord, WantedExport
from jobs.publish.promotion import Promotion

ELASTIC = "elastic:"
"""Begins the name of an alias of Elasticsearch."""
URL_ENV = "ELASTICSEARCH_URL"
SERVED = pa.schema([("key", pa.string()), ("digest", pa.string()), ("docs", pa.list_(pa.string()))])
"""What is read of the rows of a version; `docs` are those of its hits."""
Phase = Callable[[str], object]
_NAME = r"[a-z0-9][a-z0-9._-]*"


class Target(Protocol):
    """A place of versions."""

    place: str
    """For messages."""

    def export(self, wanted: WantedExport, phase: Phase) -> DoneExport:
        """Writes a version, unless it is there; a second export at the same time, or after a kill, does no harm.

        Raises:
            DmqrError: It is there and is another export; the target refuses it.
        """
        ...

    def read(self, version: str) -> ExportRecord | None:
        """Returns a version that is complete; None: there is none."""
        ...

    def check_whole(self, record: ExportRecord) -> None:
        """Checks a complete version.

        Raises:
            ConfigError: Something of it is gone or was changed since.
        """
        ...

    def served(self, version: str) -> Iterator[pa.RecordBatch]:
        """Yields `SERVED` of the rows of a complete version, sorted by key.

        Raises:
            ConfigError: They are gone or damaged.
        """
        ...

    def current(self) -> Promotion | None:
        """Returns what is promoted; None: nothing is."""
        ...

    def move(self, to: Promotion, before: Promotion | None) -> None:
        """Promotes a version, atomically, where `before` is still promoted.

        Raises:
            HeldError: Another version was promoted meanwhile.
        """
        ...


def served_file(target: Target, version: str, path: Path) -> Path:
    """Writes what a complete version serves to a local Parquet file with the columns of `SERVED`; returns it."""
    with pq.ParquetWriter(path, SERVED) as file:
        for batch in target.served(version):
            file.write_batch(batch)
    return path


def open_target(name: str, url_env: str | None = None, api_key_env: str | None = None) -> Target:
    """Returns a target by its name: a folder, s3://BUCKET/FOLDER, or elastic:NAME.

    Args:
        name: Of the target.
        url_env: Of Elasticsearch: the variable with its address; None: `URL_ENV`.
        api_key_env: The variable with an API key; None: the server asks for none.

    Raises:
        DmqrError: It is none of these, or its server cannot be used.
    """
    if name.startswith(ELASTIC):
        from jobs.publish.elastic.target import ElasticTarget

        alias = name.removeprefix(ELASTIC)
        if not re.fullmatch(_NAME, alias):
            what = f"--to {name}: the name of an alias has lower-case letters, digits, '.', '-' and '_'"
            raise ConfigError("argument", f"{what}; give one like elastic:rewrites")
        return ElasticTarget(alias, url_env or URL_ENV, api_key_env)
    from cluster.storage import open_storage
    from jobs.publish.folder.target import FolderTarget

    for flag, value in (("url-env", url_env), ("api-key-env", api_key_env)):
        if value is not None:
            raise ConfigError("argument", f"--{flag}: is of elastic:NAME, and {name} is a folder; leave it out")
    storage = open_storage(name)
    if storage.stat("run.json") is not None:  # whose manifests an export called `commits` would lie among
        raise ConfigError("argument", f"--to {name}: is the folder of a run; give one of its own to versions")
    return FolderTarget(storage)
