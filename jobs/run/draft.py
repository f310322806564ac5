"""The plan of a run: the log is deduplicated, and `shards.json` fixes the shards; or the plan that it began with.

An unfinished run of the same config goes on with what it began with: its indexes, its models' commits.
"""

import json
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa

from cluster.errors import ClusterError
from cluster.run.shards import SUCCESS, File, Plan, check_inputs, put_plan, read_plan
from cluster.storage import Storage, open_storage
from cluster.storage.copies import work_folder
from cluster.storage.prefetch import prefetch
from cluster.storage.s3_duckdb import open_duckdb
from jobs.job.prepare import Prepared
from jobs.log.dedup import dedup
from jobs.log.files import versions
from jobs.log.judgements import read_answers
from jobs.log.sets.names import left_out_words
from jobs.runs.folder import find_runs

UPLOADS_IN_FLIGHT = 4
_MOST_TOLD = 4  # differences
VERSION = 2  # of what an unfinished run keeps of its stages; of 1, completions were known by less


class PlannedQueries(NamedTuple):
    """The distinct queries of a job: its plan, which may not be stored yet, and where the files of the plan are."""

    plan: Plan
    storage: Storage
    task_seconds: float = 0.0  # of the work on other machines that made them
    stack: ExitStack = ExitStack()  # removes a temporary folder; closed by `store_plan`


def draft_plan(prepared: Prepared, *, local: bool = True) -> PlannedQueries:
    """Returns the log reduced to distinct queries; raises LogError if it cannot be read, or has none.

    Works in this process and a temporary folder if `local`, else on the connected Ray and in the run's folder, under names
    that count only after `store_plan`.
    """
    size = prepared.config.cluster.shard_size
    with ExitStack() as stack:
        storage = open_storage(str(stack.enter_context(work_folder()))) if local else prepared.storage
        log = dedup(prepared.files, prepared.columns, storage, size, local=local)
        plan = Plan(versions(prepared.files), log.counts, size, log.tables, log.shards, VERSION, log.head)
        return PlannedQueries(plan, storage, log.task_seconds, stack.pop_all())


def store_plan(prepared: Prepared, draft: PlannedQueries) -> Plan:
    """Stores the draft's tables and `shards.json`; returns the stored plan, that of another driver if it came first."""
    storage, files = prepared.storage, [file for files in draft.plan.tables.values() for file in files]

    def upload(file: File) -> None:
        storage.upload(Path(draft.storage.url(file.key)), file.key)

    with draft.stack:
        for _ in prefetch(upload, files if draft.storage.root != storage.root else [], UPLOADS_IN_FLIGHT):
            pass
    return put_plan(storage, draft.plan)


def begun_plan(prepared: Prepared) -> Plan | None:
    """Returns the stored plan of a job, None of one that has not begun.

    Raises:
        ClusterError: The log, an index, a model or dmqr is another than when it, or an unfinished run of its config, began.
    """
    storage = prepared.storage
    plan = read_plan(storage)
    if plan is None:
        check_indexes_unchanged(prepared)
        return None
    check_inputs(plan, versions(prepared.files), storage.root)
    if plan.version != VERSION and storage.stat(SUCCESS) is None:
        problem = "was begun by another version of dmqr, and is not finished; start another run with --label, or remove it"
        raise ClusterError("run-changed", f"{storage.root} {problem}")
    return plan


def check_indexes_unchanged(prepared: Prepared) -> None:
    """Raises ClusterError if an unfinished run of the same config and label used other indexes or commits of a hub's models."""
    mine = json.loads(json.dumps(prepared.identity))
    start = prepared.run_id.rpartition("-")[0]
    for folder, record in find_runs(prepared.output, prepared.config.name):
        if "identity" not in record or folder == prepared.run_id or folder.rpartition("-")[0] != start:
            continue
        changed = list(_differences(record["identity"], mine))
        commits = (place[0] == "indexes" or f"{old}"[:7] == f"{new}"[:7] == "commit:" for place, old, new in changed)
        if not changed or not all(commits):
            continue  # of another config
        if prepared.output.stat(f"{folder}/{SUCCESS}") is None:
            told = "; ".join(f"{'.'.join(place)} was {before}, is {now}" for place, before, now in changed[:_MOST_TOLD])
            what = "another index" if changed[0][0][0] == "indexes" else "another commit of a hub's model"
            where = f"{prepared.output.url(folder)} was started with {what} and is not finished ({told})"
            remedy = "restore the index, or name the earlier one (or commit) in the config; or remove that folder to start anew"
            raise ClusterError("run-changed", f"{where}; {remedy}")


def _differences(before: Any, now: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any, Any]]:
    """Yields key, earlier and present value of what differs in two identities."""
    if isinstance(before, list) and isinstance(now, list):
        before, now = ({str(number): value for number, value in enumerate(values)} for values in (before, now))
    if isinstance(before, dict) and isinstance(now, dict):
        for key in sorted(before.keys() | now.keys()):
            yield from _differences(before.get(key), now.get(key), (*path, key))
    elif before != now:
        yield path, before, now


def gold_of_queries(prepared: Prepared, queries: PlannedQueries) -> dict[str, list[str]]:
    """Returns query_id -> gold answers of a log's queries; empty where no judge asks for them."""
    settings, judge = prepared.config.evaluate, prepared.config.judge
    if judge is None or judge.accuracy is None or settings.answers is None:
        return {}
    answers = read_answers(settings.answers, settings.key)
    table, column = {
        "log_id": ("query_map", "log_id"), "query_id": ("queries", "query_id"), "query": ("queries", "normalised"),
    }[settings.key]  # fmt: skip
    # a text is a query on its own: after earlier turns the same words are another one
    with_context = settings.key == "query" and prepared.config.log.context_column is not None
    gold: dict[str, list[str]] = {}
    with open_duckdb() as connection:
        connection.register("answered", pa.table({"answered": pa.array(list(answers), pa.string())}))
        rows = connection.execute(
            f"SELECT DISTINCT answered, query_id FROM rows_of(?) JOIN answered ON answered = {column}"
            f" WHERE query_id IS NOT NULL{' AND context IS NULL' * with_context} ORDER BY answered",
            [[queries.storage.url(file.key) for file in queries.plan.tables[table]]],
        ).fetchall()
    for key, query_id in rows:
        mine = gold.setdefault(query_id, [])
        mine += [one for one in answers[key] if one not in mine]
    return gold


def plan_words(plan: Plan) -> str:
    """Returns the work of a job, in words."""
    counts, end = plan.counts, "s" * (len(plan.shards) != 1)
    rows, distinct = counts["log_rows"], counts["queries"]
    text = f"{distinct:,} distinct quer{'y' if distinct == 1 else 'ies'} of {rows:,} log row{'s' * (rows != 1)}"
    text += f", in {len(plan.shards):,} shard{end}"
    text += left_out_words(counts)
    return text + (f"; {head_words(sum(one.rows for one in plan.shards[: plan.head]), plan.head)}" if plan.head else "")


def head_words(queries: int, shards: int) -> str:
    """Returns a description of the head."""
    number = "one" if queries == 1 else f"{queries:,}"
    return f"first the {number} asked most often, half of the traffic, in {shards:,} shard{'s' * (shards != 1)}"
