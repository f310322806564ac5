"""The rewriting stage: makes rewrites of queries by an LLM; completions are stored as soon as they are made."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import pyarrow as pa

from cluster.costs import BusyTime, entry
from cluster.run.stage import heartbeat, shard_of
from cluster.storage import open_storage
from jobs.run.engine import open_worker_engine
from jobs.stages.completions import CompletionRecord, Completions, Key, key_of
from jobs.stages.fill import fill
from jobs.tables import REWRITE, with_appended
from rewriters.engines import Completion, Request
from rewriters.engines.settings import EngineSettings
from rewriters.rewriter import Rewriter

FLUSH_COMPLETIONS = 256  # completions per file,
FLUSH_SECONDS = 20.0  # or seconds between files: a kill repeats no more than this
HEARTBEAT_SECONDS = 5.0  # between two progress reports of a shard


class Rewrite:
    """A worker of the rewriting stage.

    It processes several shards at a time, so that the engine always has enough requests and no shard waits for the slowest
    request of another.
    """

    NEEDS = ("shard", "query_id", "query")
    ADDS = pa.schema([("rewrites", pa.list_(REWRITE))])

    def __init__(
        self,
        engine: EngineSettings | None,
        strategies: list[str],
        calls: str,
        decoding: Mapping[str, Any],
        run: str,
        start: int,
        gpus: float = 0.0,
        joint_prompt: str | None = None,
    ) -> None:
        """Starts the engine.

        Args:
            engine: settings for `open_worker_engine`; None without strategies.
            strategies: the config's `rewrite.strategies`.
            calls: the config's `rewrite.calls`.
            decoding: the config's `rewrite.decoding`.
            run: the run's folder.
            start: the number of this start of the run, from 1.
            gpus: the number of accelerators of the worker.
            joint_prompt: replaces our joint prompt; None: ours.
        """
        self._rewriter = Rewriter(strategies, calls, dict(decoding), joint_prompt)
        self._engine = open_worker_engine(engine) if engine and strategies else None
        self.start_up = self._engine.start() if self._engine else {}
        self._storage, self._start, self._gpus = open_storage(run), start, gpus
        self._busy = BusyTime()

    def close(self) -> None:
        """Closes the engine."""
        if self._engine:
            self._engine.close()

    def __call__(self, table: pa.Table) -> pa.Table:
        """Returns the block with `rewrites`, errors and costs."""
        queries = zip(table.column("query_id").to_pylist(), table.column("query").to_pylist(), strict=True)
        by_query = [self._rewriter.requests(query_id, query) for query_id, query in queries]
        requests = {key_of(request): request for of_query in by_query for request in of_query}
        store = Completions(self._storage, shard_of(table), self._start, self._gpus)
        made = dict(zip(requests, fill(store, list(requests), lambda keys: self._complete(requests, keys)), strict=True))
        rewrites, errors, spent = [], [], []
        for of_query in by_query:
            answers = [(request, made[key_of(request)]) for request in of_query]
            written, failed = self._rewriter.read([(request, answer.completion) for request, answer in answers])
            rewrites.append([vars(rewrite) for rewrite in written])
            errors.append(
                [
                    {"stage": "rewrite", "component": f.strategy, "reason": f.reason, "message": f.message,
                     "raw": f.raw, "attempts": f.attempts}
                    for f in failed
                ]
            )  # fmt: skip
            spent.append([self._cost(request, answer) for request, answer in answers])
        table = with_appended(with_appended(table, "errors", errors), "costs", spent)
        (field,) = self.ADDS
        return table.append_column(field, pa.array(rewrites, field.type))

    def _complete(self, requests: Mapping[Key, Request], missing: list[Key]) -> Iterator[list[tuple[Key, CompletionRecord]]]:
        """Yields the completions of the missing requests, in portions."""
        assert self._engine is not None
        portion: list[tuple[Request, Completion]] = []
        flushed = reported = time.perf_counter()
        done = len(requests) - len(missing)
        with self._busy.share() as share:

            def take_portion() -> list[tuple[Key, CompletionRecord]]:
                nonlocal flushed, done
                records = _with_seconds(portion, share())
                done += len(portion)
                portion.clear()
                flushed = time.perf_counter()
                return records

            try:
                for request, completion in self._engine.complete([requests[key] for key in missing]):
                    portion.append((request, completion))
                    now = time.perf_counter()
                    if due := len(portion) >= FLUSH_COMPLETIONS or now - flushed > FLUSH_SECONDS:
                        yield take_portion()
                    if now - reported > HEARTBEAT_SECONDS or due:
                        heartbeat((done + len(portion)) / len(requests))
                        reported = now
            except Exception:  # the engine failed: the completions before are stored
                yield take_portion()
                raise
            yield take_portion()

    def _cost(self, request: Request, made: CompletionRecord) -> dict[str, Any]:
        c = made.completion
        engine = self._engine.kind if self._engine else None
        return entry(
            "rewrite", request.name, c.seconds, engine=engine, model=c.model, attempt=c.attempts,
            requests=c.attempts, prompt_tokens=c.prompt_tokens, cached_tokens=c.cached_tokens,
            completion_tokens=c.completion_tokens, usage=c.usage, error=c.error_reason, start=made.start,
            device_seconds=made.device_seconds,
        )  # fmt: skip


def _with_seconds(portion: list[tuple[Request, Completion]], busy: float) -> list[tuple[Key, CompletionRecord]]:
    """Returns the portion as records, with the worker's busy seconds divided in proportion to latency.

    The latencies of requests in flight overlap, machine time does not.
    """
    latency = sum(completion.seconds for _, completion in portion)
    equal = 1 / max(1, len(portion))
    return [
        (
            key_of(request),
            CompletionRecord(replace(c, seconds=busy * (c.seconds / latency if latency > 0 else equal)), request.prompt),
        )
        for request, c in portion
    ]
