"""Versions in a folder, here or on S3: `<target>/<version>/`, with data files first and `export.json`, create-only, last.

Data files have names that no other attempt uses, so that two exports at once, or one after a kill, never write to the same
file: what counts is what `export.json` names.
"""

from __future__ import annotations

import json
import re
import tempfile
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from cluster.errors import ConfigError, UnavailableError
from cluster.storage import Storage
from jobs.publish.delta import compared
from jobs.publish.export import DoneExport, ExportRecord, WantedExport, check_same, record_of
from jobs.publish.folder.changes import CHANGES, write_changes
from jobs.publish.folder.promotions import move, promoted_now
from jobs.publish.promotion import Promotion
from jobs.publish.rows import written_rows
from jobs.publish.target import SERVED, Phase

RECORD = "export.json"
_ROWS = "rows.parquet"
_BATCH = 1 << 14
_OF_AN_ATTEMPT = re.compile(r"[a-z_]+-[0-9a-f]{12}\.[a-z]+")  # what `_stored` calls files


class FolderTarget:
    """A folder of versions; keeps the contract of `jobs.publish.target.Target`."""

    def __init__(self, storage: Storage) -> None:
        """Takes the storage, without a request."""
        self._storage = storage
        self.place = storage.root

    def read(self, version: str) -> ExportRecord | None:
        """Returns a version whose record is there.

        Raises:
            ConfigError: The record is damaged.
        """
        data = self._storage.get(f"{version}/{RECORD}")
        if data is None:
            return None
        try:
            return ExportRecord(**json.loads(data))
        except (ValueError, TypeError) as error:
            what = f"{self._storage.url(f'{version}/{RECORD}')}: is damaged, or of another version of dmqr"
            raise ConfigError("publish-version", f"{what}; remove that version, and export it again") from error

    def check_whole(self, record: ExportRecord) -> None:
        """Checks the files of a version.

        Raises:
            ConfigError: One is gone or has another size.
        """
        for file in record.files:
            found = self._storage.stat(f"{record.version}/{file['key']}")
            if found is None or found.size != file["size"]:
                why = "is gone" if found is None else f"has {found.size:,} bytes in place of {file['size']:,}"
                raise ConfigError("publish-version", self._damaged(record.version, file["key"], why))

    def _damaged(self, version: str, key: str, why: str) -> str:
        remedy = f"put it back as it was, or remove the folder {version} and export that version again"
        return f"{version}: {self._storage.url(f'{version}/{key}')} {why}; {remedy}"

    def served(self, version: str) -> Iterator[pa.RecordBatch]:
        """Yields `SERVED` of the rows of a version.

        Raises:
            ConfigError: It was exported without rows, or their file is gone or damaged.
        """
        record = self.read(version)
        key = next((one["key"] for one in (record.files if record else ()) if one["name"] == _ROWS), None)
        if key is None:
            what = f"{self._storage.url(version)}: has no {_ROWS}, which says what it serves"
            raise ConfigError("publish-version", f"{what}; export with --as rows, or name another version")
        try:
            with self._storage.open(f"{version}/{key}") as opened, pq.ParquetFile(opened) as file:
                for batch in file.iter_batches(_BATCH, columns=["key", "digest", "hits"]):
                    hits = batch.column("hits")
                    docs = pa.ListArray.from_arrays(hits.offsets, hits.values.field("doc_id"))
                    yield pa.RecordBatch.from_arrays([batch.column("key"), batch.column("digest"), docs], schema=SERVED)
        except UnavailableError:
            raise
        except FileNotFoundError as error:
            raise ConfigError("publish-version", self._damaged(version, key, "is gone")) from error
        except (OSError, pa.ArrowException) as error:
            why = f"cannot be read ({str(error).splitlines()[0]})"
            raise ConfigError("publish-version", self._damaged(version, key, why)) from error

    def export(self, wanted: WantedExport, phase: Phase) -> DoneExport:
        """Writes a version, unless it is there."""
        if (found := self.read(wanted.version)) is not None:
            return self._existing(wanted, found)
        with tempfile.TemporaryDirectory(prefix="dmqr-export-") as folder:
            phase("making rows")
            rows = written_rows(wanted.run, wanted.choice, wanted.version, Path(folder, "look_up.parquet"))
            formats: dict[str, dict[str, int]] = {}
            for one in wanted.formats:
                phase(f"writing {one.name}")
                own = Path(folder, one.name)
                own.mkdir()
                formats[one.name] = dict(one.write(wanted.run, rows, own, wanted.options.get(one.name, one.defaults)))
            changes = None
            if wanted.since is not None:
                phase("comparing")
                delta = compared(self, wanted.since, rows, Path(folder))
                changes = delta.counts
                write_changes(delta, Path(folder))
            phase("storing files")
            files = self._stored(wanted, Path(folder))
        record = record_of(wanted, rows, formats, changes, files)
        data = json.dumps(record.values(), ensure_ascii=False, indent=1).encode()
        if self._storage.put_if_absent(f"{wanted.version}/{RECORD}", data):
            self._tidy(record)
            return DoneExport(record, self._storage.url(wanted.version), existed=False)
        self._storage.delete(*(f"{wanted.version}/{file['key']}" for file in files))  # another was first
        first = self.read(wanted.version)
        assert first is not None
        return self._existing(wanted, first)

    def current(self) -> Promotion | None:
        """Returns what is promoted, by the last promotion that was made."""
        return promoted_now(self._storage)

    def move(self, to: Promotion, before: Promotion | None) -> None:
        """Promotes a version; of two at once the first to put its number wins."""
        move(self._storage, to)

    def _existing(self, wanted: WantedExport, found: ExportRecord) -> DoneExport:
        place = self._storage.url(wanted.version)
        check_same(found, wanted, place)
        self.check_whole(found)
        self._tidy(found)
        return DoneExport(found, place, existed=True)

    def _stored(self, wanted: WantedExport, folder: Path) -> list[dict[str, Any]]:
        """Stores the files under names that no other attempt uses; returns what the record says of them."""
        attempt, files = uuid.uuid4().hex[:12], []
        for name in [*(one.name for one in wanted.formats), *[CHANGES] * (wanted.since is not None)]:
            for path in sorted((folder / name).iterdir()):
                key = f"{path.stem}-{attempt}{path.suffix}"
                self._storage.upload(path, f"{wanted.version}/{key}")
                files.append({"name": path.name, "format": name, "key": key, "size": path.stat().st_size})
        return files

    def _tidy(self, record: ExportRecord) -> None:
        """Removes files of the version that its record does not name: of attempts that were killed, or came second.

        An attempt that is still under way comes second, whatever becomes of its files. What is called otherwise stays: the
        folder may have been there before.
        """
        named = {file["key"] for file in record.files}
        keys = {entry.key: entry.key.removeprefix(f"{record.version}/") for entry in self._storage.list(record.version)}
        left = [key for key, name in keys.items() if _OF_AN_ATTEMPT.fullmatch(name) and name not in named]
        self._storage.delete(*left)
