"""What pools with `workers: auto` are sized by: the seconds that one worker of each stage takes for a query.

They are known from this run's committed shards, or from the newest finished run of the same name and the same settings (the
night before), where workers had the same CPUs or GPUs. Without either, the run calibrates itself: its first shards go through
one worker of each stage, and then the pools are sized (`cluster.run.pool_sizes.apportion`). Those shards are committed like all
others.
"""

from __future__ import annotations

import json
import math
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from cluster import costs
from cluster.errors import ConfigError
from cluster.run.pool_sizes import AUTO, Pool, PoolRequest, stage_of_pool
from cluster.run.session import InProcessSession, Session
from cluster.run.shards import Shard
from jobs.job.keys import settings_fingerprint
from jobs.job.prepare import Prepared
from jobs.runs.folder import RunFolder, open_run
from jobs.runs.tally import Tally
from jobs.terminal.logs import event

CALIBRATION = 200  # queries, at least
_KEPT_DIGITS = 6


class StageSeconds(NamedTuple):
    """The work of each stage."""

    basis: str
    """Where it is known from."""
    seconds: Mapping[str, float]
    """Pool -> seconds of one worker per query."""


class PoolSizes:
    """The pools of one start of a run; sized by the work, where any has `workers: auto`."""

    def __init__(self, prepared: Prepared, session: Session | InProcessSession, requests: Mapping[str, PoolRequest]) -> None:
        """Sizes nothing yet; until then each of the session's pools with `auto` has one worker."""
        self.auto = has_auto(requests) and not isinstance(session, InProcessSession)
        """Whether the work decides their sizes."""
        self._prepared, self._session, self._requests = prepared, session, requests
        self._known: StageSeconds | None = None
        self._calibration: dict[str, float] | None = None

    def turns(self, pending: Sequence[Shard], tally: Tally) -> Iterator[Sequence[Shard]]:
        """Yields the shards to run with the session's present pools: all that are pending, or first those that calibrate them.

        The caller keeps `tally`, the sums of the committed shards, up to date.
        """
        if not self.auto:
            yield pending
            return
        self._known = known_seconds(self._prepared, self._session.pools, tally)
        few = _calibrating(pending)
        if self._known is None:
            whole = "all" if few == len(pending) else f"the first {few} of {len(pending)}"
            words = f"the work of the stages is not known: {whole} shards run with one worker of each pool"
            event("pools", f"{words}, to size the others by", shards=few)
            self._session.resize({name: replace(one, workers=1) for name, one in self._requests.items()})
            began, before = time.monotonic(), _sums(tally)
            yield pending[:few]
            self._calibration = {
                "seconds": round(time.monotonic() - began, 3),
                "workers": sum(pool.workers for pool in self._session.pools.values()),
            }
            spent = {stage: value - before[stage] for stage, value in _sums(tally).items()}
            self._known = _of_pools("a calibration", spent, self._session.pools)
            pending = pending[few:]
            if not pending:
                return
        self._session.resize(with_seconds(self._requests, self._known, len(pending)))
        sized = "; ".join(f"{name} {pool_words(pool)}" for name, pool in self._session.pools.items())
        event("pools", f"pools: {sized}; by {seconds_words(self._known)}", **self.values())
        yield pending

    def values(self) -> dict[str, Any]:
        """Returns by what the pools were sized, for `run.json`; {} without `auto`, or before it is known."""
        if self._known is None:
            return {}
        seconds = {name: round(value, _KEPT_DIGITS) for name, value in self._known.seconds.items()}
        return {"sized_by": self._known.basis, "seconds_per_query": seconds, "calibration": self._calibration}


def has_auto(requests: Mapping[str, PoolRequest]) -> bool:
    """Returns whether a pool is to be sized by the work."""
    return any(request.workers == AUTO for request in requests.values())


def with_seconds(
    requests: Mapping[str, PoolRequest], known: StageSeconds | None, shards: int | None = None
) -> dict[str, PoolRequest]:
    """Returns the requests with the seconds per query of their stages; a pool with `auto` has no more workers than shards."""
    filled = {}
    for name, request in requests.items():
        bounds = [bound for bound in (request.max_workers, shards) if bound is not None]
        most = min(bounds, default=None) if request.workers == AUTO else request.max_workers
        filled[name] = replace(request, seconds=known.seconds.get(name) if known else None, max_workers=most)
    return filled


