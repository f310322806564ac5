"""What `runs` prints beside its list: a query in all runs (`--query`), and which runs go (`--prune`)."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from jobs.runs.look_up import HadQuery, LookedUp, NewestRewrites
from jobs.runs.old.prune import OldRun, Pruning
from jobs.tables import NOTES
from jobs.terminal.formats import one_line, plain, size


def looked_up_page(found: LookedUp) -> RenderableType:
    """Returns a query's newest rewrites, and the runs that had it."""
    parts: list[RenderableType] = []
    for one in found.newest:
        parts += [*_newest(one), ""]
    if not found.newest and found.had:
        parts += [Text("no run that had it has done it yet"), ""]
    if found.had:
        parts.append(_nights(found.had))
    else:
        parts.append(Text(f"none of {found.runs:,} runs had {one_line(found.normalised)!r}"))
    parts += [Text(f"not looked through: {plain(run)}: {one_line(why)}") for run, why in found.unread.items()]
    return Group(*parts)


def _newest(one: NewestRewrites) -> Iterator[RenderableType]:
    """Yields the rewrites of a query with what is special of it."""
    yield Text(f"{one_line(one.had.query)}  ({one.had.query_id}; {plain(one.had.night)}, {plain(one.had.run_id)})", "bold")
    for words in (*_told(one.had), *(["sent with placeholders for its personal data (masked)"] if one.masked else [])):
        yield Text(f"  {words}")
    table = Table(box=None, show_header=False, padding=(0, 2, 0, 2))
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    table.add_column(no_wrap=True, style="dim")
    for row in one.rewrites:
        number = f" {row['position']}" if row["position"] > 1 else ""
        table.add_row(
            plain(row["strategy"]) + number, one_line(row["text"]), ", ".join([row["parsed_as"], *(row["guards"] or ())])
        )
    for error in one.errors:
        if error["stage"] == "rewrite" and error["component"]:
            state = "note" if error["reason"] in NOTES else "failed"
            table.add_row(plain(error["component"]), f"{state}: {error['reason']}: {one_line(error['message'])}", "")
    yield table if table.row_count else Text("  no rewrite")


def _told(had: HadQuery) -> list[str]:
    """Returns what tells a query from others of the same words."""
    found = [] if had.context is None else [f"after earlier turns: {one_line(had.context)}"]
    filters = ", ".join(f"{name}: {value}" for name, value in had.filters.items())
    return found + ([f"searched where {one_line(filters)}"] if filters else [])


def _nights(had: list[HadQuery]) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="bold")
    for title in ("night", "run"):
        table.add_column(title, overflow="fold")
    table.add_column("asked", justify="right", no_wrap=True)
    table.add_column("")
    for one in had:
        words = [] if one.committed else ["not done yet"]
        words += ["ablation"] if one.ablation else []
        words += [f"replay of {one.replay_of}"] if one.replay_of is not None else []
        table.add_row(plain(one.night), plain(one.run_id), f"{one.log_count:,}", "; ".join([*words, *_told(one)]))
    return table


def pruning_page(found: Pruning, *, dry_run: bool) -> RenderableType:
    """Returns which runs have gone, or would, and why others stay."""
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="bold")
    table.add_column("run", overflow="fold")
    for title in ("state", "last work"):
        table.add_column(title, no_wrap=True)
    for title in ("rows", "files", "bytes"):
        table.add_column(title, justify="right", no_wrap=True)
    for one in found.going:
        rows = "?" if one.rows is None else f"{one.rows:,}"
        table.add_row(plain(one.run_id), one.state, _day(one.last), rows, f"{one.files:,}", size(one.size))
    number, whole = len(found.going), size(sum(one.size for one in found.going))
    what = "would go" if dry_run else "is removed" if number == 1 else "are removed"
    parts: list[RenderableType] = [table] if found.going else []
    parts.append(Text(f"{number:,} run{'s' * (number != 1)} {what}, {whole}"))
    if answers := sum(one.answers for one in found.going):
        parts.append(Text(f"{answers:,} answers that they alone have {'go' if dry_run else 'went'} into the store first"))
    others = {run: why for run, why in found.kept.items() if why != "young"}
    young = len(found.kept) - len(others)
    parts += [Text(f"{young:,} stay{'s' * (young == 1)}: not old enough")] if young else []
    parts += [Text(f"stays: {plain(run)}: {plain(why)}") for run, why in others.items()]
    return Group(*parts)


def removal_words(one: OldRun) -> str:
    """Returns what goes with a run, in a line."""
    rows = "" if one.rows is None else f"{one.rows:,} rows, "
    answers = f"; {one.answers:,} answers go into the store first" if one.answers else ""
    return f"removing {one.run_id}: {rows}{one.files:,} files, {size(one.size)}{answers}"


def _day(seconds: float | None) -> str:
    return "?" if seconds is None else datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M")
