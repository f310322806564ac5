"""Calls a pool of Ray actors with tables that the driver makes one by one, unlike a run's dataset of planned shards."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, TypeVar

import pyarrow as pa

from cluster.run.pools import Pool

Result = TypeVar("Result")


def map_on_actors(
    worker: Callable[..., Callable[[pa.Table], Result]],
    settings: Mapping[str, Any],
    pool: Pool,
    tables: Iterable[pa.Table],
    tables_per_worker: int,
) -> Iterator[Result]:
    """Yields `worker(table)` for each table, in the order in which the calls end.

    If a worker dies, Ray restarts it and repeats its calls, up to three times. An exception of a worker is raised here as
    it is.

    Args:
        worker: A class, built once per actor from `settings` and called with one table at a time.
        settings: Keyword arguments of the class.
        pool: The number of actors, and the CPUs and GPUs of each.
        tables: The next one is taken only when an actor can be called with it.
        tables_per_worker: Calls in flight per actor.
    """
    import ray

    remote = ray.remote(_ItemActor).options(
        num_cpus=pool.cpus, num_gpus=pool.gpus, max_restarts=-1, max_task_retries=3, max_concurrency=tables_per_worker
    )
    actors = [remote.remote(worker, dict(settings)) for _ in range(pool.workers)]
    in_flight: dict[Any, Any] = {}  # call -> its actor
    free = actors * tables_per_worker
    for table in tables:
        if not free:
            yield _next(in_flight, free)
        actor = free.pop(0)
        in_flight[actor.call.remote(table)] = actor
    while in_flight:
        yield _next(in_flight, free)


def _next(in_flight: dict[Any, Any], free: list[Any]) -> Any:
    import ray

    (done,), _ = ray.wait(list(in_flight), num_returns=1)
    free.append(in_flight.pop(done))
    try:
        return ray.get(done)
    except ray.exceptions.RayTaskError as error:  # unwrapped: Ray's message has the traceback in it
        raise error.cause from None


class _ItemActor:
    def __init__(self, worker: Callable[..., Callable[[pa.Table], Any]], settings: Mapping[str, Any]) -> None:
        self._worker = worker(**settings)

    def call(self, table: pa.Table) -> Any:
        return self._worker(table)
