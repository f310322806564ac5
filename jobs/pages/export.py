"""The table that `export` prints: a version, its checks, and which version is current."""

from __future__ import annotations

from collections.abc import Iterator

from rich.console import RenderableType

from jobs.export.checks import DoneExport
from jobs.terminal.formats import percent, plain, size
from jobs.terminal.tables import facts


def export_page(done: DoneExport) -> RenderableType:
    """Returns the table."""
    return facts((name, plain(text)) for name, text in _facts(done))


def _facts(done: DoneExport) -> Iterator[tuple[str, str]]:
    version, counts = done.version, done.version.counts
    served = counts["served_traffic"] / counts["traffic"] if counts["traffic"] else 0.0
    yield "version", f"{version.run_id}{', was there already' if done.existed else ''}"
    yield "rows", f"{counts['rows']:,}, {percent(served)} of their traffic with rewrites or documents"
    yield "rewrites", f"{counts['rewrites']:,}"
    yield "hits", f"{counts['hits']:,}"
    yield "file", f"{version.file}, {size(version.size)}"
    for one in done.checks:
        yield one.name, one.text
    yield "current", (done.current or "none") + (f", before it {done.before}" if done.before else "")
