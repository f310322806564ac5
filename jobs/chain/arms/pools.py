"""The pools of an ablation's workers, by its arms alone: they are known before a model or an index is opened."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence

from cluster.run.pool_sizes import PoolRequest
from jobs.chain.arms.arms import STEPS, Arm
from jobs.chain.arms.opened import digest
from jobs.config.config import Config
from jobs.job.devices import distinct
from jobs.job.indexes import text_settings
from jobs.job.pools import opened_engines, requested_pools, rerankers_of, searched_first, step_engines
from retrievers.kinds import RetrieverSettings
from retrievers.rerankers.settings import RerankerSettings
from rewriters.engines.settings import EngineSettings

ROWS = 100_000  # queries of a shard times arms, at most, at `CANDIDATES` each: some 150 MB in flight
CANDIDATES = 50
LEAST_SHARD = 20
_STEPS = (*STEPS, "judge")  # as the chain has them


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


def engines_of(arms: Iterable[Arm]) -> list[list[EngineSettings]]:
    """Returns, of each common engine of the arms, the engines that its workers open, as the config names them."""
    found: dict[str, list[EngineSettings]] = {}
    for arm in arms:
        if arm.config.rewrite.planned and (common := arm.config.rewrite.engine) is not None:
            of = found.setdefault(digest(common.model_dump()), [])
            of += opened_engines(arm.config)
    return [list(distinct(of).values()) for of in found.values()]


def arm_rerankers(arms: Iterable[Arm]) -> list[RerankerSettings]:
    """Returns the rerankers of the arms, each once: each reranking worker has them all."""
    rerankers = [one for arm in arms if not arm.members for one in rerankers_of(arm.config)]
    return list({digest(one.model_dump()): one for one in rerankers}.values())


def arm_gating(arms: Iterable[Arm]) -> list[RetrieverSettings]:
    """Returns the retrievers that arms search before they rewrite, each once: each worker of the gate has them all."""
    found = [one for arm in arms if not arm.members for one in searched_first(arm.config)]
    return list({digest(one.model_dump()): one for one in found}.values())


def arm_steps(arms: Iterable[Arm]) -> dict[str, list[EngineSettings]]:
    """Returns step -> the engines that do it, as the config names them, each once: each of its workers has them all."""
    found: dict[str, dict[str, EngineSettings]] = {}
    for arm in arms:
        for step, engines in step_engines(arm.config).items() if not arm.members else ():
            found.setdefault(step, {}).update({digest(one.model_dump()): one for one in engines})
    return {step: list(found[step].values()) for step in _STEPS if step in found}


def arm_pools(
    pooled: Config,
    engines: Sequence[Sequence[EngineSettings]],
    rerankers: Sequence[RerankerSettings],
    asking: Mapping[str, Sequence[EngineSettings]] | None = None,
    gating: Sequence[RetrieverSettings] = (),
) -> dict[str, PoolRequest]:
    """Returns the requested pools: those of a run, and one for each further common engine, as a run with that engine has it.

    `engines` are those that the workers of each common engine open; `pooled` is by `pooled_config`.
    """
    pools = requested_pools(pooled, rerankers, asking or {}, next(iter(engines), ()), gating)
    for number, of in enumerate(engines[1:], start=2):
        pools[rewriting_pool(number)] = requested_pools(pooled, rerankers, asking or {}, of, gating)["rewrite"]
    return pools


def pools_of_arms(config: Config, arms: Sequence[Arm]) -> dict[str, PoolRequest]:
    """Returns the pools that an ablation requests, before its arms are compiled."""
    return arm_pools(pooled_config(config, arms), engines_of(arms), arm_rerankers(arms), arm_steps(arms), arm_gating(arms))


def rewriting_pool(number: int) -> str:
    """Returns the name of the pool, and of the stage, of a common engine, counted from 1."""
    return "rewrite" if number == 1 else f"rewrite_{number}"
