"""Goes over the shards of a job that are left, with the chain's stages; their workers look, and do not pay.

A query goes on from one stage to the next as long as all that the next one needs is stored. What is missing of the others is
counted as far as it is known: of a query whose answer is missing the lists of the original.
"""

from __future__ import annotations

import random
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cluster.run.meter import Meter
from cluster.run.pool_sizes import Pool
from cluster.run.shards import Shard
from cluster.run.stage import Stage
from jobs.chain.arms.shared_work import SharedWork
from jobs.chain.stages.gate import Gating
from jobs.chain.stages.llm.generate import Generate
from jobs.chain.stages.llm.grade import Grade
from jobs.chain.stages.llm.iterate import Iterate
from jobs.chain.stages.llm.judge import Judge
from jobs.chain.stages.read import Read
from jobs.chain.stages.retrieve import Retrieve
from jobs.chain.stages.rewrite import Rewrite
from jobs.chain.stages.score import Score
from jobs.chain.stages.web.search_web import SearchWeb
from jobs.chain.store.files import NO_STORE, StoreFiles
from jobs.counts import GATE_STAGE
from jobs.plan.missing.workers import LookingGate, LookingRetrieve, LookingScore, Seen, StoredAnswers, is_here
from jobs.run.job import Job
from jobs.run.planning.sample import PlannedQueries
from jobs.tables import SHARD, unnested

LOOKED = 100_000  # queries of a job: of more, shards are looked at that are evenly chosen
LOOKED_WITHOUT_STORE = 2_000  # where all is missing, and 100,000 took 3 min 26 s
FOLLOWED = 2_000  # of them whose lists and pairs are looked up, where all of their answers are stored
IDS = 2_000  # of queries of which something is missing, by which it is said why

_LOOKING: dict[type, Any] = {  # stages -> what looks in their place; None: they themselves
    Read: None, Gating: LookingGate, Rewrite: None, Retrieve: LookingRetrieve, Score: LookingScore, Grade: None, Generate: None,
    Judge: None,
}  # fmt: skip
_ASKING = (Rewrite, Grade, Generate, Judge)
_BEHIND = (Score, Grade, Generate, Judge)  # they need the lists, and the texts of documents
_NOT_ENTERED = (Iterate, SearchWeb)  # what they and those behind them need depends on searches of their own

Component = tuple[str, str]
"""Stage, and component@model, as costs have them."""


@dataclass
class ByComponent:
    """Work of one kind, by component: of each query that was looked at what is missing, and what there is in all."""

    rows: int = 0
    missing: dict[Component, list[int]] = field(default_factory=lambda: defaultdict(list))
    every: dict[Component, list[int]] = field(default_factory=lambda: defaultdict(list))

    def of(self, values: Mapping[Component, list[int]], component: Component) -> list[int]:
        """Returns the values of a component, of every query."""
        known = values.get(component, [])
        return known + [0] * (self.rows - len(known))

    def add(self, table: pa.Table, quantity: str, stages: Collection[str]) -> None:
        """Adds the rows of a block, by their costs."""
        made: Counter[tuple[Component, int]] = Counter()
        every: Counter[tuple[Component, int]] = Counter()
        rows, flat = unnested(table, "costs")
        columns = (flat.field(name).to_pylist() for name in ("stage", "component", "model", quantity, "reused"))
        for row, stage, component, model, new, old in zip(rows.tolist(), *columns, strict=True):
            if stage in stages:
                known = stage, f"{component}@{model or ''}"
                made[known, row] += new
                every[known, row] += new + old
        self.rows += table.num_rows
        for known in {of for of, _ in every}:
            self.missing[known] += [made[known, row] for row in range(table.num_rows)]
            self.every[known] += [every[known, row] for row in range(table.num_rows)]


