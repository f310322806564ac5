"""The plan of a run and its commits: which rows are one shard, and one create-only manifest for each.

Layout under the run's folder: `shards.json` (the plan, put once at the first start), `<table>/shard-<n>-<attempt>.parquet`
(data under attempt-unique names), `commits/<n>.json` (one manifest per shard, create-only: what it names is the output,
nothing else is), `_SUCCESS.json` (the last written, naming every file).
"""

from __future__ import annotations

import io
import json
import time
import uuid
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from cluster import ClusterError
from cluster.ahead import ahead
from cluster.costs import Totals, add
from cluster.storage import Storage

FETCHED = 16  # manifests at a time: one by one, a thousand take half a minute of an object store's latency
PLAN, SUCCESS, COMMITS = "shards.json", "_SUCCESS.json", "commits"


class File(NamedTuple):
    """A data file of a table."""

    key: str
    rows: int
    size: int  # bytes


class Shard(NamedTuple):
    """Rows that are worked on and committed together: one row group of a planned file."""

    number: int
    key: str
    row_group: int
    rows: int


@dataclass(frozen=True)
class Plan:
    """What a run works on, fixed at its first start."""

    inputs: list[dict[str, Any]]  # files read: path, size, mtime_ns or etag
    counts: dict[str, int]  # rows, queries, rejected
    shard_size: int
    tables: dict[str, list[File]]  # what planning itself wrote
    shards: list[Shard]


@dataclass(frozen=True)
class Manifest:
    """What one shard came to. `counts` are sums that the closing balance and table are made of."""

    shard: int
    start: int
    files: dict[str, File]
    counts: dict[str, int]
    costs: Totals
    seconds: dict[str, float] = field(default_factory=dict)  # busy time that no row caused: write
    # start of the run -> busy seconds that it put into this shard's rows, and into starting workers up
    by_start: dict[str, dict[str, float]] = field(default_factory=dict)

    @property
    def spent(self) -> Totals:
        """Every busy second of a worker for this shard: what its rows caused, and the rest, as stages of their own."""
        return self.costs | {stage: {"@": {"seconds": seconds}} for stage, seconds in self.seconds.items()}


def put_plan(storage: Storage, plan: Plan) -> Plan:
    """Fix `plan`, unless another start of the run fixed one before; the one that counts is returned."""
    if storage.put_if_absent(PLAN, json.dumps(asdict(plan)).encode()):
        return plan
    fixed = read_plan(storage)
    assert fixed is not None
    return fixed


def read_plan(storage: Storage) -> Plan | None:
    """The plan of an earlier start, or None."""
    data = storage.get(PLAN)
    if data is None:
        return None
    try:
        body = json.loads(data)
        body["tables"] = {table: [File(*file) for file in files] for table, files in body["tables"].items()}
        body["shards"] = [Shard(*shard) for shard in body["shards"]]
        return Plan(**body)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ClusterError(f"{storage.url(PLAN)}: is damaged; put it back, or remove the folder and start anew") from error


def check_inputs(plan: Plan, inputs: list[dict[str, Any]], where: str) -> None:
    """Refuse (ClusterError) inputs that are not what the run was planned on."""
    planned, found = ({file["path"]: file for file in files} for files in (plan.inputs, inputs))
    for path in sorted(planned.keys() | found.keys()):
        if planned.get(path) != found.get(path):
            change = "is gone" if path not in found else "is new" if path not in planned else "has changed"
            raise ClusterError(f"{path} {change} since {where} was started; put it back, or start a new run under another name")


def write_table(storage: Storage, table: str, shard: int, rows: pa.Table) -> File:
    """Store rows under an attempt-unique name: visible to nobody until a manifest names it."""
    buffer = io.BytesIO()
    pq.write_table(rows, buffer, compression="zstd")
    key = f"{table}/shard-{shard:06d}-{uuid.uuid4().hex[:12]}.parquet"
    storage.put(key, buffer.getvalue())
    return File(key, rows.num_rows, buffer.tell())


def commit(storage: Storage, manifest: Manifest) -> Manifest:
    """Commit a shard; if somebody else has committed it, drop our files. Returns the manifest that counts."""
    if storage.put_if_absent(_commit_key(manifest.shard), json.dumps(asdict(manifest)).encode()):
        return manifest
    storage.delete(*(file.key for file in manifest.files.values()))
    theirs = storage.get(_commit_key(manifest.shard))
    assert theirs is not None
    return read_manifest(theirs)


def read_manifest(data: bytes | str) -> Manifest:
    """A manifest from its JSON."""
    body = json.loads(data)
    body["files"] = {table: File(*file) for table, file in body["files"].items()}
    return Manifest(**body)


def manifests(storage: Storage) -> Iterator[Manifest]:
    """Every committed manifest, by shard; several are fetched at a time."""
    keys = [entry.key for entry in storage.list(COMMITS) if entry.key.endswith(".json")]
    for key, data in zip(keys, ahead(storage.get, keys, FETCHED), strict=True):
        if data is None:
            continue
        try:
            yield read_manifest(data)
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise ClusterError(f"{storage.url(key)}: is damaged; put it back, or remove it and run the job again") from error


def spent(committed: Iterable[Manifest]) -> Totals:
    """What shards have cost together."""
    sums: Totals = {}
    for manifest in committed:
        add(sums, manifest.spent)
    return sums


def seconds_by_start(committed: Iterable[Manifest]) -> dict[int, dict[str, float]]:
    """Busy seconds by the start of the run that spent them: `attributed` (writing included) and `start_up`."""
    result: dict[int, dict[str, float]] = {}
    for manifest in committed:
        written = {"attributed": sum(manifest.seconds.values())}
        for number, sums in [*manifest.by_start.items(), (str(manifest.start), written)]:
            mine = result.setdefault(int(number), {"attributed": 0.0, "start_up": 0.0})
            for name, seconds in sums.items():
                mine[name] += seconds
    return result


def committed_tables(plan: Plan, committed: Iterable[Manifest]) -> dict[str, list[File]]:
    """The files of every table that count: those of planning and those that the manifests name."""
    tables = {table: list(files) for table, files in plan.tables.items()}
    for manifest in committed:
        for table, file in manifest.files.items():
            tables.setdefault(table, []).append(file)
    return tables


def remove_orphans(storage: Storage, tables: Iterable[str], named: Iterable[File]) -> int:
    """Delete data files that nothing names (left by killed attempts); check that every named one is whole.

    Returns how many were deleted. ClusterError if a named file is missing or has another size than was written.
    """
    expected = {file.key: file.size for file in named}
    orphans = []
    for table in tables:
        for entry in storage.list(table):
            if entry.key not in expected:
                orphans.append(entry.key)
            elif expected.pop(entry.key) != entry.size:
                raise ClusterError(
                    f"{storage.url(entry.key)} has not the size it was committed with, the run's folder was changed; "
                    "put it back"
                )
    if expected:
        raise ClusterError(
            f"{storage.url(next(iter(expected)))} is committed but missing, the run's folder was changed; put it back"
        )
    storage.delete(*orphans)
    return len(orphans)


def put_success(storage: Storage, tables: Mapping[str, list[File]], counts: Mapping[str, int]) -> None:
    """The last word of a run."""
    body = {
        "finished_at": time.time(),
        "counts": counts,
        "tables": {table: [file.key for file in files] for table, files in tables.items()},
    }
    storage.put_if_absent(SUCCESS, json.dumps(body, indent=1).encode())


def _commit_key(shard: int) -> str:
    return f"{COMMITS}/{shard:06d}.json"
