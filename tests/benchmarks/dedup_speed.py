"""Dedup, and DuckDB's own SQL that makes the same tables, over a log that is made: the sides of `limits/dedup.py`.

    python tests/benchmarks/dedup_speed.py SIDE LOG

The log is made of the terabyte log's words: query n of the ranks comes in proportion to 1 / (n + 10) ** 0.85, as in a web log
(5 million rows: 1.4 million distinct queries in 1.6 million forms), 6 % begin with a capital letter, 2 % end with a space,
0.5 % are empty. `whole in SQL`: DuckDB hashes, groups and stores queries and query_map, sorted and compressed as dedup's are,
without dedup's other work (Unicode, texts too long or not UTF-8, `errors`, limits of memory).
"""

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from time import perf_counter, process_time

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

import duckdb  # noqa: E402
import numpy as np  # noqa: E402
import pyarrow as pa  # noqa: E402
import pyarrow.compute as pc  # noqa: E402
import pyarrow.parquet as pq  # noqa: E402

from cluster.storage import open_storage  # noqa: E402
from jobs.log.check import LogColumns, check_log  # noqa: E402
from jobs.log.dedup import dedup  # noqa: E402
from jobs.log.files import find_log_files  # noqa: E402

WHOLE = r"""
CREATE TEMP TABLE log AS
SELECT filename || '#' || file_row_number AS log_id, query, trim(regexp_replace(lower(query), '\s+', ' ', 'g')) AS normalised
FROM read_parquet($log, filename = true, file_row_number = true);
CREATE TEMP TABLE ids AS
SELECT normalised, sha256(normalised)[:32] AS query_id FROM log WHERE normalised <> '' GROUP BY normalised;
COPY (
    SELECT query_id, first(query ORDER BY n DESC, query) AS query, any_value(normalised) AS normalised,
        sum(n)::BIGINT AS log_count
    FROM (SELECT normalised, query, count(*) AS n FROM log GROUP BY normalised, query) JOIN ids USING (normalised)
    GROUP BY query_id ORDER BY query_id
) TO $queries (FORMAT parquet, COMPRESSION zstd);
COPY (SELECT log_id, query_id FROM log LEFT JOIN ids USING (normalised)) TO $query_map (FORMAT parquet, COMPRESSION zstd);
"""
WHOLE_NAME = "whole in SQL"
RANKS, MOST_WORDS = 4_000_000, 6


def words() -> pa.StringArray:
    """The terabyte log's words, the frequent ones first."""
    log = pq.read_table(Path(os.environ["DMQR_SHARED"], "logs", "terabyte05_50k", "log.parquet"), columns=["query"])
    found = pa.Table.from_struct_array(
        pc.value_counts(pc.list_flatten(pc.utf8_split_whitespace(log["query"].combine_chunks())))
    )
    return found.sort_by([("counts", "descending")]).column("values").combine_chunks()


def texts(known: pa.StringArray, rows: int, seed: int) -> pa.StringArray:
    """Rows of a log; a rank has the same words in every file."""
    rng = np.random.default_rng(seed)
    chance = 1.0 / np.arange(10, RANKS + 10) ** 0.85
    ranks = np.searchsorted(np.cumsum(chance) / chance.sum(), rng.random(rows)).astype(np.uint64)
    lengths = 1 + ranks * np.uint64(2654435761) % np.uint64(1000003) % np.uint64(MOST_WORDS)
    columns = []
    for place in range(MOST_WORDS):
        mixed = ranks * np.uint64(0x9E3779B97F4A7C15) + np.uint64(place * 0x85EBCA6B)
        mixed = (mixed ^ (mixed >> np.uint64(29))) * np.uint64(0xBF58476D1CE4E5B9)
        share = ((mixed ^ (mixed >> np.uint64(32))) >> np.uint64(11)).astype(float) / 2**53
        chosen = known.take(pa.array((len(known) * share**3).astype(np.int64)))
        columns.append(pc.if_else(pa.array(lengths > place), chosen, pa.scalar(None, pa.string())))
    plain = pc.binary_join_element_wise(*columns, " ", null_handling="skip")
    form = rng.random(rows)
    capital = pc.if_else(pa.array(form < 0.06), pc.utf8_capitalize(plain), plain)
    spaced = pc.if_else(pa.array(form > 0.98), pc.binary_join_element_wise(capital, "", " "), capital)
    return pc.if_else(pa.array((form > 0.5) & (form < 0.505)), "", spaced)


def write_log(folder: Path, rows: int, files: int) -> None:
    """A log of so many rows."""
    known = words()
    for number in range(files):
        pq.write_table(pa.table({"query": texts(known, rows // files, number)}), folder / f"part-{number:03d}.parquet")


def measured(what: str, log: str) -> dict[str, float]:
    """Do it once, in this process; returns seconds and CPU seconds."""
    with tempfile.TemporaryDirectory(prefix="dmqr-dedup-speed-") as out:
        if what != WHOLE_NAME:
            started, spent = perf_counter(), process_time()
            files, columns = find_log_files(log), LogColumns("query")
            check_log(files, columns)
            dedup(files, columns, open_storage(out), 1000, local=True)
            return {"seconds": perf_counter() - started, "cpu": process_time() - spent}
        with duckdb.connect() as connection:
            connection.execute("SET enable_progress_bar = false")
            started, spent = perf_counter(), process_time()
            places = {"log": f"{log}/*.parquet", "queries": f"{out}/queries.parquet", "query_map": f"{out}/query_map.parquet"}
            for statement in WHOLE.split(";")[:-1]:
                used = {name: place for name, place in places.items() if f"${name}" in statement}
                connection.execute(statement, used)
            return {"seconds": perf_counter() - started, "cpu": process_time() - spent}


def apart(what: str, log: Path) -> dict[str, float]:
    """Do it once, in a new process."""
    command = [sys.executable, __file__, what, str(log)]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, env=os.environ | {"PYTHONPATH": str(ROOT)})
    found: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return found


if __name__ == "__main__":
    print(json.dumps(measured(*sys.argv[1:])))
