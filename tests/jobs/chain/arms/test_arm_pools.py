"""The pools of an ablation: those of a run that rewrites, encodes and reranks where any arm does, and one for each engine."""

from __future__ import annotations

from typing import Any

from cluster.run.pool_sizes import PoolRequest
from jobs.chain.arms.arms import arms_of
from jobs.chain.arms.pools import arm_pools, arm_rerankers, engines_of, pooled_config
from jobs.config.config import Config

VLLM = {"kind": "vllm", "model": "org/small"}
LARGE = {"kind": "vllm", "model": "org/large", "args": {"tensor_parallel_size": 2}}
SERVED = {"kind": "openai", "model": "m", "base_url": "http://llm:8000/v1"}


def pools(values: dict[str, Any], engine: dict[str, Any], arms: dict[str, Any], **cluster: Any) -> dict[str, PoolRequest]:
    values["rewrite"] = values.get("rewrite", {}) | {"engine": engine}
    config = Config.model_validate(values | {"ablate": {"arms": arms}, "cluster": cluster})
    found = arms_of(config)
    return arm_pools(pooled_config(config, found), engines_of(found), arm_rerankers(found))


def test_an_engine_has_the_gpus_that_it_spans_whichever_engine_is_the_first(values: dict[str, Any]) -> None:
    found = pools(values, VLLM, {"large": {"rewrite.engine": LARGE}})
    assert (found["rewrite"].gpus, found["rewrite_2"].gpus) == (1, 2)


def test_a_server_takes_no_gpu_beside_an_engine_that_has_some(values: dict[str, Any]) -> None:
    served = PoolRequest(workers=1)
    assert pools(values, VLLM, {"served": {"rewrite.engine": SERVED}})["rewrite_2"] == served
    found = pools(values, SERVED, {"large": {"rewrite.engine": LARGE}})
    assert found["rewrite"] == served
    assert found["rewrite_2"] == PoolRequest(gpus=2, can_use_gpu=True, takes_spare_gpus=True)


def test_arms_with_the_same_engine_share_its_pool_and_one_reranks_for_all(values: dict[str, Any]) -> None:
    values["rerank"] = {"kind": "none"}
    found = pools(values, VLLM, {"again": {"rewrite.engine": VLLM}, "cool": {"rewrite.decoding.temperature": 0.5}})
    assert list(found) == ["rewrite", "retrieve"]
    assert list(pools(values, VLLM, {"reranked": {"rerank.kind": "cross_encoder"}})) == ["rewrite", "retrieve", "rerank"]
