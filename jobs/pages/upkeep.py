"""The output of `runs`, `export` and `store`: the list of runs, how far one is, a version, what goes from a store."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from rich.console import Group, RenderableType
from rich.text import Text

from cluster.outages import Outage
from jobs.measure.measures import MEASURES
from jobs.measure.run_list import ListedRun, leading, measured, measured_answers
from jobs.pages.render import Head, Section, Table, render
from jobs.runs.status import Status
from jobs.store.collect import UNUSED, Collected
from jobs.store.compact import Compacted
from jobs.store.forget import Forgotten
from jobs.terminal.formats import clock, count, figure, masked, money, per_second, percent, plain, size
from jobs.terminal.live_display import fact_lines, facts, stage_lines
from jobs.terminal.state import StageState, State

_LISTED = 20  # runs that hold a forgotten query and are named


def runs_table(runs: Sequence[ListedRun]) -> Table:
    """Returns the runs in the given order with state, queries, quality and cost; below it retries and judging LLMs."""
    measure = next((name for name in map(leading, reversed(runs)) if name is not None), MEASURES[0])  # that of the newest run
    of_answers = list(dict.fromkeys(name for run in runs for name in measured_answers(run)))
    columns = [Head("run, begun (UTC), state"), Head("queries", count), Head("failed", count)]
    columns += [Head(name, figure) for name in (measure, "original", *of_answers)]
    rows: list[list[Any]] = []
    notes: dict[str, None] = {}
    for run in runs:
        if run["retry"] is not None:
            notes |= {f"{run['run_id']} is a retry of {run['retry']['of']}: {', '.join(run['retry']['reasons'])}": None}
        name = f"{run['run_id']}\n  {run['began'][:16].replace('T', ' ')} {run['state']}"
        row = [name, run["queries"], run["failed"], measured(run, "results", measure), measured(run, "original", measure)]
        rows.append([*row, *(measured_answers(run).get(name) for name in of_answers), run["usd"]])
        evaluation = run["evaluation"] or {}
        for figures in (evaluation, *evaluation.get("judged_answers", {}).values()):
            notes |= {f"judged by {figures['judged_by']}, an LLM, and LLMs over-rate": None} if "judged_by" in figures else {}
    return Table([*columns, Head("cost", money)], rows, note="\n".join(notes))


def runs_page(output: str, runs: Sequence[ListedRun]) -> str:
    """Returns the list of the runs below an output as one HTML page."""
    finished = sum(run["state"].startswith("finished") for run in runs)
    sentence = f"{finished:,} of {len(runs):,} runs are finished; the newest one stands last."
    return render("List of runs", masked(output), [], "", [Section("runs", "Runs", sentence, [runs_table(runs)])], texts=True)


def status_page(status: Status) -> RenderableType:
    """Returns the progress of a run, without its folder."""
    progress = status.progress
    table = facts(((name, Text(words)) for name, words in _status_facts(status)), least=8)
    if not progress:
        return table
    state = State(
        progress["phase"],
        done=progress["queries"]["committed"],
        total=progress["queries"]["total"],
        errors=progress["errors"]["queries"],
        reasons=progress["errors"]["reasons"],
        usd=progress["usd"],
        stages=[StageState(**stage) for stage in progress["stages"]],
        quantities=progress["quantities"],
        outages=[Outage(**outage) for outage in progress.get("outages", ())],
    )
    stages = stage_lines(state.stages, state.total) if status.state == "running" else []
    return Group(table, *stages, *fact_lines(state))


def _status_facts(status: Status) -> Iterator[tuple[str, str]]:
    last, progress, runs = status.holder, status.progress, status.state == "running"
    driver, heartbeat = f"{plain(last.host)} (process {last.pid})", f"last heartbeat {_ago(status, last.heartbeat)} ago"
    if runs:
        yield "state", f"running on {driver} for {_ago(status, last.began)}, {heartbeat}"
    elif status.state == "stale":
        yield "state", f"stale: {heartbeat}, {driver} is gone; run it again"
    else:
        reason = plain(status.reason or "")
        yield "state", reason if reason.startswith(status.state) else ": ".join(filter(None, [status.state, reason]))
    if runs and progress:
        yield "phase", plain(progress["phase"])
    planned = "a number not known yet" if status.planned is None else f"{status.planned:,}"
    yield "shards", f"{status.committed:,} of {planned} committed"
    if not progress:
        return
    queries = progress["queries"]
    if queries["total"]:
        facts = [f"{queries['committed'] if status.queries is None else status.queries:,} of {queries['total']:,} committed"]
        facts += [per_second(queries["per_second"])] if runs and queries["per_second"] else []
        left = "waiting" if progress.get("outages") else queries["eta_seconds"] and clock(queries["eta_seconds"])
        yield "queries", ", ".join([*facts, *([f"ETA {left}"] if runs and left else [])])
    if status.state == "stale" or status.behind:
        then = f"with {queries['committed']:,} queries committed and others under way"
        yield "as of", f"{_ago(status, progress['written'])} ago, {then}: the rows below"
    if progress.get("traffic_covered") is not None and status.committed != status.planned:
        yield "traffic", f"{percent(progress['traffic_covered'])} covered"


def _ago(status: Status, moment: float) -> str:
    return clock(max(0.0, status.now - moment))


def export_page(export: Mapping[str, Any]) -> RenderableType:
    """Returns a version, its checks, and which version is current, of the values of an export."""
    counts = export["counts"]
    served = counts["served_traffic"] / counts["traffic"] if counts["traffic"] else 0.0
    rows = {
        "version": f"{export['run_id']}{', was there already' * export['existed']}",
        "rows": f"{counts['rows']:,}, {percent(served)} of their traffic with rewrites or documents",
        "rewrites": f"{counts['rewrites']:,}",
        "hits": f"{counts['hits']:,}",
        "file": f"{export['file']}, {size(export['size'])}",
        **{check["name"]: check["text"] for check in export["checks"]},
        "current": (export["current"] or "none") + (f", before it {export['before']}" if export["before"] else ""),
    }
    return facts((name, plain(text)) for name, text in rows.items())


def collected_page(
    compacted: Sequence[Compacted], collected: Sequence[Collected], unused: str, *, dry_run: bool
) -> RenderableType:
    """Returns a row per space that was compacted, and one per space of which something goes, or would go."""
    parts: list[RenderableType] = []
    names = [Head("kind"), Head("space")]
    if compacted:
        columns = [Head("files", count), Head("now", count), Head("bytes", size), Head("now", size)]
        rows = [[one.space.kind, one.space.name[:12], *one.files, *one.size, one.rows, one.dropped] for one in compacted]
        parts.append(Table([*names, *columns, Head("rows", count), Head("dropped", count)], rows).terminal())
    if not collected:
        return Group(*parts, Text(f"nothing to remove: every space was used within {unused}"))
    rows = []
    for due in collected:
        why = f"not used for {unused}" if due.why == UNUSED else "all rows are older than store_ttl"
        rows.append([due.space.kind, due.space.name[:12], due.rows, due.size, due.files, due.used or None, why])
    columns = [Head("rows", count), Head("bytes", size), Head("files", count), Head("last used"), Head("why")]
    outcome = "would go; nothing was removed" if dry_run else "removed"
    total = f"{sum(due.rows for due in collected):,} rows, {size(sum(due.size for due in collected))}: {outcome}"
    return Group(*parts, Table([*names, *columns], rows).terminal(), Text(total))


def forgotten_page(forgotten: Forgotten, *, dry_run: bool) -> RenderableType:
    """Returns the rows that were forgotten, or would be."""
    kinds = ", ".join(f"{kind} {rows:,}" for kind, rows in sorted(forgotten.rows.items()) if rows)
    text = f"rows {'would go' if dry_run else 'gone'}: {forgotten.rows.total():,}" + f" ({kinds})" * bool(kinds)
    lines = [f"query_id {forgotten.query_id}", f"{text} in {forgotten.files:,} files"]
    lines += [f"with it {len(forgotten.others):,} other queries, whose rows have its words"] * bool(forgotten.others)
    return Text("\n".join(lines))


def holding_runs(forgotten: Forgotten) -> list[str]:
    """Returns lines about the runs that still hold a forgotten query."""
    if forgotten.runs is None:
        return ["which runs hold it is not known: give a config, or the store beside its runs"]
    if not forgotten.runs:
        return ["no run holds it"]
    lines = [f"runs that still hold it ({len(forgotten.runs):,}); they are not edited, remove them:"]
    more = [f"  and {len(forgotten.runs) - _LISTED:,} more (--json has all)"] * (len(forgotten.runs) > _LISTED)
    return [*lines, *(f"  {plain(run)}" for run in forgotten.runs[:_LISTED]), *more]
