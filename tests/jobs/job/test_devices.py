"""Accelerators of a worker that its engines compute on."""

from __future__ import annotations

import pytest

from jobs.job.engine import on_devices, placed
from rewriters.engines.settings import VLLM_MEMORY, LocatedVllmSettings, OpenaiSettings, VllmSettings


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
