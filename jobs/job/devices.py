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
    return {engine.model_dump_json(): engine for engine in engines}


def on_devices(engines: Iterable[EngineSettings], gpus: float) -> dict[str, EngineSettings]:
    """Returns the distinct engines by their settings as JSON, those of vLLM with the accelerators that they compute on.

    Of one engine, and without accelerators, all are seen.
    """
    by_settings = distinct(engines)
    spanning = [key for key, engine in by_settings.items() if engine.gpus]
    places = placed([by_settings[key] for key in spanning], gpus) if len(spanning) > 1 and gpus else None
    for key, devices in zip(spanning, places or [], strict=False):
        by_settings[key] = by_settings[key].model_copy(update={"devices": devices})
    return by_settings


def placed(engines: Sequence[EngineSettings], gpus: float) -> Places | None:
    """Returns the accelerators of each engine, of a worker that has `gpus`; None: their memory does not hold them all.

    A part of an accelerator is one, whose memory others may take, too.
    """
    count, ends = max(1, int(gpus)), list(itertools.accumulate(engine.gpus for engine in engines))
    if sum(engine.gpus for engine in engines) <= count:
        return [tuple(range(end - engine.gpus, end)) for engine, end in zip(engines, ends, strict=True)]
    places: Places = [()] * len(engines)
    taken = [0.0] * count
    for number, engine in sorted(enumerate(engines), key=lambda numbered: -numbered[1].memory):
        places[number] = tuple(sorted(sorted(range(count), key=taken.__getitem__)[: engine.gpus]))
        for device in places[number]:
            taken[device] += engine.memory
    fits = max(taken) <= 1 + _ROUNDING and all(engine.gpus <= count for engine in engines)
    return places if fits else None
