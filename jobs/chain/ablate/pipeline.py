"""The chain of an ablation."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any

from cluster.run.pools import Pool
from cluster.run.stage import Stage, Worker, link
from cluster.storage import Storage
from jobs.chain.ablate.arms import FULL
from jobs.chain.ablate.compile import Compiled
from jobs.chain.ablate.gathered import FOLDER
from jobs.chain.ablate.pools import arm_rerankers, pooled_config
from jobs.chain.ablate.requests import called
from jobs.chain.ablate.shared_work import OpenedBy, Reading, SharedWork
from jobs.chain.ablate.stages.retrieve import RetrieveArms, without_arms
from jobs.chain.ablate.stages.rewrite import MoreRewriteArms, RewriteArms, ToRead
from jobs.chain.ablate.stages.score import ScoreArms, without_arm_scores
from jobs.chain.ablate.stages.write import WriteArms
from jobs.chain.error_counts import added_failures
from jobs.chain.stages.read import Read
from jobs.job import engine
from jobs.job.pools import device
from jobs.job.prepare import Prepared
from jobs.job.request_shares import Workers, reranker_settings, sharing_workers, worker_settings
from jobs.job.shipping import absolute
from jobs.tables import SHARD


def gathered_folder(output: Storage, name: str) -> str:
    """Returns the folder of what the ablations of a name gather."""
    return output.url(f"{name}/{FOLDER}")


def arm_stages(prepared: Prepared, compiled: Compiled, pools: Mapping[str, Pool], start: int) -> list[Stage]:
    """Returns the stages of an ablation, linked, with the constructor arguments of their workers.

    Args:
        prepared: the job.
        compiled: its arms.
        pools: the sized pools of `arm_pools`.
        start: the number of this start of the ablation, from 1.
    """
    run, gathered = prepared.storage.root, gathered_folder(prepared.output, prepared.config.name)
    workers = sharing_workers(pooled_config(prepared.config, compiled.arms), pools, arm_rerankers(compiled.arms))
    retrievers = {key: _for_workers(one, workers) for key, one in compiled.work.retrievers.items()}
    work = replace(compiled.work, retrievers=retrievers)
    full = next(number for number, answer in enumerate(work.answers) if answer.arm == FULL)
    found = [Stage("read", Read, {"run": run})]
    found += _rewriting(prepared, work, pools, start, gathered)
    settings: dict[str, Any] = {
        "work": work,
        "full": full,
        "device": device(pools["retrieve"]),
        "run": run,
        "gathered": gathered,
    }
    found.append(
        Stage(
            "retrieve", RetrieveArms, settings, pool=pools["retrieve"], fallback=without_arms,
            counts=partial(added_failures, stage="retrieve"),
        )
    )  # fmt: skip
    if work.rerankers:
        rerankers = [replace(one, settings=absolute(reranker_settings(one.settings, workers))) for one in work.rerankers]
        documents = {one.documents: (retrievers[one.documents].name, retrievers[one.documents].settings) for one in rerankers}
        settings = {"rerankers": rerankers, "documents": documents, "device": device(pools["rerank"]), "gathered": gathered}
        found.append(
            Stage(
                "score", ScoreArms, settings, pool=pools["rerank"], fallback=without_arm_scores,
                counts=partial(added_failures, stage="rerank"), cost_stage="rerank",
            )
        )  # fmt: skip
    found.append(Stage("write", WriteArms, {"work": work, "full": full, "run": run, "start": start}))
    return link(found, SHARD)


def _rewriting(prepared: Prepared, work: SharedWork, pools: Mapping[str, Pool], start: int, gathered: str) -> list[Stage]:
    """Returns a stage for each engine; without any, one that adds no text."""
    run, budget = prepared.storage.root, prepared.config.limits.max_cost_usd
    common = {
        "run": run,
        "gathered": gathered,
        "start": start,
        "prices": prepared.prices if budget is not None else None,
        "unsaved_seconds": prepared.config.limits.unsaved_seconds,
    }
    if not work.engines:
        return [Stage("rewrite", RewriteArms, common | {"readings": ()})]
    found = []
    names = called(work.readings)
    for number, (key, of) in enumerate(work.engines.items(), start=1):
        readings = [
            ToRead(one, names[place], _arms_of(work, one))
            for place, one in enumerate(work.readings)
            if one.engines and one.engines[""].key == key
        ]
        worker: Worker = RewriteArms if number == 1 else MoreRewriteArms  # type: ignore[assignment]
        name = "rewrite" if number == 1 else f"rewrite_{number}"
        found.append(
            Stage(
                name,
                worker,
                common | {"readings": readings, "gpus": pools[name].gpus},
                pool=pools[name],
                concurrent_blocks=engine.blocks_in_flight(of.settings, prepared.config.cluster.shard_size),
                counts=partial(added_failures, stage="rewrite"),
                cost_stage="rewrite",
            )
        )
    return found


def _arms_of(work: SharedWork, reading: Reading) -> list[tuple[str, frozenset[str]]]:
    """Returns the arms of a reading with their strategies."""
    return [(one.arm, one.strategies) for one in work.answers if work.readings[work.searches[one.search].reading] is reading]


def _for_workers(one: OpenedBy, workers: Workers) -> OpenedBy:
    """Returns a retriever with its share of requests in flight and absolute paths."""
    return replace(one, settings=absolute(worker_settings(one.settings, one.identity, workers)))
