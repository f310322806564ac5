"""The chain with a run's own times: how long the workers of each stage worked and waited, and shards waited for them.

Workers wait while no shard is there for them: the stages before are slower, or those behind, since only so many shards are in
flight. Shards wait where a stage is slower than the one before.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from markupsafe import Markup

from cluster.run.pool_sizes import stage_of_pool
from jobs.chain.pipeline import COSTED
from jobs.pages.charts import drawing, element
from jobs.runs.folder import RunFolder
from jobs.runs.starts import TIMES, node_time
from jobs.terminal.formats import duration, percent

BUSY = 0.5  # of their ready time: workers that work more than that are what others wait for
BOX, TALL, GAP = 190.0, 40.0, 30.0  # width and height of a stage's box, and from box to box
LEFT, WIDE = 214.0, 500.0  # of the bars: where they begin, and their width
BAR, STEP = 14.0, 5.0  # height of a bar, and from line to line of a hatched part
TOP, SIDE = 4.0, 2.0
WORDS = {"attributed": "worked", "start_up": "started up", "lost": "lost", "idle": "waited"}
"""What workers did in each of `TIMES`."""


@dataclass(frozen=True)
class StageTimes:
    """The seconds of a stage over all starts; workers is 0 for a stage whose work is done by tasks of any process."""

    name: str
    workers: int
    attributed: float
    start_up: float
    lost: float
    idle: float
    queued: float | None
    """Of shards between the end of the stage before and the begin of this one; None: the run has not recorded it."""
    each: float | None
    """The same for a committed shard, on average."""

    @property
    def total(self) -> float:
        """Returns the worker seconds."""
        return self.attributed + self.start_up + self.lost + self.idle

    @property
    def busy(self) -> float:
        """Returns the share of their time in which workers that had started worked, 0 to 1."""
        ready = self.attributed + self.lost + self.idle
        return (self.attributed + self.lost) / ready if ready else 0.0

    @property
    def words(self) -> str:
        """Returns what its workers did."""
        if not self.workers:
            return f"{duration(self.attributed)} of work, no workers of its own"
        parts = [f"{WORDS[name]} {duration(getattr(self, name))}" for name in TIMES if getattr(self, name)]
        return ", ".join(parts) + f": {percent(self.busy)} busy"

    @property
    def queue_words(self) -> str:
        """Returns how long shards waited before it; empty where that is not known."""
        if self.queued is None:
            return ""
        each = f", {duration(self.each)} each" if self.each is not None else ""
        return f"shards waited {duration(self.queued)}{each}" if self.queued else "no shard waited"


@dataclass(frozen=True)
class Waiting:
    """The stages in the order of the chain, what holds the others up in words, and the drawing."""

    stages: list[StageTimes]
    words: str
    svg: Markup


def waiting(run: RunFolder) -> Waiting | None:
    """Returns who waited for whom in the committed part of a run; None before a first shard is committed."""
    stages = stage_times(run)
    if not any(one.workers for one in stages) or not run.manifests:
        return None
    words = slowest_words(stages)
    return Waiting(stages, words, _drawn(stages, words))


def stage_times(run: RunFolder) -> list[StageTimes]:
    """Returns the times of every stage, over all starts, in the order of the chain."""
    times = run.record.get("node_time") or node_time(run.starts, run.tally.by_start)
    sums: dict[str, dict[str, float]] = {}
    for start in times:
        for stage, of in start["stages"].items():
            into = sums.setdefault(stage, dict.fromkeys(TIMES, 0.0))
            for name in TIMES:
                into[name] += of[name]
    workers: dict[str, int] = {}
    for pool, size in run.starts[-1]["pools"].items():
        workers[stage_of_pool(pool)] = workers.get(stage_of_pool(pool), 0) + size["workers"]
    shards = len(run.manifests)
    found = []
    for stage in sorted(sums, key=lambda name: COSTED.index(name) if name in COSTED else -1):
        queued = sum(start["queued"].get(stage, 0.0) for start in run.starts) if stage in COSTED else None
        each = queued / shards if queued is not None and shards else None
        found.append(StageTimes(stage, workers.get(stage, 0), **sums[stage], queued=queued, each=each))
    return found


def slowest(stages: Sequence[StageTimes]) -> str | None:
    """Returns the stage that the others wait for, whose workers work most and more than half of their time; None: none does."""
    pooled = [one for one in stages if one.workers]
    first = max(pooled, key=lambda one: one.busy)
    return first.name if first.busy > BUSY and len(pooled) > 1 else None


def slowest_words(stages: Sequence[StageTimes]) -> str:
    """Returns which stage the others wait for, how busy the workers of each are, and where shards waited longest."""
    pooled = sorted((one for one in stages if one.workers), key=lambda one: -one.busy)
    name = slowest(stages)
    said = [f"The others wait for {name}." if name else "No stage holds up the others."] if len(pooled) > 1 else []
    said.append(f"Of their time, workers worked: {', '.join(f'{one.name} {percent(one.busy)}' for one in pooled)}.")
    longest = max(stages, key=lambda one: one.queued or 0.0)
    if longest.queued:
        said.append(f"Shards waited longest before {longest.name}: {duration(longest.queued)} in all.")
    return " ".join(said)


def _drawn(stages: Sequence[StageTimes], words: str) -> Markup:
    """Returns the stages from top to bottom: a box, what its workers did as a bar, and the queue before it as a thin one."""
    first, most = slowest(stages), max((one.queued or 0.0 for one in stages), default=0.0)
    parts = [
        element("title", "Which stage waits for which", id="waiting-title"),
        element("desc", f"{words} The table below has the same figures.", id="waiting-desc"),
    ]
    for place, one in enumerate(stages):
        y = TOP + place * (TALL + GAP)
        if place:
            parts += _queue(one, y, most)
        parts += [*_box(one, y, one.name == first), *_bar(one, y)]
    height = TOP + len(stages) * (TALL + GAP) - GAP + TOP
    return drawing(LEFT + WIDE + SIDE, height, *parts, class_="waiting", aria_labelledby="waiting-title waiting-desc")


def _box(one: StageTimes, y: float, slowest: bool) -> list[Markup]:
    """Returns a stage's box with its name and its workers."""
    said = f"{one.workers} worker{'s' * (one.workers != 1)}" if one.workers else "tasks"
    return [
        element("rect", class_="box slowest" if slowest else "box", x=SIDE, y=y, width=BOX, height=TALL, rx=5),
        element("text", one.name, class_="name", x=SIDE + 10, y=y + 17),
        element("text", f"{said}, the slowest" if slowest else said, class_="said", x=SIDE + 10, y=y + 32),
    ]


