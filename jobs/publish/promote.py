"""Promotion of a version, where the gates hold, and the way back."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cluster.errors import ConfigError
from jobs.config.publish import PublishGates
from jobs.log.judgements import Judgements
from jobs.publish.export import ExportRecord, content_of
from jobs.publish.formats.format import TRAINING
from jobs.publish.gates.gate import GateResult, refused
from jobs.publish.gates.quality import quality
from jobs.publish.gates.shares import changed_first, coverage, error_rate
from jobs.publish.promotion import Promotion, promoted, rolled_back
from jobs.publish.target import Target, served_file
from jobs.runs.folder import RunFolder


@dataclass(frozen=True)
class PromotedVersion:
    """What became of a promotion or of a rollback.

    Attributes:
        place: The target.
        version: The version that is meant.
        before: What was promoted before; None: nothing.
        gates: What the gates say; none of a rollback, and of a version that is promoted already.
        done: Whether the version is promoted now; False: it was only looked at.
        history: Versions that a rollback would return to, the last first to go.
    """

    place: str
    version: str
    before: str | None
    gates: list[GateResult]
    done: bool
    history: list[str]

    @property
    def failed(self) -> list[GateResult]:
        """Returns the gates that do not hold."""
        return [one for one in self.gates if not one.passed]

    def values(self) -> dict[str, Any]:
        """Returns it as JSON-able values."""
        names = ("place", "version", "before", "done", "history")
        return {name: getattr(self, name) for name in names} | {"gates": [one.values() for one in self.gates]}


def promote(
    target: Target, run: RunFolder, version: str, gates: PublishGates, judgements: Judgements | None, *, check: bool = False
) -> PromotedVersion:
    """Promotes a version of a run; with `check` it only says what the gates say.

    Raises:
        ConfigError: The version is not there, not complete, damaged, of another run or of its other files, or has training rows
            alone; or the promoted version, with which it is compared, is damaged.
        GateError: A gate does not hold.
        HeldError: Another promotion came first.
    """
    record, before = _complete(target, version), target.current()
    if record.run_id != run.record["run_id"]:
        what = f"{version} in {target.place}: is of the run {record.run_id}, not of {run.record['run_id']}"
        raise ConfigError("publish-version", f"{what}; give its run, or another --version")
    if record.content not in (None, content_of(run)):
        what = f"{version} in {target.place}: is of other files of {record.run_id}, which was run again since"
        raise ConfigError("publish-version", f"{what}; export it under another --version, and promote that")
    if {*record.formats} <= {*TRAINING}:
        what = f"{version} in {target.place}: has training rows alone ({', '.join(record.formats)}), in which no search looks"
        raise ConfigError("publish-version", f"{what}; export with --as rows, and promote that")
    if before is not None and before.is_of(record):
        return _done(target, before, before.version, [], done=True)
    found = _gates(target, run, record, before, gates, judgements)
    failed = [one for one in found if not one.passed]
    if failed and not check:
        raise refused(target.place, version, failed)
    now = promoted(record, before)
    if not check:
        target.move(now, before)
    return _done(target, now, None if before is None else before.version, found, done=not check)


def rollback(target: Target, *, check: bool = False) -> PromotedVersion:
    """Promotes the version before the promoted one; with `check` it only says which one that is.

    Raises:
        ConfigError: Nothing is promoted, nothing was before, or that version is gone, damaged or another export now.
        HeldError: Another promotion came first.
    """
    before = target.current()
    if before is None:
        raise ConfigError("publish-version", f"{target.place}: nothing is promoted; promote a version first")
    if check and not before.history:
        return _done(target, before, None, [], done=False)
    now = rolled_back(before)
    record = _complete(target, now.version)
    if not now.is_of(record):
        what = f"{now.version} in {target.place}: is an export of {record.run_id}, made {record.made}, not that of {now.run_id}"
        why = "which was promoted and has been removed since, so no gate was asked"
        raise ConfigError("publish-version", f"{what}, {why}; promote it with its run, or another version")
    if not check:
        target.move(now, before)
    return _done(target, now, before.version, [], done=not check)


def _done(target: Target, now: Promotion, before: str | None, gates: list[GateResult], *, done: bool) -> PromotedVersion:
    return PromotedVersion(target.place, now.version, before, gates, done, [one["version"] for one in now.history])


def _complete(target: Target, version: str) -> ExportRecord:
    record = target.read(version)
    if record is None:
        raise ConfigError("publish-version", f"{version} in {target.place}: there is no complete export of it; export it first")
    target.check_whole(record)
    return record


def _gates(
    target: Target,
    run: RunFolder,
    record: ExportRecord,
    before: Promotion | None,
    gates: PublishGates,
    judgements: Judgements | None,
) -> list[GateResult]:
    with tempfile.TemporaryDirectory(prefix="dmqr-promote-") as folder:
        old = None if before is None else target.read(before.version)
        if before is not None and old is not None and not before.is_of(old):
            old = None  # what was promoted is gone, and another export has its name
        served = None
        if old is not None and "rows" in old.formats:
            target.check_whole(old)
            served = served_file(target, old.version, Path(folder, "served.parquet"))
        return [
            error_rate(run, gates),
            coverage(run, record, gates),
            changed_first(run, gates, None if before is None else before.version, served),
            quality(run, record, gates, judgements, old, served),
        ]
