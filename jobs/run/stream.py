"""The committed shards of a runner, as its thread hands them to the driver's loop."""

import queue
import threading
from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from cluster.run.runner_local import THREAD, LocalRunner
from cluster.run.runner_ray import RayRunner
from cluster.run.shards import Shard
from jobs.tables import SHARD

Runner = RayRunner | LocalRunner
Results = queue.Queue[dict[str, Any] | BaseException | None]
_THREAD = "stream"


def stream(runner: Runner, pending: Sequence[Shard]) -> Results:
    """Starts a thread that runs the shards; returns the queue into which it puts each committed row, and None at the end."""
    results: Results = queue.Queue()

    def work() -> None:
        shards = ({"shard": shard.number, "key": shard.key, "row_group": shard.row_group} for shard in pending)
        try:
            for row in runner.run(pa.Table.from_pylist([shard], SHARD) for shard in shards):
                results.put(row)
            results.put(None)
        except BaseException as error:  # the main thread raises it
            results.put(error)

    threading.Thread(target=work, name=_THREAD, daemon=True).start()
    return results


def is_streaming() -> bool:
    """Returns True if shards are still run, as after a stop that did not wait for them."""
    return any(thread.name in (_THREAD, THREAD) for thread in threading.enumerate())


def next_result(results: Results) -> dict[str, Any] | None:
    """Returns the next committed row, {} if there is none for now, None at the end; raises the exception of the stream."""
    try:
        row = results.get(timeout=0.5)
    except queue.Empty:
        return {}
    if isinstance(row, BaseException):
        raise row
    return row