@dataclass
class Surveyed:
    """What was found in the store for a job."""

    left: int
    """Queries that are not committed."""
    store: StoreFiles
    """The store as it was looked into."""
    looked: int = 0
    """Those that were looked at, of evenly chosen shards."""
    by_shard: list[tuple[int, int]] = field(default_factory=list)
    """Of each shard that was looked at: queries, and requests that are missing."""
    seen: Seen = field(default_factory=Seen)
    ungated: int = 0
    """Queries of which the gate needs a list that is missing."""
    unanswered: int = 0
    """Queries with an answer that is missing."""
    followed: int = 0
    """Queries with all answers whose lists were looked up."""
    listed: int = 0
    """Of those with all lists, whose pairs were looked up."""
    searches: ByComponent = field(default_factory=ByComponent)
    """Of the queries that were followed."""
    first_searches: ByComponent = field(default_factory=ByComponent)
    """Of those with an answer that is missing: the lists of what is known of them."""
    gate_searches: ByComponent = field(default_factory=ByComponent)
    pairs: ByComponent = field(default_factory=ByComponent)
    ids: dict[str, set[str]] = field(default_factory=lambda: defaultdict(set))
    """Kind -> query_ids with something missing: `answers`, `lists`, and as `pairs` those that are not scored whole."""
    blind: str = ""
    """Why lists and pairs were not looked up; "": they were."""
    unscored: str = ""
    """Why pairs were not."""
    steps: dict[str, list[int]] = field(default_factory=lambda: defaultdict(list))
    """Stage that asks an LLM after retrieval, as in costs -> of each query that came to it, the requests that are missing."""

    @property
    def unfollowed(self) -> int:
        """Returns how many queries with all answers were looked at whose lists were not looked up."""
        return self.looked - self.ungated - self.unanswered - self.followed

    def some(self, kind: str) -> list[str]:
        """Returns a random sample of `ids`, `IDS` at most."""
        ids = sorted(self.ids[kind])
        return random.Random(0).sample(ids, min(IDS, len(ids)))

    def knows_all(self, kind: str) -> bool:
        """Returns whether `some` are all that are left with something of a kind missing."""
        return self.looked == self.left and len(self.ids[kind]) <= IDS and (kind == "answers" or not self.unfollowed)


