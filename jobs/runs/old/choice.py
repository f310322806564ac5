"""Which runs are old enough to go, and why others stay.

A run's age is the time since it was finished, else since its last driver's last heartbeat. Of each name the newest finished run
stays, the newest finished ablation, and what `latest.json` names; so does what a driver works on, and the parent of a replay
that stays and is not finished.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from cluster.run.lease import holder
from cluster.run.shards import SUCCESS
from cluster.storage import Storage, open_storage
from cluster.storage.prefetch import prefetch
from jobs.job.replay import NOTED
from jobs.runs.folder import CONCURRENT_FETCHES, find_runs, stored_json
from jobs.runs.old.removal import HALF_REMOVED, half_removed
from jobs.runs.samples import ENDING, log_of_sample

FINISHED, UNFINISHED = "finished", "not finished"


@dataclass(frozen=True)
class AgedRun:
    """A run with what decides whether it goes."""

    run_id: str
    name: str
    record: Mapping[str, Any]
    """`run.json`; {} where it is gone."""
    state: str
    last: float | None
    """When it was last worked on, in seconds since the epoch; None: nothing says so."""
    leases: int
    """How many drivers have held it."""
    held: bool
    """Whether one works on it."""

    @property
    def is_ablation(self) -> bool:
        """Returns whether it is an ablation's."""
        return "ablation" in self.record

    @property
    def replays(self) -> str | None:
        """Returns the run whose queries it does again; None: it is no replay."""
        of: str | None = self.record.get(NOTED, {}).get("of")
        return of


@dataclass(frozen=True)
class ChosenRuns:
    """The runs that go, those that have not been worked on for longest first, and why others stay."""

    going: list[AgedRun]
    kept: dict[str, str]
    """run_id -> the reason."""


def choose(output: Storage, name: str | None, keep: float, now: float) -> ChosenRuns:
    """Returns which runs of a name with its samples, or of all names, go.

    Args:
        output: Where they lie.
        name: Of the config; None: any.
        keep: Seconds for which a run stays after its last work.
        now: Seconds since the epoch.

    Raises:
        ConfigError: A run's `_SUCCESS.json`, or a `latest.json`, is damaged.
    """
    folders = list(find_runs(output, name, recorded=False))  # also those whose record a removal has taken
    samples = find_runs(output, f"{name}{ENDING}") if name is not None else ()
    folders += [
        pair for pair in samples if log_of_sample(pair[1]) and pair not in folders
    ]  # others are of a config of that name
    aged = prefetch(lambda pair: _aged(output, *pair, now), folders, CONCURRENT_FETCHES)
    found = [one for one in aged if one.record or one.last is not None or one.state == HALF_REMOVED]  # others are no runs
    kept = _kept(output, found, keep, now)
    parents = {one.replays: one.run_id for one in found if one.run_id in kept and one.state != FINISHED}
    kept |= {
        one.run_id: f"its replay {parents[one.run_id]} is not finished"
        for one in found
        if one.run_id in parents and one.run_id not in kept
    }
    going = sorted((one for one in found if one.run_id not in kept), key=lambda one: (one.last or 0.0, one.run_id))
    return ChosenRuns(going, dict(sorted(kept.items())))


def _aged(output: Storage, folder: str, record: dict[str, Any], now: float) -> AgedRun:
    storage = open_storage(output.url(folder))
    finished, last = storage.stat(SUCCESS) is not None, stored_json(storage, SUCCESS).get("finished_at")
    held = holder(storage, now)
    state = FINISHED if finished else HALF_REMOVED if half_removed(storage) else UNFINISHED
    if last is None:
        last = max([*_ends(record), *([held.heartbeat] if held is not None else [])], default=None)
    name = record.get("config", {}).get("name", folder.rpartition("-")[0])
    leases, alive = (0, False) if held is None else (held.number, held.alive)
    return AgedRun(folder, name, record, state, last, leases, alive)


def _ends(record: Mapping[str, Any]) -> list[float]:
    """Returns when the starts of a record ended that have ended."""
    return [datetime.fromisoformat(one["began"]).timestamp() + one.get("wall_seconds", 0.0) for one in record.get("starts", ())]


def _kept(output: Storage, found: list[AgedRun], keep: float, now: float) -> dict[str, str]:
    newest: dict[tuple[str, bool], AgedRun] = {}
    for one in found:
        if one.state == FINISHED and one.replays is None:
            best = newest.setdefault((one.name, one.is_ablation), one)
            if (one.last or 0.0) > (best.last or 0.0):
                newest[one.name, one.is_ablation] = one
    reasons = {one.run_id: f"the newest finished {'ablation' if one.is_ablation else 'run'} of {one.name}"
               for one in newest.values()}  # fmt: skip
    for name in sorted({one.name for one in found}):
        named = stored_json(output, f"{name}/latest.json").get("run_id")
        if named is not None:
            reasons.setdefault(named, f"{name}/latest.json names it")
    kept = {}
    for one in found:
        if one.held:
            kept[one.run_id] = "a driver works on it"
        elif one.state == HALF_REMOVED:
            continue
        elif one.run_id in reasons:
            kept[one.run_id] = reasons[one.run_id]
        elif one.last is None:
            kept[one.run_id] = "nothing says when it was worked on"
        elif now - one.last < keep:
            kept[one.run_id] = "young"
    return kept
