"""Which accelerators of a rewriting worker each of its engines computes on.

Each engine has accelerators of its own where the worker has enough. Where `cluster.rewrite.gpus` gives it fewer, engines share
some, as far as the shares of memory that they take leave room.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence

from rewriters.engines.settings import EngineSettings

_ROUNDING = 1e-9  # two halves are one

Places = list[tuple[int, ...]]
"""Of each engine its accelerators, from 0."""


def distinct(engines: Iterable[EngineSettings]) -> dict[str, EngineSettings]:
    """Returns the engines by their settings as JSON: of equal ones a worker opens one."""
    return {one.model_dump_json(): one for one in engines}


def on_devices(engines: Iterable[EngineSettings], gpus: float) -> dict[str, EngineSettings]:
    """Returns the distinct engines by their settings as JSON, those of vLLM with the accelerators that they compute on.

    Of one engine, and without accelerators, all are seen.
    """
    found = distinct(engines)
    spanning = [key for key, one in found.items() if one.gpus]
    places = placed([found[key] for key in spanning], gpus) if len(spanning) > 1 and gpus else None
    for key, devices in zip(spanning, places or [], strict=False):
        found[key] = found[key].model_copy(update={"devices": devices})
    return found


def placed(engines: Sequence[EngineSettings], gpus: float) -> Places | None:
    """Returns the accelerators of each engine, of a worker that has `gpus`; None: their memory does not hold them all.

    A part of an accelerator is one, whose memory others may take, too.
    """
    there = max(1, int(gpus))
    if sum(one.gpus for one in engines) <= there:
        ends = list(itertools.accumulate(one.gpus for one in engines))
        return [tuple(range(end - one.gpus, end)) for one, end in zip(engines, ends, strict=True)]
    order = sorted(range(len(engines)), key=lambda at: (-engines[at].memory, -engines[at].gpus))
    found = _fitted([engines[at] for at in order], (0.0,) * there)
    return None if found is None else [devices for _, devices in sorted(zip(order, found, strict=True))]


def _fitted(engines: Sequence[EngineSettings], taken: tuple[float, ...]) -> Places | None:
    """Returns places for the engines beside what is taken of each accelerator's memory; the emptiest are tried first."""
    if not engines:
        return []
    first, *rest = engines
    free = [device for device, share in enumerate(taken) if share + first.memory <= 1 + _ROUNDING]
    free.sort(key=lambda device: (taken[device], device))
    tried: set[tuple[float, ...]] = set()
    for devices in itertools.combinations(free, first.gpus):
        after = tuple(share + first.memory * (device in devices) for device, share in enumerate(taken))
        if (alike := tuple(sorted(after))) in tried:
            continue
        tried.add(alike)
        if (others := _fitted(rest, after)) is not None:
            return [tuple(sorted(devices)), *others]
    return None
