"""Exact figures of a run: from the plan, the manifests' counts and `run.json`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from cluster import costs
from cluster.run.shards import committed_tables
from jobs.counts import ErrorCount, ErrorQueries, FurtherTexts, counts_of
from jobs.runs.folder import RunFolder
from jobs.runs.starts import node_time
from jobs.runs.sums import Selected, in_order_of_rungs, rungs_by_strategy, selected_by_type
from jobs.tables import BY_FALLBACK, NOTES, ORIGINAL
from retrievers.lists import TOGETHER


@dataclass(frozen=True)
class Reason:
    """The number of errors of one reason, by stage and component (strategy)."""

    stage: str
    component: str
    reason: str
    count: int

    @property
    def note(self) -> bool:
        """Returns whether it is a note, not a failure: the query was answered as well as possible."""
        return self.reason in NOTES


@dataclass(frozen=True)
class Case:
    """The queries with an error of one reason: an answer that lacks several rewrites counts once.

    `rewrites`: the number of rewrites lost to it, by strategy.
    """

    stage: str
    reason: str
    queries: int
    rewrites: dict[str, int]

    @property
    def note(self) -> bool:
        """Returns whether it is a note, not a failure."""
        return self.reason in NOTES


@dataclass(frozen=True)
class Rungs:
    """The outcome of one strategy: number of texts by parser fallback step (rung), and of queries that failed, by reason."""

    strategy: str
    rungs: dict[str, int]
    failed: dict[str, int]
    further: int = 0
    """Texts beside the first of a query."""
    not_selected: int = 0
    """Queries for which the strategy was not selected."""

    @property
    def made(self) -> int:
        """Returns the number of texts."""
        return sum(self.rungs.values())

    @property
    def queries(self) -> int:
        """Returns the number of queries with a text."""
        return self.made - self.further

    @property
    def failures(self) -> int:
        """Returns the number of queries for which it failed."""
        return sum(self.failed.values())


@dataclass(frozen=True)
class Start:
    """One start of the run. Times in seconds; the last five are worker seconds, None while the run has not recorded them."""

    number: int
    began: str
    status: str
    wall: float
    pools: dict[str, dict[str, float]]
    task_slots: int
    resources: dict[str, float]
    total: float | None
    attributed: float
    start_up: float
    lost: float | None
    idle: float | None
    outages: list[dict[str, Any]]


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
        """Returns the planned strategies, in the order of the config."""
        return list(self.run.config.rewrite.planned)

    @property
    def queries(self) -> int:
        """Returns the number of distinct queries in committed shards."""
        return self.counts["queries"]

    @property
    def waiting(self) -> int:
        """Returns the number of distinct queries in pending shards."""
        return self.run.plan.counts["queries"] - self.queries

    @property
    def repeated(self) -> int:
        """Returns the number of log rows that repeat the query of another row."""
        planned = self.run.plan.counts
        return planned["log_rows"] - planned["rejected"] - planned["queries"]

    @property
    def error_rate(self) -> float:
        """Returns the share of the committed queries with an error, 0 to 1."""
        return self.counts["failed_queries"] / self.queries if self.queries else 0.0

    @cached_property
    def reasons(self) -> list[Reason]:
        """Returns the reasons of errors: failures, then notes, the most frequent first."""
        found = [Reason(of.stage, of.component, of.reason, n) for of, n in counts_of(self.counts, ErrorCount)]
        return sorted(found, key=lambda one: (one.note, -one.count, one.stage, one.component, one.reason))

    @cached_property
    def cases(self) -> list[Case]:
        """Returns the reasons by the number of queries that have them: failures, then notes, the most frequent first."""
        order = {name: place for place, name in enumerate(self.strategies)}
        found: dict[tuple[str, str], dict[str, int]] = {}
        for one in sorted(self.reasons, key=lambda one: (order.get(one.component, len(order)), one.component)):
            found.setdefault((one.stage, one.reason), {})[one.component] = one.count
        cases = [
            Case(stage, reason, self.counts[ErrorQueries(stage, reason).key], {k: n for k, n in by.items() if k})
            for (stage, reason), by in found.items()
        ]
        return sorted(cases, key=lambda one: (one.note, -one.queries, one.stage, one.reason))

    @cached_property
    def selected_by_type(self) -> dict[str, Selected]:
        """Returns query type (empty without types) -> what was selected; empty in a run that does not select."""
        return selected_by_type(self.counts, self.strategies)

    @cached_property
    def selected(self) -> Selected | None:
        """Returns what was selected for all queries; None in a run that does not select."""
        return sum(self.selected_by_type.values(), start=Selected()) if self.selected_by_type else None

    @property
    def several(self) -> bool:
        """Returns whether a strategy gave a query several texts."""
        return self.counts["further_texts"] > 0

    @cached_property
    def sharing(self) -> list[str]:
        """Returns the strategies that the joint request asks for: those without a request of their own."""
        own = self.run.requests or {key.partition("@")[0] for key in self.run.spent.get("rewrite", {})}
        return [name for name in self.strategies if name not in own]

    @cached_property
    def rungs(self) -> list[Rungs]:
        """Returns the outcome of each strategy, in the order of the config.

        Its queries with a text, those that failed and those for which it was not selected are all committed queries.
        """
        made: dict[str, dict[str, int]] = {strategy: {} for strategy in self.strategies} | rungs_by_strategy(self.counts)
        failed: dict[str, dict[str, int]] = {strategy: {} for strategy in self.strategies}
        for one in self.reasons:
            if one.stage == "rewrite" and one.component and not one.note:
                failed.setdefault(one.component, {})[one.reason] = one.count
        names = list(made) + [strategy for strategy in failed if strategy not in made]
        chosen = self.selected
        return [
            Rungs(
                name,
                made.get(name, {}),
                failed.get(name, {}),
                self.counts[FurtherTexts(name).key],
                chosen.queries - chosen.strategies[name] if chosen else 0,
            )
            for name in names
        ]

    @cached_property
    def rung_names(self) -> list[str]:
        """Returns every rung that occurred, best first."""
        return list(in_order_of_rungs({rung: 1 for one in self.rungs for rung in one.rungs}))

    @cached_property
    def lists(self) -> dict[str, dict[str, int]]:
        """Returns retriever -> strategy -> number of lists: one per text that is routed to the retriever.

        A strategy with `as_one` has one per query, and a retriever with `together` one for a query of which any text is routed
        there.
        """
        config, found = self.run.config, {}
        as_one = {one["name"] for one in self.run.strategies if one.get("as_one")}
        of_queries = {one.strategy: one.queries for one in self.rungs if one.strategy in as_one}
        for retriever, settings in config.retrieve.retrievers.items():
            texts = self.routed(retriever)
            texts |= {name: n for name, n in of_queries.items() if name in texts}
            if settings.together:
                name = TOGETHER if retriever in config.joining else ORIGINAL
                texts = {name: min(self.queries, sum(texts.values()))}
            found[retriever] = texts
        return found

    def routed(self, retriever: str) -> dict[str, int]:
        """Returns strategy -> number of texts, of the strategies routed to a retriever."""
        texts = {ORIGINAL: self.queries} | {one.strategy: one.made for one in self.rungs}
        return {name: n for name, n in texts.items() if retriever in self.run.config.retrieve.route(name)}

    @property
    def texts(self) -> int:
        """Returns the number of searched texts: originals and rewrites."""
        return self.queries + self.counts["rewrites"]

    def failed_in(self, stage: str) -> int:
        """Returns the number of queries on which the stage's worker failed, or died."""
        return sum(one.count for one in self.reasons if one.stage == stage and one.reason in BY_FALLBACK)

    @cached_property
    def shard_seconds(self) -> dict[str, tuple[float, float, float]]:
        """Returns stage -> median, 95th and 99th percentile of its busy seconds for a shard, start-up left out."""
        found: dict[str, list[float]] = {}
        for manifest in self.run.manifests:
            for stage, seconds in manifest.work_seconds.items():
                found.setdefault(stage, []).append(seconds)
        return {stage: tuple(np.percentile(seconds, (50, 95, 99)).tolist()) for stage, seconds in found.items()}

    @cached_property
    def stored(self) -> dict[str, tuple[int, int, int]]:
        """Returns table -> number of committed files, rows and bytes."""
        return {
            table: (len(named), sum(file.rows for file in named), sum(file.size for file in named))
            for table, named in committed_tables(self.run.plan, self.run.manifests).items()
        }

    @cached_property
    def candidates(self) -> int | None:
        """Returns the number of fused candidates; None if the reranker failed on a query, so that not all were counted."""
        if self.run.config.rerank.kind == "none":
            return self.counts["results"]
        if self.failed_in("rerank"):
            return None
        sums = costs.stage_sums(self.run.spent, "rerank")
        return int(sums.get("pairs", 0) + sums.get("reused", 0))

    @cached_property
    def starts(self) -> list[Start]:
        """Returns every start of the run, with its worker seconds by use."""
        record = self.run.record
        recorded = {int(one["start"]): one for one in record.get("node_time") or []}
        spent = {one["start"]: one for one in node_time(self.run.starts, self.run.tally.by_start)}
        return [self._start(one, recorded.get(one["start"], {}), spent.get(one["start"], {})) for one in self.run.starts]

    def _start(self, one: Mapping[str, Any], recorded: Mapping[str, Any], spent: Mapping[str, Any]) -> Start:
        return Start(
            number=one["start"],
            began=one["began"].replace("T", " ").replace("Z", " UTC"),
            status=one["status"],
            wall=recorded.get("wall_seconds", one["wall_seconds"]),
            pools=one["pools"],
            task_slots=one["task_slots"],
            resources=one["resources"],
            total=recorded.get("worker_seconds"),
            attributed=recorded.get("attributed", spent.get("attributed", 0.0)),
            start_up=recorded.get("start_up", spent.get("start_up", 0.0)),
            lost=recorded.get("lost"),
            idle=recorded.get("idle"),
            outages=one["outages"],
        )
