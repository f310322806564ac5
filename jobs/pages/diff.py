"""The output of `diff` for a person."""

from __future__ import annotations

import math
from collections.abc import Iterator

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from jobs.measure.diff.changed_queries import MovedQuery, Moves, Share
from jobs.measure.diff.diff import Cost, Diff
from jobs.measure.diff.quality import Paired, QueryChange
from jobs.measure.frame import ANSWERS
from jobs.measure.measures import title
from jobs.measure.notes import (
    HEADINGS,
    detectable_words,
    ends_in_words,
    interval_notes,
    interval_words,
    judge_notes,
    judged_note,
)
from jobs.terminal.formats import duration, figure, money, p_words, percent, shown

MOST_LINES = 20  # of a section of what was given
_WIDTH = 60  # characters of a text
MOST_TURNS = 120  # characters of the earlier turns, the last ones
_WHOLE = 500  # characters of a value: where long ones differ must be seen


def diff_page(found: Diff) -> RenderableType:
    """Returns what differs between two runs: what they were given, what came out, what it cost, how good it is."""
    return Group(*_parts(found))


def _parts(found: Diff) -> Iterator[RenderableType]:
    for name, run in (("A", found.a), ("B", found.b)):
        yield Text(f"{name}  {run.storage.root} ({run.state})", overflow="fold")
    if found.a.storage.root == found.b.storage.root:
        yield Text("A and B are the same run")
    yield _title("given", "what differs, A and B")
    yield _in(_given(found))
    yield _title("came out", "by query, and by traffic: how often the log has the query")
    yield _in(_moves(found.moves))
    if (one := _collected(found)) is not None:
        yield _in(Text(f"{one} alone has collections, which stand in its documents' ids: no document is in both"))
    if found.texts[0] != found.texts[1]:
        yield _in(Text("rewrites of a query, on average: A {:.2f}, B {:.2f}".format(*found.texts)))
    if found.moves.listed:
        yield _title("moved", "the queries that were asked most often, of those that moved")
        yield _in(Group(*(_moved(one, found.moves.depth) for one in found.moves.listed)))
    yield _title("cost", "of 1,000 queries; seconds are of work, start-up included")
    yield _in(_costs(found.costs))
    if found.quality is not None:
        yield _title("quality", "")
        yield from (_in(part) for part in _quality(found.quality))
        if (one := _collected(found)) is not None and found.quality.warning is None:
            words = f"judged documents that are named with a collection cannot be found by the other run than {one}"
            yield _in(Text(words))
    if found.answers is not None:
        yield _title("answers", "against gold answers")
        yield from (_in(part) for part in _quality(found.answers))
    for of_kind in found.judged:
        yield _title(of_kind.kind, HEADINGS[of_kind.kind])
        yield from (_in(part) for part in _quality(of_kind))
    if found.notes:
        yield _title("not compared", "")
        yield from (_in(Text(note)) for note in found.notes)


def _collected(found: Diff) -> str | None:
    """Returns which run alone calls documents by their collections; None: both do, or neither."""
    with_them = [name for name, run in (("A", found.a), ("B", found.b)) if run.config.retrieve.collections]
    return with_them[0] if len(with_them) == 1 else None


def _title(name: str, words: str) -> Text:
    return Text.assemble(("\n" + name + "  ", "bold cyan"), (words, "dim"))


def _in(part: RenderableType) -> Padding:
    return Padding(part, (0, 0, 0, 2))


def _grid(*heads: str, space: int = 2) -> Table:
    """Returns a table without lines; all columns but the first are aligned to the right, `space` columns between them."""
    table = Table(box=None, show_edge=False, show_header=any(heads), padding=(0, space, 0, 0), header_style="dim")
    for place, head in enumerate(heads):
        table.add_column(head, justify="left" if place == 0 else "right", overflow="fold")
    return table


def _text(value: object, limit: int = _WIDTH) -> str:
    words = ", ".join(map(str, value)) if isinstance(value, list) else "-" if value is None else str(value)
    return " ".join(shown(words, limit).split())


def _given(found: Diff) -> RenderableType:
    table = Table(box=None, show_edge=False, show_header=False, padding=(0, 2, 0, 0))
    for ratio in (0, 2, 2, 2):
        table.add_column(ratio=ratio or None, no_wrap=not ratio, overflow="fold")
    for section, changed in found.changes.items():
        if not changed:
            table.add_row(section, Text("the same", style="dim"))
        for place, one in enumerate(changed[:MOST_LINES]):
            table.add_row("" if place else section, *(Text(_text(value, _WHOLE)) for value in one))
        if len(changed) > MOST_LINES:
            table.add_row("", Text(f"{len(changed) - MOST_LINES:,} more (--json has all)", style="dim"))
    lines = []
    for name, of in found.prompt_lines.items():
        lines += [Text(f"prompt of {name}:"), *(Text(f"  {shown(line)}", overflow="fold") for line in of)]
    return Group(table, *lines)