def _bar(one: StageTimes, y: float) -> list[Markup]:
    """Returns what a stage's workers did: filled, hatched and empty parts of a bar, with their words above it."""
    parts, x, top = [element("text", one.words, class_="said", x=LEFT, y=y + 14)], LEFT, y + 20
    if not one.workers:
        return parts
    for name in TIMES:
        width = WIDE * getattr(one, name) / one.total
        if name == "attributed":
            parts.append(element("rect", class_=name, x=x, y=top, width=width, height=BAR))
        elif name != "idle" and width:
            parts.append(element("path", class_=name, d=_hatch(x, top, width, slanted=name == "lost")))
        x += width
    return [*parts, element("rect", class_="whole", x=LEFT, y=top, width=WIDE, height=BAR)]


def _hatch(x: float, top: float, width: float, *, slanted: bool) -> str:
    """Returns lines that fill a part of a bar, upright or slanted."""
    lean = min(STEP, width) if slanted else 0.0
    places = [x + STEP * n for n in range(1 + int((width - lean) / STEP))]
    return " ".join(f"M{place:.1f} {top + BAR:.1f}L{place + lean:.1f} {top:.1f}" for place in places)


def _queue(one: StageTimes, y: float, most: float) -> list[Markup]:
    """Returns the arrow to a stage, and how long shards waited there; the longest of the queues has half of a bar's width."""
    x, top = SIDE + BOX / 2, y - GAP
    arrow = element("path", class_="arrow", d=f"M{x:.1f} {top + 3:.1f}V{y - 3:.1f}m-4 -6l4 6l4 -6")
    if one.queued is None:
        return [arrow]
    width = WIDE / 2 * one.queued / most if most else 0.0
    bar = [element("rect", class_="queue", x=LEFT, y=top + 12, width=max(1.0, width), height=6.0)] if one.queued else []
    return [arrow, *bar, element("text", one.queue_words, class_="said", x=LEFT + width + (8 if one.queued else 0), y=top + 19)]