def known_seconds(prepared: Prepared, pools: Mapping[str, Pool], tally: Tally) -> StageSeconds | None:
    """Returns the work of each stage by committed shards or earlier runs; None if none had the same workers."""
    if tally.shards:
        record = json.loads(prepared.storage.get("run.json") or b"{}")
        if _same_workers(record, pools):
            return _of_pools(f"the {len(tally.shards):,} shards that are committed", _sums(tally), pools)
    run = previous_run(prepared)
    if run is None or not _same_workers(run.record, pools):
        return None
    before = run.tally
    if mostly_reused(before.spent):  # what it took from the store says little of what the next log costs
        return None
    return _of_pools(f"{run.record['run_id']}, the last run of this kind", _sums(before), pools)


def mostly_reused(spent: costs.Totals) -> bool:
    """Returns whether a stage took more from the store than it made."""
    return any(
        sums.get("reused", 0) > sums.get("requests", 0) + sums.get("searches", 0) + sums.get("pairs", 0)
        for sums in (costs.stage_sums(spent, stage) for stage in spent)
    )


def previous_run(prepared: Prepared) -> RunFolder | None:
    """Returns the newest finished run of this name, if only its log and its indexes differ."""
    if prepared.output.get(f"{prepared.config.name}/latest.json") is None:
        return None
    try:
        run = open_run(prepared.output.url(prepared.config.name))
    except (ConfigError, OSError, ValueError):
        return None
    same = settings_fingerprint(run.record.get("identity", {})) == settings_fingerprint(prepared.identity)
    return run if run.manifests and same else None


def pool_words(pool: Pool) -> str:
    """Returns a pool in words."""
    workers = f"{pool.workers} to {pool.most}" if pool.most else f"{pool.workers}"
    return f"{workers} x ({pool.cpus:g} CPU{f', {pool.gpus:g} GPU' if pool.gpus else ''})"


def seconds_words(known: StageSeconds) -> str:
    """Returns the work of the stages in words."""
    each = ", ".join(f"{name} {_plain(value)} s" for name, value in known.seconds.items())
    return f"{known.basis}: a worker needs for a query {each}"


def _plain(value: float) -> str:
    """Returns seconds with two digits that count."""
    return f"{value:.{max(0, 1 - math.floor(math.log10(value)))}f}" if value > 0 else "0"


def _calibrating(pending: Sequence[Shard]) -> int:
    """Returns the number of shards that have enough queries."""
    queries = 0
    for number, shard in enumerate(pending, start=1):
        queries += shard.rows
        if queries >= CALIBRATION:
            return number
    return len(pending)


def _sums(tally: Tally) -> Counter[str]:
    """Returns the busy seconds of each stage, start-up apart, and as "" the queries."""
    return Counter({"": tally.counts["queries"], **costs.work_seconds(tally.spent)})


def _of_pools(basis: str, sums: Mapping[str, float], pools: Mapping[str, Pool]) -> StageSeconds:
    """Returns the seconds of each pool. An ablation's engines (`rewrite`, `rewrite_2`) have equal parts of their stage's."""
    stages = {name: stage_of_pool(name) for name in pools}
    shared = Counter(stages.values())
    queries = max(1.0, sums[""])
    return StageSeconds(basis, {name: sums.get(stage, 0.0) / queries / shared[stage] for name, stage in stages.items()})


def _same_workers(record: Mapping[str, Any], pools: Mapping[str, Pool]) -> bool:
    """Returns whether every start of a run had workers like these: as many GPUs, or without one as many CPUs."""
    starts = [one.get("pools", {}) for one in record.get("starts", [])]
    return bool(starts) and all(
        name in before and (before[name]["gpus"], pool.gpus or before[name]["cpus"]) == (pool.gpus, pool.gpus or pool.cpus)
        for before in starts
        for name, pool in pools.items()
    )
