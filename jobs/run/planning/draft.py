"""The plan of a run: the log is deduplicated, and `shards.json` fixes the shards."""

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple

from cluster.errors import ClusterError
from cluster.run.shards import File, Plan, Shard, put_plan
from cluster.storage import Storage, open_storage
from cluster.storage.copies import work_folder
from cluster.storage.prefetch import prefetch
from jobs.job.prepare import Prepared
from jobs.log.dedup import LogSummary, dedup
from jobs.log.sets.names import left_out_words

UPLOADS_IN_FLIGHT = 4
VERSION = 2  # of what an unfinished run keeps of its stages; of 1, completions were known by less


class PlannedQueries(NamedTuple):
    """The distinct queries of a planned job.

    Attributes:
        storage: Where their files are.
        shards: The row groups, each in order of the queries' ids.
        tables: All tables that are made of the log, by name.
    """

    storage: Storage
    shards: Sequence[Shard]
    tables: Mapping[str, Sequence[File]]


class Draft(NamedTuple):
    """The deduplicated log, before the plan is stored."""

    log: LogSummary
    folder: Path | None  # the temporary folder of its files; None: they are in the run's folder already
    stack: ExitStack  # removes the folder; closed by `store_plan`


def draft_plan(prepared: Prepared, *, local: bool = True) -> Draft:
    """Returns the log reduced to distinct queries; raises LogError if it cannot be read, or has none.

    Works in this process and a temporary folder if `local`, else on the connected Ray and in the run's folder, under names
    that count only after `store_plan`.
    """
    with ExitStack() as stack:
        folder = stack.enter_context(work_folder()) if local else None
        storage = open_storage(str(folder)) if folder else prepared.storage
        log = dedup(prepared.files, prepared.columns, storage, prepared.config.cluster.shard_size, local=local)
        return Draft(log, folder, stack.pop_all())


def check_unfinished(plan: Plan | None, storage: Storage) -> None:
    """Raises ClusterError if another version of dmqr has begun the unfinished run of this plan."""
    where = storage.root
    if plan is not None and plan.version != VERSION:
        problem = (
            f"{where} was begun by another version of dmqr, and is not finished; start another run with --label, or remove it"
        )
        raise ClusterError("run-changed", problem)


def store_plan(prepared: Prepared, draft: Draft) -> Plan:
    """Stores the draft's tables and `shards.json`; returns the stored plan, that of another driver if it came first."""
    log, storage, folder = draft.log, prepared.storage, draft.folder

    def upload(file: File) -> None:
        if folder is not None:
            storage.upload(folder / file.key, file.key)

    files = [file for files in log.tables.values() for file in files]
    with draft.stack:
        for _ in prefetch(upload, files, UPLOADS_IN_FLIGHT):
            pass
    size = prepared.config.cluster.shard_size
    return put_plan(storage, Plan(prepared.inputs, log.counts, size, log.tables, log.shards, VERSION, log.head))


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
