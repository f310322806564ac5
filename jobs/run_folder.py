"""A run as it lies on storage, finished or not: what `evaluate` and `report` read."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from pydantic import ValidationError

from cluster.costs import Totals
from cluster.shards import SUCCESS, Manifest, Plan, committed_tables, manifests, read_plan, spent
from cluster.storage import Storage, open_storage
from jobs.config import Config
from jobs.part import ConfigError

REPORT = "report.html"


@dataclass(frozen=True)
class RunFolder:
    """What is committed of a run, at the moment at which it was opened."""

    storage: Storage
    record: dict[str, Any]
    """`run.json`: resolved config, identity, versions, starts, node time."""
    plan: Plan
    manifests: list[Manifest]
    """By shard."""
    finished: bool

    @cached_property
    def config(self) -> Config:
        """The config that it was run with."""
        return Config.model_validate(self.record["config"])

    @cached_property
    def tables(self) -> dict[str, list[str]]:
        """Table -> where its committed files lie."""
        files = committed_tables(self.plan, self.manifests)
        return {table: [self.storage.url(file.key) for file in named] for table, named in files.items()}

    @cached_property
    def counts(self) -> Counter[str]:
        """What was counted, over the committed shards (jobs/write.py)."""
        counts: Counter[str] = Counter()
        for manifest in self.manifests:
            counts.update(manifest.counts)
        return counts

    @cached_property
    def spent(self) -> Totals:
        """What they cost."""
        return spent(self.manifests)

    @property
    def state(self) -> str:
        """'finished', or how far it is."""
        if self.finished:
            return "finished"
        return f"{self.record['status']}: {len(self.manifests):,} of {len(self.plan.shards):,} shards are committed"


def open_run(path: str) -> RunFolder:
    """The run in a folder: its own (the last line of `run`), or `<output>/<name>`, whose `latest.json` names the newest
    finished one. ConfigError where there is none."""
    try:
        storage = _newest(open_storage(path))
        record, plan = storage.get("run.json"), read_plan(storage)
    except NotADirectoryError as error:
        raise ConfigError(f"{path}: is a file; give a run's folder, the last line that `run` prints") from error
    if record is None:
        raise ConfigError(
            f"{storage.root}: no run lies there (no run.json); give a run's folder, the last line that `run` prints, or "
            "<output>/<name> for its newest finished one"
        )
    if plan is None:
        raise ConfigError(
            f"{storage.root}: the run was stopped before its log was read, nothing is committed yet; run it again"
        )
    kept = _json(storage, "run.json", record)
    run = RunFolder(storage, kept, plan, list(manifests(storage)), finished=storage.stat(SUCCESS) is not None)
    try:
        _ = run.config, kept["run_id"], kept["status"]
    except (KeyError, ValidationError) as error:
        why = f"{error.errors()[0]['loc']}: {error.errors()[0]['msg']}" if isinstance(error, ValidationError) else f"no {error}"
        raise ConfigError(
            f"{storage.url('run.json')}: is of another version of dmqr, or was changed ({why}); give a run of this version"
        ) from error
    return run


def _newest(storage: Storage) -> Storage:
    """The run that `latest.json` names, if there is one: beside this folder, for outputs may be moved, or where it was."""
    latest = storage.get("latest.json")
    if latest is None:
        return storage
    named = _json(storage, "latest.json", latest)
    beside = open_storage(f"{storage.root.rpartition('/')[0]}/{named.get('run_id')}")
    if beside.get("run.json") is not None:
        return beside
    there = open_storage(str(named.get("path")))
    if there.get("run.json") is None:
        raise ConfigError(f"{storage.url('latest.json')}: names {there.root}, where no run lies; give the run's folder itself")
    return there


def _json(storage: Storage, key: str, data: bytes) -> dict[str, Any]:
    try:
        values = json.loads(data)
    except ValueError as error:
        raise ConfigError(f"{storage.url(key)}: is damaged ({error}); put it back as it was") from error
    if not isinstance(values, dict):
        raise ConfigError(f"{storage.url(key)}: is damaged (no JSON object); put it back as it was")
    return values
