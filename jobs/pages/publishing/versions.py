"""What `export`, `promote` and `rollback` show: a version, what was left out of it, gates, which version is promoted."""

from __future__ import annotations

from collections.abc import Iterator

from rich.console import RenderableType

from jobs.publish.export import DoneExport
from jobs.publish.promote import PromotedVersion
from jobs.publish.rows import STRATEGY, VALUE
from jobs.terminal.formats import percent, plain, size
from jobs.terminal.tables import facts

_WORDS = {
    STRATEGY: "of strategies that were not chosen",
    VALUE: "added too little",
}


def export_page(done: DoneExport) -> RenderableType:
    """Returns what an export holds."""
    return facts((name, plain(words)) for name, words in _facts(done))


def _facts(done: DoneExport) -> Iterator[tuple[str, str]]:
    record, counts = done.record, done.record.counts
    yield "version", f"{record.version}{', was there already' if done.existed else ''}"
    yield "run", record.run_id
    served = counts["served_traffic"] / counts["traffic"] if counts.get("traffic") else 0.0
    rows = counts.get("rows", 0)
    yield "rows", f"{rows:,}, {percent(served)} of their traffic with rewrites or hits"
    yield "rewrites", f"{counts.get('rewrites', 0):,}, {counts.get('without_rewrites', 0):,} rows without"
    yield "hits", f"{counts.get('hits', 0):,}, {counts.get('without_hits', 0):,} rows without"
    if record.left_out:
        left = (f"{texts:,} {_WORDS.get(why, f'by the guard {why}')}" for why, texts in sorted(record.left_out.items()))
        yield "left out", f"rewrites: {', '.join(left)}"
    if record.changes is not None:
        words = ", ".join(f"{record.changes[what]:,} {what}" for what in ("new", "changed", "gone", "same"))
        yield f"since {record.changes['since']}", f"rows: {words}"
    for name, found in record.formats.items():
        if found:
            yield name, ", ".join(f"{word.replace('_', ' ')} {count:,}" for word, count in found.items() if count) or "nothing"
    for file in record.files:
        yield file["name"], f"{file['key']}, {size(file['size'])}"


def promotion_page(found: PromotedVersion) -> RenderableType:
    """Returns what the gates say, and which version is promoted."""
    return facts((name, plain(words)) for name, words in _promotion(found))


def _promotion(found: PromotedVersion) -> Iterator[tuple[str, str]]:
    for one in found.gates:
        yield one.name, f"{'holds' if one.passed else 'FAILS'}: {one.said}"
    if not found.done and not found.gates:  # of a rollback that is only looked at
        yield "promoted", f"{found.before or found.version}; nothing was changed"
        yield "rollback to", "no version" if found.before is None else found.version
        return
    if found.done:
        yield "promoted", found.version + (f", before it {found.before}" if found.before not in (None, found.version) else "")
    else:
        yield "promoted", f"{found.before or 'nothing'}; nothing was changed"
        yield "next", found.version
    yield "rollback to", found.history[-1] if found.history else "no version"
