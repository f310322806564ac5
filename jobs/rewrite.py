"""The rewriting stage: queries -> rewrites, with completions durable as soon as they are made."""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from cluster.costs import Busy, entry
from cluster.stage import pulse
from cluster.storage import open_storage
from jobs.engine import open_here
from jobs.tables import COMPLETIONS, REWRITTEN, with_appended
from rewriters.engines import Completion, Request
from rewriters.rewriter import Rewriter

FLUSH_COMPLETIONS = 256  # put to storage after so many,
FLUSH_SECONDS = 20.0  # or after so long: a kill repeats no more than this
PULSE_SECONDS = 5.0  # between two words on how far a shard is


class Made(NamedTuple):
    """A completion, and the start of the run that paid for it with what (0: this call, which is not settled yet)."""

    completion: Completion
    start: int
    device_seconds: float = 0.0


class Rewrite:
    """A worker: QUERIES -> REWRITTEN, several shards at a time, so that the engine always has enough requests and no shard
    waits for another's slowest.

    Args:
        engine: settings for `open_here`; None where no strategy is asked for.
        strategies, calls, decoding: of the config's `rewrite`.
        run: the run's folder; completions go to `completions/<shard>/`.
        start: the start of the run that this is, from 1.
        gpus: the worker's accelerators.
    """

    def __init__(
        self,
        engine: Mapping[str, Any] | None,
        strategies: list[str],
        calls: str,
        decoding: Mapping[str, Any],
        run: str,
        start: int,
        gpus: float = 0.0,
    ) -> None:
        self._rewriter = Rewriter(strategies, calls, dict(decoding))
        self._engine = open_here(engine) if engine and strategies else None
        self.start_up = self._engine.start() if self._engine else {}
        self._storage, self._start, self._gpus = open_storage(run), start, gpus
        self._busy = Busy()

    def close(self) -> None:
        """End the engine."""
        if self._engine:
            self._engine.close()

    def __call__(self, table: pa.Table) -> pa.Table:
        shard = table.column("shard")[0].as_py()
        queries = zip(table.column("query_id").to_pylist(), table.column("query").to_pylist(), strict=True)
        requests = [self._rewriter.requests(query_id, query) for query_id, query in queries]
        made = self._stored(shard) if any(requests) else {}
        self._make(shard, [r for asked in requests for r in asked if _key(r) not in made], made)
        rewrites, errors, spent = [], [], []
        for asked in requests:
            answers = [made[_key(request)] for request in asked]
            written, failed = self._rewriter.read(
                [(request, answer.completion) for request, answer in zip(asked, answers, strict=True)]
            )
            rewrites.append([vars(rewrite) for rewrite in written])
            errors.append(
                [
                    {"stage": "rewrite", "component": f.strategy, "reason": f.reason, "message": f.message,
                     "raw": f.raw, "attempts": f.attempts}
                    for f in failed
                ]
            )  # fmt: skip
            spent.append([self._cost(request, answer) for request, answer in zip(asked, answers, strict=True)])
        kind = REWRITTEN.field("rewrites").type
        table = with_appended(with_appended(table, "errors", errors), "costs", spent)
        return table.append_column(pa.field("rewrites", kind), pa.array(rewrites, kind))

    def _make(self, shard: int, requests: list[Request], made: dict[tuple[str, str, str], Made]) -> None:
        """Complete the requests into `made`, putting them to storage in portions."""
        if self._engine is None or not requests:
            return
        portion: list[tuple[Request, Completion]] = []
        flushed = said = time.perf_counter()
        total = len(made) + len(requests)
        with self._busy.share() as share:

            def flush() -> None:
                nonlocal flushed
                shared = _share(portion, share())
                self._store(shard, shared)
                made.update({_key(request): Made(completion, 0) for request, completion in shared})
                portion.clear()
                flushed = time.perf_counter()

            try:
                for request, completion in self._engine.complete(requests):
                    portion.append((request, completion))
                    now = time.perf_counter()
                    if len(portion) >= FLUSH_COMPLETIONS or now - flushed > FLUSH_SECONDS:
                        flush()
                    if now - said > PULSE_SECONDS or not portion:
                        pulse((len(made) + len(portion)) / total)
                        said = now
            finally:
                flush()

    def _store(self, shard: int, portion: Iterable[tuple[Request, Completion]]) -> None:
        """Failed requests are not kept: another start of the run tries them again."""
        rows = [
            {
                "query_id": request.query_id, "request": request.name, "prompt_hash": request.prompt_hash,
                "prompt": request.prompt, "text": c.text, "finish_reason": c.finish_reason, "model": c.model,
                "prompt_tokens": c.prompt_tokens, "cached_tokens": c.cached_tokens,
                "completion_tokens": c.completion_tokens, "usage": c.usage, "seconds": c.seconds,
                "device_seconds": c.seconds * self._gpus, "attempts": c.attempts, "start": self._start,
            }
            for request, c in portion
            if c.error_reason is None
        ]  # fmt: skip
        if rows:
            sink = pa.BufferOutputStream()
            pq.write_table(pa.Table.from_pylist(rows, COMPLETIONS), sink, compression="zstd")
            self._storage.put(f"completions/{shard:06d}/{uuid.uuid4().hex}.parquet", sink.getvalue().to_pybytes())

    def _stored(self, shard: int) -> dict[tuple[str, str, str], Made]:
        """What earlier attempts at this shard have left."""
        made: dict[tuple[str, str, str], Made] = {}
        for portion in self._storage.list(f"completions/{shard:06d}"):
            if not portion.key.endswith(".parquet"):
                continue
            with self._storage.open(portion.key) as file:
                rows = pq.read_table(file, schema=COMPLETIONS).to_pylist()
            for row in rows:
                key = row.pop("query_id"), row.pop("request"), row.pop("prompt_hash")
                row.pop("prompt")
                made[key] = Made(start=row.pop("start"), device_seconds=row.pop("device_seconds"), completion=Completion(**row))
        return made

    def _cost(self, request: Request, made: Made) -> dict[str, Any]:
        c = made.completion
        engine = self._engine.kind if self._engine else None
        return entry(
            "rewrite", request.name, c.seconds, engine=engine, model=c.model, attempt=c.attempts,
            requests=c.attempts, prompt_tokens=c.prompt_tokens, cached_tokens=c.cached_tokens,
            completion_tokens=c.completion_tokens, usage=c.usage, error=c.error_reason, start=made.start,
            device_seconds=made.device_seconds,
        )  # fmt: skip


def _key(request: Request) -> tuple[str, str, str]:
    return request.query_id, request.name, request.prompt_hash


def _share(portion: list[tuple[Request, Completion]], busy: float) -> list[tuple[Request, Completion]]:
    """The portion with the worker's busy time shared out by latency: requests in flight overlap, machine time does not."""

    latency = sum(completion.seconds for _, completion in portion)
    equal = 1 / max(1, len(portion))
    return [(r, replace(c, seconds=busy * (c.seconds / latency if latency > 0 else equal))) for r, c in portion]
