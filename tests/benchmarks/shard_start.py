"""Time and memory of the driver to hand shards to Ray Data, before the first worker starts: by `from_arrow`, and as a run does.

python tests/benchmarks/shard_start.py [--shards 1000 6000 20000]
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable
from pathlib import Path
from time import perf_counter
from typing import Any

import pyarrow as pa


def resident() -> int:
    """Returns the memory of this process in MB."""
    status = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    return int(status["VmRSS"].split()[0]) // 1024


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shards", type=int, nargs="+", default=[1000, 6000, 20_000])
    counts = parser.parse_args().shards
    os.environ |= {"RAY_AUTH_MODE": "disabled", "RAY_USAGE_STATS_ENABLED": "0"}
    import ray
    import ray.data

    ray.init("local", num_cpus=2, include_dashboard=False)
    ways: list[Callable[[list[pa.Table]], Any]] = [ray.data.from_blocks, ray.data.from_arrow]
    for way in ways:
        for count in counts:
            files = [f"queries/plan-0123456789ab-{number // 64:05d}.parquet" for number in range(count)]
            blocks = [pa.table({"shard": [n], "key": [key], "row_group": [n % 64]}) for n, key in enumerate(files)]
            before, began = resident(), perf_counter()
            data = way(blocks)
            print(f"{way.__name__}: {count:,} shards in {perf_counter() - began:.1f} s, {resident() - before} MB", flush=True)
            del data


if __name__ == "__main__":
    main()
