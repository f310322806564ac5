"""What `store` shows: what lies in a store, and what became of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from cluster.costs import TOKENS
from jobs.store.collect import UNUSED, Collected
from jobs.store.compact import Compacted
from jobs.store.forget import Forgotten
from jobs.store.stats import Saved, SpaceStats, StoreStats
from jobs.terminal.formats import clock, money, plain, short, size

_LISTED = 20  # runs that are named


def stats_page(stats: StoreStats) -> RenderableType:
    """Returns a row per space, and what runs have saved."""
    table = _table("kind", "space", "made by", right=("rows", "bytes", "files", "together"))
    table.add_column("last used", no_wrap=True)
    for one in stats.spaces:
        figures = (f"{one.rows:,}", size(one.size), f"{one.files:,}", f"{one.most_together:,}")
        table.add_row(one.kind, one.name[:12], made_by(one.about), *figures, one.used or "-")
    lines = [_whole(stats), *map(_paid, filter(lambda one: any(one.paid.values()), stats.spaces))]
    if waiting := sum(one.replaced for one in stats.spaces):
        lines.append(f"{waiting:,} files stay beside these until jobs that may read them have ended: others have replaced them")
    if stats.forgotten:
        lines.append(f"{stats.forgotten:,} forgotten, of which nothing of before counts")
    lines += _saved(stats)
    return Group(table, Text("\n".join(lines))) if stats.spaces else Text("\n".join(["nothing is stored", *lines[1:]]))


def _whole(stats: StoreStats) -> str:
    rows, bytes_ = sum(one.rows for one in stats.spaces), sum(one.size for one in stats.spaces)
    spaces = len(stats.spaces)
    return f"{rows:,} rows in {spaces:,} space{'s' * (spaces != 1)}, {size(bytes_)}"


def _paid(one: SpaceStats) -> str:
    tokens = one.paid.get("prompt_tokens", 0), one.paid.get("completion_tokens", 0)
    seconds = clock(one.paid.get("seconds", 0))
    return (
        f"{one.name[:12]} cost {short(tokens[0])} prompt and {short(tokens[1])} completion tokens, {seconds}, when it was made"
    )


def _saved(stats: StoreStats) -> list[str]:
    if stats.runs is None:
        return ["what it has saved is not known: give a config, or the store beside its runs"]
    of = f"{stats.runs:,} run{'s' * (stats.runs != 1)}"
    if not stats.saved:
        return [f"{of} took nothing from it"]
    known = [one.usd for one in stats.saved if one.usd is not None]
    tokens = any(one.usd and one.quantities.keys() & set(TOKENS) for one in stats.saved)
    at = ", tokens at the prices of the standard tier" if tokens else ""  # of which tier a stored answer was is not kept
    total = f", {money(sum(known))}{at}" if known else ", not in money: there are no prices"
    return [f"saved by {of}: {sum(one.reused for one in stats.saved):,} reused{total}", *map(_line, stats.saved)]


def _line(one: Saved) -> str:
    what = plain(f"{one.stage} {one.component}".rstrip())
    told = {name: one.quantities.get(name, 0) for name in ("prompt_tokens", "completion_tokens", "searches", "seconds")}
    words = [f"{short(value)} {name.replace('_', ' ')}" for name, value in told.items() if value and name != "seconds"]
    words += [clock(told["seconds"])] if told["seconds"] else []
    words += [money(one.usd)] if one.usd is not None else []
    return f"  {what}: {one.reused:,} reused" + (f" in place of about {', '.join(words)}" if words else "")


def made_by(about: Mapping[str, Any]) -> str:
    """Returns the model, retriever or provider of a space, as it was noted when it was begun."""
    for key in ("engine", "reranker", "encoder"):
        if isinstance(one := about.get(key), dict):
            return plain(str(one.get("model") or one.get("kind") or key))
    return plain(str(about.get("retriever") or "-"))


def compacted_page(done: Sequence[Compacted]) -> RenderableType:
    """Returns a row per space that was compacted."""
    if not done:
        return Text("nothing to do: no two files hold one range")
    table = _table("kind", "space", right=("files", "now", "bytes", "now", "rows", "dropped"))
    for one in done:
        files, sizes = [f"{count:,}" for count in one.files], [size(count) for count in one.size]
        table.add_row(one.space.kind, one.space.name[:12], *files, *sizes, f"{one.rows:,}", f"{one.dropped:,}")
    return table


def collected_page(found: Sequence[Collected], unused: str, *, dry_run: bool) -> RenderableType:
    """Returns a row per space of which something goes, or would go."""
    if not found:
        return Text(f"nothing to remove: every space was used within {unused}")
    table = _table("kind", "space", right=("rows", "bytes", "files"))
    table.add_column("last used", no_wrap=True)
    table.add_column("why")
    for one in found:
        why = f"not used for {unused}" if one.why == UNUSED else "all rows are older than store_ttl"
        figures = (f"{one.rows:,}", size(one.size), f"{one.files:,}")
        table.add_row(one.space.kind, one.space.name[:12], *figures, one.used or "-", why)
    rows, bytes_ = sum(one.rows for one in found), sum(one.size for one in found)
    words = "would go; nothing was removed" if dry_run else "removed"
    return Group(table, Text(f"{rows:,} rows, {size(bytes_)}: {words}"))


def forgotten_page(found: Forgotten, *, dry_run: bool) -> RenderableType:
    """Returns what was forgotten, or would be."""
    kinds = ", ".join(f"{kind} {rows:,}" for kind, rows in sorted(found.rows.items()) if rows)
    verb = "would go" if dry_run else "gone"
    lines = [f"query_id {found.query_id}", f"rows {verb}: {found.rows.total():,}" + (f" ({kinds})" if kinds else "")]
    lines[-1] += f" in {found.files:,} files"
    if found.filtered:
        lines.append(f"with it the same query with filters, {len(found.filtered):,} ids by the runs that had it")
    if found.others:
        lines.append(f"with it {len(found.others):,} other queries, whose rows have its words")
    return Text("\n".join(lines))


def holding_runs(found: Forgotten) -> list[str]:
    """Returns lines about the runs that still hold a forgotten query."""
    if found.runs is None:
        return ["which runs hold it is not known: give a config, or the store beside its runs"]
    if not found.runs:
        return ["no run holds it"]
    words = f"runs that still hold it ({len(found.runs):,}); they are not edited, remove them:"
    more = len(found.runs) - _LISTED
    lines = [words, *(f"  {plain(one)}" for one in found.runs[:_LISTED])]
    return lines + ([f"  and {more:,} more (--json has all)"] if more > 0 else [])


def _table(*left: str, right: Sequence[str]) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="bold")
    for name in left:
        table.add_column(name, overflow="fold")
    for name in right:
        table.add_column(name, justify="right", no_wrap=True)
    return table
