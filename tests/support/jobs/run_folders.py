"""Folders of runs and ablations, by their stages or by their tables, made without Ray; and a report's page read back."""

import json
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from cluster.costs import Totals, entry, settle
from cluster.prices import Prices
from cluster.run.shards import SUCCESS, File, Manifest, Plan, Shard, commit, put_plan, write_table
from cluster.storage import Storage
from cluster.storage.files import FileStorage
from jobs.chain.arms.shared_work import SharedWork
from jobs.chain.stages.candidates import BlockCandidates, candidate_columns
from jobs.chain.stages.fuse import SearchLists, fusion_notes
from jobs.chain.stages.score import Score
from jobs.chain.stages.write import Write
from jobs.chain.worker import WorkerJob
from jobs.config.config import Config
from jobs.measure.frame import Frame
from jobs.measure.judged_rows import AskedQuery
from jobs.measure.measures import MEASURES
from jobs.pages.run import report
from jobs.runs.folder import RunFolder, open_run
from jobs.tables import COMPLETIONS, OPTIONAL_QUERIES, SELECTION, STORED, with_appended, with_empty_columns
from retrievers.lists import Lists
from retrievers.ranking import offsets_of
from rewriters.normalise import normalise
from tests.support.jobs.in_flight import RETRIEVED
from tests.support.jobs.one_arm import one_arm

PRICES = Prices(
    cpu_worker_hour=36.0, device_hour=360.0, tokens={"writer": {"prompt": 10.0, "cached": 1.0, "completion": 100.0}}
)
Row = dict[str, Any]

# ---------------------------------------------------------------- a run, by the stages' own workers but Ray


@dataclass
class Query:
    """A query as the test wants it: texts by strategy, failures by strategy, hits by (strategy, retriever).

    `selected`: query type, strategies and reason, in runs that select.
    """

    name: str
    texts: dict[str, str | list[str]] = field(default_factory=dict)
    failed: dict[str, tuple[str, str]] = field(default_factory=dict)  # strategy -> message, raw
    hits: dict[tuple[str, str], list[str]] = field(default_factory=dict)
    asked: int = 1
    parsed_as: str = "json"
    selected: tuple[str | None, list[str], str | None] | None = None

    @property
    def positions(self) -> list[tuple[str, int, str]]:
        """Strategy, position and text of each rewrite."""
        return [
            (strategy, position, text)
            for strategy, of in self.texts.items()
            for position, text in enumerate([of] if isinstance(of, str) else of, start=1)
        ]


QUERIES = [
    Query(
        "alpha lighthouse",
        {"general": "general alphaword", "keyword": "keyword alphaword"},
        {},
        {
            ("original", "bm25"): ["d01", "d02"], ("original", "dense"): ["d01", "d03"],
            ("general", "bm25"): ["d01", "d02"], ("general", "dense"): ["d04"],
            ("keyword", "bm25"): ["d02", "d05"], ("keyword", "dense"): ["d01"],
        },
        asked=3,
    ),
    Query(
        "bravo bread",
        {"general": "general bravoword"},
        {"keyword": ("cut off near bravoerror", '{"keyword": "bravoraw')},
        {("original", "bm25"): ["d03"], ("general", "bm25"): ["d03", "d04"], ("general", "dense"): ["d06"]},
    ),
    Query("charlie tides", {"general": "general charlieword", "keyword": "keyword charlieword"}, parsed_as="labelled"),
]  # fmt: skip


