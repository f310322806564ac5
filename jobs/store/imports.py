"""`store import`: completions of a recording as if the config's engine had given them, so that no run pays for them."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace
from typing import NamedTuple

from cluster.errors import ConfigError
from jobs.chain.arms.shared_work import Reading
from jobs.chain.completions import CompletionRecord, first_key
from jobs.chain.store.facts import put_completions, stored_completions
from jobs.chain.store.files import StoreFiles
from jobs.store.asked import RecordedRequest, portions, recorded_requests
from rewriters.engines.recorded import RecordedEngine
from rewriters.normalise import query_id
from rewriters.query import Query


class Imported(NamedTuple):
    """What became of a recording.

    Attributes:
        queries: In it.
        completions: That were put into the store.
        known: That the store had already.
        missing: Requests of its queries that it has no answer to, or an empty one.
    """

    queries: int
    completions: int
    known: int
    missing: int


def import_recorded(readings: Sequence[Reading], files: StoreFiles, path: str) -> Imported:
    """Puts the completions of a recording into the store.

    Args:
        readings: Of the config's run.
        files: Of the store, with the spaces of the config.
        path: Of the recording.

    Raises:
        RewriterError: It cannot be read.
        ConfigError: The config asks no engine whose answers are kept.
    """
    put = known = missing = 0
    with closing(RecordedEngine(path)) as recording:
        queries = sorted((query_id(text), text) for text in recording.queries())
        for portion in portions(queries):
            asked = recorded_requests(readings, (Query(*one) for one in portion))
            if not asked:
                raise ConfigError("argument", "rewrite.engine: its answers are in no store; set the engine that runs have")
            stored = {first_key(key) for key in stored_completions(files, [one.fact for one in asked])}
            new = _answered(recording, [one for one in asked if one.fact.key not in stored])
            put_completions(files, {one.fact: record for one, record in new})
            put, known = put + len(new), known + len(stored)
            missing += len(asked) - len(new) - len(stored)
    return Imported(len(queries), put, known, missing)


def _answered(recording: RecordedEngine, asked: Sequence[RecordedRequest]) -> list[tuple[RecordedRequest, CompletionRecord]]:
    """Returns the requests that have an answer in the recording."""
    found = []
    answers = recording.complete([one.request for one in asked])
    for one, (_, completion) in zip(asked, answers, strict=True):
        if (completion.text or "").strip():
            model = completion.model if completion.model != recording.kind else one.model or completion.model
            found.append((one, CompletionRecord(replace(completion, model=model, attempts=0), one.fact.prompt)))
    return found
