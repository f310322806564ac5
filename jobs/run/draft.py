"""The plan of a run: the log is deduplicated, and `shards.json` fixes the shards."""

from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple

from cluster.run.shards import File, Plan, put_plan
from cluster.storage import Storage, open_storage
from cluster.storage.copies import work_folder
from cluster.storage.prefetch import prefetch
from jobs.job.prepare import Prepared
from jobs.log.dedup import dedup
from jobs.log.sets.names import left_out_words

UPLOADS_IN_FLIGHT = 4
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
        plan = Plan(prepared.inputs, log.counts, size, log.tables, log.shards, VERSION, log.head)
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
