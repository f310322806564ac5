"""A stage of the pipeline, and what its worker may call and raise.

A block is one shard from the first stage to the last: a stage takes a whole block and returns one.
"""

import contextlib
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa

from cluster import costs
from cluster.errors import ClusterError
from cluster.run.pool_sizes import Pool

Worker = Callable[[pa.Table], pa.Table]
_UNLINKED = pa.schema([])


@dataclass(frozen=True)
class Stage:
    """One step of the pipeline: a class, built once per worker and called with one block at a time.

    The class declares what it does to a block's columns: `NEEDS` (required names), `ADDS` (a schema, appended) and `DROPS`
    (names); or `GIVES`, the whole schema, if it returns other rows. `link` derives the schemas.
    """

    name: str
    worker: Callable[..., Worker]
    settings: Mapping[str, Any]  # what the worker is built from: names and paths, never large objects
    consumes: pa.Schema = _UNLINKED
    produces: pa.Schema = _UNLINKED
    pool: Pool | None = None  # None: a stateless stage, which runs in the workers of the pool before it, or as a task
    concurrent_blocks: int = 1  # in flight per worker, each on a thread of its own
    retries: int = 3  # of a block whose worker died
    # Called with one row on which the worker raised, but for a DmqrError or an OSError; returns the stage's output row, with
    # the error in its column `errors`. None: the stage fails.
    fallback: Callable[[pa.Table, Exception], pa.Table] | None = None
    # Called with an input block and its output block; returns counts of what was added, for the progress before the commit.
    counts: Callable[[pa.Table, pa.Table], Mapping[str, int]] | None = None
    cost_stage: str = ""  # the value of `costs.stage` in its entries; empty: `name`


def link(stages: Sequence[Stage], source: pa.Schema) -> list[Stage]:
    """Returns the stages, in order, with their schemas `consumes` and `produces`; `source` is that of the first input.

    Raises ClusterError if a stage needs a column that no stage before it adds.
    """
    linked, schema = [], source
    for stage in stages:
        worker: Any = stage.worker
        if missing := [name for name in worker.NEEDS if name not in schema.names]:
            problem = f"needs {missing}, which no stage before it adds, found {schema.names}"
            raise ClusterError("internal-error", f"stage {stage.name} {problem}; report it as a bug in the chain of stages")
        produces = getattr(worker, "GIVES", None)
        if produces is None:
            drops = getattr(worker, "DROPS", ())
            produces = pa.schema([*(field for field in schema if field.name not in drops), *worker.ADDS])
        linked.append(replace(stage, consumes=schema, produces=produces))
        schema = produces
    return linked


def groups(stages: Sequence[Stage]) -> list[list[Stage]]:
    """Returns the stages that the same workers run: those before the first pool, then each with a pool and those behind it."""
    grouped: list[list[Stage]] = []
    for stage in stages:
        if stage.pool or not grouped:
            grouped.append([])
        grouped[-1].append(stage)
    return grouped


def shards_in_flight(stages: Sequence[Stage], shards: int) -> int:
    """Returns the number of shards in flight that keep all workers busy.

    With few shards (0: unknown) fewer: as long as each worker has one, a quarter of them, so that an interrupt leaves some.
    """
    pools = [(stage.pool.max_workers, stage.concurrent_blocks) for stage in stages if stage.pool]
    most = max(2, sum(workers * (blocks + 1) for workers, blocks in pools))
    return min(most, max(1 + sum(workers for workers, _ in pools), -(-shards // 4))) if shards else most


class BlockHalted(Exception):
    """The worker stopped within a block, as the run's budget is spent; the next start resumes the block."""


def _raised(error: Exception) -> None:
    raise error


class _Heard(threading.local):
    """The functions that the worker which is built or called in a thread may call; these are those outside a run."""

    report: Callable[[float | None, costs.Totals | None], object] = staticmethod(lambda _share, _spent: None)
    reserve: Callable[[float, float], float] = staticmethod(lambda _spent, _wanted: float("inf"))
    stopping: Callable[[], bool] = staticmethod(lambda: False)
    bear: Callable[[Exception], None] = staticmethod(_raised)


_thread = _Heard()


def heartbeat(share: float | None = None, spent: costs.Totals | None = None) -> None:
    """Reports progress from inside a long call, as `ProgressTracker.heartbeat`, if this thread built or called the worker."""
    _thread.report(share, spent)


def reserver() -> Callable[[float, float], float]:
    """Returns the function that reserves money for the worker that is built in this thread; any thread may call it.

    It takes the USD that the worker has spent and wants in addition, and returns those that it may have spent in all from then
    on. Outside a run there is no limit.
    """
    return _thread.reserve


def stopping() -> Callable[[], bool]:
    """Returns the function that tells the worker that is built in this thread whether the run stops; any thread may call it."""
    return _thread.stopping


def bear(error: Exception) -> None:
    """Lets a worker go on with a row on which a part of its work has failed; raises the error where it may not.

    It may not with a block of several rows, which is tried by halves, nor where too many have failed, nor outside a run.
    """
    _thread.bear(error)


@contextlib.contextmanager
def reporting_to(**functions: Callable[..., Any]) -> Iterator[None]:
    """Passes what the worker of this thread calls (`_Heard`) to these functions, during the body."""
    outer = dict(vars(_thread))
    vars(_thread).update(functions)
    try:
        yield
    finally:
        vars(_thread).clear()
        vars(_thread).update(outer)


def charge_failure(error: Exception, spent: Iterable[Sequence[Mapping[str, Any]]]) -> None:
    """Notes on an error what a worker has spent before it: cost entries, row by row.

    They are charged where the error is that of one row; of more rows, the halves are tried again, and spend it anew.
    """
    error.__dict__.setdefault("spent", []).extend(entry for of_row in spent for entry in of_row)


def shard_of(table: pa.Table) -> int:
    """Returns the number of a block's shard."""
    return int(table.column("shard")[0].as_py())
