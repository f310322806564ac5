"""Retries: the queries of a run whose errors have a reason are asked again, in another run of the same config.

What the store has of these queries is marked as forgotten. So the retry makes their facts anew, takes those of all other
queries from the store, and later runs take what it was answered. It is labelled `retry-1`, the retry of that one `retry-2`.
"""

import time
from dataclasses import replace
from itertools import count
from typing import Any

from cluster.errors import ConfigError, nearest
from cluster.run.shards import SUCCESS
from cluster.storage import open_storage
from jobs.chain.store.layout import milliseconds
from jobs.chain.store.tombstones import mark_forgotten
from jobs.config.config import MOST_LABEL
from jobs.counts import ERROR_QUERIES
from jobs.job.keys import run_id
from jobs.job.prepare import Prepared
from jobs.runs.folder import RunFolder, open_run, stored_json
from jobs.runs.status import read_status
from jobs.runs.sums import by_reason
from jobs.runs.tables import database
from jobs.tables import NOTES
from jobs.terminal.formats import queries

ALL = "all"  # the reason that stands for every error; notes are none
RETRY = "retry"  # key of `run.json`: of which run it is a retry, its reasons with their queries, and the number of queries
_OF_REASONS = """
SELECT DISTINCT query_id FROM errors WHERE query_id IS NOT NULL AND reason IN (SELECT unnest($reasons))
ORDER BY query_id
"""


def prepare_retry(prepared: Prepared, reason: str) -> Prepared:
    """Returns the next retry of a checked run, or the last one if that is not finished.

    `reason` is one of its errors/, or `ALL`. Raises ConfigError without a store, a run or a query with this reason, or if
    another retry is not finished.
    """
    config, parent, retry = prepared.config, prepared, prepared
    if config.store_folder is None:
        raise ConfigError("argument", "--retry: `store` is null, and a retry takes all other queries from there; set a folder")
    for number in count(1):
        own, shown = f"{RETRY}-{number}", config.shown_label
        label = own if shown is None else f"{shown[: MOST_LABEL - len(own) - 1]}-{own}"
        labelled = config.model_copy(update={"label": label})
        retry = replace(prepared, config=labelled, run_id=run_id(labelled, prepared.identity))
        if retry.storage.stat(SUCCESS) is None:
            break
        parent = retry
    if not stored_json(parent.storage, "run.json"):
        raise ConfigError("run-missing", f"--retry {reason}: no run at {parent.storage.root}; start one without --retry")
    noted = stored_json(retry.storage, "run.json").get(RETRY)
    if noted is None:
        noted = _marked(open_run(parent.storage.root), reason, config.store_folder)
    elif reason != ALL and [reason] != list(noted["reasons"]):
        problem = f"is not finished, and is one of {', '.join(noted['reasons'])}; finish it with that reason first"
        raise ConfigError("argument", f"--retry {reason}: {retry.storage.root} {problem}")
    return replace(retry, notes={**prepared.notes, RETRY: noted})


def retry_words(run: RunFolder) -> str | None:
    """Returns the run whose queries were asked again, and the number that have the errors still; None: it is no retry."""
    noted = run.record.get(RETRY)
    if noted is None:
        return None
    now = by_reason(run.counts, notes=True)
    changes = ", ".join(f"{reason} {before:,}, now {now.get(reason, 0):,}" for reason, before in noted["reasons"].items())
    return f"{queries(noted['queries'])} of {noted['of']}: {changes}"


def _marked(run: RunFolder, reason: str, store: str) -> dict[str, Any]:
    """Marks the queries of a run that have a reason as forgotten in the store; returns the note of the retry."""
    where = run.storage.root
    if not run.finished and (status := read_status(where)) is not None and status.state == "running":
        raise ConfigError("run-held", f"{where}: a driver is working on this run; retry it after its end")
    known = by_reason(run.counts, notes=True)
    wanted = [one for one in known if one == reason or (reason == ALL and one not in NOTES)]
    if not wanted:
        nearest_reason = nearest(reason, [f"{one} ({number:,})" for one, number in known.items()])
        raise ConfigError(
            "argument", f"--retry {reason}: no query of {where} has it{nearest_reason}; give a reason of its errors/"
        )
    stages = {stage for (stage, cause), _ in ERROR_QUERIES.of(run.counts) if cause in wanted}
    engine = run.config.rewrite.engine
    if stages == {"rewrite"} and engine is not None and engine.kind == "recorded":
        problem = "a recording has one answer to each request, so asking again changes nothing"
        raise ConfigError("argument", f"--retry {reason}: {problem}; name an engine that answers anew in rewrite.engine")
    with database(run, tables=["errors"]) as connection:
        rows = connection.execute(_OF_REASONS, {"reasons": wanted}).fetchall()
    query_ids = [query_id for (query_id,) in rows]
    mark_forgotten(open_storage(store), query_ids, milliseconds(time.time()))
    reasons = {one: known[one] for one in wanted}
    return {"of": run.record["run_id"], "path": where, "reasons": reasons, "queries": len(query_ids)}