def survey(
    job: Job,
    queries: PlannedQueries,
    done: Collection[int],
    pools: Mapping[str, Pool],
    phase: Callable[[str], object] = lambda _: None,
) -> Surveyed:
    """Returns what a job would find and miss; writes nothing, and pays for nothing.

    Args:
        job: It is not finished.
        queries: Of the job.
        done: Numbers of the committed shards.
        pools: Its workers.
        phase: Is told how far it is.

    Raises:
        DmqrError: An index, a recording or the store cannot be read.
    """
    pending = [one for one in queries.shards if one.number not in done]
    found = Surveyed(sum(one.rows for one in pending), job.open_store(read_only=True))
    nothing_stored = found.store is NO_STORE and not done
    chosen = _chosen(pending, LOOKED_WITHOUT_STORE if nothing_stored else LOOKED)
    with ExitStack() as stack:
        look = _Look(job, queries, pools, found, stack)
        for number, shard in enumerate(chosen, start=1):
            phase(f"looking for what is missing: shard {number:,} of {len(chosen):,}")
            look.at(shard, -(-FOLLOWED // len(chosen)))
    return found


def _chosen(pending: Sequence[Shard], most: int) -> list[Shard]:
    """Returns shards with `most` queries at most, but one at least, evenly chosen."""
    rows = sum(one.rows for one in pending)
    count = len(pending) if rows <= most else max(1, len(pending) * most // rows)
    return [pending[place] for place in _evenly(len(pending), count)]


class _Look:
    """The stages as they look."""

    def __init__(
        self,
        job: Job,
        queries: PlannedQueries,
        pools: Mapping[str, Pool],
        found: Surveyed,
        stack: ExitStack,
    ) -> None:
        self._found, work = found, job.compiled.work
        found.blind, found.unscored = _blind(work), _unscored(work)
        self._meters: dict[type, list[Meter]] = defaultdict(list)
        for stage in job.stages(pools, 0, found.store):
            if stage.worker in _NOT_ENTERED:
                break
            if (looking := self._looking(stage, queries)) is not None:
                meter = Meter(looking[1], 0)
                stack.callback(meter.close)
                self._meters[looking[0]].append(meter)

    def _looking(self, stage: Stage, queries: PlannedQueries) -> tuple[type, Stage] | None:
        """Returns a stage with a worker that looks, and the class of the run's; None of those that have none."""
        settings, kind, found = dict(stage.settings), stage.worker, self._found
        of: type | None = next((one for one in _LOOKING if isinstance(kind, type) and issubclass(kind, one)), None)
        if of is None or (found.blind and of in (Retrieve, *_BEHIND)) or (found.unscored and of in _BEHIND):
            return None
        if of is Read:
            settings["run"] = queries.storage.root
        elif of in _ASKING:
            settings["job"] = replace(settings["job"], engines=partial(StoredAnswers, found.seen), prices=None)
        elif of is Retrieve:
            settings |= {"seen": found.seen, "work": replace(settings["work"], keep_lists=False)}
        elif of is Gating:
            settings["seen"] = found.seen
        return of, replace(stage, worker=_LOOKING[of] or kind, settings=settings)

    def at(self, shard: Shard, follow: int) -> None:
        """Looks at a shard, at the lists and pairs of `follow` of its queries."""
        found, seen = self._found, self._found.seen
        row = {"shard": [shard.number], "key": [shard.key], "row_group": [shard.row_group]}
        table, before = pa.table(row, schema=SHARD), seen.requests.total()
        for meter in (*self._meters[Read], *self._meters[Gating]):
            table = meter(table)
        found.looked += table.num_rows
        found.gate_searches.add(table, "searches", [GATE_STAGE])
        unknown = seen.take()
        table, ungated = _parted(table, unknown)
        found.ungated += ungated.num_rows
        for meter in self._meters[Rewrite]:
            table = meter(table)
        missing = seen.take()
        found.by_shard.append((shard.rows, seen.requests.total() - before))
        known, unanswered = _parted(table, missing)
        found.unanswered += unanswered.num_rows
        found.ids["answers"].update(missing)
        for kind in ("lists", "pairs"):
            found.ids[kind].update(unknown, missing)
        for meter in self._meters[Retrieve]:
            self._retrieved(meter, unanswered, partial_texts=True)
            seen.take()
            self._follow(meter, known.take(pa.array(_evenly(known.num_rows, follow), pa.int64())))

    def _follow(self, meter: Meter, table: pa.Table) -> None:
        """Looks up the lists of queries with all answers, and the pairs of those with all lists."""
        found, seen = self._found, self._found.seen
        if not table.num_rows:
            return
        found.followed += table.num_rows
        table = self._retrieved(meter, table, partial_texts=False)
        unlisted = seen.take()
        table, _ = _parted(table, unlisted)
        found.ids["lists"].update(unlisted)
        found.ids["pairs"].update(unlisted)
        if not table.num_rows or not any(self._meters[kind] for kind in (Score, Grade, Generate, Judge)):
            return
        found.listed += table.num_rows
        for one in self._meters[Score]:
            table = one(table)
        found.pairs.add(table, "pairs", ["rerank"])
        rows, flat = unnested(table, "costs")
        paid = pc.greater(flat.field("pairs"), 0).to_numpy(zero_copy_only=False)
        unscored = table.column("query_id").take(pa.array(np.unique(rows[paid]))).to_pylist()
        found.ids["pairs"].update(unscored)
        self._steps(_parted(table, unscored)[0])

    def _steps(self, table: pa.Table) -> None:
        found, seen = self._found, self._found.seen
        for kind in (Grade, Generate, Judge):
            for meter in self._meters[kind]:
                if not table.num_rows:
                    return
                table = meter(table)
                missing = seen.take()
                ids = table.column("query_id").to_pylist()
                found.steps[meter.stage.cost_stage or meter.stage.name] += [missing[one] for one in ids]
                table = _parted(table, missing)[0]

    def _retrieved(self, meter: Meter, table: pa.Table, *, partial_texts: bool) -> pa.Table:
        if not table.num_rows:
            return table
        self._found.seen.partial = partial_texts
        table = meter(table)
        into = self._found.first_searches if partial_texts else self._found.searches
        into.add(table, "searches", ["retrieve"])
        return table


def _blind(work: SharedWork) -> str:
    """Returns why lists are not looked up; "": they are."""
    return "the web is searched" if any(one.of_pages for one in work.retrievers.values()) else ""


def _unscored(work: SharedWork) -> str:
    """Returns why pairs, and what is asked about documents, are not looked up; "": they are, or there are none."""
    read = {answer.documents for answer in work.answers if answer.fuse.duplicates == "drop"}
    read |= {one.documents for one in work.rerankers}
    if any(work.doing(stage) for stage in ("grade", "answer", "judge")):
        read |= {answer.documents for answer in work.answers}
    opened = [work.retrievers[key] for key in sorted(read)]
    away = [one.name for one in opened if not is_here(one.name, one.settings)]
    return f"the index of {away[0]} lies on S3, and there is no copy on this machine" if away else ""


def _parted(table: pa.Table, ids: Collection[str]) -> tuple[pa.Table, pa.Table]:
    of_these = pc.is_in(table.column("query_id"), pa.array(sorted(ids), pa.string()))
    return table.filter(pc.invert(of_these)).combine_chunks(), table.filter(of_these).combine_chunks()


def _evenly(number: int, count: int) -> list[int]:
    """Returns places among so many, `count` at most, evenly chosen."""
    count = min(number, count)
    return [(2 * place + 1) * number // (2 * count) for place in range(count)]
