"""The run in numbers that are known exactly: from the plan, the manifests' counts and `run.json`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from cluster import costs
from cluster.lease import past_seconds
from jobs.run_folder import RunFolder
from jobs.tables import NOTES, ORIGINAL, RUNGS


@dataclass(frozen=True)
class Reason:
    """How often something went wrong with a query, by stage, component (strategy) and reason."""

    stage: str
    component: str
    reason: str
    count: int

    @property
    def note(self) -> bool:
        """Whether it is no failure: the query was answered as well as it can be."""
        return self.reason in NOTES


@dataclass(frozen=True)
class Rungs:
    """What came of one strategy: rewrites by the rung of the parser that read them, and failures by reason."""

    strategy: str
    rungs: dict[str, int]
    failed: dict[str, int]

    @property
    def made(self) -> int:
        """Rewrites."""
        return sum(self.rungs.values())

    @property
    def failures(self) -> int:
        """Rewrites that were asked for and did not come."""
        return sum(self.failed.values())


@dataclass(frozen=True)
class Start:
    """One start of the run. Times in seconds; the last five are worker seconds, None while the run has not recorded them."""

    number: int
    began: str
    status: str
    wall: float
    pools: dict[str, dict[str, float]]
    task_slots: int | None
    resources: dict[str, float]
    total: float | None
    attributed: float
    start_up: float
    lost: float | None
    idle: float | None


@dataclass(frozen=True)
class Figures:
    """Everything of a run that is a sum over its committed shards."""

    run: RunFolder

    @property
    def counts(self) -> Counter[str]:
        """The manifests' counts."""
        return self.run.counts

    @cached_property
    def strategies(self) -> list[str]:
        """The strategies that were asked for, in the order of the config."""
        return list(self.run.config.rewrite.planned)

    @property
    def queries(self) -> int:
        """Distinct queries whose shard is committed."""
        return self.counts["queries"]

    @property
    def waiting(self) -> int:
        """Distinct queries whose shard is not."""
        return self.run.plan.counts["queries"] - self.queries

    @property
    def repeated(self) -> int:
        """Log rows whose query another row had asked already."""
        planned = self.run.plan.counts
        return planned["log_rows"] - planned["rejected"] - planned["queries"]

    @property
    def error_rate(self) -> float:
        """Share of the committed queries with an error."""
        return self.counts["failed_queries"] / self.queries if self.queries else 0.0

    @cached_property
    def reasons(self) -> list[Reason]:
        """Failures first, the most frequent first; notes after them."""
        found = []
        for key, count in self.counts.items():
            if key.startswith("error/"):
                _, stage, *component, reason = key.split("/")
                found.append(Reason(stage, "/".join(component), reason, count))
        return sorted(found, key=lambda one: (one.note, -one.count, one.stage, one.component, one.reason))

    @cached_property
    def rungs(self) -> list[Rungs]:
        """By strategy, in the order of the config."""
        made: dict[str, dict[str, int]] = {strategy: {} for strategy in self.strategies}
        failed: dict[str, dict[str, int]] = {strategy: {} for strategy in self.strategies}
        for key, count in self.counts.items():
            if key.startswith("rung/"):
                _, strategy, *rung = key.split("/")
                made.setdefault(strategy, {})["/".join(rung)] = count
        for one in self.reasons:
            if one.stage == "rewrite" and one.component and not one.note:
                failed.setdefault(one.component, {})[one.reason] = one.count
        names = list(made) + [strategy for strategy in failed if strategy not in made]
        return [Rungs(name, _in_order(made.get(name, {})), failed.get(name, {})) for name in names]

    @cached_property
    def rung_names(self) -> list[str]:
        """Every rung that occurred, best first."""
        return list(_in_order({rung: 1 for one in self.rungs for rung in one.rungs}))

    @cached_property
    def lists(self) -> dict[str, dict[str, int]]:
        """Retriever -> strategy -> lists asked for: a list per text that is routed there."""
        texts = {ORIGINAL: self.queries} | {one.strategy: one.made for one in self.rungs}
        retrieve = self.run.config.retrieve
        return {
            retriever: {name: n for name, n in texts.items() if retriever in retrieve.route(name)}
            for retriever in retrieve.retrievers
        }

    @property
    def texts(self) -> int:
        """Originals and rewrites: what is searched with."""
        return self.queries + self.counts["rewrites"]

    def failed_in(self, stage: str) -> int:
        """Queries on which the stage's worker failed."""
        return sum(one.count for one in self.reasons if one.stage == stage and one.reason == "failed")

    @cached_property
    def stored(self) -> dict[str, tuple[int, int, int]]:
        """Table -> files, rows, bytes that are committed."""
        files = [*self.run.plan.tables.items()]
        for manifest in self.run.manifests:
            files += [(table, [file]) for table, file in manifest.files.items()]
        sums: dict[str, tuple[int, int, int]] = {}
        for table, named in files:
            n, rows, size = sums.get(table, (0, 0, 0))
            sums[table] = n + len(named), rows + sum(f.rows for f in named), size + sum(f.size for f in named)
        return sums

    @cached_property
    def candidates(self) -> int | None:
        """Documents that fusion handed on; None where a reranker failed on a query, so that they were not all counted."""
        if self.run.config.rerank.kind == "none":
            return self.counts["results"]
        if self.failed_in("rerank"):
            return None
        return int(costs.stage_sums(self.run.spent, "rerank").get("pairs", 0))

    @cached_property
    def starts(self) -> list[Start]:
        """Every start, with where its worker time went."""
        record = self.run.record
        recorded = {int(one["start"]): one for one in record.get("node_time") or []}
        spent: dict[int, dict[str, float]] = {}
        for manifest in self.run.manifests:
            written = {"attributed": sum(manifest.seconds.values())}
            for number, sums in [*manifest.by_start.items(), (str(manifest.start), written)]:
                mine = spent.setdefault(int(number), {})
                for name, seconds in sums.items():
                    mine[name] = mine.get(name, 0.0) + seconds
        return [self._start(one, recorded.get(one["start"], {}), spent.get(one["start"], {})) for one in record["starts"]]

    def _start(self, one: Mapping[str, Any], recorded: Mapping[str, float], spent: Mapping[str, float]) -> Start:
        wall = recorded.get("wall_seconds", one["wall_seconds"])
        if not recorded and one["status"] == "running":  # killed or under way: until its last heartbeat
            beats = past_seconds(self.run.storage)
            wall = beats[one["start"] - 1] if one["start"] <= len(beats) else wall
        return Start(
            number=one["start"],
            began=one["began"].replace("T", " ").replace("Z", " UTC"),
            status=one["status"],
            wall=wall,
            pools=one["pools"],
            task_slots=one.get("task_slots"),
            resources=one["resources"],
            total=recorded.get("worker_seconds"),
            attributed=recorded.get("attributed", spent.get("attributed", 0.0)),
            start_up=recorded.get("start_up", spent.get("start_up", 0.0)),
            lost=recorded.get("lost"),
            idle=recorded.get("idle"),
        )


def _in_order(rungs: Mapping[str, int]) -> dict[str, int]:
    place = {rung: number for number, rung in enumerate(RUNGS)}
    return {rung: rungs[rung] for rung in sorted(rungs, key=lambda rung: (place.get(rung, len(RUNGS)), rung))}
