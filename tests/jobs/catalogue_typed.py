"""How a command of the catalogue is written down: what is typed, and what is spoilt before in a job that would run."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml

from retrievers.local_build import build_local_index

Patch = pytest.MonkeyPatch
AFTERWARDS = ExitStack()  # what a spoiler leaves open; the test closes it
QUERIES = ["why is the sky blue", "how to boil eggs", "Boil  eggs how long"]
JOB: dict[str, Any] = {
    "name": "job",
    "log": {"path": "log.parquet", "query_column": "query", "id_column": "id"},
    "rewrite": {"engine": {"kind": "recorded", "path": "recorded.jsonl"}},
    "retrieve": {"retrievers": {"bm25": {"kind": "local", "index": "index"}}},
    "rerank": {"kind": "none"},
    "output": "runs",
}


class Typed(NamedTuple):
    """A command that must end with `code` and one line that holds `fragment`, after `spoil` was done in its folder."""

    fragment: str
    arguments: list[str]
    spoil: Callable[[Patch], object]
    code: int


def good_job(folder: Path) -> None:
    """A small job that runs, in `folder`."""
    rows = {"id": ["a", "b", "c"], "query": QUERIES, "n": [1, 2, 3]}
    pq.write_table(pa.table(rows), folder / "log.parquet")
    documents = {"doc_id": ["d1", "d2"], "text": ["Rayleigh scattering", "Eggs need eight minutes"]}
    pq.write_table(pa.table(documents), folder / "corpus.parquet")
    answer = json.dumps(dict.fromkeys(("general", "keyword", "pseudo_answer", "core_content"), "sky colour"))
    lines = [json.dumps({"query": query, "completions": {"dmqr": answer}}) + "\n" for query in QUERIES]
    (folder / "recorded.jsonl").write_text("".join(lines))
    (folder / "job.yaml").write_text(yaml.safe_dump(JOB))
    build_local_index(folder / "index", folder / "corpus.parquet", bm25={"analyzer": "english"})


def raw(fragment: str, *arguments: str, spoil: Callable[[Patch], object] = lambda patch: None, code: int = 2) -> Typed:
    return Typed(fragment, list(arguments), spoil, code)


def typed(
    fragment: str, *settings: str, spoil: Callable[[Patch], object] = lambda patch: None, verb: str = "run", code: int = 2
) -> Typed:
    flags = [word for setting in settings for word in ("--set", setting)]
    return Typed(fragment, [verb, "job.yaml", *flags], spoil, code)


def file(name: str, content: str | bytes) -> Callable[[Patch], object]:
    """A spoiler that writes a file."""
    data = content.encode() if isinstance(content, str) else content

    def write(_: Patch) -> None:
        Path(name).parent.mkdir(parents=True, exist_ok=True)
        Path(name).write_bytes(data)

    return write


def table(name: str, **columns: Any) -> Callable[[Patch], object]:
    """A spoiler that writes a Parquet file."""

    def write(_: Patch) -> None:
        Path(name).parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(pa.table(columns), name)

    return write


def both(*spoilers: Callable[[Patch], object]) -> Callable[[Patch], object]:
    return lambda patch: [spoil(patch) for spoil in spoilers]


def env(name: str, value: str) -> Callable[[Patch], object]:
    return lambda patch: patch.setenv(name, value)
