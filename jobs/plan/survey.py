"""Goes over the shards of a job that are left, with the chain's stages; their workers look, and do not pay.

A query passes to the next stage while everything that it needs is stored. What is missing of it is counted by
the cost rows that a run would write. Of a query with an answer that is missing, the lists of the texts that are known are
counted, too. What stages behind make of it is open: it may need nothing of them, or the most that there can be.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cluster.run.meter import Meter
from cluster.run.pool_sizes import Pool
from cluster.run.shards import Shard
from cluster.run.stage import Stage
from jobs.chain.pipeline import COSTED
from jobs.chain.stages.llm.iterate import Iterate
from jobs.chain.stages.read import Read
from jobs.chain.stages.web.search_web import SearchWeb
from jobs.chain.stages.write import Write
from jobs.chain.store.files import NO_STORE
from jobs.plan.amounts import Amount, exactly, of_others, total
from jobs.plan.work import COUNTED, Component, WorkPart, component_of
from jobs.plan.workers import LOOKING, Seen, StoredAnswers, is_here
from jobs.run.draft import PlannedQueries
from jobs.run.job import Job
from jobs.runs.tables import spread
from jobs.tables import SHARD, unnested

LOOKED = 100_000  # queries of a job: of more, some are looked at, of shards that are evenly chosen
LOOKED_WITHOUT_STORE = 2_000  # where all is missing, and 100,000 took 3 min 26 s
SHARDS = 100  # that are looked at where not all queries are
FOLLOWED = 2_000  # of these queries: those that go on to retrieval

_NOT_ENTERED: dict[Any, str] = {  # stages that search themselves, on which those behind them depend -> why they need it
    Iterate: "further rounds search anew", SearchWeb: "the web is asked where graded results do not suffice",
}  # fmt: skip
Meters = list[tuple[int, Meter]]
_REWRITE, _RETRIEVE = COSTED.index("rewrite"), COSTED.index("retrieve")


class _Looked(NamedTuple):
    """The queries of a shard that were looked at; arrays have shape (queries,)."""

    known: np.ndarray  # the number of stages of `COSTED` of which all is known
    followed: np.ndarray  # whether each went on to retrieval
    missing: Mapping[Component, np.ndarray]  # what a run would make
    every: Mapping[Component, np.ndarray]  # what it would make or take from the store

    def at(self, component: Component) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Returns the missing number, the whole number, and whether there may be more, of queries that tell it."""
        stage, nothing = COSTED.index(component[0]), np.zeros(len(self.known))
        told = self.followed if stage >= _RETRIEVE else np.ones(len(self.known), dtype=bool)
        missing, every = (amounts.get(component, nothing)[told] for amounts in (self.missing, self.every))
        return missing, every, self.known[told] <= stage


