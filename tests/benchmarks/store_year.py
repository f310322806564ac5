"""A year of nights in a store: files, bytes, seconds to open, look-ups and requests to S3, with and without compaction.

    python tests/benchmarks/store_year.py [--nights 365] [--queries 100000] [--new 0.24] [--looked-up 4] [--out FILE]

Each night has as many distinct queries, of which a share is new, in shards of 1,000; what is known is drawn from all nights
before. Rows are put as a night puts them. Opening and look-ups are measured on some nights, look-ups of some shards, and scaled
to the night. Requests are those that S3 would be asked: the store lies in a
folder, whose storage counts pages of listings and ranges of objects.
"""

from __future__ import annotations

import argparse
import json
import shutil
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
from store_rows import SPACE, CountingStorage, counted, ids, opened, patch_storage, put_night

from jobs.chain.store.facts import _COMPLETION as COMPLETION
from jobs.store.compact import compact, compact_crowded

SHARD = 1_000
BEGAN = 1_750_000_000.0
DAY = 86_400.0


def measure(root: Path, known: list[str], queries: int, looked_up: int, random: np.random.Generator) -> dict[str, Any]:
    """What a night pays to open the store and to look its queries up."""
    began = time.perf_counter()
    opening = counted(lambda: opened(root, BEGAN))
    seconds = time.perf_counter() - began
    files, shards = opened(root, BEGAN), max(1, queries // SHARD)
    night = sorted(known[place] for place in random.choice(len(known), min(queries, len(known)), replace=False))
    parts = [part for part in np.array_split(np.array(night), shards) if len(part)][:: max(1, shards // looked_up)]
    cpu, found = time.process_time(), 0

    def look_up() -> None:
        nonlocal found
        for part in parts:
            found += files.rows(SPACE, COMPLETION, part.tolist()).num_rows

    reading, scale = counted(look_up), shards / len(parts)
    assert found >= sum(map(len, parts))
    paths = list(root.glob("v1/completions/*/*.parquet"))
    return {
        "files": len(paths), "read_files": len(files.names[SPACE]), "bytes": sum(path.stat().st_size for path in paths),
        "open_seconds": round(seconds, 2), "open_requests": dict(opening),
        "look_up_cpu_seconds": round((time.process_time() - cpu) * scale, 1),
        "look_up_requests": {name: round(count * scale) for name, count in reading.items()},
    }  # fmt: skip


def year(arguments: argparse.Namespace, compacting: bool) -> list[dict[str, Any]]:
    """The nights that were measured."""
    root, random = Path(tempfile.mkdtemp(prefix="store-year-")), np.random.default_rng(0)
    known: list[str] = []
    rows, spent, work = [], 0.0, Counter[str]()
    shown = sorted({1, *range(30, arguments.nights, 60), arguments.nights})
    try:
        for night in range(1, arguments.nights + 1):
            count = arguments.queries if night == 1 else round(arguments.queries * arguments.new)
            made = ids(random, count)
            files = opened(root, BEGAN + night * DAY)
            putting = counted(lambda files=files, made=made: put_night(files, random, made, arguments.queries // SHARD))
            known += made
            began = time.perf_counter()
            if compacting:
                storage = CountingStorage(str(root))
                work += counted(lambda storage=storage: compact_crowded(storage))
                work += counted(
                    lambda storage=storage: compact(storage, most_together=10**9, grace=0.0)
                )  # nights are quick here
            spent += time.perf_counter() - began
            if night in shown:
                measured = measure(root, known, arguments.queries, arguments.looked_up, random)
                rows.append({"night": night, "rows": len(known), **measured, "put_requests": dict(putting),
                             "compaction_seconds": round(spent, 1), "compaction_requests": dict(work)})  # fmt: skip
                print(json.dumps({"compacting": compacting, **rows[-1]}), flush=True)
    finally:
        shutil.rmtree(root)
    return rows


def main() -> None:
    """Prints a JSON line for each night that was measured."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nights", type=int, default=365)
    parser.add_argument("--queries", type=int, default=100_000)
    parser.add_argument("--new", type=float, default=0.24)
    parser.add_argument("--looked-up", type=int, default=4, help="shards whose look-ups are measured")
    parser.add_argument("--out")
    arguments = parser.parse_args()
    patch_storage()
    found = {name: year(arguments, name == "compacted") for name in ("compacted", "as it is")}
    if arguments.out:
        Path(arguments.out).write_text(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
