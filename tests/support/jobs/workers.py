"""Workers of the chain for a job of one arm, without the job around them, and blocks as plain rows.

A plain row has `runs` with their `hits`, in order of their texts, `similarity` (row-major, or None), `candidates`, `scores` and
`hits` by name, where blocks refer by index.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from jobs.chain.arms.arms import RUN
from jobs.chain.arms.opened import AnsweredBy, OpenedBy, ScoredBy
from jobs.chain.arms.requests import called
from jobs.chain.arms.shared_work import Reading, SharedWork
from jobs.chain.cuts import Cuts
from jobs.chain.stages.fuse import Fuse
from jobs.chain.stages.order import Order
from jobs.chain.stages.retrieve import Retrieve
from jobs.chain.stages.rewrite import Rewrite, ToRead
from jobs.chain.stages.score import Score
from jobs.chain.steps.asking import AskedFor
from jobs.chain.store.files import NO_STORE
from jobs.config.config import Config
from jobs.tables import STORED
from retrievers.retriever import retriever_identity
from retrievers.settings import RerankSettings
from rewriters.engines.settings import EngineSettings
from rewriters.pool import load_pool
from rewriters.rewriter import Rewriting
from rewriters.settings import GuardSettings
from tests.support.jobs.in_flight import FUSED, RETRIEVED, REWRITTEN, SCORED
from tests.support.jobs.one_arm import one_arm
from tests.support.retrievers.blocks import typed

Row = dict[str, Any]
Block = dict[str, Any]
DEPTH = 5
STRATEGIES = ["general", "keyword", "pseudo_answer", "core_content"]
_LOCAL = {"kind": "local", "index": "none"}
_RETRIEVERS: dict[str, Block] = {
    "bm25": _LOCAL | {"together": True}, "r": _LOCAL, "dense": _LOCAL | {"encoder": {"model": "m", "pooling": "mean"}}
}  # fmt: skip


def job(retrievers: Mapping[str, Block] = _RETRIEVERS, cuts: Cuts | None = None, **sections: Any) -> SharedWork:
    """The work of a run of four strategies over indexes that nobody opens."""
    values = {
        "name": "workers", "log": {"path": "none", "query_column": "query"}, "output": "none",
        "rewrite": {"engine": {"kind": "recorded", "path": "none"}, "strategies": STRATEGIES},
        "retrieve": {"retrievers": dict(retrievers)}, "rerank": {"kind": "none"},
    }  # fmt: skip
    for name, section in sections.items():
        values[name] = values.get(name, {}) | section
    return one_arm(Config.model_validate(values), cuts)


def rewriter(engine: EngineSettings, rewriting: Rewriting, run: Path, start: int = 1) -> Rewrite:
    """A rewriting worker; all common engines are the same one to it, all of a strategy, too."""
    engines = {"": AnsweredBy(engine, {"model": "common"})}
    engines |= {one.name: AnsweredBy(one.engine, {"model": one.name}) for one in rewriting.pool if one.engine is not None}
    reading = Reading(RUN, rewriting, rewriting, 0, engines)
    arms = [(RUN, frozenset(one.name for one in rewriting.pool))]
    return Rewrite([ToRead(reading, called([reading])[0], arms)], AskedFor(str(run), NO_STORE, start), counts_needs=False)


def retriever(
    retrievers: Mapping[str, Block],
    routes: Mapping[str, list[str]] | None = None,
    run: Path | None = None,
    cuts: Cuts | None = None,
    strategies: Sequence[Any] = STRATEGIES,
    guards: GuardSettings | None = None,
    **fuse: Any,
) -> Retrieve:
    """A retrieving worker over real indexes; `run`: where the lists are written."""
    sections = {"retrieve": {"retrievers": retrievers, "routes": routes or {}, "depth": DEPTH},
                "rewrite": {"strategies": strategies}}  # fmt: skip
    work = job(retrievers, cuts, fuse={"depth": DEPTH} | fuse, **sections)
    opened = {
        name: OpenedBy(name, settings := typed({key: value for key, value in one.items() if key != "together"}),
                       retriever_identity(name, settings), DEPTH)
        for name, one in retrievers.items()
    }  # fmt: skip
    rewriting = Rewriting(load_pool(strategies), guards=guards or GuardSettings())
    reading = Reading(RUN, rewriting, rewriting, 0, {"": AnsweredBy(None, {})})  # type: ignore[arg-type]
    work = replace(work, retrievers=opened, readings=(reading,), keep_lists=run is not None)
    return Retrieve(work, "cpu", str(run or "none"), NO_STORE)


def fuser(strategies: Sequence[Any] = STRATEGIES, **fuse: Any) -> Fuse:
    """A fusing worker; cosines are those of a dense retriever."""
    return Fuse(job(fuse=fuse, rewrite={"strategies": strategies}))


def scorer(settings: RerankSettings, documents: Block, corpus: str | None = None) -> Score:
    """A scoring worker over the documents of a real index."""
    index = typed(documents)
    scored_by = ScoredBy(settings, {"kind": settings.kind}, "documents", "")
    answers = job(rerank={"kind": "server", "base_url": "http://none", "model": "m"}).answers
    return Score(answers, [scored_by], {"documents": OpenedBy("bm25", index, {"corpus": corpus}, 10)}, "cpu", NO_STORE)


def orderer(combine: str, keep: int, *, reranked: bool = True) -> Order:
    """An ordering worker."""
    return Order(job(rerank={"kind": "server" if reranked else "none", "base_url": "http://none", "model": "m",
                             "combine": combine, "keep": keep}))  # fmt: skip


def rewrite(strategy: str, text: str = "", weight: float = 1.0, position_weight: float = 1.0, **more: Any) -> Row:
    """A rewrite of a block."""
    return {
        "strategy": strategy, "position": 1, "text": text or strategy, "weight": weight, "search_as": "query", "model": "m",
        "prompt_hash": "h", "parsed_as": "json", "selected_reason": None, "position_weight": position_weight, "arm": RUN,
    } | more  # fmt: skip


def rewritten(*rows: Row) -> pa.Table:
    """A block as rewriting hands it on."""
    more: Row = {"shard": 0, "log_count": 1, "costs": [], "errors": [], "selections": [], "guarded": [], "counts": []}
    return pa.Table.from_pylist([more | row for row in rows], REWRITTEN)


def retrieved(*rows: Row) -> pa.Table:
    """A block as retrieval hands it on, of plain rows."""
    more: Row = {"shard": 0, "log_count": 1, "errors": [], "selections": [], "guarded": [], "counts": [],
                 "stored": [], "web": []}  # fmt: skip
    made = []
    for row in rows:
        runs = [
            {"search": 0, "list": number} | {name: value for name, value in run.items() if name != "hits"}
            for number, run in enumerate(row["runs"])
        ]
        cosines = [] if row["similarity"] is None else [{"search": 0, "values": row["similarity"]}]
        made.append(more | row | {"lists": [run["hits"] for run in row["runs"]], "runs": runs, "cosines": cosines})
    return pa.Table.from_pylist(made, RETRIEVED)


def fused(rows: Sequence[Row], schema: pa.Schema = FUSED) -> pa.Table:
    """A block as fusing (or, with the schema, scoring) hands it on, of plain rows."""
    more: Row = {"shard": 0, "log_count": 1, "costs": [], "errors": [], "rewrites": [], "selections": [], "guarded": [],
                 "counts": [], "stored": [], "web": []}  # fmt: skip
    made = []
    for row in rows:
        doc_ids = list(dict.fromkeys(one["doc_id"] for one in row["candidates"]))
        found: Row = {
            "documents": [{"doc_id": doc_id} for doc_id in doc_ids],
            "fused": [
                {"arm": 0, "document": doc_ids.index(one["doc_id"]), "score": one["score"], "sources": one["sources"]}
                for one in row["candidates"]
            ],
        }
        if "scores" in row:
            found["scores"] = row["scores"] and [
                {"reranker": 0, "document": doc_ids.index(one["doc_id"]), "score": one["score"]} for one in row["scores"]
            ]
        made.append(more | row | found)
    return pa.Table.from_pylist(made, schema)


def scored(rows: Sequence[Row]) -> pa.Table:
    """A block as scoring hands it on, of plain rows."""
    return fused([{"scores": []} | row for row in rows], SCORED)


def plain(table: pa.Table) -> list[Row]:
    """The rows of a block with `runs`, `similarity`, `candidates`, `scores` and `hits` by name, as far as it has them."""
    found = table.to_pylist()
    for row in found:
        if "lists" in row:
            runs = [run | {"hits": row["lists"][run["list"]]} for run in row["runs"]]
            row["runs"] = sorted(runs, key=lambda run: run["text"])
            row["similarity"] = next((one["values"] for one in row["cosines"]), None)
        if "fused" not in row:
            continue
        names = [one["doc_id"] for one in row["documents"]]
        row["candidates"] = [one | {"doc_id": names[one["document"]]} for one in row["fused"]]
        if row.get("scores") is not None:
            row["scores"] = [one | {"doc_id": names[one["document"]]} for one in row["scores"]]
        by_name = {one["doc_id"]: one["score"] for one in row.get("scores") or []}
        row["hits"] = [
            {
                "doc_id": of["doc_id"], "score": one["score"], "fused_score": of["score"], "sources": of["sources"],
                "rerank_score": by_name.get(of["doc_id"]),
            }
            for one in row.get("ranked", ()) for of in [row["candidates"][one["fused"]]]
        ]  # fmt: skip
    return found


# ---------------------------------------------------------------- small blocks for retrieval, and what comes of them

KINDS = {"pseudo_answer": "passage"}  # all others are searched as queries


def query(text: str, **rewrites: str) -> Row:
    made = [rewrite(name, one, search_as=KINDS.get(name, "query")) for name, one in rewrites.items()]
    return {"query_id": text, "query": text, "rewrites": made}


def searches(result: pa.Table, quantity: str = "searches") -> list[dict[str, int]]:
    return [{one["component"]: one[quantity] for one in row} for row in result.column("costs").to_pylist()]


Lists = dict[tuple[str, str, str], list[tuple[str, float]]]  # (query_id, strategy, retriever) -> hits


def passed(result: pa.Table) -> Lists:
    return {
        (row["query_id"], run["strategy"], run["retriever"]): [(hit["doc_id"], hit["score"]) for hit in run["hits"]]
        for row in plain(result) for run in row["runs"]
    }  # fmt: skip


def written(folder: Path, result: pa.Table) -> Lists:
    """The lists in the one file that the block names, on its first row."""
    first, *others = result.column("stored").to_pylist()
    assert others == [[]] * (result.num_rows - 1)
    ((table, key, count, size),) = [tuple(one.values()) for one in first]
    path = folder / key
    assert (table, size) == ("runs", path.stat().st_size)
    assert [one.relative_to(folder).as_posix() for one in folder.rglob("*.parquet")] == [key]
    rows = pq.read_table(path)
    assert (rows.schema, rows.num_rows) == (STORED["runs"], count)
    lists: Lists = {}
    for row in rows.to_pylist():
        hits = lists.setdefault((row["query_id"], row["strategy"], row["retriever"]), [])
        hits.append((row["doc_id"], row["score"]))
        assert (row["rank"], row["position"]) == (len(hits), 1)
    return lists
