"""Workers of the chain for a job of one arm, without the job around them, and blocks as plain rows.

A plain row has `candidates` and `scores` by name, where blocks refer by index.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from jobs.chain.arms.arms import RUN
from jobs.chain.arms.resources import AnsweredBy, OpenedBy, ScoredBy
from jobs.chain.arms.shared_work import Reading, SharedWork
from jobs.chain.cuts import Cuts
from jobs.chain.stages.candidates import Candidates
from jobs.chain.stages.fuse import SearchLists
from jobs.chain.stages.retrieve import Retrieve
from jobs.chain.stages.rewrite import Rewrite
from jobs.chain.stages.score import Score
from jobs.chain.worker import WorkerJob
from jobs.config.config import Config
from jobs.tables import STORED
from retrievers.retriever import retriever_identity
from retrievers.settings import RerankSettings
from rewriters.engines.settings import EngineSettings
from rewriters.pool import load_pool
from rewriters.rewriter import Rewriting
from tests.support.jobs.in_flight import RETRIEVED, REWRITTEN, SCORED
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
    return Rewrite(rewriting_job(Reading(RUN, rewriting, rewriting, 0, engines), run, start), engines[""].key)


def rewriting_job(reading: Reading, run: Path | str, start: int = 1) -> WorkerJob:
    """A job of one arm that needs all texts of a reading."""
    answer = replace(job().answers[0], strategies=frozenset(one.name for one in reading.rewriting.pool))
    return WorkerJob(replace(job(), readings=(reading,), answers=(answer,)), str(run), start=start)


def retriever(
    retrievers: Mapping[str, Block],
    routes: Mapping[str, list[str]] | None = None,
    run: Path | None = None,
    cuts: Cuts | None = None,
    strategies: Sequence[Any] = STRATEGIES,
    **fuse: Any,
) -> Watched:
    """A retrieving worker over real indexes; `run`: where the lists are written."""
    sections = {"retrieve": {"retrievers": retrievers, "routes": routes or {}, "depth": DEPTH},
                "rewrite": {"strategies": strategies}}  # fmt: skip
    work = job(retrievers, cuts, fuse={"depth": DEPTH} | fuse, **sections)
    opened = {
        name: OpenedBy(name, settings := typed({key: value for key, value in one.items() if key != "together"}),
                       retriever_identity(name, settings), DEPTH)
        for name, one in retrievers.items()
    }  # fmt: skip
    rewriting = Rewriting(load_pool(strategies))
    readings = (Reading(RUN, rewriting, rewriting, 0, {"": AnsweredBy(None, {})}),)  # type: ignore[arg-type]
    return Watched(WorkerJob(replace(work, retrievers=opened, readings=readings, keep_lists=run is not None), str(run)))


class Watched(Retrieve):
    """Shows the lists that it fuses as `runs` of plain rows with their `hits`, in order of their texts, and `similarity`."""

    lists: Sequence[SearchLists] = ()

    def _fused(self, table: pa.Table, block: Any, lists: Sequence[SearchLists], began: float) -> Any:
        self.lists = lists
        return super()._fused(table, block, lists, began)

    def seen(self, table: pa.Table) -> tuple[pa.Table, list[Row]]:
        """The result of a block, and its plain rows with what was fused (similarity is row-major, or None)."""
        result = self(table)
        found, (lists,) = plain(result), self.lists
        of, cosines = lists._lists, lists._similarity
        found = [row | {"runs": []} for row in found]
        columns = (of.query, of.strategy.to_pylist(), of.position, of.retriever.to_pylist(), of.text, of.weight)
        hits = list(zip(of.doc_ids.to_pylist(), of.scores.tolist(), strict=True))
        bounds = zip(of.offsets[:-1], of.offsets[1:], strict=True)
        names = ("strategy", "position", "retriever", "text", "weight", "position_weight")
        for row, *values, (begin, end) in zip(*columns, of.position_weight, bounds, strict=True):
            run = dict(zip(names, values, strict=True))
            found[row]["runs"].append(run | {"hits": [{"doc_id": d, "score": s} for d, s in hits[begin:end]]})
        for number, row in enumerate(found):
            bounds_of = None if cosines is None else slice(*cosines.offsets[number : number + 2])
            row["similarity"] = bounds_of and (cosines.cosines[bounds_of].tolist() or None)
            row["runs"].sort(key=lambda run: run["text"])
        return result, found


def scorer(settings: RerankSettings, documents: Block, corpus: str | None = None) -> Score:
    """A scoring worker over the documents of a real index."""
    scored_by = ScoredBy(settings, {"kind": settings.kind}, "documents", "")
    documents_of = {"documents": OpenedBy("bm25", typed(documents), {"corpus": corpus}, 10)}
    return Score(WorkerJob(replace(reranked("blend"), rerankers=(scored_by,), retrievers=documents_of), "none"))


def reranked(combine: str) -> SharedWork:
    """The work of a run with a reranker."""
    return job(rerank={"kind": "server", "base_url": "http://none", "model": "m", "combine": combine})


def rewrite(strategy: str, text: str = "", weight: float = 1.0, position_weight: float = 1.0, **more: Any) -> Row:
    """A rewrite of a block."""
    return {
        "strategy": strategy, "position": 1, "text": text or strategy, "weight": weight, "search_as": "query", "model": "m",
        "prompt_hash": "h", "parsed_as": "json", "selected_reason": None, "position_weight": position_weight, "arm": RUN,
    } | more  # fmt: skip


def rewritten(*rows: Row) -> pa.Table:
    """A block as rewriting hands it on."""
    more: Row = {name: [] for name in ("costs", "errors", "selections", "guarded", "needed", "counts")}
    return pa.Table.from_pylist([{"shard": 0, "log_count": 1} | more | row for row in rows], REWRITTEN)


def fused(rows: Sequence[Row], schema: pa.Schema = RETRIEVED) -> pa.Table:
    """A block as retrieval (or, with the schema, scoring) hands it on, of plain rows."""
    more: Row = {"shard": 0, "log_count": 1, "costs": [], "errors": [], "rewrites": [], "selections": [], "guarded": [],
                 "counts": [], "needed": [], "stored": [], "web": [], "best": []}  # fmt: skip
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
            found["unscored"] = [-1] if row["scores"] is None else []
            found["scores"] = row["scores"] and [
                {"reranker": 0, "document": doc_ids.index(one["doc_id"]), "score": one["score"]} for one in row["scores"]
            ]
        made.append(more | row | found)
    return pa.Table.from_pylist(made, schema)


def scored(rows: Sequence[Row]) -> pa.Table:
    """A block as scoring hands it on, of plain rows."""
    return fused([{"scores": []} | row for row in rows], SCORED)


def plain(table: pa.Table) -> list[Row]:
    """The rows of a block with `candidates` and `scores` by name, as far as it has them."""
    found = table.to_pylist()
    for row in found:
        names = [one["doc_id"] for one in row["documents"]]
        row["candidates"] = [one | {"doc_id": names[one["document"]]} for one in row["fused"]]
        if row.get("scores") is not None:
            row["scores"] = [one | {"doc_id": names[one["document"]]} for one in row["scores"]]
    return found


def results(table: pa.Table, work: SharedWork) -> list[list[tuple[str, float, float]]]:
    """doc_id, score and fused score of the results of each row."""
    block = Candidates(table, work)
    found: list[list[tuple[str, float, float]]] = [[] for _ in range(table.num_rows)]
    for row, at, score, _ in zip(*(one.tolist() for one in block.ranked(0)), strict=True):
        found[row].append((block.doc_ids[int(block.document[at])].as_py(), score, float(block.score[at])))
    return found


KINDS = {"pseudo_answer": "passage"}  # all others are searched as queries


def query(text: str, **rewrites: str) -> Row:
    made = [rewrite(name, one, search_as=KINDS.get(name, "query")) for name, one in rewrites.items()]
    return {"query_id": text, "query": text, "rewrites": made}


def searches(result: pa.Table, quantity: str = "searches") -> list[dict[str, int]]:
    costs = result.column("costs").to_pylist()
    return [{one["component"]: one[quantity] for one in row if one["stage"] == "retrieve"} for row in costs]


Lists = dict[tuple[str, str, str], list[tuple[str, float]]]  # (query_id, strategy, retriever) -> hits


def lists_of(rows: Sequence[Row]) -> Lists:
    """The lists in plain rows with `runs`."""
    return {
        (row["query_id"], run["strategy"], run["retriever"]): [(hit["doc_id"], hit["score"]) for hit in run["hits"]]
        for row in rows for run in row["runs"]
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
