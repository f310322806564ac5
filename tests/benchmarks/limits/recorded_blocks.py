"""Blocks of the recorded queries with their rewrites, as the rewriting stage hands them on, and all their documents."""

import hashlib
import tempfile
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from recorded_sets import DATA, INDEXES, recorded_rows, recording, shared

from jobs.chain.arms.arms import RUN
from jobs.chain.arms.resources import AnsweredBy, OpenedBy
from jobs.chain.arms.shared_work import Reading, SharedWork
from jobs.tables import QUERIES
from retrievers.local.build import build_local_index
from retrievers.retriever import retriever_identity
from rewriters.engines.settings import RecordedSettings
from rewriters.pool import load_pool
from rewriters.rewriter import Rewriting
from tests.support.jobs.workers import STRATEGIES, rewriter
from tests.support.jobs.workers import job as job_work
from tests.support.retrievers.blocks import index_fields, typed

DEPTH = 100


def rewritten_block() -> pa.Table:
    """The queries of all recorded sets in one block, each with its four rewrites."""
    with tempfile.TemporaryDirectory() as name:
        path, rows = Path(name, "recorded.jsonl"), dict[str, dict[str, Any]]()
        path.write_text("".join(recording(one).read_text(encoding="utf-8") for one in DATA), encoding="utf-8")
        for one in (row for of in DATA for row in recorded_rows(of)):
            query_id = hashlib.sha256(one["query"].encode()).hexdigest()[:32]
            empty = {"shard": 0, "log_count": 1, "costs": [], "errors": [], "overhead": []}
            rows[query_id] = empty | {"query_id": query_id, "query": one["query"]}
        worker = rewriter(
            RecordedSettings(kind="recorded", path=str(path)), Rewriting(load_pool(STRATEGIES)), Path(name, "run")
        )
        return worker(pa.Table.from_pylist(list(rows.values()), QUERIES))


def texts_of(block: pa.Table) -> list[str]:
    """The distinct texts that a block is searched with: the originals and their rewrites."""
    rewrites = [one["text"] for row in block.column("rewrites").to_pylist() for one in row]
    return list(dict.fromkeys([*block.column("query").to_pylist(), *rewrites]))


def documents() -> Path:
    """A corpus of the documents of all sets with data, some 20,000, under ids that name their set; made once."""
    path = INDEXES / "all" / "corpus.parquet"
    if not path.exists():
        parts = []
        for folder in sorted(one.parent for one in (shared() / "data").glob("*/corpus.parquet")):
            part = pq.read_table(folder / "corpus.parquet", columns=["doc_id", "title", "text"])
            ids = [f"{folder.name}-{doc_id}" for doc_id in part.column("doc_id").to_pylist()]
            texts = [part.column(name).cast(pa.string()) for name in ("title", "text")]
            parts.append(pa.table([pa.array(ids), *texts], names=["doc_id", "title", "text"]))
        path.parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(pa.concat_tables(parts), path)
    return path


def bm25_index() -> dict[str, Any]:
    """A retriever of a config: BM25 over `documents`; its index is built where it is missing."""
    index = INDEXES / "all" / "bm25"
    build_local_index(index, documents(), index_fields("english"))
    return {"kind": "local", "index": str(index), "analyzer": "english"}


def work_of(retrievers: Mapping[str, Mapping[str, Any]], **sections: Any) -> SharedWork:
    """The work of a run of four strategies over real indexes, which stores no lists."""
    work = job_work(retrievers, **sections)
    opened = {
        name: OpenedBy(name, settings := typed(one), retriever_identity(name, settings), DEPTH)
        for name, one in retrievers.items()
    }
    rewriting = Rewriting(load_pool(STRATEGIES))
    reading = Reading(RUN, rewriting, rewriting, 0, {"": AnsweredBy(None, {})})  # type: ignore[arg-type]
    return replace(work, retrievers=opened, readings=(reading,), keep_lists=False)
