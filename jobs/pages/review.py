"""The output of `review` for a person."""

from __future__ import annotations

from collections.abc import Iterator

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from jobs.review.choice import REASONS
from jobs.review.filled import FilledSheet
from jobs.review.merged import MergedFile
from jobs.review.recall import RecallRow
from jobs.review.review import Review
from jobs.terminal.formats import percent, queries


def review_page(found: Review) -> RenderableType:
    """Returns how many rows are worth a look, why, and how many documents queries find."""
    return Group(*_parts(found))


def _parts(found: Review) -> Iterator[RenderableType]:
    left = found.found - len(found.rows)
    words = f"{found.found:,} rows worth a look, {len(found.rows):,} written"
    yield Text(words + (f", {left:,} left out (--rows)" if left else ""))
    values = found.values()["reasons"]
    if values:
        table = _table("reason", "rows", "written", "")
        for reason, counts in values.items():
            table.add_row(reason, f"{counts['found']:,}", f"{counts['written']:,}", REASONS[reason])
        table.columns[3].justify = "left"
        yield table
    if found.settled:
        yield Text(f"left out: {queries(found.settled)} that a rewrite moves which a person has approved")
    yield Text("")
    yield from _recall(found)
    for note in (found.unknown and f"not known: what the original alone finds, since {found.unknown}", found.without_text):
        if note:
            yield Text(note)


def _recall(found: Review) -> Iterator[RenderableType]:
    least = "" if found.least is None else f" with a reranker's score of {found.least:g} or more"
    yield Text(
        f"queries that find no document{least}, or fewer than {found.low}, by traffic; in brackets the share of searches"
    )
    known = found.recall[-1].before is not None
    heads = ["traffic", "queries", "searches", *["none, original"] * known, "none, served", *["few, original"] * known]
    table = _table(*heads, "few, served", *["helped", "lost"] * known)
    for row in found.recall:
        table.add_row(row.name, f"{row.queries:,}", f"{row.asked:,}", *_shares(row))
    yield table
    if known:
        yield Text("helped: the original alone finds none, what is served has some; lost: the other way round")


def _shares(row: RecallRow) -> Iterator[str]:
    for kind in ("zero", "low"):
        for side in (row.before, row.after):
            if side is not None:
                yield _share(side[kind], row)
    for of in (row.helped, row.lost):
        if of is not None:
            yield _share(of, row)


def _share(of: tuple[int, int], row: RecallRow) -> str:
    return f"{of[0]:,} ({percent(of[1] / row.asked)})" if of[0] and row.asked else f"{of[0]:,}"


def _table(*heads: str) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 0))
    for place, head in enumerate(heads):
        table.add_column(head, justify="right" if place else "left")
    return table


def filled_page(sheet: FilledSheet, merged: dict[str, MergedFile]) -> RenderableType:
    """Returns what was read of a filled sheet, and what was added to which file."""
    lines = [f"{sheet.rows:,} rows, {sheet.empty:,} not filled in"]
    for what, one in merged.items():
        known = f", {one.known:,} there already" if one.known else ""
        left = f"; it has no column note for {one.notes_left:,} of them" if one.notes_left else ""
        lines.append(f"{one.path}: {one.added:,} {what} added{known}{left}")
    return Text("\n".join(lines))
