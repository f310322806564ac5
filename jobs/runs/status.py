"""The status of a run, read by another process or machine from its lease, its commits and its `progress.json`."""

import time
from typing import Any, Literal, NamedTuple

from cluster.run.lease import Holder, holder
from cluster.run.shards import SUCCESS, committed_shards, read_plan
from cluster.storage import Storage, open_storage
from jobs.runs.folder import stored_json
from jobs.runs.starts import PROGRESS

RunState = Literal["running", "stale", "finished", "stopped", "interrupted", "failed"]
_AS_OF = ("work_done", "traffic_covered", "queries", "stages", "outages", "errors", "usd", "quantities")


class Status(NamedTuple):
    """The status of a run."""

    folder: str
    state: RunState  # stale: the driver died without ending the run; the same command resumes it
    reason: str | None  # why the run stopped or failed
    holder: Holder
    now: float  # time of reading, in seconds since the epoch
    committed: int  # shards
    planned: int | None  # shards; None: the log is still being read
    progress: dict[str, Any]  # `jobs.terminal.state.State.values`; empty if the driver has written none
    queries: int | None  # of the committed shards, by the plan; None: the log is still being read

    @property
    def behind(self) -> bool:
        """Returns True if the progress is older than the commits: the driver was killed, or has not written since."""
        return bool(self.progress) and self.queries not in (None, self.progress["queries"]["committed"])


def read_status(path: str) -> Status | None:
    """Returns the status of the run in a folder, None where no run has begun; writes nothing."""
    now, storage = time.time(), open_storage(path)
    last = holder(storage, now)
    if last is None:
        return None
    progress = stored_json(storage, PROGRESS)
    if progress.get("start") != last.number:
        progress = {}  # written by an earlier start
    plan = read_plan(storage)
    committed = committed_shards(storage)
    planned = progress.get("shards", {}).get("planned") or (len(plan.shards) if plan else None)
    done = None if plan is None else sum(shard.rows for shard in plan.shards if shard.number in committed)
    state, reason = _state(storage, last, progress)
    return Status(storage.root, state, reason, last, now, len(committed), planned, progress, done)


def status_values(status: Status) -> dict[str, Any]:
    """Returns the status as JSON-able values; times are in seconds since the epoch."""
    last, progress = status.holder, status.progress
    return {
        "folder": status.folder,
        "state": status.state,
        "reason": status.reason,
        "start": last.number,
        "host": last.host,
        "pid": last.pid,
        "since": last.began,
        "heartbeat": last.heartbeat,
        "heartbeat_seconds_ago": round(max(0.0, status.now - last.heartbeat), 1),
        "phase": progress.get("phase"),
        "shards": {"committed": status.committed, "planned": status.planned},
        **{name: progress.get(name) for name in _AS_OF},
        "as_of": {"time": progress.get("written"), "queries": progress["queries"]["committed"] if progress else None},
    } | ({} if status.queries is None or not progress else {"queries": progress["queries"] | {"committed": status.queries}})


def _state(storage: Storage, last: Holder, progress: dict[str, Any]) -> tuple[RunState, str | None]:
    if storage.stat(SUCCESS) is not None:
        return "finished", None
    if last.alive:
        return "running", None
    if not last.released:
        return "stale", None
    for kept in (progress.get("state"), stored_json(storage, "run.json").get("status")):
        if kept in ("stopped", "interrupted", "failed"):
            return kept, progress.get("reason")
    return "failed", None
