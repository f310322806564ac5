"""The output of `diff` for a person."""

from collections.abc import Iterator, Sequence
from math import isnan

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.text import Text

from jobs.measure.diff.changed_queries import MovedQuery, Moves, Share
from jobs.measure.diff.diff import Cost, Diff
from jobs.measure.diff.quality import Paired, QueryChange
from jobs.measure.measures import title
from jobs.measure.notes import HEADINGS, INTERVAL, interval_notes, judge_notes, judged_note, table_notes
from jobs.measure.significance import SIGNS
from jobs.pages.comparison import drawn
from jobs.pages.render import Head, Table, difference, interval
from jobs.terminal.formats import count, duration, figure, money, p_words, percent, shown

MOST_LINES = 20  # of a section of what was given
_WIDTH = 60  # characters of a text
MOST_TURNS = 120  # characters of the earlier turns, the last ones
_WHOLE = 500  # characters of a value: where long ones differ must be seen


def diff_page(diff: Diff) -> RenderableType:
    """Returns the differences between two runs: input, output, cost and quality."""
    heads = [f"{name}  {run.storage.root} ({run.state})" for name, run in (("A", diff.a), ("B", diff.b))]
    heads += ["A and B are the same run"] * (diff.a.storage.root == diff.b.storage.root)
    parts: list[RenderableType] = [Text(line, overflow="fold") for line in heads]
    for name, detail, section in _sections(diff):
        parts.append(Text.assemble(("\n" + name + "  ", "bold cyan"), (detail, "dim")))
        for part in section:
            shown_part = Text(part, overflow="fold") if isinstance(part, str) else part
            parts.append(Padding(shown_part, (0, 0, 0, 2)))
    return Group(*parts)


Parts = list[str | RenderableType]


def _sections(diff: Diff) -> Iterator[tuple[str, str, Parts]]:
    yield "given", "what differs, A and B", _given(diff)
    parts: Parts = [_moves(diff.moves)]
    if diff.moves.overlap is not None:
        parts.append(f"{percent(diff.moves.overlap)} of the first {diff.moves.depth} are in both, on average by traffic")
    if diff.texts[0] != diff.texts[1]:
        parts.append("rewrites of a query, on average: A {:.2f}, B {:.2f}".format(*diff.texts))
    yield "came out", "by query, and by traffic: how often the log has the query", parts
    if diff.moves.listed:
        moved: Parts = [line for one in diff.moves.listed for line in _moved(one, diff.moves.depth)]
        yield "moved", "the queries that were asked most often, of those that moved", moved
    yield "cost", "of 1,000 queries; seconds are workers' time, start-up included", [_costs(diff.costs)]
    if diff.quality is not None:
        yield "quality", "", _quality(diff.quality)
    if diff.answers is not None:
        yield "answers", "against gold answers", _quality(diff.answers)
    for of_kind in diff.judged:
        yield of_kind.frame.kind, HEADINGS[of_kind.frame.kind], _quality(of_kind)
    if diff.notes:
        yield "not compared", "", list(diff.notes)


def _text(value: object, limit: int = _WIDTH) -> str:
    text = ", ".join(map(str, value)) if isinstance(value, list) else "-" if value is None else str(value)
    return " ".join(shown(text, limit).split())


def _given(diff: Diff) -> Parts:
    rows: list[Sequence[str]] = []
    for section, changed in diff.changes.items():
        lines: list[list[str]] = [[_text(value, _WHOLE) for value in one] for one in changed[:MOST_LINES]]
        lines += [[f"{len(changed) - MOST_LINES:,} more (--json has all)"]] * (len(changed) > MOST_LINES)
        for number, line in enumerate(lines or [["the same"]]):
            rows.append([section if not number else "", *line, *[""] * (3 - len(line))])
    return [Table([Head("")] * 4, rows).terminal()]


def _moves(moved: Moves) -> RenderableType:
    rows: list[list[object]] = []

    def row(name: str, share: Share) -> None:
        shares = [percent(part / whole) if whole else "" for part, whole in zip(share, moved.both, strict=True)]
        rows.append([name, share.queries, shares[0], share.asked, shares[1]])

    for name, share in (("queries in both", moved.both), ("only in A", moved.only_a), ("only in B", moved.only_b)):
        rows.append([name, share.queries, "", share.asked, ""])
    row("other rewrites (of strategies in both)", moved.rewrites)
    for strategy in moved.strategies:
        sides = [name for name, share in (("A", strategy.a), ("B", strategy.b)) if share.queries]
        alone = f", only in {sides[0]}" if len(sides) == 1 else ""
        row(f"  {strategy.strategy}{alone}", strategy.moved)
    row(f"first {moved.depth} documents moved", moved.documents)
    return Table([Head(""), Head("queries", count), Head("", count), Head("asked", count), Head("", count)], rows).terminal()


