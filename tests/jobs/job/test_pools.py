"""Pools of a job: accelerators of engines, precisions, and shares of requests in flight."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cluster.errors import ClusterError
from cluster.run.pool_sizes import NodeGroup, size_pools
from cluster.run.session import InProcessSession
from jobs.config.config import Config
from jobs.job.engine import on_devices, placed
from jobs.job.pools import device, requested_pools, with_precisions
from rewriters.engines.settings import VLLM_MEMORY, LocatedVllmSettings, OpenaiSettings, VllmSettings
from rewriters.engines.vllm.processes import visible

DENSE = {"kind": "local", "index": "i", "encoder": {"model": "m"}}


@pytest.mark.parametrize(("address", "precisions"), [("none", ("float16", "float16")), ("local", ("float32", "float16"))])
def test_precisions_are_those_of_the_pools_that_the_session_makes(
    values: dict[str, Any], monkeypatch: pytest.MonkeyPatch, address: str, precisions: tuple[str, str]
) -> None:
    """One GPU: in one process each stage has it in turn; of workers side by side only the last stage's has it."""
    monkeypatch.setattr("cluster.run.session.visible_gpus", lambda: 1.0)
    changed = {"retrieve": {"retrievers": {"dense": DENSE}}, "cluster": {"address": address}, "rerank": {"model": "r"}}
    config = Config.model_validate(values | changed)
    config = with_precisions(config, requested_pools(config))
    encoder = config.retrieve.retrievers["dense"].encoder
    assert encoder is not None
    assert (encoder.dtype, config.rerank.dtype) == precisions
    if address == "none":
        assert device(InProcessSession(requested_pools(config)).pools["retrieve"]) == "cuda:0"


def test_the_gate_has_a_pool_that_can_use_a_gpu_where_it_encodes(values: dict[str, Any]) -> None:
    values["retrieve"]["retrievers"] = {"bm25": {"kind": "local", "index": "i"}, "dense": DENSE}

    def pool(gate: dict[str, Any] | None) -> Any:
        rewrite = values["rewrite"] | {"gate": gate}
        return requested_pools(Config.model_validate(values | {"rewrite": rewrite})).get("gate")

    by_words, by_vectors = (pool({"by": name, "below": 1}) for name in ("bm25", "dense"))
    assert (by_words.workers, by_words.can_use_gpu) == (1, False)
    assert (by_vectors.workers, by_vectors.can_use_gpu) == (None, True)
    assert pool(None) is None


VLLM = {"kind": "vllm", "model": "small"}

SERVER = {"kind": "openai", "model": "tiny", "base_url": "http://127.0.0.1:9/v1"}


