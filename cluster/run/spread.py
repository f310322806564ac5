"""Maps a function over items: on threads of this process, or as tasks on all nodes of the connected Ray cluster."""

import os
import time
import traceback
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from cluster.storage.traffic import add_traffic, take_traffic

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
    numbers = {call.remote(shared, item): number for number, item in enumerate(items)}
    results: dict[int, Result] = {}
    left = list(numbers)
    while left:
        (done,), left = ray.wait(left)
        results[numbers[done]], error, seconds, traffic = ray.get(done)
        worked(seconds)
        add_traffic(traffic)
        if error is not None:
            for task in left:
                ray.cancel(task)
            raise error
    return [results[number] for number in range(len(items))]


def _call(function: Callable[[Item], Result], item: Item) -> tuple[Result | None, Exception | None, float, dict[str, float]]:
    """Returns the result for an item, or the exception, which Ray would wrap in a traceback; its seconds and requests to S3."""
    result, failed, began = None, None, time.perf_counter()
    try:
        result = function(item)
    except Exception as error:
        failed = error
        failed.add_note(traceback.format_exc())
    return result, failed, time.perf_counter() - began, take_traffic()
