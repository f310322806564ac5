"""The starts of a run as `run.json` has them, and where the time of their workers went."""

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from cluster.costs import Totals, added
from cluster.run.lease import HEARTBEAT_SECONDS, lease_times
from cluster.run.pool_sizes import stage_of_pool
from cluster.storage import Storage
from jobs.runs.tally import SecondsByStart

PROGRESS = "progress.json"
BROKEN = ("killed", "failed", "stopped", "interrupted")  # statuses of starts that may have left shards in flight behind
TIMES = ("attributed", "start_up", "lost", "idle")
_LAST = ("worker_seconds", "busy", "queued", "node_seconds", "spent")  # keys of progress.json that are those of a start

Start = dict[str, Any]


def known_starts(record: Mapping[str, Any], storage: Storage) -> list[Start]:
    """Returns the starts of a record; of one that is recorded as running what is known of it.

    That is its wall time by its last heartbeat (one killed before its second counts until that), and `progress.json` of this
    start.
    """
    starts = []
    for start in record.get("starts", []):
        known = dict(start)
        if start.get("status") == "running":
            last = json.loads(storage.get(PROGRESS) or b"{}")
            beats, number = [beat - began for began, beat in lease_times(storage)], start["start"]
            wall = beats[number - 1] if number <= len(beats) else float(start["wall_seconds"])
            known["wall_seconds"] = max(HEARTBEAT_SECONDS, wall)
            known |= {key: last[key] for key in _LAST if key in last and last.get("start") == number}
        starts.append(known)
    return starts


def driver_spent(starts: Iterable[Start]) -> Totals:
    """Returns the spending of the drivers of starts."""
    return added(start.get("spent", {}) for start in starts)


def node_time(starts: Sequence[Start], by_start: SecondsByStart) -> list[dict[str, Any]]:
    """Returns the worker seconds of every start, in all and by stage, reconciled; `by_start` are those of committed shards.

    `worker_seconds`, (workers of the pools x wall time of the start) + busy time of the stages without a pool, is attributed to
    rows, reading, writing + start-up + lost + idle - `over`. Lost is busy time that no committed shard accounts for, of a start
    that did not end in order: what was in flight when it was killed, failed or spent its budget. `over` is what stages were
    busy beyond the time of their workers: 0, or the accounts are wrong. A pool that grows has its minimum,
    and as much more as it was busy: nobody has counted its idle workers.
    """
    return [_reconciled(one, by_start.get(one["start"], {})) for one in starts]


def _reconciled(start: Start, spent: Mapping[str, Mapping[str, float]]) -> dict[str, Any]:
    there: dict[str, float] = {}
    fixed: dict[str, bool] = {}
    for pool, pool_times in start["pools"].items():
        stage = stage_of_pool(pool)
        fixed[stage] = fixed.get(stage, True) and pool_times.get("most") is None
        there[stage] = there.get(stage, 0.0) + pool_times["workers"] * start["wall_seconds"]
    attributed = {stage: sums["attributed"] for stage, sums in spent.items()}
    for stage, components in start.get("spent", {}).items():  # dedup on other machines
        attributed[stage] = attributed.get(stage, 0.0) + sum(sums.get("seconds", 0.0) for sums in components.values())
    busy = start.get("busy", {}) if start["status"] in BROKEN else {}
    stages = {}
    over = 0.0
    for stage in sorted(there.keys() | attributed.keys() | busy.keys()):
        mine, up = attributed.get(stage, 0.0), spent.get(stage, {}).get("start_up", 0.0)
        lost = max(0.0, busy.get(stage, 0.0) - mine)
        idle = max(0.0, there.get(stage, 0.0) - mine - up - lost)
        over += max(0.0, mine + up + lost - there[stage]) if fixed.get(stage) else 0.0
        times = {"attributed": mine, "start_up": up, "lost": lost, "idle": idle}
        if any(times.values()):
            stages[stage] = times
    sums = {name: sum(times[name] for times in stages.values()) for name in TIMES}
    return {
        "start": start["start"],
        "workers": sum(pool["workers"] for pool in start["pools"].values()),
        "wall_seconds": start["wall_seconds"],
        "worker_seconds": sum(sums.values()) - over,
        **sums,
        "over": over,
        "stages": stages,
    }