def _moves(moved: Moves) -> RenderableType:
    table = _grid("", "queries", "", "asked", "")

    def row(name: str, share: Share) -> None:
        shares = [percent(part / whole) if whole else "" for part, whole in zip(share, moved.both, strict=True)]
        table.add_row(Text(name), f"{share.queries:,}", shares[0], f"{share.asked:,}", shares[1])

    for name, share in (("queries in both", moved.both), ("only in A", moved.only_a), ("only in B", moved.only_b)):
        table.add_row(name, f"{share.queries:,}", "", f"{share.asked:,}", "")
    row("other rewrites (of strategies in both)", moved.rewrites)
    for one in moved.strategies:
        alone = "" if bool(one.a.queries) == bool(one.b.queries) else f", only in {'A' if one.a.queries else 'B'}"
        row(f"  {one.strategy}{alone}", one.moved)
        for name, share in (("A", one.selected_a), ("B", one.selected_b)):
            if share.queries:
                row(f"    selected in {name} only", share)
    row(f"first {moved.depth} documents moved", moved.documents)
    row("  other documents", moved.others)
    row("  another first document", moved.first)
    if moved.overlap is None:
        return table
    return Group(table, Text(f"{percent(moved.overlap)} of the first {moved.depth} are in both, on average by traffic"))


def _moved(one: MovedQuery, depth: int) -> RenderableType:
    first = [_text(doc_id, 30) for doc_id in one.first]
    if not one.moved:
        words = f"the same first {depth} documents"
    else:
        words = f"{one.overlap:.0%} of the first {depth} in both".replace("%", " %")
        words += "" if first[0] == first[1] else f", the first {first[0]} -> {first[1]}"
    asked = "once" if one.asked == 1 else f"{one.asked:,} times"
    lines = [Text.assemble((_text(one.query), "bold"), f"  ({asked}; {words})")]
    lines += [Text(f"  {words}", style="dim", overflow="fold") for words in _asked_with(one)]
    lines += [Text(f"  {name}: {_text(a)} -> {_text(b)}", overflow="fold") for name, (a, b) in one.rewrites.items()]
    for run in ("A", "B"):
        if names := [strategy for strategy, of in one.selected.items() if of == run]:
            lines.append(Text(f"  selected in {run} only: {', '.join(names)}", overflow="fold"))
    return Group(*lines)


def _costs(costs: list[Cost]) -> Table:
    table = _grid("", "", "A", "B", "change")
    table.columns[1].justify = "left"
    stage = ""
    for one in costs:
        if one.stage != "total" and one.quantity not in ("usd", "seconds"):  # the rest is in the total, and in --json
            continue
        change = f"{(one.b - one.a) / one.a:+.1%}".replace("%", " %") if one.a else ""
        values = (_amount(one.quantity, value) for value in (one.a, one.b))
        table.add_row("" if one.stage == stage else one.stage, one.quantity.replace("_", " "), *values, change)
        stage = one.stage
    return table


def _amount(quantity: str, value: float) -> str:
    if quantity == "usd":
        return money(value)
    return duration(value) if quantity.endswith("seconds") else f"{value:,.1f}"


def _quality(paired: Paired) -> Iterator[RenderableType]:
    if paired.warning is not None:
        yield Text(f"warning: {paired.warning}")
        return
    table = _grid("", "A", "B", "difference", interval_words(), "p", "better", "worse", space=1)
    for name, one in paired.measures.items():
        means = figure(one.a), figure(one.b), figure(one.difference, "+")
        table.add_row(
            title(name),
            *means,
            ends_in_words(one.interval),
            p_words(math.nan if one.p is None else one.p),
            f"{one.better:,}",
            f"{one.worse:,}",
        )
    yield table
    yield Text("\n".join(_notes(paired)))
    for words, listed in (("gained", paired.gained), ("lost", paired.lost)):
        if listed:
            yield Text(f"\n{words} most, by {paired.ranked_by}", style="dim")
            yield _changed(listed)


def _changed(listed: list[QueryChange]) -> Table:
    table = _grid("", "", "", "", "")
    table.columns[4].justify = "left"
    for one in listed:
        asked = "once" if one.asked == 1 else f"{one.asked:,} times"
        table.add_row(
            figure(one.b - one.a, "+"),
            figure(one.a),
            figure(one.b),
            asked,
            Text(_text(one.query) + (f" ({'; '.join(with_it)})" if (with_it := _asked_with(one)) else "")),
        )
    return table


def _asked_with(one: MovedQuery | QueryChange) -> list[str]:
    """Returns the end of the query's earlier turns, in words."""
    return [f"after: {_turns(one.context)}"] if one.context else []


def _turns(context: str) -> str:
    """Returns the end of the earlier turns, in one line: what a query follows stands last."""
    words = " ".join(context.split())
    return _text(words if len(words) <= MOST_TURNS else f"... {words[-MOST_TURNS:]}", 2 * MOST_TURNS)


def _notes(paired: Paired) -> list[str]:
    left = (
        (paired.missing[0], "not in the log of A"),
        (paired.missing[1], "not in the log of B"),
        (paired.not_committed[0], "not committed in A"),
        (paired.not_committed[1], "not committed in B"),
        (paired.others, "another query in B than in A"),
    )
    counted = paired.key, paired.counted, paired.queries
    notes = [judged_note(*counted, *left, clusters=paired.clusters, where=" in both", gold=paired.kind == ANSWERS)]
    notes = judge_notes(paired.judge) + notes
    sides = zip("AB", paired.unjudged, paired.first, strict=True)
    shares = [(name, share, first) for name, share, first in sides if share is not None]
    if shares:
        words = ", ".join(f"{100 * share:.1f} % of {name}'s first {first} results" for name, share, first in shares)
        notes.append(f"not judged, so not relevant: {words}")
    notes += paired.left_out
    untested = [name for name, one in paired.measures.items() if one.interval is None]
    notes += interval_notes(f"B - A, paired by query; {interval_words()}", paired.clusters, paired.counted, untested)
    notes += detectable_words({name: one.detectable for name, one in paired.measures.items() if one.detectable is not None})
    return [*notes, "better, worse: queries with a higher or lower value in B"]
