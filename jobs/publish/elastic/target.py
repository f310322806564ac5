"""Exports and promotions in Elasticsearch: an index `NAME-VERSION` for each version, and the alias `NAME` for the promoted one.

The id of a document is the row's key, so two exports of one version write equal documents under equal ids: two at once, or one
after a kill, do no harm. An index counts once its `_meta` says that it is complete.
"""

from __future__ import annotations

import datetime
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa

from cluster.errors import ConfigError
from jobs.publish.delta import compared
from jobs.publish.elastic.index import VersionIndex, create_index, index_path, pages, put_note, read_index
from jobs.publish.elastic.loading import load_rows
from jobs.publish.elastic.synonyms import check_limit, put_set
from jobs.publish.export import DoneExport, ExportRecord, WantedExport, check_same, record_of
from jobs.publish.promotion import Promotion, overtaken
from jobs.publish.rows import LookUpRows, written_rows
from jobs.publish.target import SERVED, Phase
from retrievers.elastic.connection import Connection
from retrievers.elastic.failures import RequestRefused
from retrievers.elastic.settings import ElasticSettings

TAKEN = {"rows", "synonyms"}
"""Formats."""
_IN_FLIGHT = 4  # bulk requests


class ElasticTarget:
    """An alias and the indexes of its versions; keeps the contract of `jobs.publish.target.Target`."""

    def __init__(self, alias: str, url_env: str, api_key_env: str | None) -> None:
        """Reads address and key from the environment, and asks the server for its version."""
        settings = ElasticSettings(kind="elastic", index=alias, url_env=url_env, api_key_env=api_key_env)
        self._alias = alias
        self._connection = Connection("--to", settings, _IN_FLIGHT)
        self._connection.check()
        self.place = f"elastic:{alias} at {self._connection.address}"

    def index_of(self, version: str) -> str:
        """Returns the name of the index of a version."""
        return f"{self._alias}-{version}"

    def read(self, version: str) -> ExportRecord | None:
        """Returns a version that is complete; its index may be of another target, whose versions are called otherwise."""
        found = read_index(self._connection, self.index_of(version))
        return found.record if found is not None and found.complete and found.record.version == version else None

    def check_whole(self, record: ExportRecord) -> None:
        """Checks the index of a version.

        Raises:
            ConfigError: It has not all rows.
        """
        self._check_rows(self.index_of(record.version), record.counts["rows"])

    def _check_rows(self, name: str, rows: int) -> None:
        count = self._connection.request("GET", f"{index_path(name)}/_count").body["count"]
        if count != rows:
            what = f"index {name} at {self._connection.address}: holds {count:,} rows in place of {rows:,}"
            raise ConfigError("publish-version", f"{what}; remove it, and export it again")

    def served(self, version: str) -> Iterator[pa.RecordBatch]:
        """Yields `SERVED` of the rows of a version."""
        for page in pages(self._connection, self.index_of(version), ["key", "digest", "hits.doc_id"]):
            rows = [{**one, "docs": [hit["doc_id"] for hit in one.get("hits", ())]} for one in page]
            yield pa.RecordBatch.from_pylist(rows, SERVED)

    def export(self, wanted: WantedExport, phase: Phase) -> DoneExport:
        """Loads a version into its index, unless it is there."""
        names = [one.name for one in wanted.formats]
        if "rows" not in names or not {*names} <= TAKEN:
            what = f"--as {','.join(names)}: Elasticsearch takes rows, and synonyms beside them"
            raise ConfigError("argument", f"{what}; give these, or a folder")
        name, place = self.index_of(wanted.version), f"{self.index_of(wanted.version)} at {self._connection.address}"
        self._behind_alias()  # an index of the alias's name is refused before rows are loaded, not at the promotion
        found = read_index(self._connection, name)
        if found is not None:
            check_same(found.record, wanted, place)
            if found.complete:
                self.check_whole(found.record)
                return DoneExport(found.record, place, existed=True)
        with tempfile.TemporaryDirectory(prefix="dmqr-export-") as folder:
            phase("making rows")
            rows = written_rows(wanted.run, wanted.choice, wanted.version, Path(folder, "look_up.parquet"))
            delta = None if wanted.since is None else compared(self, wanted.since, rows, Path(folder))
            counts = self._written(wanted, rows, Path(folder))
            record = record_of(wanted, rows, counts, None if delta is None else delta.counts, ())
            create_index(self._connection, VersionIndex(name, record, False, None))
            found = read_index(self._connection, name)
            assert found is not None
            check_same(found.record, wanted, place)
            phase("loading rows")
            load_rows(self._connection, name, rows.lines(), _IN_FLIGHT)
            if "synonyms" in names:
                phase("putting synonyms")
                put_set(self._connection, name, Path(folder), counts["synonyms"]["rules"])
        return DoneExport(self._completed(name, len(rows), found.record), place, existed=False)

    def _written(self, wanted: WantedExport, rows: LookUpRows, folder: Path) -> dict[str, Mapping[str, int]]:
        """Has the formats beside the rows write their files; returns format -> what it counted."""
        counts: dict[str, Mapping[str, int]] = {"rows": {}}
        for one in wanted.formats:
            if one.name == "synonyms":
                counts[one.name] = one.write(wanted.run, rows, folder, wanted.options[one.name])
                check_limit(self._connection, counts[one.name]["rules"])
        return counts

    def _completed(self, name: str, rows: int, record: ExportRecord) -> ExportRecord:
        """Notes that an index is complete, once it has all rows; returns its record."""
        self._connection.request("POST", f"{index_path(name)}/_refresh")
        self._check_rows(name, rows)
        found = read_index(self._connection, name)
        if found is not None and not found.complete:
            put_note(self._connection, found, complete=True)
        return record

    def current(self) -> Promotion | None:
        """Returns the version that the alias stands for.

        Raises:
            ConfigError: It stands for several.
        """
        names = self._behind_alias()
        if not names:
            return None
        if len(names) > 1:  # a first promotion was killed before it took the other away, or somebody added an index
            what = f"{self.place}: the alias stands for {' and '.join(names)}, so searches find rows of all of them"
            raise ConfigError("publish-version", f"{what}; take all but one out of it (POST /_aliases), and run it again")
        found = read_index(self._connection, names[0])
        if found is None:
            return None
        unknown = datetime.datetime.fromtimestamp(0, datetime.UTC).isoformat(timespec="seconds")
        return found.promotion or Promotion(found.record.version, found.record.run_id, unknown)

    def move(self, to: Promotion, before: Promotion | None) -> None:
        """Moves the alias in one request; of two that promote the first version at once, the one of the lesser name stays."""
        name = self.index_of(to.version)
        found = read_index(self._connection, name)
        if found is None:
            raise ConfigError("publish-version", f"{self.place}: {to.version} is gone; export it again")
        put_note(self._connection, found, promotion=to.values())
        actions: list[dict[str, Any]] = [{"add": {"index": name, "alias": self._alias}}]
        if before is not None:
            actions.insert(0, {"remove": {"index": self.index_of(before.version), "alias": self._alias, "must_exist": True}})
        try:
            self._connection.request("POST", "/_aliases", {"actions": actions})
        except RequestRefused as refused:
            if refused.status != 404 and refused.kind != "aliases_not_found_exception":
                raise
            if self._behind_alias() != [name]:  # else an answer was lost, or another has promoted the same
                raise overtaken(self.place, self.current()) from None
        if before is None and len(several := self._behind_alias()) > 1:
            removed = [{"remove": {"index": one, "alias": self._alias}} for one in several[1:]]
            self._connection.request("POST", "/_aliases", {"actions": removed})
            if several[0] != name:
                raise overtaken(self.place, self.current())

    def _behind_alias(self) -> list[str]:
        """Returns the indexes that the alias stands for, sorted.

        Raises:
            ConfigError: An index is called so.
        """
        answer = self._connection.request("GET", index_path(self._alias), missing=True)
        if answer.status == 404:
            return []
        if self._alias in answer.body:
            what = f"--to: {self._alias} is an index at {self._connection.address}, so it cannot be the alias of versions"
            raise ConfigError("argument", f"{what}; give another name")
        return sorted(answer.body)
