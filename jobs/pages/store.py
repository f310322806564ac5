"""What `store` shows: what was compacted, removed and forgotten."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from jobs.store.collect import UNUSED, Collected
from jobs.store.compact import Compacted
from jobs.store.forget import Forgotten
from jobs.terminal.formats import plain, size

_LISTED = 20  # runs that are named


def collected_page(compacted: Sequence[Compacted], found: Sequence[Collected], unused: str, *, dry_run: bool) -> RenderableType:
    """Returns a row per space that was compacted, and one per space of which something goes, or would go."""
    parts: list[RenderableType] = []
    if compacted:
        table = _table("kind", "space", right=("files", "now", "bytes", "now", "rows", "dropped"))
        for one in compacted:
            files, sizes = [f"{count:,}" for count in one.files], [size(count) for count in one.size]
            table.add_row(one.space.kind, one.space.name[:12], *files, *sizes, f"{one.rows:,}", f"{one.dropped:,}")
        parts.append(table)
    if not found:
        return Group(*parts, Text(f"nothing to remove: every space was used within {unused}"))
    table = _table("kind", "space", right=("rows", "bytes", "files"))
    table.add_column("last used", no_wrap=True)
    table.add_column("why")
    for due in found:
        why = f"not used for {unused}" if due.why == UNUSED else "all rows are older than store_ttl"
        figures = (f"{due.rows:,}", size(due.size), f"{due.files:,}")
        table.add_row(due.space.kind, due.space.name[:12], *figures, due.used or "-", why)
    rows, bytes_ = sum(due.rows for due in found), sum(due.size for due in found)
    words = "would go; nothing was removed" if dry_run else "removed"
    return Group(*parts, table, Text(f"{rows:,} rows, {size(bytes_)}: {words}"))


def forgotten_page(found: Forgotten, *, dry_run: bool) -> RenderableType:
    """Returns what was forgotten, or would be."""
    kinds = ", ".join(f"{kind} {rows:,}" for kind, rows in sorted(found.rows.items()) if rows)
    verb = "would go" if dry_run else "gone"
    lines = [f"query_id {found.query_id}", f"rows {verb}: {found.rows.total():,}" + (f" ({kinds})" if kinds else "")]
    lines[-1] += f" in {found.files:,} files"
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
