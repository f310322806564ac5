"""A store of millions of completions: bytes, seconds to open, memory, a night's look-ups, compaction, forgetting.

    python tests/benchmarks/store_size.py [--rows 10000000] [--nights 100] [--store FOLDER|s3://...] [--keep]

The rows are put by as many nights in shards of 1,000 queries. Each step runs in a new process, whose peak of memory is printed;
a night's look-ups are of 100,000 queries of which 90 % are known, in shards as one worker after the other would have them. On
S3 the requests are those that were sent.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from typing import Any

import numpy as np
from store_rows import ABOUT, SPACE, ids, put_night

from cluster.storage import open_storage
from cluster.storage.traffic import take_traffic
from jobs.chain.store.facts import _COMPLETION as COMPLETION
from jobs.chain.store.files import open_store
from jobs.store.compact import compact
from jobs.store.forget import WhatToForget, forget
from jobs.store.stats import store_stats
from rewriters.normalise import query_id

SHARD, NIGHT, KNOWN = 1_000, 100_000, 0.9
BEGAN, DAY = 1_750_000_000.0, 86_400.0
WANTED = "a query of its own"


def build(root: str, rows: int, nights: int) -> dict[str, Any]:
    for night in range(nights):
        random = np.random.default_rng(night)
        made = ids(random, rows // nights) + ([query_id(WANTED)] if night == nights // 2 else [])
        put_night(open_store(root, ABOUT, BEGAN + night * DAY), random, made, max(1, rows // nights // SHARD))
    entries = [entry for entry in open_storage(root).list("v1/completions") if entry.key.endswith(".parquet")]
    return {"files": len(entries), "bytes": sum(entry.size for entry in entries)}


def opening(root: str, rows: int, nights: int) -> dict[str, Any]:
    files = open_store(root, ABOUT)
    return {"read_files": len(files.names[SPACE])}


def look_up(root: str, rows: int, nights: int) -> dict[str, Any]:
    random, count = np.random.default_rng(10_000), min(NIGHT, rows)
    each = round(count * KNOWN) // nights
    night = [one for at in range(nights) for one in random.choice(ids(np.random.default_rng(at), rows // nights), each, False)]
    night = sorted([*map(str, night), *ids(random, count - len(night))])
    began, cpu, found = time.perf_counter(), time.process_time(), 0
    files = open_store(root, ABOUT)
    for part in np.array_split(np.array(night), max(1, count // SHARD)):
        found += files.rows(SPACE, COMPLETION, part.tolist()).num_rows
    assert found == each * nights
    return {"found": found, "look_up_seconds": time.perf_counter() - began, "look_up_cpu_seconds": time.process_time() - cpu}


def compacting(root: str, rows: int, nights: int) -> dict[str, Any]:
    (done,) = compact(open_storage(root), grace=0.0)
    return {"files": done.files, "bytes": done.size, "rows": done.rows}


def forgetting(root: str, rows: int, nights: int) -> dict[str, Any]:
    began = time.perf_counter()
    own = forget(open_storage(root), WhatToForget(WANTED, others="none"), None)
    seconds = time.perf_counter() - began
    whole = forget(open_storage(root), WhatToForget("nobody has asked this"), None)
    return {"own_seconds": seconds, "rows": own.rows.total(), "others": len(whole.others)}


def stats(root: str, rows: int, nights: int) -> dict[str, Any]:
    return {"spaces": len(store_stats(open_storage(root), None, None).spaces)}


STEPS: dict[str, Callable[[str, int, int], dict[str, Any]]] = {
    "build": build, "open": opening, "look up": look_up, "stats": stats, "compact": compacting,
    "open compacted": opening, "look up compacted": look_up, "forget": forgetting,
}  # fmt: skip


def main() -> None:
    """Prints a JSON line for each step."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=10_000_000)
    parser.add_argument("--nights", type=int, default=100)
    parser.add_argument("--store")
    parser.add_argument("--keep", action="store_true", help="leave the store where it is")
    parser.add_argument("--step", choices=tuple(STEPS))
    arguments = parser.parse_args()
    if arguments.step:
        began = time.perf_counter()
        found = STEPS[arguments.step](arguments.store, arguments.rows, arguments.nights)
        seconds, peak = time.perf_counter() - began, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
        told = {"step": arguments.step, "seconds": round(seconds, 2), "peak_mib": peak, **found, "s3": take_traffic()}
        print(json.dumps(told), flush=True)
        return
    with tempfile.TemporaryDirectory(prefix="store-size-") as folder:
        root = arguments.store or folder
        for step in STEPS:
            command = [sys.executable, __file__, "--step", step, "--store", root]
            command += ["--rows", str(arguments.rows), "--nights", str(arguments.nights)]
            subprocess.run(command, check=True)
        if arguments.store and not arguments.keep:
            storage = open_storage(root)
            storage.delete(*(entry.key for entry in storage.list("v1")))


if __name__ == "__main__":
    main()