class RunMaker:
    """Writes a run's folder: plan, manifests through the writing worker, run.json."""

    def __init__(self, folder: Path) -> None:
        self.storage = FileStorage(str(folder / "small-0123456789ab"))

    def __call__(
        self,
        queries: list[Query] = QUERIES,
        strategies: tuple[str, ...] = ("general", "keyword"),
        *,
        shard_size: int = 1,
        commit: int | None = None,
        finished: bool = True,
        keep_runs: bool = True,
        index: str = "nowhere",
        calls: str = "joint",
        rejected: list[Row] | None = None,
        select: str = "all",
        **settings: Any,
    ) -> RunFolder:
        values = {
            "name": "small", "output": "runs", "log": {"path": "log.parquet", "query_column": "query"},
            "rewrite": {
                "engine": {"kind": "recorded", "path": "r.jsonl"}, "strategies": list(strategies), "calls": calls,
                "select": select,
            },
            "retrieve": {
                "keep_runs": keep_runs,
                "retrievers": {name: {"kind": "local", "index": index} for name in ("bm25", "dense")},
            },
            "rerank": {"kind": "none"}, "limits": {"error_rate": 0.5},
        } | settings  # fmt: skip
        config = Config.model_validate(values)
        rows = [self._row(n, query, n // shard_size, config) for n, query in enumerate(queries)]
        plan = self._plan(queries, shard_size, rejected or [])
        work = one_arm(config, combine="replace")
        worker = Write(WorkerJob(work, self.storage.root))
        for shard in plan.shards[:commit]:
            mine = [row for row in rows if row["shard"] == shard.number]
            if keep_runs:
                mine[0]["stored"] = [self._lists(shard.number, mine)]
            block = settle(_fused(mine, work), 0.5, 0.0, 1)[0]
            if config.rerank.kind != "none":
                candidates = block["fused"].to_pylist()
                pairs = [[entry("rerank", "cross_encoder", 1.0, start=1, pairs=len(found))] for found in candidates]
                block = with_appended(block, "costs", pairs)
                block = with_appended(with_empty_columns(block, Score.ADDS), "scores", [*map(_scores, candidates)])
            worker(block)
            self._completions(shard.number, [row["query_id"] for row in mine], queries)
        self._record(config, "finished" if finished else "running")
        if finished:
            self.storage.put(SUCCESS, b"{}")
        return open_run(self.storage.root)

    def _row(self, n: int, query: Query, shard: int, config: Config) -> Row:
        rewrites = [
            {
                "strategy": strategy,
                "position": position,
                "text": text,
                "weight": 1.0,
                "position_weight": 1.0,
                "parsed_as": query.parsed_as,
                "guards": [],
                "search_as": "passage" if strategy == "pseudo_answer" else "query",
            }
            for strategy, position, text in query.positions
        ]
        errors = [
            {"stage": "rewrite", "component": strategy, "reason": "truncated", "message": said, "raw": raw, "attempts": 1}
            for strategy, (said, raw) in query.failed.items()
        ]
        common = "dmqr_adaptive" if config.rewrite.select.kind == "adaptive" else "dmqr"
        names = list(query.texts) if config.rewrite.calls == "separate" else [common] if query.texts else []
        tokens = {"requests": 1, "prompt_tokens": 100, "cached_tokens": 40, "completion_tokens": 7}
        costs = [entry("rewrite", name, 1.5, model="writer", start=1, **tokens) for name in names]
        costs += [entry("retrieve", "dense", 2.0, start=1, searches=3, device_seconds=2.0)]
        costs += [entry("retrieve", "bm25", 0.25, start=1, searches=3)]
        costs += [entry("rewrite", "start_up", 4.0, start=1)] if not n else []
        place = {name: number for number, name in enumerate(["original", *query.texts])} | {"together": -1}
        runs = [
            {
                "strategy": strategy,
                "position": 1,
                "retriever": retriever,
                "text": place[strategy],
                "weight": 1.0,
                "position_weight": 1.0,
                "search": 0,
                "list": number,
            }
            for number, (strategy, retriever) in enumerate(query.hits)
        ]
        return {
            "shard": shard, "query_id": query_id(n), "query": query.name, "log_count": query.asked, "costs": costs,
            "errors": errors, "rewrites": rewrites, "runs": runs, "lists": [_hits(hits) for hits in query.hits.values()],
            "stored": [], "guarded": [], "counts": [], "web": [],
            "selections": [dict(zip(SELECTION.names, query.selected, strict=True))] if query.selected else [],
        }  # fmt: skip

    def _lists(self, shard: int, rows: list[Row]) -> Row:
        """Writes runs/ of a shard; the file as `stored` has it."""
        flat = [
            {"query_id": row["query_id"], "rank": rank} | run | hit
            for row in rows for run in row["runs"] for rank, hit in enumerate(row["lists"][run["list"]], start=1)
        ]  # fmt: skip
        file = write_table(self.storage, "runs", shard, pa.Table.from_pylist(flat, STORED["runs"]))
        return {"table": "runs"} | file._asdict()

    def _completions(self, shard: int, query_ids: list[str], queries: list[Query]) -> None:
        rows = [
            {
                "query_id": query_id(n), "request": "dmqr", "prompt": f"prompt {query.name}", "text": f"answer to {query.name}",
                "finish_reason": "stop", "model": "writer", "prompt_tokens": 100, "completion_tokens": 7,
                "start": 1,
            }
            for n, query in enumerate(queries)
            if query_id(n) in query_ids and query.texts
        ]  # fmt: skip
        if rows:
            sink = pa.BufferOutputStream()
            pq.write_table(pa.Table.from_pylist(rows, COMPLETIONS), sink)
            self.storage.put(f"completions/{shard:06d}/made.parquet", sink.getvalue().to_pybytes())

    def _plan(self, queries: list[Query], size: int, rejected: list[Row]) -> Plan:
        rows = [ask(query_id(n), query.name, query.asked, normalised=normalise(query.name)) for n, query in enumerate(queries)]
        counts = {f"rejected_{row['reason']}": sum(one["reason"] == row["reason"] for one in rejected) for row in rejected}
        counts |= {"log_rows": sum(query.asked for query in queries) + len(rejected), "rejected": len(rejected)}
        return _plan(self.storage, rows, size, counts, {"errors": pa.Table.from_pylist(rejected, STORED["errors"])})

    def _record(self, config: Config, status: str) -> None:
        record = {
            "run_id": "small-0123456789ab", "status": status, "config": config.model_dump(), "config_file": "small.yaml",
            "versions": {"python": "3.11", "vllm": None}, "indexes": {"bm25": {}}, "starts": [START | {"status": status}],
            "redundancy": {"asked": "cosine", "used": "overlap"}, "node_time": None,
        }  # fmt: skip
        self.storage.put("run.json", json.dumps(record).encode())


def _fused(rows: list[Row], work: SharedWork) -> pa.Table:
    """The block that retrieval hands on, of rows with `runs` and their `lists`."""
    runs = [(number, run, row["lists"][run["list"]]) for number, row in enumerate(rows) for run in row["runs"]]
    hits = [hit for *_, of in runs for hit in of]
    column = {name: [run[name] for _, run, _ in runs] for name in ("strategy", "position", "retriever", "text", "weight")}
    lists = Lists(
        np.array([number for number, *_ in runs], dtype=np.int64), pa.array(column["strategy"], pa.string()),
        np.array(column["position"], dtype=np.int32), pa.array(column["retriever"], pa.string()),
        np.array(column["text"], dtype=np.int64), np.array(column["weight"]), np.ones(len(runs)),
        offsets_of(np.array([len(of) for *_, of in runs], dtype=np.int64)),
        pa.array([hit["doc_id"] for hit in hits], pa.string()), np.array([hit["score"] for hit in hits]),
    )  # fmt: skip
    count = len(rows)
    searched = SearchLists(lists, count, None, [None] * len(runs), keep_sources=True)
    arm = searched.fuse(work.answers[0], {})
    columns, _ = candidate_columns(count, BlockCandidates(searched.hits.doc_ids, [], {0: arm.candidates}))
    made = pa.Table.from_pylist([{"best": []} | row for row in rows], RETRIEVED)
    for name, values in zip(("documents", "fused", "web"), columns, strict=True):
        at = RETRIEVED.get_field_index(name)
        made = made.set_column(at, RETRIEVED.field(at), values)
    made = with_appended(made, "costs", [[entry("fuse", work.answers[0].fuse.method)]] * count)
    return with_appended(made, "errors", fusion_notes(arm))


def query_id(n: int) -> str:
    return f"{n:032x}"


def _hits(doc_ids: list[str]) -> list[Row]:
    return [{"doc_id": doc_id, "score": 9.0 - place} for place, doc_id in enumerate(doc_ids)]


def _scores(candidates: list[Row]) -> list[Row]:
    """Of a reranker that agrees with fusion."""
    return [{"reranker": 0, "document": hit["document"], "score": -1.5 - place} for place, hit in enumerate(candidates)]


Make = Callable[..., RunFolder]


def stored(run: RunFolder, table: str) -> list[Row]:
    return [row for path in run.tables.get(table, []) for row in pq.read_table(path).to_pylist()]


# ---------------------------------------------------------------- a run or an ablation, by its tables

START: Row = {
    "start": 1, "began": "2026-03-01T01:02:03Z", "wall_seconds": 75.0, "status": "finished", "task_slots": 4, "outages": [],
    "queued": {}, "pools": {"rewrite": {"workers": 2, "cpus": 1, "gpus": 0.0}},
    "resources": {"nodes": 1, "cpus": 4.0, "gpus": 0.0},
}  # fmt: skip
ARM = pa.field("arm", pa.string())
SCHEMAS = STORED | {
    "candidates": pa.schema(
        [("query_id", pa.string()), ("rank", pa.int32()), ("doc_id", pa.string()), ("score", pa.float64())]
    ),
    "scores in an ablation": STORED["scores"].append(pa.field("reranker", pa.string())),
    "rewrites in an ablation": STORED["rewrites"].append(ARM),
    "selections in an ablation": STORED["selections"].append(ARM),
}


def query_ids(count: int) -> list[str]:
    return [query_id(n) for n in range(count)]


def ask(query_id: str, query: str, log_count: int = 1, **more: Any) -> Row:
    """A row of queries/."""
    return {"query_id": query_id, "query": query, "normalised": query.casefold(), "log_count": log_count} | more


def arm(name: str, family: str = "always", **more: Any) -> Row:
    """An arm as run.json has it."""
    k = len(more.get("members", ())) or None
    made = {"name": name, "family": family, "strategies": [], "original": True, "changes": {}, "k": k, "members": []}
    return made | {"cut_from": 30, "reranker": None} | more


def list_row(query_id: str, strategy: str, retriever: str, doc_ids: Sequence[str], position: int = 1) -> list[Row]:
    """The rows of runs/ of one list."""
    return [
        {"query_id": query_id, "strategy": strategy, "position": position, "retriever": retriever, "doc_id": doc_id,
         "rank": rank, "score": 100.0 - rank}
        for rank, doc_id in enumerate(doc_ids, start=1)
    ]  # fmt: skip


def ranked(query_id: str, doc_ids: Sequence[str], **more: Any) -> list[Row]:
    """Rows of results/ or candidates/ of one query."""
    return [
        {"query_id": query_id, "rank": rank, "doc_id": doc_id, "score": -float(rank)} | more
        for rank, doc_id in enumerate(doc_ids, start=1)
    ]


def ablation(
    folder: Path,
    arms: Sequence[Row],
    lists: Mapping[str, Mapping[str, Sequence[str]]],
    queries: Sequence[Row],
    log_map: Sequence[tuple[str, str | None]] | None = None,
    *,
    selections: Sequence[Row] | None = None,
    **more: Any,
) -> RunFolder:
    """Writes and opens the folder of an ablation with these results: arm -> query_id -> doc_ids; `more`: of `write_folder`.

    By default a query's log_id is its query_id in capitals.
    """
    results = [row for name, of in lists.items() for key, ids in of.items() for row in ranked(key, ids, arm=name)]
    pairs = [(row["query_id"].upper(), row["query_id"]) for row in queries] if log_map is None else log_map
    tables = {"results": [row | {"fused_score": row["score"]} for row in results], "selections": selections or ()}
    sections = {"retrieve": {"retrievers": {"bm25": {"kind": "local", "index": "none"}}}} | more
    return write_folder(folder, tables, queries=queries, log_map=pairs, strategies=(), arms=arms, **sections)


def write_folder(
    folder: Path,
    tables: Mapping[str, Sequence[Row]],
    *,
    queries: int | Sequence[Row],
    log_map: Sequence[tuple[str, str | None]] | None = None,
    strategies: Sequence[str] = ("general", "keyword"),
    shard_size: int = 2,
    committed: Collection[int] | None = None,
    arms: Sequence[Row] | None = None,
    counts: Mapping[str, int] | None = None,
    costs: Totals | None = None,
    **settings: Any,
) -> RunFolder:
    """Writes and opens the folder of a run.

    Args:
        folder: Where the run's folder is made.
        tables: Rows of the tables that shards write; each goes to the shard of its query.
        queries: Rows of `ask`, or a number of queries.
        log_map: log_id and query_id; None: the rows L0, L1, ... with one query each.
        strategies: The pool.
        shard_size: Queries per shard.
        committed: Numbers of the shards with a manifest; None: all, and the run is finished.
        arms: Of an ablation; None: a plain run.
        counts: More counts, of the first shard's manifest.
        costs: Of the first shard.
        **settings: More sections of the config.
    """
    values: Row = {
        "name": "small", "output": str(folder), "log": {"path": "log.parquet", "query_column": "query"},
        "rewrite": {"engine": {"kind": "recorded", "path": "r.jsonl"}, "strategies": list(strategies)},
        "retrieve": {"retrievers": {name: {"kind": "local", "index": "nowhere"} for name in ("bm25", "dense")}},
        "rerank": {"kind": "none"},
    } | settings  # fmt: skip
    config = Config.model_validate(values)
    storage = FileStorage(str(folder / "small-0123456789ab"))
    if isinstance(queries, int):
        queries = [ask(key, f"query {n}") for n, key in enumerate(query_ids(queries))]
    ids = [row["query_id"] for row in queries]
    log = [(f"L{n}", key) for n, key in enumerate(ids)] if log_map is None else log_map
    query_map = pa.Table.from_pylist([{"log_id": log_id, "query_id": key} for log_id, key in log], STORED["query_map"])
    _plan(storage, queries, shard_size, {"log_rows": len(log), "rejected": 0}, {"query_map": query_map})
    shards = [ids[begin : begin + shard_size] for begin in range(0, len(ids), shard_size)]
    for number in range(len(shards)) if committed is None else committed:
        members = shards[number]
        files = {
            name: [write_table(storage, name, number, mine)]
            for name, rows in tables.items()
            if (mine := _table(name, [row for row in rows if row["query_id"] in members], ablation=arms is not None)).num_rows
        }
        more = (counts or {}) if number == 0 else {}
        commit(storage, Manifest(number, 1, files, {"queries": len(members), **more}, (costs or {}) if number == 0 else {}))
    record: Row = {
        "run_id": "small-0123456789ab", "status": "finished", "config": config.model_dump(), "config_file": "small.yaml",
        "versions": {"python": "3.11", "vllm": None}, "indexes": {}, "starts": [START],
    }  # fmt: skip
    if arms is not None:
        record["ablation"] = {"arms": list(arms), "shared": {"naive": {}, "executed": {}}}
    storage.put("run.json", json.dumps(record).encode())
    if committed is None:
        storage.put(SUCCESS, b"{}")
    return open_run(storage.root)


def _table(name: str, rows: list[Row], *, ablation: bool) -> pa.Table:
    schema = SCHEMAS[f"{name} in an ablation" if ablation and f"{name} in an ablation" in SCHEMAS else name]
    return pa.Table.from_pylist(rows, schema)


def _plan(
    storage: Storage, queries: Sequence[Row], shard_size: int, counts: Mapping[str, int], more: Mapping[str, pa.Table]
) -> Plan:  # fmt: skip
    """Puts the plan of these queries, two shards in a file, with further tables in a row group each."""
    schema = pa.schema([*STORED["queries"], *(one for one in OPTIONAL_QUERIES if any(one.name in row for row in queries))])
    rows = pa.Table.from_pylist(list(queries), schema)
    pairs = [
        _put(storage, "queries", rows[begin:][: 2 * shard_size], shard_size, begin)
        for begin in range(0, len(queries), 2 * shard_size)
    ]
    files = {"queries": pairs} | {name: [_put(storage, name, table, 1000)] for name, table in more.items()}
    sizes = [min(shard_size, len(queries) - begin) for begin in range(0, len(queries), shard_size)]
    shards = [Shard(n, pairs[n // 2].key, n % 2, size) for n, size in enumerate(sizes)]
    inputs = [{"path": "log.parquet", "size": 9, "mtime_ns": 1}]
    return put_plan(storage, Plan(inputs, {"queries": len(queries), **counts}, shard_size, files, shards))


def _put(storage: Storage, table: str, rows: pa.Table, group: int, first: int = 0) -> File:
    sink = pa.BufferOutputStream()
    pq.write_table(rows, sink, row_group_size=group)
    key = f"{table}/{first:06d}.parquet"
    storage.put(key, sink.getvalue().to_pybytes())
    return File(key, rows.num_rows, sink.getvalue().size)


# ---------------------------------------------------------------- the page, read back


VOID = {"meta", "br", "input", "wbr"}


class Page(HTMLParser):
    """Reads a page; AssertionError where tags do not match."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.sections: dict[str, str] = {}
        self.rows: dict[str, list[list[str]]] = {}  # section -> rows of its tables
        self._section = ""
        self.feed(html)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag == "section":
            self._section = dict(attrs)["id"] or ""
        if tag == "tr":
            self.rows.setdefault(self._section, []).append([])
        if tag in {"td", "th"}:
            self.rows[self._section][-1].append("")
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if {"script", "style"} & set(self.open):
            return
        self.sections[self._section] = self.sections.get(self._section, "") + data
        if {"td", "th"} & set(self.open):
            self.rows[self._section][-1][-1] += data

    def row(self, section: str, first: str) -> list[str]:
        """The other cells of the first row of a section that begins with this cell."""
        return next([cell.strip() for cell in row[1:]] for row in self.rows[section] if row[0].strip() == first)


def frame_of(values: Any, **more: Any) -> Frame:
    """Returns a frame of these values (arms, measures, keys), or (arms, keys) for each of the default measures."""
    values = np.array(values, np.float64)
    values = values if values.ndim > 2 else np.repeat(values[:, None], len(MEASURES), axis=1)
    arms, _, keys = values.shape
    ids = tuple(query_id(n) for n in range(keys))
    fields: dict[str, Any] = {
        "arms": ("run", "original")[:arms], "measures": MEASURES, "keys": ids, "query_ids": ids,
        "asked": tuple(AskedQuery(f"query number {n}", None, 1) for n in range(keys)),
        "values": values, "condensed": values, "unjudged": np.full(arms, np.nan),
        "failed": np.zeros(arms, np.int64), "judged": keys, "missing": 0, "not_committed": 0, "rejected": 0,
        "depth": 10, "key": "log_id", "unmatched": None,
    }  # fmt: skip
    return Frame(**fields | more)


def page(run: RunFolder, prices: Prices | None = PRICES, **options: Any) -> Page:
    return Page(report(run, prices, **options))
