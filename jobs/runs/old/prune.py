"""Old runs are removed; what they alone have of the store's facts is put into the store first."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from cluster.errors import ClusterError, HeldError
from cluster.run.shards import committed_tables, manifests, read_plan
from cluster.storage import Storage, open_storage
from jobs.runs.old.answers import NOTHING, save_answers, unsaved_answers
from jobs.runs.old.choice import UNFINISHED, AgedRun, choose
from jobs.runs.old.removal import remove_run
from jobs.runs.samples import log_of_sample


@dataclass(frozen=True)
class OldRun:
    """A run that goes."""

    run_id: str
    state: str
    last: float | None
    """When it was last worked on, in seconds since the epoch."""
    rows: int | None
    """Of its tables; None: its plan or its commits are gone."""
    files: int
    size: int
    """Bytes."""
    answers: int = 0
    """Completions that it alone has, and that go into the store first."""


@dataclass(frozen=True)
class Pruning:
    """What goes, or would go, and why other runs stay."""

    output: str
    going: list[OldRun]
    kept: dict[str, str]
    """run_id -> the reason."""

    def values(self) -> dict[str, Any]:
        """Returns it as JSON-able values."""
        return {"output": self.output, "removed": [vars(one) for one in self.going], "kept": self.kept}


def prune(
    output: Storage,
    name: str | None,
    keep: float,
    now: float,
    *,
    dry_run: bool,
    on_begin: Callable[[OldRun], object] = lambda _: None,
) -> Pruning:
    """Removes the old runs of a name with its samples, or of all names, each whole before the next; returns what went.

    Args:
        output: Where they lie.
        name: Of the config; None: any.
        keep: Seconds for which a run stays after its last work.
        now: Seconds since the epoch.
        dry_run: Whether nothing is removed, and nothing put into the store.
        on_begin: Called with each run before it is removed.
    """
    chosen = choose(output, name, keep, now)
    going, kept = list[OldRun](), dict(chosen.kept)
    for one in chosen.going:
        storage = open_storage(output.url(one.run_id))
        unsaved = unsaved_answers(storage, one.record, now) if one.state == UNFINISHED else NOTHING
        if unsaved.why_kept is not None:
            kept[one.run_id] = f"{unsaved.why_kept}; go on with it, or remove its folder"
            continue
        old = _measured(storage, one, len(unsaved.rows))
        if not dry_run:
            on_begin(old)
            try:
                if unsaved.rows:
                    save_answers(output, storage, one.record, unsaved.rows)
                remove_run(storage, one.leases)
                if (log := log_of_sample(one.record)) is not None:
                    output.delete(log)
            except HeldError:
                kept[one.run_id] = "a driver works on it, or has since"
                continue
        going.append(old)
    return Pruning(output.root, going, dict(sorted(kept.items())))


def _measured(storage: Storage, one: AgedRun, answers: int) -> OldRun:
    sizes = [entry.size for entry in storage.list()]
    try:
        plan = read_plan(storage)
        tables = None if plan is None else committed_tables(plan, manifests(storage))
    except ClusterError:  # what is damaged goes, too
        tables = None
    rows = None if tables is None else sum(file.rows for files in tables.values() for file in files)
    return OldRun(one.run_id, one.state, one.last, rows, len(sizes), sum(sizes), answers)