def test_engines_that_a_machine_cannot_hold_are_refused_before_anything_starts(
    values: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    rewrite = {"engine": VLLM, "strategies": ["general", {"hyde": {"engine": VLLM | {"model": "b"}}}]}
    requests = requested_pools(Config.model_validate(values | {"rewrite": rewrite, "rerank": {"kind": "none"}}))
    monkeypatch.setattr("cluster.run.session.visible_gpus", lambda: 2.0)
    assert InProcessSession(requests).pools["rewrite"].gpus == 2
    assert size_pools(requests, [NodeGroup(1, 16, 2)], local=False)["rewrite"].gpus == 2
    monkeypatch.setattr("cluster.run.session.visible_gpus", lambda: 1.0)
    with pytest.raises(
        ClusterError, match=r"a worker of rewrite wants 2 GPUs, and this machine has 1; lower cluster\.rewrite\.gpus"
    ):
        InProcessSession(requests)
    with pytest.raises(ClusterError, match="no node can hold one of the workers of rewrite, each 1 CPU and 2 GPU"):
        size_pools(requests, [NodeGroup(4, 16, 1)], local=False)


def test_the_common_engine_is_not_opened_where_no_request_goes_to_it(values: dict[str, Any]) -> None:
    large = VLLM | {"model": "large", "args": {"tensor_parallel_size": 4}}

    def gpus(*strategies: Any, **rewrite: Any) -> float | None:
        rewrite = {"engine": large, "strategies": list(strategies)} | rewrite
        return requested_pools(Config.model_validate(values | {"rewrite": rewrite}))["rewrite"].gpus

    own = {"hyde": {"engine": VLLM}}
    assert gpus(own) == 1
    assert gpus(own, "expand") == 5
    assert gpus(own, "./not-here.yaml") == 5  # it may go to the common one
    assert gpus(own, select={"kind": "classified", "by": "llm"}) == 5  # which is asked for the type
    assert gpus(own, "expand", select={"kind": "adaptive"}) == 4  # one request for all


def test_a_strategy_in_a_file_has_its_engine_counted(values: dict[str, Any], tmp_path: Path) -> None:
    file = tmp_path / "mine.yaml"
    engine = "{kind: vllm, model: mine, args: {pipeline_parallel_size: 2}}"
    file.write_text(f"label: Mine\nprompt: 'Say: {{query}}'\nengine: {engine}\n")
    rewrite = {"engine": SERVER, "strategies": ["general", str(file)]}
    assert requested_pools(Config.model_validate(values | {"rewrite": rewrite}))["rewrite"].gpus == 2


COMMON: list[dict[str, Any]] = [
    {"kind": "recorded", "path": "r.jsonl"},
    SERVER,
    VLLM,
    VLLM | {"args": {"tensor_parallel_size": 2}},
]

OWN: list[dict[str, Any] | None] = [
    None, SERVER | {"model": "other"}, VLLM, VLLM | {"model": "b"}, VLLM | {"model": "b", "args": {"tensor_parallel_size": 2}},
]  # fmt: skip

NAMES = ["hyde", "expand", "step_back", "general"]


def counted(common: dict[str, Any], own: Sequence[dict[str, Any] | None]) -> int:
    """The GPUs of the distinct engines that are asked, by hand."""
    engines = [common if one is None else one for one in own]
    distinct = [one for place, one in enumerate(engines) if one not in engines[:place]]
    return sum(one.get("args", {}).get("tensor_parallel_size", 1) for one in distinct if one["kind"] == "vllm")


@given(
    common=st.sampled_from(COMMON),
    own=st.lists(st.sampled_from(OWN), min_size=1, max_size=4),
    given_=st.sampled_from([None, 0, 8]),
)
def test_a_worker_asks_for_the_gpus_of_the_engines_that_are_asked(
    common: dict[str, Any], own: list[dict[str, Any] | None], given_: int | None
) -> None:
    strategies = [name if one is None else {name: {"engine": one}} for name, one in zip(NAMES, own, strict=False)]
    values = {
        "name": "x", "log": {"path": "l", "query_column": "q"}, "rewrite": {"engine": common, "strategies": strategies},
        "retrieve": {"retrievers": {"bm25": {"kind": "local", "index": "i"}}}, "output": "o",
        "cluster": {"rewrite": {"gpus": given_}}, "rerank": {"kind": "none"},
    }  # fmt: skip
    request = requested_pools(Config.model_validate(values))["rewrite"]
    wanted = counted(common, own)
    assert (request.gpus or 0) == (wanted if given_ is None else given_)
    assert request.takes_spare_gpus == (wanted > 0)


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


def engine(span: int = 1, memory: float | None = None, name: str = "m") -> VllmSettings:
    args = {"tensor_parallel_size": span} | ({} if memory is None else {"gpu_memory_utilization": memory})
    return VllmSettings(kind="vllm", model=name, args=args)


def located(span: int, name: str) -> LocatedVllmSettings:
    return LocatedVllmSettings(kind="vllm", model=name, weights=name, args={"tensor_parallel_size": span})


def test_engines_of_a_worker_have_gpus_of_their_own() -> None:
    server = OpenaiSettings(kind="openai", model="tiny", base_url="http://127.0.0.1:9/v1")
    found = on_devices([located(2, "a"), server, located(1, "b"), located(2, "a")], 3)
    assert [getattr(one, "devices", "none") for one in found.values()] == [(0, 1), "none", (2,)]


@pytest.mark.parametrize("gpus", [0, 1, 4])
def test_one_engine_sees_all_of_them_and_without_any_nothing_is_placed(gpus: float) -> None:
    engines = [located(1, "a")] if gpus else [located(1, "a"), located(1, "b")]
    assert [one.devices for one in on_devices(engines, gpus).values()] == [None] * len(engines)  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("engines", "gpus", "places"),
    [
        ([engine(), engine()], 1, None),
        ([engine(memory=0.5), engine(memory=0.5)], 1, [(0,), (0,)]),
        ([engine(memory=0.5), engine(memory=0.5)], 0.5, [(0,), (0,)]),
        ([engine(memory=0.6), engine(memory=0.5)], 1, None),
        ([engine(memory=0.45), engine(memory=0.45), engine(memory=0.45)], 2, [(0,), (1,), (0,)]),
        ([engine(2, 0.5), engine(memory=0.5), engine(memory=0.5)], 2, [(0, 1), (0,), (1,)]),
        ([engine(memory=0.5), engine(memory=0.5), engine(2, 0.6)], 2, None),
        ([engine(2), engine(2)], 3, None),
    ],
)  # fmt: skip
def test_engines_share_where_their_memory_has_room(
    engines: list[VllmSettings], gpus: float, places: list[tuple[int, ...]] | None
) -> None:
    assert placed(engines, gpus) == places


def test_the_default_share_of_memory_is_that_of_vllm() -> None:
    config = pytest.importorskip("vllm.config.cache")
    assert config.CacheConfig.gpu_memory_utilization == VLLM_MEMORY
    assert engine().memory == VLLM_MEMORY
    assert VllmSettings(kind="vllm", model="m", args={"kv_cache_memory_bytes": 1 << 30}).memory == 0
