"""What a driver does with its shards: a run sends them through one chain of stages, an ablation through another."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from cluster.run.pools import Pool, PoolRequest
from cluster.run.shards import File, Plan
from cluster.run.stage import Stage
from jobs.chain.pipeline import stages
from jobs.job.pools import requested_pools
from jobs.job.prepare import Prepared, check_engine
from jobs.job.request_shares import check_shares
from jobs.run.finish import run_balances, written_schemas
from jobs.run.spending import requests_per_query, tries_per_request

Balances = list[tuple[str, int, str, int]]


@dataclass(frozen=True)
class Work:
    """The parts in which a run and an ablation differ.

    Attributes:
        pools: Returns the pools that the job requests.
        check_engines: Raises where an engine cannot answer; may send requests.
        check: Raises where the sized pools cannot do the work.
        stages: Returns the linked stages; the number is that of the start.
        requests_per_query: Returns the most requests to the LLM for a query, with all their tries.
        schemas: Returns the schemas of the tables that are written, by name.
        balances: Returns pairs of counts that must be equal, each count after its name; the counts are sums over the shards.
        is_newest: Whether `latest.json` points to it when it is finished.
    """

    pools: Callable[[Prepared], dict[str, PoolRequest]]
    check_engines: Callable[[Prepared], None]
    check: Callable[[Prepared, Mapping[str, Pool]], None]
    stages: Callable[[Prepared, Mapping[str, Pool], int], list[Stage]]
    requests_per_query: Callable[[Prepared], int]
    schemas: Callable[[Prepared], Mapping[str, Any]]
    balances: Callable[[Prepared, Plan, Mapping[str, int], Mapping[str, list[File]]], Balances]
    is_newest: bool = True


RUN = Work(
    pools=lambda prepared: requested_pools(prepared.config),
    check_engines=check_engine,
    check=lambda prepared, pools: check_shares(prepared.config, pools),
    stages=stages,
    requests_per_query=lambda prepared: requests_per_query(prepared.rewriting) * (1 + tries_per_request(prepared.rewriting)),
    schemas=written_schemas,
    balances=run_balances,
)
