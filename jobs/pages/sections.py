"""Sections that pages of runs and ablations share: heads, configuration, and the time of workers, stage by stage.

Workers wait while no shard is there for them: the stages before are slower, or those behind, since only some shards are in
flight. Shards wait where a stage is slower than the one before.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import yaml

from cluster.run.pool_sizes import stage_of_pool
from cluster.storage.s3_duckdb import kept_duckdb
from jobs.chain.pipeline import COSTED
from jobs.pages.render import Code, Head, Section, Table, render
from jobs.runs.folder import RunFolder
from jobs.runs.starts import TIMES, node_time
from jobs.runs.tables import database
from jobs.terminal.formats import count, duration, masked, percent

BUSY = 0.5  # of their ready time: workers that work more than that are what others wait for


@dataclass(frozen=True)
class StageTimes:
    """The seconds of a stage over all starts; workers is 0 for a stage whose work is done by tasks of any process."""

    name: str
    workers: int
    attributed: float
    start_up: float
    lost: float
    idle: float
    queued: float | None  # of shards between the stage before and this one; None: the run has not recorded it

    @property
    def busy(self) -> float:
        """Returns the share of their time in which workers that had started worked, 0 to 1."""
        ready = self.attributed + self.lost + self.idle
        return (self.attributed + self.lost) / ready if ready else 0.0


def stage_times(run: RunFolder) -> list[StageTimes]:
    """Returns the times of every stage, over all starts, in the order of the chain."""
    sums: dict[str, Counter[str]] = {}
    for start in run.record.get("node_time") or node_time(run.starts, run.tally.by_start):
        for stage, seconds in start["stages"].items():
            sums.setdefault(stage, Counter(dict.fromkeys(TIMES, 0.0))).update({name: seconds[name] for name in TIMES})
    workers = Counter[str]()
    for pool, sizes in run.starts[-1]["pools"].items():
        workers[stage_of_pool(pool)] += sizes["workers"]
    stages = []
    for stage in sorted(sums, key=lambda name: COSTED.index(name) if name in COSTED else -1):
        queued = sum(start["queued"].get(stage, 0.0) for start in run.starts) if stage in COSTED else None
        stages.append(StageTimes(stage, workers[stage], **sums[stage], queued=queued))
    return stages


def slowest_words(stages: Sequence[StageTimes]) -> str:
    """Returns the stage that the others wait for, how busy the workers of each are, and where shards waited longest."""
    pooled = sorted((stage for stage in stages if stage.workers), key=lambda stage: -stage.busy)
    waits = f"The others wait for {pooled[0].name}." if pooled[0].busy > BUSY else "No stage holds up the others."
    sentences = [waits] if len(pooled) > 1 else []
    sentences.append(f"Of their time, workers worked: {', '.join(f'{stage.name} {percent(stage.busy)}' for stage in pooled)}.")
    longest = max(stages, key=lambda stage: stage.queued or 0.0)
    if longest.queued:
        sentences.append(f"Shards waited longest before {longest.name}: {duration(longest.queued)} in all.")
    return " ".join(sentences)


def time_section(run: RunFolder) -> Section | None:
    """Returns the folded section on time and workers; None before a first shard is committed."""
    stages = stage_times(run)
    if not any(stage.workers for stage in stages) or not run.manifests:
        return None
    columns = [Head("stage"), Head("workers", count)]
    columns += [Head(label, duration) for label in ("worked", "started up", "lost", "waited")]
    rows: list[list[object]] = []
    for stage in stages:
        times = [stage.attributed, stage.start_up, stage.lost, stage.idle, stage.busy if stage.workers else None, stage.queued]
        rows.append([stage.name, stage.workers or "none of its own", *times])
    note = "worked, lost: with and without a commit; waited: no shard was there for them; busy: of the time after start-up"
    table = Table([*columns, Head("busy", percent), Head("shards waited before it", duration)], rows, note=note)
    starts = Table(
        [Head("start"), Head("began"), Head("ended as"), Head("wall time", duration)],
        [[str(start["start"]), moment(start["began"]), start["status"], start["wall_seconds"]] for start in run.starts],
    )
    return Section("time", "Time and workers", slowest_words(stages), [table, starts], folded=True)


def run_page(run: RunFolder, kind: str, sections: Iterable[Section | None], *, texts: bool) -> str:
    """Returns the page of a run or an ablation, whose tables the sections read. Raises ConfigError if they cannot be read."""
    label, inputs = run.config.shown_label, masked(run.plan.inputs)
    log = f"log {inputs[0]['path']}" + (f" and {len(inputs) - 1:,} more" if len(inputs) > 1 else "") if inputs else ""
    facts = [fact for fact in (run.record["run_id"], label, f"started {moment(run.starts[0]['began'])}", log) if fact]
    state = "✓ finished" if run.finished else f"not finished: {run.state}"
    with kept_duckdb(), database(run):
        return render(kind, run.config.name, facts, state, list(sections), texts=texts)


def moment(began: str) -> str:
    """Returns a time of `run.json` as people read it."""
    return began[:16].replace("T", " ") + " UTC"


def configuration(run: RunFolder) -> Section:
    """Returns the folded section on what a run was given."""
    versions = {name: version or "not installed" for name, version in run.record["versions"].items()}
    texts = masked({"Config": run.record["config"], "Indexes": run.record["indexes"], "Versions": versions})
    options: dict[str, Any] = {"sort_keys": False, "allow_unicode": True, "width": 100}
    parts = [Code(name, yaml.safe_dump(values, **options)) for name, values in texts.items()]
    return Section("config", "Configuration", parts=parts, folded=True)
