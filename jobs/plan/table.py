"""The plan as a table for the terminal."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from rich.table import Table
from rich.text import Text

from cluster.run.pool_sizes import Pool
from jobs.log.rejections import rejected_words
from jobs.log.sets.names import left_out_words
from jobs.plan.budget import ablation_over_budget, over_budget
from jobs.plan.missing.words import missing_rows
from jobs.plan.work import ablation_rows
from jobs.run.planning.draft import head_words
from jobs.terminal.formats import clock, money
from jobs.terminal.tables import facts

Rows = Iterable[tuple[str, str | Text]]


def plan_table(planned: dict[str, Any]) -> Table:
    """Returns the plan of one job as a table for the terminal."""
    table = facts((), planned["run_id"])
    finished, ablation = planned["state"] == "finished", planned.get("ablation")
    of_run: Rows = (("folder", planned["folder"]),) if finished else _run_rows(planned)
    for name, words in (*_log_rows(planned), *of_run):
        table.add_row(name, words)
    if finished and (ablation is None or ablation["missing"] is None):
        return table
    for name, words in (*_worker_rows(planned), *_ablation_rows(planned)):
        table.add_row(name, words)
    if not finished:
        files = f"up to {planned['left']['files']:,} of tables, completions and commits"
        table.add_row("files", f"{files}; then _SUCCESS.json, report.html")
        table.add_row("folder", planned["folder"])
    return table


def _log_rows(planned: dict[str, Any]) -> Rows:
    log, shards, left = planned["log"], planned["shards"], planned["left"]
    files = f"{log['files']:,} file{'s' * (log['files'] != 1)}"
    rows = f"{log['rows']:,} row{'s' * (log['rows'] != 1)} in {files}"
    yield "log", ", ".join(filter(None, [rows, rejected_words(log)])) + left_out_words(log)
    words = f"{planned['queries']:,} distinct in {shards['all']:,} shard{'s' * (shards['all'] != 1)}"
    if (head := planned.get("head")) and head["queries"]:
        words += f"; {head_words(head['queries'], head['shards'])}"
    yield "queries", words
    state = f"{left['queries']:,} queries left" if planned["state"] == "begun" else planned["state"]
    yield "state", f"{shards['committed']:,} of {shards['all']:,} shards committed: {state}"


def _run_rows(planned: dict[str, Any]) -> Rows:
    yield "requests", _requests(planned)
    for name, words in missing_rows(planned.get("missing"), planned["left"]):
        yield name, Text(words)
    if planned.get("unpriced"):
        yield "cost", planned["unpriced"]
    if (before := _as_before(planned["expected"])) is not None:
        yield "as before", Text(before)
    if (warning := over_budget(planned)) is not None:
        yield "warning", Text(warning, style="yellow")
    for words in planned.get("encoders", []):
        yield "encoder", Text(words)
    for model, size in planned.get("downloads", {}).items():
        fetched = f"{model}, {size / 1e9:.1f} GB from its hub, on every machine that reranks"
        yield "reranker", f"{fetched}; --set rerank.kind=none does without one"


def _worker_rows(planned: dict[str, Any]) -> Rows:
    yield "workers", planned["there"]
    for name, pool in planned["pools"].items():
        yield f"  {name}", _pool_words(Pool(**pool))
        if len(opened := planned.get("engines", {}).get(name, [])) > 1:
            yield "", Text(f"each with {len(opened)} engines: {', '.join(opened)}")


def _ablation_rows(planned: dict[str, Any]) -> Rows:
    """Yields what the arms of an ablation share, and what is missing of all of them."""
    if (ablation := planned.get("ablation")) is None:
        return
    for name, words in (*ablation_rows(ablation), *missing_rows(ablation["missing"], ablation["left"])):
        yield name, Text(words)
    if (warning := ablation_over_budget(planned)) is not None:
        yield "warning", Text(warning, style="yellow")


def _requests(planned: dict[str, Any]) -> str:
    left = planned["left"]
    if not (a_query := left["requests_per_query"]):
        return "none: the original alone"
    words = f"{'at most ' if left.get('requests_vary') else ''}{a_query} a query"
    if left.get("requests_expected") is not None:
        said = "select chooses" if planned.get("rewritten_share") is None else "the gate decides"
        words += f", as {said} for some of the queries"
    if tries := left.get("tries"):
        words += f"; each up to {tries} more time{'s' * (tries != 1)} where its answer does not serve (rewrite.retries)"
    return words


def _as_before(expected: dict[str, Any] | None) -> str | None:
    """Returns what the queries that are left would take by committed shards or the last run; None: there are none."""
    if expected is None or not expected.get("by_run"):
        return None
    bound, said = "at most" if expected["at_most"] else "about", []
    if expected["usd"] is not None:
        said.append(f"{bound} {money(expected['usd'])}")
    if expected["seconds"] is not None:
        away = clock(expected["waited"])
        waited = f" (that run waited {away} for services, which its workers count as work)" if expected["waited"] else ""
        said.append(f"about {clock(expected['seconds'])} of all workers together{waited}")
    if expected["wall_seconds"] is not None:
        pools = f" with its workers ({expected['pools']})" if expected["pools"] else ""
        less = ", less its waiting for services" if expected["waited"] else ""
        said.append(f"about {clock(expected['wall_seconds'])} on the wall{pools}{less}")
    return "; ".join([*said, expected["basis"]])


def _pool_words(pool: Pool) -> str:
    workers = f"{pool.workers} to {pool.most}" if pool.most else f"{pool.workers}"
    return f"{workers} x ({pool.cpus:g} CPU{f', {pool.gpus:g} GPU' if pool.gpus else ''})"
