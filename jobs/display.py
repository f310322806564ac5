"""The state of a job as an operator reads it: a few lines of a terminal, or one line of a log.

The lines fit whatever terminal there is: columns, stages and lower lines go before anything wraps or scrolls. What is said
is said in words; colour only repeats it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from rich.console import Group, RenderableType
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

COUNTED = ("requests", "searches", "pairs")
STOPPING = "stopping"  # phases that begin so lead to no end that an ETA could tell


@dataclass(frozen=True)
class StageState:
    """One stage; rows are queries. A query that is not before the stage is in one of the three numbers."""

    name: str
    done: int  # of all starts of the run
    at_work: int = 0
    waiting: int = 0  # out of the stage before
    rate: float | None = None  # per second over the last minute; None: not known, or nothing to do
    busy: float | None = None  # share of its workers' time, 0 to 1
    workers: int = 1
    there: int = 1  # workers that have started
    slowest: bool = False

    @property
    def note(self) -> str:
        """What is to be known beside the numbers."""
        if self.slowest:
            return "slowest"
        if self.there >= self.workers:
            return ""
        return f"{self.there} of {self.workers} workers" if self.there else "starting"


@dataclass
class State:
    """What there is to show."""

    phase: str = "starting"
    done: int = 0  # queries that are committed
    total: int = 0
    before: int = 0  # of `done`, when the clock began: they tell nothing about the rate
    errors: int = 0  # queries
    usd: float | None = None
    began: float = 0.0  # when the first shard of this start came: what went before was start-up
    stages: Sequence[StageState] = ()
    reasons: Mapping[str, int] = field(default_factory=dict)  # of the errors, most often first
    quantities: Mapping[str, float] = field(default_factory=dict)  # requests, tokens, searches, pairs

    def rate(self, now: float) -> float:
        """Queries per second since the first shard came; 0 while that is all there is to go by."""
        return (self.done - self.before) / max(1e-9, now - self.began) if self.began else 0.0

    def pace(self, now: float) -> str:
        """Rate and ETA, as far as they are known."""
        rate = self.rate(now)
        if not rate or self.done >= self.total:  # nothing is left, so the rate would only sink
            return ""
        eta = not self.phase.startswith(STOPPING)
        return f"{per_second(rate)}  ETA {clock((self.total - self.done) / rate)}" if eta else per_second(rate)

    def words(self, now: float) -> str:
        """The state in one line."""
        if not self.total:
            return plain(self.phase)
        errors = f"{queries(self.errors)} with errors" if self.errors else "no errors"
        parts = [f"{self.done:,}/{self.total:,} queries", *self.pace(now).split("  ")]
        parts.append(f"{errors} ({listed(self.reasons)})" if self.reasons else errors)
        parts.append(f"tokens {tokens}" if (tokens := self.tokens()) else "")
        parts.append(money(self.usd) if self.usd is not None else "")
        text = (f"{plain(self.phase)}: " if self.phase != "working" else "") + ", ".join(filter(None, parts))
        stages = [_stage_words(stage) for stage in self.stages if stage.at_work or stage.waiting or stage.note]
        return "; ".join([text, *stages])

    def tokens(self) -> str:
        """What models have read and written, where tokens are known."""
        prompt, cached, written = (self.quantities.get(f"{kind}_tokens", 0) for kind in ("prompt", "cached", "completion"))
        if not prompt and not written:
            return ""
        known = f" ({short(cached)} cached)" if cached else ""
        return f"{short(prompt)} read{known}, {short(written)} written"


def display(state: State, now: float, title: str, width: int, height: int, since: float) -> RenderableType:
    """The lines for a terminal of `width` x `height`, at most `height` - 1 of them.

    Args:
        title: what is worked at, e.g. the run's id.
        since: when the phase began.
    """
    waited = clock(now - since)
    if not state.total:
        return _fit(Text(f"{plain(state.phase)} ({waited})"), width)
    top: list[RenderableType] = [_head(state, title, width), _bar(state, state.pace(now) or waited, width)]
    bottom = [_fit(line, width) for line in _sums(state, width)]
    room = max(1, height - 1)
    top = top[:room]
    room -= len(top)
    if len(bottom) + len(state.stages) + 1 > room:
        bottom = bottom[: min(room, 2)]
    return Group(*top, *_table(_busiest(state.stages, room - len(bottom) - 1), state.total, width), *bottom)


def _head(state: State, title: str, width: int) -> Text:
    share = 100 * state.done // state.total
    right = f"{state.done:,} of {state.total:,} queries committed  {share} %"
    brief = f"{state.done:,} of {state.total:,}  {share} %"
    phase = plain(state.phase)
    named = f"{plain(title)}  {phase}"
    for left, words in ((named, right), (named, brief), (phase, right), (phase, brief)):
        if len(left) + 2 + len(words) <= width:
            return Text.assemble((left, "bold"), " " * (width - len(left) - len(words)), words)
    return _fit(Text(brief), width)


def _bar(state: State, words: str, width: int) -> RenderableType:
    words = words.rjust(24)  # the bar keeps its length while the words change theirs
    room = width - len(words) - 2
    if room < 8:
        return _fit(Text(words.strip()), width)
    grid = Table.grid(padding=(0, 2, 0, 0))
    grid.add_row(ProgressBar(total=state.total, completed=state.done, width=room), Text(words, no_wrap=True))
    return grid


def _sums(state: State, width: int) -> list[Text]:
    """Errors, cost, tokens: the first is needed most."""
    some = queries(state.errors) if state.errors else "none"
    reasons = f": {listed(state.reasons, width - len(some) - 12)}" if state.reasons else ""
    parts = [money(state.usd)] if state.usd is not None else []
    parts += [f"{short(state.quantities[name])} {name}" for name in COUNTED if state.quantities.get(name)]
    while len(parts) > 1 and len(", ".join(parts)) > width - 10:
        parts.pop()
    lines = [("errors", some + reasons, "red" if state.errors else "")]
    lines += [("cost" if state.usd is not None else "work", ", ".join(parts), "")] if parts else []
    lines += [("tokens", tokens, "")] if (tokens := state.tokens()) else []
    return [Text.assemble((f"{name:<10}", "dim"), (words, style)) for name, words, style in lines]


def _busiest(stages: Sequence[StageState], room: int) -> list[StageState]:
    """As many stages as there are lines for: the slowest before all, then those that have most to do."""
    chosen = sorted(stages, key=lambda stage: (not stage.slowest, -(stage.at_work + stage.waiting)))[: max(0, room)]
    return [stage for stage in stages if stage in chosen]


def _table(stages: Sequence[StageState], total: int, width: int) -> list[Text]:
    """A head and a line for each stage, with as many columns as there is room for."""
    if not stages:
        return []
    digits = len(f"{total:,}")
    columns = {  # in the order in which they stand: head, cells, least width
        "": ([stage.name for stage in stages], 8),
        "done": ([f"{stage.done:,}" for stage in stages], digits),
        "rate": (["" if stage.rate is None else per_second(stage.rate) for stage in stages], 8),
        "at work": ([f"{stage.at_work:,}" for stage in stages], min(digits, 7)),
        "waiting": ([f"{stage.waiting:,}" for stage in stages], min(digits, 7)),
        "busy": (["" if stage.busy is None else f"{stage.busy:.0%}" for stage in stages], 4),
        "note": ([stage.note if width >= 60 else stage.note.removesuffix(" workers") for stage in stages], 7),
    }
    widths = {name: max(least, len(name), *map(len, cells)) for name, (cells, least) in columns.items()}
    kept, left = set(), width
    for name in ("", "done", "note", "waiting", "rate", "at work", "busy"):  # what is needed most comes first
        left -= widths[name] + 2 * bool(name)
        if left < 0:
            break
        kept.add(name)
    lines = []
    for number in range(-1, len(stages)):
        cells = []
        for name, (values, _) in columns.items():
            if name not in kept:
                continue
            value = values[number] if number >= 0 else "" if name == "note" else name
            cells.append(f"{value:<{widths[name]}}" if name in ("", "note") else f"{value:>{widths[name]}}")
        style = "dim" if number < 0 else "yellow" if stages[number].slowest else ""
        lines.append(_fit(Text("  ".join(cells).rstrip(), style), width))
    return lines


def _stage_words(stage: StageState) -> str:
    counted = {"done": stage.done, "at work": stage.at_work, "waiting": stage.waiting}
    parts = [f"{n:,} {words}" for words, n in counted.items() if n]
    parts += [per_second(stage.rate)] if stage.rate is not None else []
    parts += [stage.note] if stage.note else []
    return f"{stage.name} {', '.join(parts)}"


def _fit(text: Text, width: int) -> Text:
    """The text as one line of at most `width` columns."""
    text.no_wrap = True
    text.truncate(width, overflow="crop")
    return text


def listed(reasons: Mapping[str, int], width: int = 120) -> str:
    """Reasons with how often they came, as many as fit."""
    words = [f"{plain(reason)} {n:,}" for reason, n in reasons.items()]
    for kept in range(len(words), 0, -1):
        text = ", ".join(words[:kept]) + (f", {len(words) - kept} more" if kept < len(words) else "")
        if len(text) <= width:
            return text
    return f"{len(words)} reasons"


def queries(number: int) -> str:
    """'1 query', '1,200 queries'."""
    return f"{number:,} quer{'y' if number == 1 else 'ies'}"


def plain(text: str) -> str:
    """Text that does nothing to a terminal: no control characters, no change of direction."""
    return "".join(char if char.isprintable() else "?" for char in text)


def per_second(rate: float) -> str:
    """'41.2/s'."""
    return f"{rate:,.1f}/s" if rate < 100 else f"{rate:,.0f}/s"


def money(usd: float) -> str:
    """'$0.0123', '$1,234.50'."""
    return f"${usd:.4f}" if usd < 1 else f"${usd:,.2f}"


def short(number: float) -> str:
    """'8,412', '41 k', '3.1 M'."""
    if number < 10_000:
        return f"{number:,.0f}"
    return f"{number / 1e3:,.0f} k" if number < 999_500 else f"{number / 1e6:,.1f} M"


def clock(seconds: float) -> str:
    """'42 s', '3 min 20 s', '2 h 05 min'."""
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02d} s"
    return f"{whole // 3600} h {whole % 3600 // 60:02d} min"
