"""Completions that jobs put into a store, and find there."""

from collections.abc import Collection, Mapping
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from jobs.chain.completions import CompletionRecord
from jobs.chain.journal import Key
from jobs.chain.store.facts import EngineRequest, put_completions, stored_completions
from jobs.chain.store.files import Space, StoreFiles, open_store
from rewriters.engines import Completion
from rewriters.normalise import query_id

SPACE = Space("completions", "engine")
ABOUT = {SPACE: {"engine": {"kind": "openai", "model": "tiny"}}}


def asked(query: str, prompt: str = "") -> EngineRequest:
    return EngineRequest(SPACE.name, Key(query_id(query), "general", "hash"), prompt or f"Rewrite: {query}")


def opened(store: Path | str, began: float | None = None, lifetime: float | None = None) -> StoreFiles:
    return open_store(str(store), ABOUT, began, lifetime)


def put(store: Path | str, texts: Mapping[str, str], began: float | None = None, prompt: str = "") -> None:
    """Puts what a job that began then was answered to each query."""
    put_into(opened(store, began), texts, prompt)


def put_into(files: StoreFiles, texts: Mapping[str, str], prompt: str = "") -> None:
    made = {}
    for query, text in texts.items():
        of = asked(query, prompt)
        completion = Completion(text, "stop", "tiny", prompt_tokens=10, completion_tokens=4, seconds=0.5)
        made[of] = CompletionRecord(completion, of.prompt, 1)
    put_completions(files, made)


def found(files: StoreFiles, queries: Collection[str]) -> dict[str, str | None]:
    """Returns what a job finds: query -> text."""
    known = stored_completions(files, [asked(query) for query in queries])
    return {query: known[asked(query).key].completion.text for query in queries if asked(query).key in known}


def texts(store: Path | str, queries: Collection[str]) -> dict[str, str | None]:
    """Returns what a job finds that begins now."""
    return found(opened(store), queries)


def names(store: Path | str) -> list[str]:
    return sorted(path.name for path in Path(store).glob("v1/*/*/*.parquet"))


def all_rows(store: Path | str) -> pa.Table:
    """The rows of all files of the completions, without regard to what counts."""
    return pa.concat_tables([pq.read_table(path) for path in sorted(Path(store).glob("v1/completions/*/*.parquet"))])
