"""The check that an unfinished run of the same config goes on with what it began with: its indexes, its models' commits."""

import json
from collections.abc import Iterator
from typing import Any

from cluster.errors import ClusterError
from cluster.run.shards import SUCCESS, Plan, check_inputs, read_plan
from jobs.job.prepare import Prepared
from jobs.run.draft import VERSION
from jobs.runs.folder import find_runs

_MOST_TOLD = 4  # differences


def begun_plan(prepared: Prepared) -> Plan | None:
    """Returns the stored plan of a job, None of one that has not begun.

    Raises:
        ClusterError: The log, an index, a model or dmqr is another than when it, or an unfinished run of its config, began.
    """
    storage = prepared.storage
    plan = read_plan(storage)
    if plan is None:
        check_indexes_unchanged(prepared)
        return None
    check_inputs(plan, prepared.inputs, storage.root)
    if plan.version != VERSION and storage.stat(SUCCESS) is None:
        problem = "was begun by another version of dmqr, and is not finished; start another run with --label, or remove it"
        raise ClusterError("run-changed", f"{storage.root} {problem}")
    return plan


def check_indexes_unchanged(prepared: Prepared) -> None:
    """Raises ClusterError if an unfinished run of the same config and label used other indexes or commits of a hub's models."""
    mine = json.loads(json.dumps(prepared.identity))
    start = prepared.run_id.rpartition("-")[0]
    for folder, record in find_runs(prepared.output, prepared.config.name):
        if "identity" not in record or folder == prepared.run_id or folder.rpartition("-")[0] != start:
            continue
        changed = list(_differences(record["identity"], mine))
        commits = (place[0] == "indexes" or f"{old}"[:7] == f"{new}"[:7] == "commit:" for place, old, new in changed)
        if not changed or not all(commits):
            continue  # of another config
        if prepared.output.stat(f"{folder}/{SUCCESS}") is None:
            told = "; ".join(f"{'.'.join(place)} was {before}, is {now}" for place, before, now in changed[:_MOST_TOLD])
            what = "another index" if changed[0][0][0] == "indexes" else "another commit of a hub's model"
            where = f"{prepared.output.url(folder)} was started with {what} and is not finished ({told})"
            remedy = "restore the index, or name the earlier one (or commit) in the config; or remove that folder to start anew"
            raise ClusterError("run-changed", f"{where}; {remedy}")


def _differences(before: Any, now: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any, Any]]:
    """Yields key, earlier and present value of what differs in two identities."""
    if isinstance(before, list) and isinstance(now, list):
        before, now = ({str(number): value for number, value in enumerate(values)} for values in (before, now))
    if isinstance(before, dict) and isinstance(now, dict):
        for key in sorted(before.keys() | now.keys()):
            yield from _differences(before.get(key), now.get(key), (*path, key))
    elif before != now:
        yield path, before, now
