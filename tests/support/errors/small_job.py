"""A small job that would run, and what a case does to it before its command is typed."""

import json
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml

from retrievers.local.build import build_local_index
from tests.support.retrievers.blocks import index_fields

Patch = pytest.MonkeyPatch
Spoil = Callable[[Patch], object]
AFTERWARDS = ExitStack()  # what a case leaves open; the test closes it
QUERIES = ["why is the sky blue", "how to boil eggs", "Boil  eggs how long"]
JOB: dict[str, Any] = {
    "name": "job",
    "log": {"path": "log.parquet", "query_column": "query", "id_column": "id"},
    "rewrite": {"engine": {"kind": "recorded", "path": "recorded.jsonl"}},
    "retrieve": {"retrievers": {"bm25": {"kind": "local", "index": "index"}}},
    "rerank": {"kind": "none"},
    "output": "runs",
}


class Command(NamedTuple):
    """A command whose one line holds `words`, after `spoil` was done in its folder; code "": the system refuses, not we."""

    code: str
    words: str
    arguments: list[str]
    spoil: Spoil
    exit_code: int


def small_job(folder: Path) -> None:
    """Writes a small job that runs into `folder`."""
    pq.write_table(pa.table({"id": ["a", "b", "c"], "query": QUERIES, "n": [1, 2, 3]}), folder / "log.parquet")
    documents = {"doc_id": ["d1", "d2"], "text": ["Rayleigh scattering", "Eggs need eight minutes"]}
    pq.write_table(pa.table(documents), folder / "corpus.parquet")
    answer = json.dumps(dict.fromkeys(("general", "keyword", "pseudo_answer", "core_content"), "sky colour"))
    lines = [json.dumps({"query": query, "completions": {"dmqr": answer}}) + "\n" for query in QUERIES]
    (folder / "recorded.jsonl").write_text("".join(lines))
    (folder / "job.yaml").write_text(yaml.safe_dump(JOB))
    build_local_index(folder / "index", folder / "corpus.parquet", index_fields("english"))


def nothing(_: Patch) -> None:
    """Leaves the job as it is."""


def typed(code: str, words: str, *arguments: str, spoil: Spoil = nothing, exit_code: int = 2) -> Command:
    return Command(code, words, list(arguments), spoil, exit_code)


def job(code: str, words: str, *settings: str, spoil: Spoil = nothing, verb: str = "run", exit_code: int = 2) -> Command:
    flags = [word for setting in settings for word in ("--set", setting)]
    return Command(code, words, [verb, "job.yaml", *flags], spoil, exit_code)


def file(name: str, content: str | bytes) -> Spoil:
    """Writes a file."""
    data = content.encode() if isinstance(content, str) else content

    def write(_: Patch) -> None:
        Path(name).parent.mkdir(parents=True, exist_ok=True)
        Path(name).write_bytes(data)

    return write


def table(name: str, **columns: Any) -> Spoil:
    """Writes a Parquet file."""

    def write(_: Patch) -> None:
        Path(name).parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(pa.table(columns), name)

    return write


def failing(error: BaseException, where: str = "jobs.job.prepare.prepare") -> Spoil:
    """Makes a function fail."""

    def fail(*_: object, **__: object) -> object:
        raise error

    return lambda patch: patch.setattr(where, fail)
