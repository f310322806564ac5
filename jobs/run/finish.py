"""The end of a run: checks of the balances, removal of orphans, `run.json`, `_SUCCESS.json`, `latest.json`."""

import io
import json
from collections.abc import Callable, Collection, Iterable, Mapping

import pyarrow as pa
import pyarrow.parquet as pq

from cluster.errors import ClusterError
from cluster.run.shards import SUCCESS, File, Plan, committed_tables, manifests, put_success, remove_orphans
from cluster.storage import Storage
from jobs.chain.journal import remove_journals
from jobs.counts import ERRORS, by_arm
from jobs.job.prepare import Prepared
from jobs.log.parts import PLAN

Balance = tuple[str, int, str, int]  # a count after its name, and another after its own: they must be equal


def finish(
    storage: Storage,
    plan: Plan,
    counts: Mapping[str, int],
    schemas: Mapping[str, pa.Schema],
    balances: Callable[[Mapping[str, list[File]]], Iterable[Balance]],
    record: Callable[[], None] = lambda: None,
) -> None:
    """Finishes a job whose shards are all committed: checks the balances, removes orphans, writes `_SUCCESS.json`."""
    committed = committed_tables(plan, (one.files for one in manifests(storage)))
    tables = {name: committed.get(name, []) for name in schemas}
    check_balances(storage, balances(tables))
    for table, files in tables.items():
        if not files:  # a table without rows still has one file
            buffer, key = io.BytesIO(), f"{table}/empty.parquet"
            pq.write_table(schemas[table].empty_table(), buffer)
            storage.put(key, buffer.getvalue())
            files.append(File(key, 0, buffer.tell()))
    remove_journals(storage)
    remove_orphans(storage, [*tables, PLAN], [file for files in tables.values() for file in files])
    record()
    put_success(storage, tables, dict(counts) | {"log_rows": plan.counts["log_rows"], "rejected": plan.counts["rejected"]})


def put_latest(prepared: Prepared) -> None:
    """Points `latest.json` to this finished run, unless `latest.json` points to one that finished later.

    Called on resume, too, since a kill may have come between `_SUCCESS.json` and `latest.json`.
    """
    latest = f"{prepared.config.name}/latest.json"
    finished = json.loads(prepared.storage.get(SUCCESS) or b"{}").get("finished_at", 0.0)
    if json.loads(prepared.output.get(latest) or b"{}").get("finished_at", -1.0) < finished:
        named = {"run_id": prepared.run_id, "label": prepared.config.shown_label, "date": prepared.config.log.date}
        body = named | {"path": prepared.storage.root, "finished_at": finished}
        prepared.output.put(latest, json.dumps(body).encode())


def _common_balances(plan: Plan, counts: Mapping[str, int], rows: Mapping[str, int]) -> list[Balance]:
    return [
        ("log rows", plan.counts["log_rows"], "rows of query_map", rows["query_map"]),
        ("rejected log rows", plan.counts["rejected"], "their errors", sum(f.rows for f in plan.tables["errors"])),
        ("distinct queries", plan.counts["queries"], "rows of queries", rows["queries"]),
        ("distinct queries", plan.counts["queries"], "queries committed", counts.get("queries", 0)),
        *(
            (f"{table} committed", counts.get(table, 0), f"rows of {table}", rows.get(table, 0))
            for table in ("rewrites", "answers", "judgements")
        ),
    ]


def run_balances(prepared: Prepared, plan: Plan, counts: Mapping[str, int], tables: Mapping[str, list[File]]) -> list[Balance]:
    """Returns the counts of log rows, queries, rewrites and results that must be equal."""
    no_hits = sum(n for (*_, reason), n in ERRORS.of(counts) if reason == "no_hits")
    return [
        *_common_balances(plan, counts, _rows(tables)),
        (
            "queries x planned strategies", plan.counts["queries"] * len(prepared.config.rewrite.planned),
            "those with rewrites + with an error + not selected + left out by a guard",
            counts.get("rewrites", 0) - counts.get("further_texts", 0)
            + counts.get("rewrite_errors", 0) + counts.get("not_selected", 0) + counts.get("guarded", 0),
        ),
        (
            "queries", plan.counts["queries"],
            "queries with results + without hits", counts.get("queries_with_results", 0) + no_hits,
        ),
    ]  # fmt: skip


def ablation_balances(
    arms: Collection[str], plan: Plan, counts: Mapping[str, int], tables: Mapping[str, list[File]]
) -> list[Balance]:
    """Returns the counts that must be equal: of the log, and that every arm answered every query."""
    rows, queries = _rows(tables), plan.counts["queries"]
    balances = [
        *_common_balances(plan, counts, rows),
        ("results committed", counts.get("results", 0), "rows of results", rows["results"]),
    ]
    for arm, own in by_arm(counts, arms).items():
        answered = own["queries_with_results"] + own["no_hits"]
        balances.append((f"arm {arm!r}: queries", queries, "those with results + without hits", answered))
    return balances


def _rows(tables: Mapping[str, list[File]]) -> dict[str, int]:
    return {table: sum(file.rows for file in files) for table, files in tables.items()}


def check_balances(storage: Storage, balances: Iterable[Balance]) -> None:
    """Raises ClusterError, with both sides, if two counts are not equal."""
    for left, count, right, other in balances:
        if count != other:
            raise ClusterError(
                "internal-error",
                f"{storage.root}: {left} ({count:,}) are not {right} ({other:,}), so the run is not closed; "
                "start it under another name",
            )
