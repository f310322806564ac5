"""A query in the runs below an output: which of them had it, and its newest rewrites.

It is looked for by its normal form, as the log's rows are: the same words after other turns of a conversation, or with other
values of `retrieve.filters`, are queries of their own, and all of them are found.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

import duckdb

from cluster.errors import ClusterError, ConfigError
from cluster.run.shards import Manifest, Plan, read_manifest, read_plan
from cluster.storage import Storage, open_storage
from cluster.storage.prefetch import prefetch
from jobs.job.replay import NOTED
from jobs.runs.folder import find_runs
from jobs.runs.reading import database
from rewriters.normalise import normalise, query_id
from rewriters.reasons import MASKED

_AT_ONCE = 4  # runs that are looked through at a time
_FOUND = """
SELECT query_id, query, log_count, filename, file_row_number, {more}
FROM read_parquet($files, filename = true, file_row_number = true, hive_partitioning = false)
WHERE {where} ORDER BY log_count DESC, query_id
"""
_REWRITES = """
SELECT strategy, position, text, parsed_as, guards FROM rows_of($files) WHERE query_id = $id ORDER BY ALL
"""
_ERRORS = "SELECT stage, component, reason, message FROM rows_of($files) WHERE query_id = $id ORDER BY ALL"


@dataclass(frozen=True)
class HadQuery:
    """A query as one run had it.

    Attributes:
        run_id: The run.
        night: Its label, else the date of its log, else the day on which it was started.
        order: By which runs are sorted, the newest last.
        query_id: In this run: that of other turns or filters is another.
        query: The form that it shows.
        log_count: How often it was asked.
        context: The earlier turns; None: there are none.
        filters: Field of the index -> value, by which its documents are filtered.
        committed: Whether its shard is committed, so that its rewrites are there.
        ablation: Whether the run is an ablation's, whose arms have rewrites of their own.
        replay_of: The run whose queries it does again; None: it is no replay.
    """

    run_id: str
    night: str
    order: tuple[str, str]
    query_id: str
    query: str
    log_count: int
    context: str | None
    filters: Mapping[str, str]
    committed: bool
    ablation: bool
    replay_of: str | None

    @property
    def of(self) -> tuple[str | None, tuple[tuple[str, str], ...]]:
        """Returns what tells it from other queries of the same words."""
        return self.context, tuple(sorted(self.filters.items()))


@dataclass(frozen=True)
class NewestRewrites:
    """What the newest run has for a query.

    Attributes:
        had: The query there.
        rewrites: Rows of rewrites/: strategy, position, text, parsed_as, guards.
        errors: Of errors/: stage, component, reason, message.
    """

    had: HadQuery
    rewrites: list[dict[str, Any]]
    errors: list[dict[str, Any]]

    @property
    def masked(self) -> bool:
        """Returns whether personal data in it were masked before it was sent."""
        return any(one["reason"] == MASKED for one in self.errors)


@dataclass(frozen=True)
class LookedUp:
    """A query in all runs.

    Attributes:
        normalised: Its normal form.
        runs: How many runs were looked through.
        had: Where it was, the newest last.
        newest: Of each query of these words, the rewrites of the newest run that has done it.
        unread: run_id -> why a run could not be looked through.
    """

    normalised: str
    runs: int
    had: list[HadQuery]
    newest: list[NewestRewrites]
    unread: dict[str, str] = field(default_factory=dict)

    def values(self) -> dict[str, Any]:
        """Returns it as JSON-able values."""
        return asdict(self)


def look_up(output: Storage, name: str | None, query: str) -> LookedUp:
    """Returns a query in the runs of a name, or of all names.

    Raises:
        ConfigError: It is empty.
    """
    normalised = normalise(query)
    if not normalised:
        raise ConfigError("argument", f"--query {query!r}: has no words; give a query, in quotes")
    runs = [(folder, record) for folder, record in find_runs(output, name) if record.get("starts")]
    found: list[tuple[HadQuery, Manifest | None]] = []
    unread: dict[str, str] = {}
    tried = prefetch(lambda pair: _tried(output, *pair, normalised), runs, _AT_ONCE)
    for (folder, _), one in zip(runs, tried, strict=True):
        if isinstance(one, str):
            unread[folder] = one
        else:
            found += one
    found.sort(key=lambda pair: pair[0].order)
    newest: dict[Any, tuple[HadQuery, Manifest]] = {}
    for had, manifest in found:
        if manifest is not None and not had.ablation:
            newest[had.of] = had, manifest
    rewrites = [_rewrites(output, *one) for one in newest.values()]
    return LookedUp(normalised, len(runs), [had for had, _ in found], rewrites, unread)


def _tried(
    output: Storage, folder: str, record: Mapping[str, Any], normalised: str
) -> list[tuple[HadQuery, Manifest | None]] | str:
    """Returns a query as a run had it, with the manifest of its shard if it is committed; or why the run cannot be read."""
    try:
        return _in_run(output, folder, record, normalised)
    except (ClusterError, ConfigError, OSError, duckdb.Error, KeyError, ValueError) as error:
        return str(error).splitlines()[0] if str(error) else type(error).__name__


def _in_run(output: Storage, folder: str, record: Mapping[str, Any], normalised: str) -> list[tuple[HadQuery, Manifest | None]]:
    storage = open_storage(output.url(folder))
    plan = read_plan(storage)
    if plan is None:  # its log was not read yet
        return []
    config = record.get("config", {})
    filters = config.get("retrieve", {}).get("filters") or {}
    told = bool(filters) or config.get("log", {}).get("context_column") is not None
    more = ["context" if config.get("log", {}).get("context_column") is not None else "NULL"]
    more.append('"values"' if filters else "NULL")
    # ids are sorted, so that few row groups are read; the same words in another context have another id
    where, value = ("normalised = $value", normalised) if told else ("query_id = $value", query_id(normalised))
    files = [storage.url(file.key) for file in plan.tables["queries"]]
    with database() as connection:
        sql = _FOUND.format(more=", ".join(more), where=where)
        rows = connection.execute(sql, {"files": files, "value": value}).fetchall()
    began = record["starts"][0]["began"]
    date = config.get("log", {}).get("date")
    night = config.get("label") or date or began[:10]
    found: list[tuple[HadQuery, Manifest | None]] = []
    for key, shown, count, filename, place, context, values in rows:
        data = storage.get(f"commits/{_shard(plan, storage, filename, place):06d}.json")
        only = {name: str((values or {}).get(column)) for name, column in filters.items()}
        had = HadQuery(
            folder, night, (date or began[:10], began), key, shown, count, context or None, only, data is not None,
            "ablation" in record, record.get(NOTED, {}).get("of"),
        )  # fmt: skip
        found.append((had, None if data is None else read_manifest(data)))
    return found


def _shard(plan: Plan, storage: Storage, filename: str, place: int) -> int:
    """Returns the number of the shard that a row of a file of queries/ is in."""
    before = 0
    for shard in sorted((one for one in plan.shards if storage.url(one.key) == filename), key=lambda one: one.row_group):
        before += shard.rows
        if place < before:
            return shard.number
    raise ValueError(f"row {place} of {filename} is in no shard")


def _rewrites(output: Storage, had: HadQuery, manifest: Manifest) -> NewestRewrites:
    storage, found = open_storage(output.url(had.run_id)), dict[str, list[dict[str, Any]]]()
    with database() as connection:
        for table, sql in (("rewrites", _REWRITES), ("errors", _ERRORS)):
            files = [storage.url(file.key) for file in manifest.files.get(table, ())]
            cursor = connection.execute(sql, {"files": files, "id": had.query_id}) if files else None
            names = [] if cursor is None or cursor.description is None else [one[0] for one in cursor.description]
            rows = [] if cursor is None else cursor.fetchall()
            found[table] = [dict(zip(names, row, strict=True)) for row in rows]
    return NewestRewrites(had, found["rewrites"], found["errors"])
