"""Work that is spread without a run's dataset of planned shards.

A function over items: on threads of this process, or as tasks on all nodes of the connected Ray cluster. A worker over tables
that the driver makes one by one: on a pool of Ray actors.
"""

import os
import time
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

import pyarrow as pa

from cluster.run.pool_sizes import Pool
from cluster.storage.s3_client import add_traffic, take_traffic

Item = TypeVar("Item")
Result = TypeVar("Result")
THREADS = min(4, os.cpu_count() or 1)  # each holds an item's data in memory


def spread(
    work: Callable[[Item], Result], items: Sequence[Item], *, local: bool, worked: Callable[[float], object] = lambda _: None
) -> list[Result]:
    """Returns `work(item)` for each item, in their order; after its first exception no further item is started.

    Where it is not `local`, each item is a task with one CPU, which is retried elsewhere if its process or node dies; `work`,
    items and results pass through the driver: names, no data. `worked` hears the seconds of every task in another process,
    whose requests to S3 count as this process's.
    """
    if not local:
        return _on_ray(work, items, worked)
    with ThreadPoolExecutor(THREADS) as pool:
        return list(pool.map(work, items))


def _on_ray(function: Callable[[Item], Result], items: Sequence[Item], worked: Callable[[float], object]) -> list[Result]:
    import ray

    call, shared = ray.remote(num_cpus=1)(_call), ray.put(function)
    tasks = left = [call.remote(shared, item) for item in items]
    results: dict[Any, Result] = {}
    while left:
        (done,), left = ray.wait(left)
        results[done], error, seconds, traffic = ray.get(done)
        worked(seconds)
        add_traffic(traffic)
        if error is not None:
            for task in left:
                ray.cancel(task)
            raise error
    return [results[task] for task in tasks]


def _call(function: Callable[[Item], Result], item: Item) -> tuple[Result | None, Exception | None, float, dict[str, float]]:
    """Returns the result for an item, or the exception, which Ray would wrap in a traceback; its seconds and requests to S3."""
    result, failed, began = None, None, time.perf_counter()
    try:
        result = function(item)
    except Exception as error:
        failed = error
        failed.add_note(traceback.format_exc())
    return result, failed, time.perf_counter() - began, take_traffic()


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
