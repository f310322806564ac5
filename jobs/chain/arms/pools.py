"""The pools of an ablation's workers, by its arms alone: they are known before a model or an index is opened."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import TypeVar

from pydantic import BaseModel

from cluster.run.pool_sizes import PoolRequest
from jobs.chain.arms.arms import STEPS, Arm
from jobs.chain.arms.resources import digest
from jobs.config.config import Config
from jobs.job.indexes import text_settings
from jobs.job.pools import opened_engines, requested_pools, rerankers_of, searched_first, step_engines
from retrievers.kinds import RetrieverSettings
from retrievers.rerankers.settings import RerankerSettings
from rewriters.engines.settings import EngineSettings

ROWS = 100_000  # queries of a shard times arms, at most, at `CANDIDATES` each: some 150 MB in flight
CANDIDATES = 50
LEAST_SHARD = 20
Model = TypeVar("Model", bound=BaseModel)


def pooled_config(config: Config, arms: Sequence[Arm], looked: int = CANDIDATES) -> Config:
    """Returns the config whose pools an ablation needs, beside `arm_rerankers`: it rewrites and encodes where any arm does.

    Where measures read (`looked`) more documents of a list than are candidates, shards have fewer queries.
    """
    answered = [arm.config for arm in arms if not arm.members]
    planned = [one.rewrite for one in answered if one.rewrite.planned] or [config.rewrite]
    entries = {json.dumps(entry, sort_keys=True): entry for one in planned for entry in one.strategies}
    gates = [one.gate for one in planned if one.gated is not None]
    rewriting = planned[0].model_copy(  # each worker has their engines
        update={"strategies": list(entries.values()), "gate": gates[0] if gates else None}
    )
    read = [index for one in answered if one.rerank.kind != "none" for index in text_settings(one)]
    # rerankers share the requests in flight with the first retriever, if its index is at a server
    searched: list[RetrieverSettings] = [one for one in read if one.own_limits()]
    searched += [one for arm in answered for one in arm.retrieve.retrievers.values()]
    retrievers = {digest(one.model_dump(exclude={"together"})): one for one in searched}
    size = min(config.cluster.shard_size, max(LEAST_SHARD, ROWS * CANDIDATES // max(CANDIDATES, looked) // len(answered)))
    steps = {key: next((step for one in answered if (step := getattr(one, key)) is not None), None) for key in STEPS}
    return config.model_copy(
        update=steps
        | {
            "rewrite": rewriting,
            "retrieve": config.retrieve.model_copy(update={"retrievers": retrievers}),
            "cluster": config.cluster.model_copy(update={"shard_size": size}),
        }
    )


def arm_rerankers(arms: Iterable[Arm]) -> list[RerankerSettings]:
    """Returns the rerankers of the arms, each once: each reranking worker has them all."""
    return _distinct(one for arm in arms if not arm.members for one in rerankers_of(arm.config))


def arm_pools(
    pooled: Config, arms: Sequence[Arm], engines: Sequence[Sequence[EngineSettings]] | None = None
) -> dict[str, PoolRequest]:
    """Returns the requested pools: those of a run, and one for each further common engine, as a run with that engine has it.

    Args:
        pooled: By `pooled_config`.
        arms: Each of whose retrievers of gates and engines of steps every worker of these stages has.
        engines: Of each common engine, those that its workers open; None: as the configs name them.
    """
    configs = [arm.config for arm in arms if not arm.members]
    if engines is None:
        opened: dict[str, list[EngineSettings]] = {}
        for config in configs:
            if config.rewrite.planned and config.rewrite.engine is not None:
                opened.setdefault(config.rewrite.engine.model_dump_json(), []).extend(opened_engines(config))
        engines = [_distinct(of) for of in opened.values()]
    of_steps = [step_engines(one) for one in configs]
    asking = {
        step: _distinct(one for of in of_steps for one in of.get(step, ()))
        for step in (*STEPS, "judge")
        if any(step in of for of in of_steps)
    }
    gating, rerankers = _distinct(one for of in configs for one in searched_first(of)), arm_rerankers(arms)
    pools = requested_pools(pooled, rerankers, asking, next(iter(engines), ()), gating)
    for number, engine in enumerate(engines[1:], start=2):
        pools[rewriting_pool(number)] = requested_pools(pooled, rerankers, asking, engine, gating)["rewrite"]
    return pools


def _distinct(settings: Iterable[Model]) -> list[Model]:
    return list({one.model_dump_json(): one for one in settings}.values())


def pools_of_arms(config: Config, arms: Sequence[Arm]) -> dict[str, PoolRequest]:
    """Returns the pools that an ablation requests, before its arms are compiled."""
    return arm_pools(pooled_config(config, arms), arms)


def rewriting_pool(number: int) -> str:
    """Returns the name of the pool, and of the stage, of a common engine, counted from 1."""
    return "rewrite" if number == 1 else f"rewrite_{number}"