def _moved(query: MovedQuery, depth: int) -> Iterator[str | RenderableType]:
    first = [_text(doc_id, 30) for doc_id in query.first]
    text = f"the same first {depth} documents"
    if query.moved:
        text = f"{query.overlap:.0%} of the first {depth} in both".replace("%", " %")
        text += "" if first[0] == first[1] else f", the first {first[0]} -> {first[1]}"
    yield Text.assemble((_text(query.query), "bold"), f"  ({_asked(query.asked)}; {text})")
    yield from (f"  {words}" for words in _asked_with(query))
    yield from (f"  {name}: {_text(a)} -> {_text(b)}" for name, (a, b) in query.rewrites.items())


def _asked(times: int) -> str:
    return "once" if times == 1 else f"{times:,} times"


def _costs(costs: list[Cost]) -> RenderableType:
    rows, stage = [], ""
    for cost in costs:
        if cost.stage != "total" and cost.quantity not in ("usd", "seconds"):  # the rest is in the total, and in --json
            continue
        change = f"{(cost.b - cost.a) / cost.a:+.1%}".replace("%", " %") if cost.a else ""
        show = money if cost.quantity == "usd" else duration if cost.quantity.endswith("seconds") else "{:,.1f}".format
        values = (show(value) for value in (cost.a, cost.b))
        rows.append(["" if cost.stage == stage else cost.stage, cost.quantity.replace("_", " "), *values, change])
        stage = cost.stage
    return Table([Head(""), Head(""), *(Head(name, figure) for name in ("A", "B", "change"))], rows).terminal()


def _quality(paired: Paired) -> Parts:
    if paired.warning is not None:
        return [f"warning: {paired.warning}"]
    rows = []
    for name, measure in paired.measures.items():
        tested = [measure.difference, drawn(measure), measure.p, SIGNS.get(measure.verdict, "")]
        rows.append([title(name), measure.a, measure.b, *tested, measure.better, measure.worse])
    heads = [Head(""), Head("A", figure), Head("B", figure), Head("difference", difference), Head(INTERVAL, interval)]
    heads += [Head("p", p_words), Head(""), Head("better", count), Head("worse", count)]
    parts: Parts = [Table(heads, rows).terminal(), "\n".join(_notes(paired))]
    for heading, listed in (("gained", paired.gained), ("lost", paired.lost)):
        if listed:
            rows = [[figure(query.b - query.a, "+"), query.a, query.b, _asked(query.asked)] for query in listed]
            for row, query in zip(rows, listed, strict=True):
                row.append(_text(query.query) + "".join(f" ({line})" for line in _asked_with(query)))
            columns = [Head(""), *[Head("", figure)] * 3, Head("")]
            parts += [f"\n{heading} most, by {next(iter(paired.measures))}", Table(columns, rows).terminal()]
    return parts


def _asked_with(query: MovedQuery | QueryChange) -> list[str]:
    """Returns the end of the query's earlier turns, in one line: what a query follows stands last."""
    if not query.context:
        return []
    context = " ".join(query.context.split())
    return [f"after: {_text(context if len(context) <= MOST_TURNS else f'... {context[-MOST_TURNS:]}', 2 * MOST_TURNS)}"]


def _notes(paired: Paired) -> list[str]:
    left = (
        (paired.missing[0], "not in the log of A"),
        (paired.missing[1], "not in the log of B"),
        (paired.not_committed[0], "not committed in A"),
        (paired.not_committed[1], "not committed in B"),
        (paired.others, "another query in B than in A"),
    )
    frame = paired.frame
    notes = [*judge_notes(frame.judge), judged_note(frame, left, " in both")]
    sides = zip("AB", frame.unjudged.tolist(), paired.first, strict=True)
    shares = [f"{100 * share:.1f} % of {name}'s first {first} results" for name, share, first in sides if not isnan(share)]
    notes += [f"not judged, so not relevant: {', '.join(shares)}"] if shares else []
    notes += paired.left_out
    untested = [name for name, one in paired.measures.items() if one.interval is None]
    notes += interval_notes(f"B - A, paired by query; {INTERVAL}", frame, untested)
    notes += table_notes(paired.measures, paired.margin)
    return [*notes, "better, worse: queries with a higher or lower value in B"]
