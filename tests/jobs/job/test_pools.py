"""On what the models of a job compute."""

from __future__ import annotations

import os
from typing import Any

import pytest

from cluster.errors import ConfigError
from cluster.run.session import InProcessSession
from jobs.chain.completer import on_devices
from jobs.config.config import Config
from jobs.job.pools import device, requested_pools, with_precisions
from rewriters.engines.settings import LocatedVllmSettings, OpenaiSettings
from rewriters.engines.vllm.cores import visible

DENSE = {"kind": "local", "index": "i", "encoder": {"model": "m"}}


@pytest.mark.parametrize(("address", "precisions"), [("none", ("float16", "float16")), ("local", ("float32", "float16"))])
def test_precisions_are_those_of_the_pools_that_the_session_makes(
    values: dict[str, Any], monkeypatch: pytest.MonkeyPatch, address: str, precisions: tuple[str, str]
) -> None:
    """One GPU: in one process each stage has it in turn; of workers side by side only the last stage's has it."""
    monkeypatch.setattr("cluster.run.session.visible_gpus", lambda: 1.0)
    changed = {"retrieve": {"retrievers": {"dense": DENSE}}, "cluster": {"address": address}, "rerank": {"model": "r"}}
    config = with_precisions(Config.model_validate(values | changed))
    encoder = config.retrieve.retrievers["dense"].encoder
    assert encoder is not None
    assert (encoder.dtype, config.rerank.dtype) == precisions
    if address == "none":
        assert {name: device(pool) for name, pool in InProcessSession(requested_pools(config)).pools.items()}[
            "retrieve"
        ] == "cuda:0"


VLLM = {"kind": "vllm", "model": "small"}
SERVER = {"kind": "openai", "model": "tiny", "base_url": "http://127.0.0.1:9/v1"}


@pytest.mark.parametrize(
    ("engine", "own", "gpus"),
    [
        (SERVER, [], 0.0),
        (SERVER, [VLLM], 1.0),
        (SERVER, [VLLM, VLLM | {"lora": "adapter"}], 2.0),
        (SERVER, [VLLM, VLLM], 1.0),  # one engine answers both
        (VLLM, [SERVER], 1.0),
        (VLLM, [VLLM], 1.0),
        (VLLM, [VLLM | {"args": {"tensor_parallel_size": 4}}], 5.0),
    ],
)
def test_a_worker_has_the_gpus_of_the_engines_of_strategies(
    values: dict[str, Any], engine: dict[str, Any], own: list[dict[str, Any]], gpus: float
) -> None:
    names = ["general", "keyword", "core_content"]
    strategies = [{name: {"engine": one}} for name, one in zip(names, own, strict=False)] or ["general"]
    rewrite = {"engine": engine, "calls": "separate", "strategies": strategies}
    request = requested_pools(Config.model_validate(values | {"rewrite": rewrite}))["rewrite"]
    assert (request.gpus or 0.0, request.takes_spare_gpus) == (gpus, gpus > 0)


def test_a_worker_with_fewer_gpus_than_a_strategy_s_engine_spans_is_refused(values: dict[str, Any]) -> None:
    own = VLLM | {"args": {"tensor_parallel_size": 4}}
    rewrite = {"engine": SERVER, "calls": "separate", "strategies": [{"general": {"engine": own}}]}
    config = Config.model_validate(values | {"rewrite": rewrite, "cluster": {"address": "none", "rewrite": {"gpus": 2}}})
    with pytest.raises(ConfigError, match=r"cluster.rewrite.gpus: a worker has 2, but its engine spans 4"):
        requested_pools(config)


def test_engines_of_a_worker_have_gpus_of_their_own() -> None:
    first = LocatedVllmSettings(kind="vllm", model="a", weights="a", args={"tensor_parallel_size": 2})
    second = LocatedVllmSettings(kind="vllm", model="b", weights="b")
    server = OpenaiSettings(**SERVER)
    placed = on_devices([first, server, second, first], 3)
    assert [getattr(one, "devices", "none") for one in placed.values()] == [(0, 1), "none", (2,)]
    shared = on_devices([first, second], 1)
    assert [getattr(one, "devices", "none") for one in shared.values()] == [None, None]


def test_an_engine_s_processes_see_its_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "4,6,7")
    with visible((1, 2)):
        assert os.environ["CUDA_VISIBLE_DEVICES"] == "6,7"
    with visible(None):
        assert os.environ["CUDA_VISIBLE_DEVICES"] == "4,6,7"
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES")
    with visible((1,)):
        assert os.environ["CUDA_VISIBLE_DEVICES"] == "1"
    assert "CUDA_VISIBLE_DEVICES" not in os.environ
