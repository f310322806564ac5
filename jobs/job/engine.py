"""The LLM engines of a run: their settings for workers, identities, checks before the run, and accelerators."""

import importlib.util
import itertools
import math
from collections.abc import Iterable, Sequence
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

from cluster.errors import ConfigError, RewriterError
from cluster.plugins import identity_of
from cluster.run.stage import heartbeat
from cluster.settings import Names
from cluster.storage import remote
from cluster.storage.copies import copied, naming, retry_if_replaced
from cluster.storage.s3 import S3Storage
from jobs.job.paths import Model, with_paths
from retrievers.models import local_folder, model_identity
from retrievers.retriever import error_context
from rewriters.engines import Engine, errors_of_engine, open_engine
from rewriters.engines.settings import EngineSettings

_ROUNDING = 1e-9  # two halves are one
MAX_BLOCKS = 8  # shards in flight per worker: each is held in memory and delivered by a process


def resolve(engine: EngineSettings) -> tuple[EngineSettings, dict[str, Any]]:
    """Returns the settings with which a worker opens the engine, and the engine's identity for the fingerprint.

    Paths become absolute (a worker may have another working directory); a hub model's revision becomes its current
    commit. No request is sent to a server; `check` does that.
    """
    settings, weights = engine.located(_weights)
    settings = with_paths(settings)
    with closing(open_worker_engine(settings)) as opened:
        code = identity_of(type(settings))  # of a plug-in
        with errors_of_engine(settings, "identity"):
            return settings, opened.identity() | weights | ({"code": code} if code else {})


def open_worker_engine(settings: EngineSettings) -> Engine:
    """Opens an engine like `rewriters.engines.open_engine`; recorded completions on S3 are copied once to each machine."""
    with ExitStack() as names:

        def with_copy(url: str) -> str:
            if not remote(url):
                return url
            folder, _, name = url.rpartition("/")
            copy = retry_if_replaced(lambda: _copied(S3Storage(folder), name)) / name
            names.enter_context(naming(url, copy))
            return str(copy)

        return open_engine(settings.with_names(Names.FILE, with_copy))


def _copied(storage: S3Storage, name: str) -> Path:
    entry = storage.stat(name)
    if entry is None:
        raise RewriterError(
            "run-file", f"recorded completions {storage.url(name)}: there is no such object; correct rewrite.engine.path"
        )
    copy = copied(storage, [entry], f"{entry.etag} {entry.size}", name=name, on_progress=heartbeat)
    assert copy is not None
    return copy


def check(settings: EngineSettings, local: bool) -> None:
    """Checks that a resolved engine can answer: its server is reachable, its key valid, its model known.

    Where workers are not `local`, what they need (vLLM) may be missing here, and nothing is checked.
    """
    if settings.is_recorded:  # read whole when it was resolved
        return
    if settings.package is not None and not local and importlib.util.find_spec(settings.package) is None:
        return
    with closing(open_worker_engine(settings)) as engine, errors_of_engine(settings, "check"):
        engine.check()


def blocks_in_flight(engine: EngineSettings, shard_size: int) -> int:
    """Returns the number of shards in flight that keep a worker's engine busy.

    They hold twice the requests that the engine processes at a time, so that the slowest requests of one shard leave no
    capacity idle.
    """
    if engine.in_flight is None:
        return 1
    return max(2, min(MAX_BLOCKS, 1 + math.ceil(2 * engine.in_flight / shard_size)))


def _weights(key: str, name: str, revision: str | None) -> tuple[str, str]:
    """Returns the folder or hub name of the weights that a key of the engine names, and their identity."""
    with error_context(f"rewrite.engine.{key}"):
        folder = local_folder(name)
        if folder is not None:
            return str(folder.absolute()), model_identity(name)
        if revision and "@" in name:
            raise ConfigError(
                "config-value", f"rewrite.engine.model: {name!r} carries a revision; put it into rewrite.engine.revision"
            )
        identity = model_identity(f"{name}@{revision}" if revision else name)
    return (name if revision else f"{name.partition('@')[0]}@{identity.removeprefix('commit:')}"), identity


def distinct(settings: Iterable[Model]) -> list[Model]:
    """Returns settings, each once: of equal ones a worker opens one."""
    return list({one.model_dump_json(): one for one in settings}.values())


def on_devices(engines: Iterable[EngineSettings], gpus: float) -> dict[str, EngineSettings]:
    """Returns the distinct engines by their settings as JSON, those of vLLM with the accelerators that they compute on.

    Of one engine, and without accelerators, all are seen.
    """
    by_settings = {engine.model_dump_json(): engine for engine in engines}
    spanning = [key for key, engine in by_settings.items() if engine.gpus]
    places = placed([by_settings[key] for key in spanning], gpus) if len(spanning) > 1 and gpus else None
    for key, devices in zip(spanning, places or [], strict=False):
        by_settings[key] = by_settings[key].model_copy(update={"devices": devices})
    return by_settings


def placed(engines: Sequence[EngineSettings], gpus: float) -> list[tuple[int, ...]] | None:
    """Returns the accelerators of each engine, of a worker that has `gpus`; None: their memory does not hold them all.

    Each has its own where there are enough. Else they share some, as far as the shares of memory that they take leave room: the
    largest first, each where least is taken. A part of an accelerator is one, whose memory others may take, too.
    """
    count, ends = max(1, int(gpus)), list(itertools.accumulate(engine.gpus for engine in engines))
    if sum(engine.gpus for engine in engines) <= count:
        return [tuple(range(end - engine.gpus, end)) for engine, end in zip(engines, ends, strict=True)]
    places: list[tuple[int, ...]] = [()] * len(engines)
    taken = [0.0] * count
    for number, engine in sorted(enumerate(engines), key=lambda numbered: -numbered[1].memory):
        places[number] = tuple(sorted(sorted(range(count), key=taken.__getitem__)[: engine.gpus]))
        for device in places[number]:
            taken[device] += engine.memory
    fits = max(taken) <= 1 + _ROUNDING and all(engine.gpus <= count for engine in engines)
    return places if fits else None
