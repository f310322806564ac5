"""What `runs` shows of one run."""

from __future__ import annotations

from typing import Any

from rich.console import Group, RenderableType
from rich.text import Text

from cluster.outages import Outage
from cluster.run.lease import Holder
from jobs.runs.status import Status
from jobs.terminal.display import fact_lines, stage_lines
from jobs.terminal.formats import clock, per_second, percent, plain
from jobs.terminal.state import StageState, State
from jobs.terminal.tables import facts


def status_page(status: Status) -> RenderableType:
    """Returns the page, without the run's folder."""
    progress = status.progress
    table = facts((), least=8)
    table.add_row("state", Text(_state(status)))
    if status.state == "running" and progress:
        table.add_row("phase", Text(plain(progress["phase"])))
    planned = f"{status.planned:,}" if status.planned is not None else "a number not known yet"
    table.add_row("shards", f"{status.committed:,} of {planned} committed")
    if not progress:
        return table
    if progress["queries"]["total"]:
        done = progress["queries"]["committed"] if status.queries is None else status.queries
        queries, waits = progress["queries"] | {"committed": done}, bool(progress.get("outages"))
        table.add_row("queries", _queries(queries, rate=status.state == "running", waits=waits))
    if status.state == "stale" or status.behind:
        table.add_row("as of", f"{clock(max(0.0, status.now - progress['written']))} ago, {_then(progress)}: the rows below")
    if progress.get("traffic_covered") is not None and status.committed != status.planned:
        table.add_row("traffic", f"{percent(progress['traffic_covered'])} covered")
    state = _read(progress)
    stages = stage_lines(state.stages, state.total) if status.state == "running" else []
    return Group(table, *stages, *fact_lines(state))


def _state(status: Status) -> str:
    last, reason = status.holder, f": {plain(status.reason)}" if status.reason else ""
    if status.state == "running":
        return f"running on {_driver(last)} for {clock(max(0.0, status.now - last.began))}, {_heartbeat(status)}"
    if status.state == "stale":
        return f"stale: {_heartbeat(status)}, {_driver(last)} is gone; run it again"
    return reason.removeprefix(": ") if reason.startswith(f": {status.state}") else f"{status.state}{reason}"


def _driver(last: Holder) -> str:
    return f"{plain(last.host)} (process {last.pid})"


def _heartbeat(status: Status) -> str:
    return f"last heartbeat {clock(max(0.0, status.now - status.holder.heartbeat))} ago"


def _queries(queries: dict[str, Any], *, rate: bool, waits: bool) -> str:
    words = f"{queries['committed']:,} of {queries['total']:,} committed"
    if rate and queries["per_second"]:
        words += f", {per_second(queries['per_second'])}"
    if rate and waits:
        words += ", ETA waiting"
    elif rate and queries["eta_seconds"] is not None:
        words += f", ETA {clock(queries['eta_seconds'])}"
    return words


def _then(progress: dict[str, Any]) -> str:
    """Returns what the sums of a progress include."""
    return f"with {progress['queries']['committed']:,} queries committed and others under way"


def _read(progress: dict[str, Any]) -> State:
    """Returns the progress as its driver had it, but for the rate."""
    return State(
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
