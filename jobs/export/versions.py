"""Versions in a folder, here or on S3, and the pointer to the current one.

A version is `<target>/<run id>/`: a data file under a name that no other attempt uses, then `export.json`, create-only, which
names it. Before it is there, nothing of the version counts. `<target>/current.json` names the current version and the one
before; it is replaced as a whole, so a reader sees the old one or the new one.
"""

import datetime
import hashlib
import json
import re
import uuid
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from cluster.errors import ConfigError
from cluster.run.shards import committed_tables
from cluster.storage import Storage, open_storage
from cluster.storage.copies import work_folder
from jobs.export.rows import write_rows
from jobs.runs.folder import RunFolder

RECORD, CURRENT = "export.json", "current.json"
_OF_AN_ATTEMPT = re.compile(r"rows-[0-9a-f]{12}\.parquet")


@dataclass(frozen=True)
class Version:
    """An exported version, as its `export.json` says."""

    run_id: str  # of the run of its rows, and the name of the version
    run: str  # the folder of that run
    content: str  # hash of the names and sizes of the run's files: a run that was removed and made again has others
    hits: int  # documents of a query at most
    counts: Mapping[str, int]  # as `jobs.export.rows.COUNTED`
    file: str  # the data file, in the version's folder
    size: int  # its bytes
    made: str  # when, in UTC


def open_target(name: str) -> Storage:
    """Returns the storage of a folder of versions."""
    storage = open_storage(name)
    if storage.stat("run.json") is not None:  # whose manifests and tables the versions would lie among
        raise ConfigError("argument", f"--to {name}: is the folder of a run; name another folder")
    return storage


def export_version(storage: Storage, run: RunFolder, hits: int, phase: Callable[[str], object]) -> tuple[Version, bool]:
    """Writes the version of a finished run, unless it is there; returns it, and whether it was there.

    Raises:
        ConfigError: It is there and is another export, or is damaged; or the run's tables cannot be read.
    """
    run_id, content = run.record["run_id"], _content_of(run)
    version, existed = _read(storage, run_id), True
    if version is None:
        key = f"rows-{uuid.uuid4().hex[:12]}.parquet"
        with work_folder() as folder:
            phase("making rows")
            path = folder / key
            counts = write_rows(run, hits, path)
            phase("storing rows")
            storage.upload(path, f"{run_id}/{key}")
            size = path.stat().st_size
        version = Version(run_id, run.storage.root, content, hits, counts, key, size, _now())
        existed = not storage.put_if_absent(f"{run_id}/{RECORD}", _json(asdict(version)))
        version = _read(storage, run_id) if existed else version  # another export was first
    assert version is not None
    if (version.content, version.hits) != (content, hits):
        why = f"has {version.hits} hits of a query" if version.content == content else "was made from other files of that run"
        remedy = f"remove {storage.url(run_id)}, or give another --to"
        raise ConfigError("export", f"{storage.url(run_id)}: there is an export that {why}; {remedy}")
    _check_whole(storage, version)
    left = [entry for entry in storage.list(run_id) if _OF_AN_ATTEMPT.fullmatch(entry.name)]  # of those killed, or second
    storage.delete(*(entry.key for entry in left if entry.name != version.file))
    return version, existed


def current(storage: Storage) -> dict[str, Any] | None:
    """Returns the content of `current.json`; None: nothing was promoted."""
    return _json_of(storage, CURRENT)


def promote(storage: Storage, version: Version) -> str | None:
    """Has `current.json` name this version; returns the version before it, None if there was none."""
    now = current(storage) or {}
    if now.get("version") == version.run_id:
        return now["before"]
    pointer = {"version": version.run_id, "file": f"{version.run_id}/{version.file}", "before": now.get("version")}
    storage.put(CURRENT, _json(pointer | {"promoted": _now()}))
    return pointer["before"]


def _content_of(run: RunFolder) -> str:
    digest = hashlib.sha256()
    for table, files in sorted(committed_tables(run.plan, (one.files for one in run.manifests)).items()):
        digest.update("".join([f"{table}\n", *(f"{file.key} {file.size}\n" for file in files)]).encode())
    return digest.hexdigest()[:16]


def _read(storage: Storage, run_id: str) -> Version | None:
    values = _json_of(storage, key := f"{run_id}/{RECORD}")
    try:
        return None if values is None else Version(**values)
    except TypeError as error:
        what = f"{storage.url(key)}: was written by another version of dmqr"
        raise ConfigError("export", f"{what}; remove that folder, and export again") from error


def _json_of(storage: Storage, key: str) -> dict[str, Any] | None:
    if (data := storage.get(key)) is None:
        return None
    try:
        values: dict[str, Any] = json.loads(data)
    except ValueError as error:
        raise ConfigError("export", f"{storage.url(key)}: is damaged; remove it, and export again") from error
    return values


def _check_whole(storage: Storage, version: Version) -> None:
    entry = storage.stat(key := f"{version.run_id}/{version.file}")
    if entry is None or entry.size != version.size:
        why = "is gone" if entry is None else f"has {entry.size:,} bytes in place of {version.size:,}"
        remedy = f"restore it, or remove {storage.url(version.run_id)} and export again"
        raise ConfigError("export", f"{storage.url(key)}: {why}; {remedy}")


def _json(values: Mapping[str, Any]) -> bytes:
    return json.dumps(values, ensure_ascii=False, indent=1).encode()


def _now() -> str:
    return datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