class Survey:
    """Finds the facts that a job would take from the store, or miss; nothing is written, and nothing is paid for."""

    def __init__(
        self,
        job: Job,
        queries: PlannedQueries,
        done: Collection[int],
        pools: Mapping[str, Pool],
        phase: Callable[[str], object],
    ) -> None:
        """Goes over the shards that are not `done`; `phase` is told how far it is."""
        pending = [shard for shard in queries.plan.shards if shard.number not in done]
        self.left = sum(shard.rows for shard in pending)
        """Queries that are not committed."""
        self.store, self.seen = job.open_store(read_only=True), Seen()
        self.lacking: dict[str, set[str]] = defaultdict(set)
        """Stage -> query_ids of which it has found something missing."""
        self.unseen = (len(COSTED), "")
        """The index of the first stage of `COSTED` that was not looked into, and why; none behind it was."""
        self._shards, self._looked = len(pending), list[_Looked]()
        self._joins = any(search.together for search in job.compiled.work.searches)
        most = LOOKED_WITHOUT_STORE if self.store is NO_STORE and not done else LOOKED
        chosen = pending if self.left <= most else spread(pending, SHARDS)
        with ExitStack() as stack:
            meters = self._meters(job, queries, pools, stack)
            for number, shard in enumerate(chosen, start=1):
                phase(f"looking for what is missing: shard {number:,} of {len(chosen):,}")
                self._look(meters, shard, most if self.left <= most else most // len(chosen), -(-FOLLOWED // len(chosen)))

    def looked(self, stage: str) -> int:
        """Returns the number of queries that were looked at in a stage."""
        behind = COSTED.index(stage) >= _RETRIEVE
        return sum(int(shard.followed.sum()) if behind else len(shard.known) for shard in self._looked)

    def missing(self, component: Component, part: WorkPart, paid: Sequence[float] | None = None) -> Amount:
        """Returns the amount that all queries that are left lack of a component, of which each may need `part`.

        What queries that were `paid` for have lacked tells what others with missing answers lack.
        """
        shards = [shard.at(component) for shard in self._looked]
        usual = [value for _, every, is_open in shards for value in every[~is_open].tolist()]
        more = Amount(0, min(part.most, sum(usual) / len(usual)) if usual else part.most, part.most)
        if paid is not None:
            count = max(1.0, sum(is_open.sum() for *_, is_open in shards) * self.left / self.looked(component[0]))
            more = Amount(*(end / count for end in of_others(paid, count, part.most)))
        low, expected, high = (
            self._total([np.where(is_open, np.maximum(lacks, end), lacks) for lacks, _, is_open in shards], part.most)
            for end in more
        )
        return Amount(low.low, expected.expected, high.high + part.in_rounds * self.left)

    def stored(self, component: Component) -> float:
        """Returns the share of a component that the store has, of what is known to be needed."""
        shards = [shard.at(component) for shard in self._looked]
        return self._total([every - lacks for lacks, every, _ in shards], 0).expected

    def _total(self, shards: Sequence[np.ndarray], most: float) -> Amount:
        values = np.concatenate([np.zeros(0), *shards])
        if (rest := self.left - len(values)) <= 0:
            return exactly(float(values.sum()))
        if len(shards) == self._shards:
            others = of_others(values.tolist(), rest, most)
        else:  # queries of a shard may be alike, so that a shard is what is sampled
            size = self.left / self._shards
            others = of_others([float(of.mean()) * size for of in shards if len(of)], rest / size, most * size)
        return total([exactly(float(values.sum())), others])

    def _meters(self, job: Job, queries: PlannedQueries, pools: Mapping[str, Pool], stack: ExitStack) -> Meters:
        """Returns the index in `COSTED` of each stage that is looked into, with its worker."""
        work, meters = job.compiled.work, Meters()
        opened = [work.retrievers[key] for key in sorted({answer.documents for answer in work.answers})]
        away = [one.name for one in opened if not is_here(one.name, one.settings)]  # of which documents depend
        for stage in job.stages(pools, 0, self.store):
            at, reason = COSTED.index(stage.cost_stage or stage.name), _NOT_ENTERED.get(stage.worker, "")
            if stage.worker is Write:
                break
            if at == _RETRIEVE and any(retriever.of_pages for retriever in work.retrievers.values()):
                reason = "the web is searched"
            if reason or (away and at > _RETRIEVE):
                self.unseen = (at, reason or f"the index of {away[0]} lies on S3, and there is no copy on this machine")
                break
            meters.append((at, Meter(self._looking(stage, queries), 0)))
            stack.callback(meters[-1][1].close)
        return meters

    def _looking(self, stage: Stage, queries: PlannedQueries) -> Stage:
        settings, worker, seen = dict(stage.settings), stage.worker, self.seen
        work = replace(settings["job"].work, keep_lists=False)
        job = replace(settings["job"], work=work, engines=partial(StoredAnswers, seen), prices=None)
        settings["job"] = replace(job, run=queries.storage.root) if worker is Read else job
        if worker in LOOKING:
            settings["seen"] = seen
        return replace(stage, worker=LOOKING.get(worker, worker), settings=settings)

    def _look(self, meters: Meters, shard: Shard, most: int, follow: int) -> None:
        """Looks at `most` queries of a shard, and at the lists and what comes behind them of `follow` of these."""
        seen, (_, read), *others = self.seen, *meters
        row = {"shard": [shard.number], "key": [shard.key], "row_group": [shard.row_group]}
        table = read(pa.table(row, schema=SHARD))
        table = table.take(pa.array(spread(range(table.num_rows), most), pa.int64()))
        ids: list[str] = table.column("query_id").to_pylist()
        followed = set(spread(ids, follow))
        known, ends = dict.fromkeys(ids, self.unseen[0]), list[pa.Table]()
        for at, meter in others:
            if at == _RETRIEVE:
                seen.unanswered = {query_id for query_id in ids if known[query_id] <= at}
                goes_on = followed & {query_id for query_id in ids if known[query_id] > _REWRITE} | followed & seen.typeless
            else:
                goes_on = {query_id for query_id in ids if known[query_id] > at}
                goes_on |= seen.typeless if at == _REWRITE else set()
            chosen = pc.is_in(table.column("query_id"), pa.array(sorted(goes_on), pa.string()))
            ends.append(table.filter(pc.invert(chosen)))
            table = meter(table.filter(chosen).combine_chunks())
            missing, seen.unknown = seen.unknown, set()
            self.lacking[COSTED[at]] |= missing
            # of these more may be missing in the stage itself: where an answer says what else is asked, or searched
            inside = at == COSTED.index("grade") or (at == _RETRIEVE and self._joins)
            for query_id in missing:
                known[query_id] = min(known[query_id], at if inside or query_id in seen.typeless else at + 1)
        self._looked.append(_counted(ids, known, followed, [*ends, table]))
        seen.typeless.clear()


def _counted(ids: Sequence[str], known: Mapping[str, int], followed: Collection[str], tables: Sequence[pa.Table]) -> _Looked:
    """Returns the sums of the cost rows of queries, each of which is in one of the tables."""
    missing, every = (defaultdict[Component, Counter[str]](Counter) for _ in range(2))
    for table in tables:
        rows, entries = unnested(table, "costs")
        query_ids = table.column("query_id").take(pa.array(rows)).to_pylist()
        costs = pa.Table.from_struct_array(entries).select(COUNTED).to_pylist()
        for query_id, cost in zip(query_ids, costs, strict=True):
            component, count = component_of(cost)
            missing[component][query_id] += count
            every[component][query_id] += count + cost["reused"]
    arrays = (
        {key: np.array([of[one] for one in ids], dtype=float) for key, of in counts.items()} for counts in (missing, every)
    )
    return _Looked(np.array([known[one] for one in ids]), np.array([one in followed for one in ids], dtype=bool), *arrays)
