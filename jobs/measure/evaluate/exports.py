"""What `evaluate` writes for other tools: the measures query by query, and the results as a TREC run file."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq

from cluster.errors import ConfigError
from cluster.storage.output import written
from jobs.log.judgements import Judgements
from jobs.measure.evaluate.per_query import PerQuery, database, per_query_table
from jobs.runs.folder import RunFolder

ENDINGS = (".parquet", ".csv")

_TREC = """
COPY (
    SELECT topic, 'Q0', doc_id, rank, 1 / rank::DOUBLE, $tag
    FROM read_parquet($files) JOIN topics USING (query_id) ORDER BY topic, rank
) TO '{path}' (FORMAT csv, DELIMITER ' ', HEADER false, QUOTE '', ESCAPE '')
"""


def check_per_query(path: str) -> None:
    """Checks the name of the file that `write_per_query` is to write.

    Raises:
        ConfigError: it ends in neither .parquet nor .csv.
    """
    if not path.lower().endswith(ENDINGS):
        raise ConfigError(
            "argument", f"--per-query {path}: is neither Parquet nor CSV; give a name that ends in {' or '.join(ENDINGS)}"
        )


def write_per_query(path: str, run: RunFolder, judgements: Judgements, values: PerQuery) -> None:
    """Writes a row per counted key: the key, its query, and each measure of the results and of the original alone.

    Args:
        path: a local file or an object on S3, Parquet or CSV by its ending.
        run: the run that was measured.
        judgements: what it was measured by.
        values: what `per_query` found.
    """
    table = per_query_table(run, judgements, values)
    with written(path) as file:
        if path.lower().endswith(".csv"):
            pyarrow.csv.write_csv(table, file)
        else:
            pq.write_table(table, file, compression="zstd")


def write_trec(path: str, run: RunFolder, judgements: Judgements, values: PerQuery) -> None:
    """Writes all results of the counted keys, as `topic Q0 doc_id rank score run_id`.

    A topic is the judged log_id, or the query_id where queries are judged. The score is 1 / rank: trec_eval orders by score
    and breaks ties in its own way, and so its figures are those of `evaluate`.

    Args:
        path: a local file or an object on S3.
        run: the run that was measured.
        judgements: what it was measured by.
        values: what `per_query` found.

    Raises:
        ConfigError: an id has white space, which parts the columns of such a file; or files of the run cannot be read.
    """
    pairs = [(key, query_id) for key, query_id in zip(values.keys, values.query_ids, strict=True) if query_id is not None]
    topics = [key if judgements.key == "log_id" else query_id for key, query_id in pairs]
    named = {"topic": pa.array(topics, pa.string()), "query_id": pa.array([query_id for _, query_id in pairs], pa.string())}
    files = run.tables.get("results")
    with written(path) as file, database(run) as connection:
        file.touch()
        if files is None:
            return
        connection.register("topics", pa.table(named))
        spaced = connection.execute(
            "SELECT name FROM (SELECT topic AS name FROM topics UNION ALL "
            "SELECT doc_id FROM read_parquet(?) SEMI JOIN topics USING (query_id)) WHERE regexp_matches(name, '\\s') LIMIT 1",
            [files],
        ).fetchone()
        if spaced is not None:
            name = f"{spaced[0][:80]!r}"
            raise ConfigError(
                "argument", f"--trec {path}: id {name} has white space, which ends a column there; use --per-query"
            )
        connection.execute("SET preserve_insertion_order = true")  # else rows come out of order
        target = str(file).replace("'", "''")
        connection.execute(_TREC.format(path=target), {"files": files, "tag": run.record["run_id"]})
