"""Which accelerators of a rewriting worker each of its engines computes on.

Each engine has accelerators of its own where the worker has enough. Where `cluster.rewrite.gpus` gives it fewer, engines share
some, as far as the shares of memory that they take leave room: the largest first, each where least is taken.
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
    found: Places = [()] * len(engines)
    taken = [0.0] * there
    for number in sorted(range(len(engines)), key=lambda number: -engines[number].memory):
        one = engines[number]
        found[number] = tuple(sorted(sorted(range(there), key=lambda device: taken[device])[: one.gpus]))
        for device in found[number]:
            taken[device] += one.memory
    fits = max(taken) <= 1 + _ROUNDING and all(len(devices) == one.gpus for one, devices in zip(engines, found, strict=True))
    return found if fits else None
