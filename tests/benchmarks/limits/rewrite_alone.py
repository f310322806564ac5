"""The rewriting worker of a run alone: reads a log, asks a server for all its queries, keeps the completions, and ends.

python rewrite_alone.py LOG ADDRESS IN_FLIGHT SHARD_SIZE
"""

import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from jobs.job.engine import blocks_in_flight
from jobs.tables import QUERIES
from rewriters.engines.settings import OpenaiSettings
from rewriters.pool import load_pool
from rewriters.rewriter import Rewriting
from tests.support.jobs.workers import STRATEGIES, rewriter


def main(log: str, address: str, in_flight: int, shard_size: int) -> None:
    """Asks for all rewrites, as many shards at a time as in a run."""
    settings = OpenaiSettings(kind="openai", base_url=address, model="tiny", max_in_flight=in_flight)
    queries = pq.read_table(log)["query"].to_pylist()
    empty = {"log_count": 1, "costs": [], "errors": [], "overhead": []}
    rows = [
        empty | {"shard": number // shard_size, "query_id": f"{number:032x}", "query": query}
        for number, query in enumerate(queries)
    ]
    shards = [pa.Table.from_pylist(rows[at : at + shard_size], QUERIES) for at in range(0, len(rows), shard_size)]
    with tempfile.TemporaryDirectory() as run, ThreadPoolExecutor(blocks_in_flight(settings, shard_size)) as pool:
        worker = rewriter(settings, Rewriting(load_pool(STRATEGIES)), Path(run))
        rewritten = sum(len(one) for table in pool.map(worker, shards) for one in table["rewrites"].to_pylist())
        worker.close()
    assert rewritten, "no rewrites"


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4]))
