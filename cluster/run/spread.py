"""Maps a function over items: on threads of this process, or as tasks on all nodes of the connected Ray cluster."""

from __future__ import annotations

import os
import pickle
import time
import traceback
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import pyarrow as pa

from cluster.run.session import data_context
from cluster.storage.traffic import add_traffic, take_traffic

Item = TypeVar("Item")
Result = TypeVar("Result")
THREADS = min(4, os.cpu_count() or 1)  # each holds an item's data in memory


def spread(
    function: Callable[[Item], Result],
    items: Sequence[Item],
    *,
    local: bool,
    worked: Callable[[float], object] = lambda _: None,
) -> list[Result]:
    """Returns `function(item)` for each item, in their order.

    The first exception of `function` is raised here; items that are not started by then are skipped.

    Args:
        function: Idempotent, as a task is retried elsewhere if its process or node dies.
        items: On a cluster they are pickled, as are function and results, and pass through the driver: names, no data.
        local: Whether to use threads of this process; else one task with one CPU per item.
        worked: Called with the seconds of every task in another process; its requests to S3 count as this process's.
    """
    if not local:
        return _on_ray(function, items, worked)
    with ThreadPoolExecutor(THREADS) as pool:
        return list(pool.map(function, items))


def _on_ray(function: Callable[[Item], Result], items: Sequence[Item], worked: Callable[[float], object]) -> list[Result]:
    import ray
    from ray.data import TaskPoolStrategy

    data_context()
    blocks = [pa.table({"number": [number], "value": [pickle.dumps(item)]}) for number, item in enumerate(items)]
    data = ray.data.from_blocks(blocks).map_batches(
        _call, fn_args=(function,), batch_size=None, batch_format="pyarrow", compute=TaskPoolStrategy(), num_cpus=1
    )
    results: dict[int, Result] = {}
    for batch in data.iter_batches(batch_size=None, batch_format="pyarrow", prefetch_batches=0):
        for row in batch.to_pylist():
            results[row["number"]], error, seconds, traffic = pickle.loads(row["value"])
            worked(seconds)
            add_traffic(traffic)
            if error is not None:
                raise error
    return [results[number] for number in range(len(items))]


def _call(block: pa.Table, function: Callable[[Item], Result]) -> pa.Table:
    """Returns a block with the result of a block's one item, or with its exception, which Ray would wrap in a traceback."""
    (value,) = block.column("value").to_pylist()
    result, failed, began = None, None, time.perf_counter()
    try:
        result = function(pickle.loads(value))
    except Exception as error:
        failed = error
        failed.add_note(traceback.format_exc())
    return block.set_column(1, "value", [[pickle.dumps((result, failed, time.perf_counter() - began, take_traffic()))]])
