"""A checked job with its arms: a run has one, an ablation many."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Self

import pyarrow as pa

from cluster.run.lease import lease_times
from cluster.run.pool_sizes import Pool, PoolRequest
from cluster.run.session import chosen_address
from cluster.run.shards import File, Plan
from cluster.run.stage import Stage
from jobs.chain.arms.arms import configs_of
from jobs.chain.arms.compile import Compiled, compile_run
from jobs.chain.arms.requests import opened_together
from jobs.chain.pipeline import stages
from jobs.chain.store.files import NO_STORE, StoreFiles, kept_spaces, open_store
from jobs.chain.tables import ARM_STORED
from jobs.config.config import Config
from jobs.job import engine
from jobs.job.engine import distinct
from jobs.job.measure_checks import shallow_measures
from jobs.job.pools import requested_pools
from jobs.job.prepare import Prepared
from jobs.run.finish import Balance, ablation_balances, run_balances
from jobs.tables import STORED


@dataclass(frozen=True)
class Job:
    """A checked job with its arms."""

    prepared: Prepared
    compiled: Compiled
    gold: Mapping[str, Sequence[str]] = field(default_factory=dict)  # query_id -> gold answers, for its judge

    @property
    def is_run(self) -> bool:
        """Returns True if it is a run: `latest.json` points to it when it is finished."""
        return self.compiled.work.only is not None

    @property
    def configs(self) -> list[Config]:
        """Returns the configs of its arms."""
        return configs_of(self.compiled.arms)

    @property
    def pools(self) -> dict[str, PoolRequest]:
        opened = [distinct(one.settings for one in engines) for engines in opened_together(self.compiled.work).values()]
        return requested_pools(*self.configs, engines=opened)

    @property
    def schemas(self) -> dict[str, pa.Schema]:
        """Returns the schemas of the tables that are written, by name."""
        work = self.compiled.work
        written = {
            "runs": work.keep_lists,
            "candidates": work.keep_candidates,
            "scores": bool(work.rerankers),
            "rounds": bool(work.doing("iterate")),
            "grades": bool(work.doing("grade")),
            "corrections": bool(work.doing("grade")),
            "answers": bool(work.doing("answer")),
            "judgements": bool(work.doing("judge")),
            "web": any(retriever.of_pages for retriever in work.retrievers.values())
            or any(one.web_search is not None for one in work.answers),
            "selections": any(one.rewriting.selects or one.gate is not None for one in work.readings),
            "tails": any(answer.looked > answer.keep for answer in work.answers),
        }
        return {name: of for name, of in (STORED if self.is_run else ARM_STORED).items() if written.get(name, True)}

    def placed(self, queries: int) -> tuple[Self, str]:
        """Returns the job with the `cluster.address` at which it works, and why, in words; `queries`: distinct ones."""
        if self.prepared.config.cluster.address is not None:
            return self, ""
        address, why = chosen_address(queries, self.pools)
        config = self.prepared.config
        placed = config.model_copy(update={"cluster": config.cluster.model_copy(update={"address": address})})
        return replace(self, prepared=replace(self.prepared, config=placed)), why

    def check_engines(self) -> None:
        """Checks the engines of all arms, which may send requests to their servers.

        Raises:
            RewriterError: An engine would rewrite no query.
        """
        work, local = self.compiled.work, self.prepared.config.cluster.joined is None
        asked = [one for engines in opened_together(work).values() for one in engines]
        asked += [task.engine for answer in work.answers for task in answer.tasks.values()]
        for settings in distinct(one.settings for one in asked):
            engine.check(settings, local)

    def open_store(self, *, read_only: bool = False) -> StoreFiles:
        """Returns the store with the files that its spaces have now; `NO_STORE` where the config has none.

        `read_only`: nothing is put there, not even that it is used.

        Raises:
            ClusterError: It cannot be used.
        """
        folder = self.prepared.config.store_folder
        spaces = kept_spaces(self.prepared.config, self.compiled.work) if folder is not None else {}
        if folder is None or not spaces:
            return NO_STORE
        began = next((began for began, _ in lease_times(self.prepared.storage)), None)
        return open_store(folder, spaces, began, self.prepared.config.store_lifetime, read_only=read_only)

    def stages(self, pools: Mapping[str, Pool], start: int, store: StoreFiles) -> list[Stage]:
        """Returns the linked stages; `start` is the number of the start."""
        return stages(self.prepared, self.compiled.work, self.configs, pools, start, store, self.gold)

    def balances(self, plan: Plan, counts: Mapping[str, int], tables: Mapping[str, list[File]]) -> list[Balance]:
        """Returns the counts that must be equal; `counts` are sums over the shards."""
        if self.is_run:
            return run_balances(self.prepared, plan, counts, tables)
        return ablation_balances([one.arm for one in self.compiled.work.answers], plan, counts, tables)


def job_of(prepared: Prepared, compiled: Compiled) -> Job:
    """Returns a checked job with its arms; its warnings name measures that read deeper than its lists are sure to reach."""
    reach = {one.arm: one.cut_from for one in compiled.work.answers}
    shallow = shallow_measures(prepared.config, reach, is_run=compiled.work.only is not None)
    return Job(replace(prepared, warnings=(*prepared.warnings, *shallow)), compiled)


def run_of(prepared: Prepared) -> Job:
    """Returns a checked run as a job of one arm."""
    return job_of(prepared, compile_run(prepared))
