"""Calls a pool of Ray actors with tables that the driver makes one by one, unlike a run's dataset of planned shards."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, TypeVar

import pyarrow as pa

from cluster.run.pool_sizes import Pool

Result = TypeVar("Result")


def map_on_actors(
    worker: Callable[..., Callable[[pa.Table], Result]],
    settings: Mapping[str, Any],
    pool: Pool,
    tables: Iterable[pa.Table],
    tables_per_worker: int,
) -> Iterator[Result]:
    """Yields `worker(table)` for each table, in the order in which the calls end.

    Ray restarts a worker that dies and repeats its calls, up to three times; an exception of a worker is raised here.

    `worker` is a class, built once per actor from `settings`. The next table is taken only when an actor, with fewer than
    `tables_per_worker` calls, can be called with it.
    """
    import ray
    from ray.util import ActorPool

    remote = ray.remote(worker).options(
        num_cpus=pool.cpus, num_gpus=pool.gpus, max_restarts=-1, max_task_retries=3, max_concurrency=tables_per_worker
    )
    calls = ActorPool([remote.remote(**settings) for _ in range(pool.workers)] * tables_per_worker)
    for table in tables:
        if not calls.has_free():
            yield _next(calls)
        calls.submit(lambda actor, one: actor.__call__.remote(one), table)
    while calls.has_next():
        yield _next(calls)


def _next(calls: Any) -> Any:
    from ray.exceptions import RayTaskError

    try:
        return calls.get_next_unordered()
    except RayTaskError as error:  # unwrapped: Ray's message has the traceback in it
        raise error.cause from None
