"""The pools of an ablation: those of a run that rewrites, encodes and reranks where any arm does, and one for each engine."""

from typing import Any

import pytest

from cluster.run.pool_sizes import PoolRequest
from jobs.chain.arms.arms import arms_of, configs_of
from jobs.chain.arms.checks import ArmChecks
from jobs.config.config import Config
from jobs.job.pools import requested_pools, with_precisions

VLLM = {"kind": "vllm", "model": "org/small"}
LARGE = {"kind": "vllm", "model": "org/large", "args": {"tensor_parallel_size": 2}}
OWN = {"kind": "vllm", "model": "org/own"}
SERVED = {"kind": "openai", "model": "m", "base_url": "http://llm:8000/v1"}


def pools(values: dict[str, Any], engine: dict[str, Any], arms: dict[str, Any], **cluster: Any) -> dict[str, PoolRequest]:
    values["rewrite"] = values.get("rewrite", {}) | {"engine": engine}
    config = Config.model_validate(values | {"ablate": {"arms": arms}, "cluster": cluster})
    return requested_pools(*configs_of(arms_of(config)))


@pytest.mark.parametrize(
    ("engine", "changes", "gpus"),
    [
        (VLLM, {"rewrite.engine": LARGE}, (1, 2)),  # whichever engine is the first
        (VLLM, {"rewrite.engine": SERVED}, (1, None)),
        (SERVED, {"rewrite.engine": LARGE}, (None, 2)),
        (VLLM, {"rewrite.engine": LARGE, "rewrite.strategies": ["general", {"hyde": {"engine": OWN}}]}, (1, 3)),
        (VLLM, {"rewrite.engine": LARGE, "rewrite.strategies": [{"hyde": {"engine": OWN}}]}, (1, 1)),  # the common one has none
    ],
)
def test_a_pool_has_the_gpus_of_the_engines_of_its_own_arms_alone(
    values: dict[str, Any], engine: dict[str, Any], changes: dict[str, Any], gpus: tuple[int | None, int | None]
) -> None:
    values["rewrite"] = {"strategies": ["general"]}
    found = pools(values, engine, {"arm": changes})
    for name, count in zip(("rewrite", "rewrite_2"), gpus, strict=True):
        wanted = PoolRequest(gpus=count, can_use_gpu=True, takes_spare_gpus=True) if count else PoolRequest(workers=1)
        assert found[name] == wanted


def test_an_ablation_has_a_gate_where_an_arm_has_one(values: dict[str, Any]) -> None:
    assert "gate" not in pools(values, SERVED, {"rrf": {"fuse.method": "rrf"}})
    assert pools(values, SERVED, {"gated": {"rewrite.gate": {"by": "bm25", "below": 1}}})["gate"] == PoolRequest(workers=1)


def test_arms_with_the_same_engine_share_its_pool_and_one_reranks_for_all(values: dict[str, Any]) -> None:
    values["rerank"] = {"kind": "none"}
    found = pools(values, VLLM, {"again": {"rewrite.engine": VLLM}, "cool": {"rewrite.decoding.temperature": 0.5}})
    assert list(found) == ["rewrite", "retrieve"]
    assert list(pools(values, VLLM, {"reranked": {"rerank.kind": "cross_encoder"}})) == ["rewrite", "retrieve", "rerank"]


def test_all_arms_rerank_in_the_precision_of_the_workers_that_they_share(
    values: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of one GPU the ablation's engine has it; a run of the original alone would have it for the reranker."""
    monkeypatch.setattr("cluster.run.session.visible_gpus", lambda: 1.0)
    values |= {"rerank": {"model": "r"}, "cluster": {"address": "local"}}
    values["rewrite"] = {"engine": VLLM, "strategies": ["general", "keyword"]}
    config = Config.model_validate(values)
    arms = arms_of(config)
    assert {one.name for one in arms} == {"full", "original", "general", "keyword"}
    original = next(one.config for one in arms if one.name == "original")
    assert with_precisions(original, requested_pools(original)).rerank.dtype == "float16"
    checks = ArmChecks(requested_pools(*configs_of(arms)))
    assert {checks.with_precisions(one.config).rerank.dtype for one in arms} == {"float32"}
