"""What `store` shows: what was compacted, removed and forgotten."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Group, RenderableType
from rich.text import Text

from jobs.pages.render import Head, Table, count
from jobs.store.collect import UNUSED, Collected
from jobs.store.compact import Compacted
from jobs.store.forget import Forgotten
from jobs.terminal.formats import plain, size

_LISTED = 20  # runs that are named


def collected_page(compacted: Sequence[Compacted], found: Sequence[Collected], unused: str, *, dry_run: bool) -> RenderableType:
    """Returns a row per space that was compacted, and one per space of which something goes, or would go."""
    names = [Head("kind"), Head("space")]
    parts: list[RenderableType] = []
    if compacted:
        columns = [Head("files", count), Head("now", count), Head("bytes", size), Head("now", size)]
        rows = [[one.space.kind, one.space.name[:12], *one.files, *one.size, one.rows, one.dropped] for one in compacted]
        parts.append(Table([*names, *columns, Head("rows", count), Head("dropped", count)], rows).terminal())
    if not found:
        return Group(*parts, Text(f"nothing to remove: every space was used within {unused}"))
    why = {UNUSED: f"not used for {unused}"}
    rows = [
        [due.space.kind, due.space.name[:12], due.rows, due.size, due.files, due.used or None,
         why.get(due.why, "all rows are older than store_ttl")]
        for due in found
    ]  # fmt: skip
    columns = [
        Head("rows", count),
        Head("bytes", size),
        Head("files", count),
        Head("last used"),
        Head("why"),
    ]
    words = "would go; nothing was removed" if dry_run else "removed"
    total = f"{sum(due.rows for due in found):,} rows, {size(sum(due.size for due in found))}: {words}"
    return Group(*parts, Table([*names, *columns], rows).terminal(), Text(total))


def forgotten_page(found: Forgotten, *, dry_run: bool) -> RenderableType:
    """Returns what was forgotten, or would be."""
    kinds = ", ".join(f"{kind} {rows:,}" for kind, rows in sorted(found.rows.items()) if rows)
    verb = "would go" if dry_run else "gone"
    words = f"query_id {found.query_id}\nrows {verb}: {found.rows.total():,}" + (f" ({kinds})" if kinds else "")
    words += f" in {found.files:,} files"
    if found.others:
        words += f"\nwith it {len(found.others):,} other queries, whose rows have its words"
    return Text(words)


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
