"""A config whose models and indexes are loaded in this process, without Ray, for one query after the other.

The workers are those of a run (`jobs/chain/pipeline.py`), and commit what they make to a temporary folder: what is shown are
the tables of a run.
"""

import json
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack
from dataclasses import replace
from functools import partial
from itertools import compress
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from cluster import costs
from cluster.errors import ClusterError, ConfigError, nearest
from cluster.run.meter import Meter
from cluster.run.session import InProcessSession
from cluster.run.stage import Stage
from cluster.storage.copies import work_folder
from jobs.chain.arms.arms import STEPS
from jobs.chain.completions import CompletionRecord
from jobs.chain.engines import Engines
from jobs.chain.search_texts import query_texts
from jobs.chain.store.files import NO_STORE
from jobs.config.config import Config
from jobs.job.pools import searched_first
from jobs.job.prepare import Ready, leave, prepare
from jobs.job.retrievers import open_documents
from jobs.log.key import MAX_CONTEXT_CHARS
from jobs.log.rejections import Rejection, judge
from jobs.run.job import run_of
from jobs.tables import ORIGINAL, QUERIES, STORED
from jobs.terminal.formats import unpriced
from jobs.try_one.outcome import Row, Trial, check_utf8, tried_row
from retrievers.settings import RerankSettings
from retrievers.web.hits import indexed_text
from retrievers.web.settings import WebSettings
from rewriters.engines import Request
from rewriters.normalise import normalise
from rewriters.strategy import searched_as_one

Phase = Callable[[str], object]
_COSTS = ("model", "tier", "prompt_tokens", "cached_tokens", "completion_tokens", "seconds", "requests")


class _TracedEngines(Engines):
    """Answers requests as a run does, and adds each with its answer and its costs to `trace`."""

    def __init__(self, trace: list[Row], *settings: Any) -> None:
        super().__init__(*settings)
        self._trace = trace

    def cost(self, request: Request, record: CompletionRecord) -> Row:
        spent, completion = super().cost(request, record), record.completion
        self._trace.append(
            {
                "request": request.name, "prompt": request.prompt, "prompt_hash": request.prompt_hash,
                "schema": request.sent_schema, "decoding": dict(request.decoding), "sample": request.sample,
                "answer": completion.text, "finish_reason": completion.finish_reason, "error": completion.error_reason,
                "message": completion.error_message, "document": request.document,
                **{name: spent[name] for name in _COSTS}, "reused": bool(spent["reused"]),
            }
        )  # fmt: skip
        return spent


def rewriting_alone(config: Config) -> Config:
    """Returns a config that rewrites as this one does, and needs neither an index nor a model of later stages.

    One whose originals are searched before they are rewritten is returned as it is.
    """
    if searched_first(config):
        return config
    unsearched = WebSettings(kind="web", provider="searxng", base_url="http://localhost")  # has no index, and is not opened
    retrievers = dict.fromkeys(config.retrieve.retrievers, unsearched)
    retrieve = config.retrieve.model_copy(update={"retrievers": retrievers, "store": False})
    changed = {"retrieve": retrieve, "rerank": RerankSettings(kind="none")}
    return config.model_copy(update=dict.fromkeys((*STEPS, "judge")) | changed)


class LoadedConfig(AbstractContextManager["LoadedConfig"]):
    """The stages of a config; use it in a `with`."""

    def __init__(
        self,
        config: Config,
        config_file: str,
        label: str,
        context: str | None = None,
        values: Mapping[str, str] | None = None,
        ready: Ready = leave,
    ) -> None:
        """Checks the config and its engine; loads nothing yet.

        The output names the config by `label`; `context` (the earlier turns, oldest first) and `values` (by column) are what
        the log would say of each query; `ready` may build indexes.

        Raises:
            DmqrError: `run` would refuse the config, or its log has no contexts or no such column, or a text is not UTF-8.
        """
        self.label, self._file, self._context, self._values = label, config_file, context, values or {}
        retrieve, fuse = (
            config.retrieve.model_copy(update={"keep_runs": True}), config.fuse.model_copy(update={"keep_candidates": True})
        )  # fmt: skip
        config = config.model_copy(update={"retrieve": retrieve, "fuse": fuse})
        self._meters: dict[str, Meter] = {}  # by stage
        self._requests: list[Row] = []  # of the query that is tried
        self._tried = 0
        with ExitStack() as stack:
            folder = str(stack.enter_context(work_folder()))
            self._prepared = prepare(config, config_file, ready, folder)
            self._check_given()
            job = run_of(self._prepared)
            job.check_engines()
            self._opened = stack.pop_all()
        self.config, self.warnings = self._prepared.config, self._prepared.warnings
        try:
            store = job.open_store()
        except ClusterError as error:  # a night needs it, a look at one query does not
            store = NO_STORE
            self.warnings = (*self.warnings, f"{error.line} (nothing is taken from the store)")
        chain = job.stages(InProcessSession(job.pools).pools, 1, store)
        traced = partial(_TracedEngines, self._requests)
        self._stages = [
            replace(stage, settings={**stage.settings, "job": replace(stage.settings["job"], engines=traced)})
            for stage in chain[1:]  # without the one that reads the log
        ]

    def _check_given(self) -> None:
        columns, texts = self._prepared.columns, {f"--value {name}": text for name, text in self._values.items()}
        if self._context is not None:
            texts["--context"] = self._context
            if columns.context_column is None:
                problem = f"--context: {self._file} names no log.context_column"
                raise ConfigError("argument", f"{problem}; set it, or leave --context out")
        for name in self._values:
            if name not in columns.values:
                near = nearest(name, columns.values) if columns.values else "; leave it out"
                raise ConfigError("argument", f"--value {name}: no prompt or selection of {self._file} uses it{near}")
        for option, text in texts.items():
            check_utf8(option, text)

    def __exit__(self, *_: object) -> None:
        self._opened.close()

    def load(self, report_phase: Phase) -> None:
        """Loads all models and indexes, which the first query would do otherwise; `report_phase` is called with the phase."""
        report_phase(f"{self.label}: loading models and indexes")
        for stage in self._stages:
            self._meter(stage)

    def try_query(self, query: str, report_phase: Phase) -> Trial:
        """Returns the result of sending one query through all stages; `report_phase` is called with the current one.

        Raises:
            ConfigError: the text is not a valid query.
            DmqrError: a model or an index cannot be loaded.
        """
        asked = self._query_row(query)
        self._requests.clear()
        row = tried_row(asked, self._tables(self._run_stages([asked], self._stages, report_phase)))
        row |= {"lists": self._lists(row), "hits": self._hits(row)}
        own = [entry for entry in row["costs"] if not entry["component"].startswith(costs.START_UP)]
        spent, prices = costs.totals(pa.array(own, costs.COST)), self._prepared.prices
        return Trial(
            self.label,
            self.config,
            row,
            spent,
            None if prices is None else prices.usd(spent),
            list(self._requests),
            unpriced(self._file) if prices is None else "",
        )

    def rewrite(self, queries: Sequence[str], report_phase: Phase) -> dict[str, pa.Table]:
        """Returns the tables `rewrites`, `errors` and `costs` of a run, by query, with a column `query` before the others.

        A query that stands twice has its rows twice, but those of its costs. A gate alone searches before, and the models and
        indexes of later stages are not loaded.

        Raises:
            DmqrError: `run` would reject a query, or the engine, or what the gate asks, cannot be used.
        """
        rows = [self._query_row(query) for query in ([queries] if isinstance(queries, str) else queries)]
        distinct, by_query_id = {row["query_id"]: row for row in rows}, dict[str, Row]()
        if rows:
            last = [stage.name for stage in self._stages].index("rewrite")
            table = self._run_stages(distinct.values(), self._stages[: last + 1], report_phase)
            by_query_id = {row["query_id"]: row for row in table.to_pylist()}
        tables, asked = {}, [{"query": row["query"], "query_id": row["query_id"]} for row in rows]
        once = {row["query_id"]: row for row in asked}
        for name in ("rewrites", "errors", "costs"):
            of_table = once.values() if name == "costs" else asked
            flat = [row | entry for row in of_table for entry in by_query_id[row["query_id"]][name]]
            tables[name] = pa.Table.from_pylist(flat, pa.schema([("query", pa.string()), *STORED[name]]))
        return tables

    def _query_row(self, query: str) -> Row:
        """Returns the columns of a query that the log would say.

        Raises:
            ConfigError: the text is not a valid query.
        """
        check_utf8("QUERY", query)
        columns = self._prepared.columns
        context = (self._context or "")[-MAX_CONTEXT_CHARS:]
        query_id = judge(query, self.config.log.max_chars, context)
        if isinstance(query_id, Rejection):
            raise ConfigError(
                "argument", f"QUERY: {query_id.message}; a run would reject such a log row as {query_id.reason!r}; give another"
            )
        values = {column: self._values.get(column) for column in columns.values}
        shown = context if normalise(context) else None
        return {"query_id": query_id.hex(), "query": query, "context": shown, "values": values or None}

    def _meter(self, stage: Stage) -> Meter:
        if stage.name not in self._meters:
            self._meters[stage.name] = Meter(stage, 1)
            self._opened.callback(self._meters[stage.name].close)
        return self._meters[stage.name]

    def _run_stages(self, rows: Iterable[Row], stages: Sequence[Stage], report_phase: Phase) -> pa.Table:
        """Returns the block of queries that stages make, of a shard of its own: none takes the completions of another."""
        self._tried += 1
        always = {"shard": self._tried, "log_count": 1, "costs": [], "errors": []}
        table = pa.Table.from_pylist([always | row for row in rows], QUERIES)
        report_phase(f"{self.label}: {stages[0].name}")
        self._meter(stages[0])
        with ThreadPoolExecutor(1) as loader:  # the other stages load while the LLM answers
            meters = [loader.submit(self._meter, stage) for stage in stages]
            for stage, meter in zip(stages, meters, strict=True):
                report_phase(f"{self.label}: {stage.name}")
                table = meter.result()(table)
        return table

    def _tables(self, committed: pa.Table) -> dict[str, list[Row]]:
        tables: dict[str, list[Row]] = defaultdict(list)
        for name, files in json.loads(committed.column("manifest")[0].as_py())["files"].items():
            for key, *_ in files:
                with self._prepared.storage.open(key) as opened_file:
                    tables[name] += pq.read_table(opened_file).to_pylist()
        return tables

    def _lists(self, row: Row) -> list[Row]:
        """Returns every routed list, in the order of the retrieval stage, with its stored hits.

        A retriever with `together` has one list: the one that is stored, or without any hit the original's.
        """
        retrieve, stored = self.config.retrieve, dict[tuple[str, int, str], list[Row]]()
        for hit in row["runs"]:
            key = hit["strategy"], hit["position"], hit["retriever"]
            stored.setdefault(key, []).append({"doc_id": hit["doc_id"], "score": hit["score"]})
        lists = {key: hits for key, hits in stored.items() if retrieve.retrievers[key[2]].together}
        with_hits = {name for _, _, name in lists}
        texts = query_texts(0, row["query"], row["rewrites"], searched_as_one(self._prepared.rewriting.pool))
        routed = [(text.strategy, text.position, name) for text in texts for name in retrieve.route(text.strategy)]
        together = {key for key in routed if retrieve.retrievers[key[2]].together}
        lists |= {key: [] for key in routed if key in together and key[0] == ORIGINAL and key[2] not in with_hits}
        lists |= {key: stored.get(key, []) for key in routed if key not in together}
        names = ("strategy", "position", "retriever")
        return [dict(zip(names, key, strict=True)) | {"hits": hits} for key, hits in lists.items()]

    def _hits(self, row: Row) -> list[Row]:
        """Returns the results with their texts, and where these are from (`DocumentStore.places`).

        A page has its own, of several corpora the first that has it.
        """
        known = {one["doc_id"]: (indexed_text(one["title"], one["text"]), one["url"], "") for one in row["web"]}
        indexed = {name: one for name, one in self.config.retrieve.retrievers.items() if one.indexed(name)}
        for name, settings in indexed.items():
            if not (doc_ids := [hit["doc_id"] for hit in row["hits"] if hit["doc_id"] not in known]):
                break
            documents = open_documents(name, settings.at(self._prepared.indexes[name]))
            if name != list(indexed)[-1]:
                doc_ids = list(compress(doc_ids, documents.known(doc_ids)))
            for doc_id, text, place in zip(doc_ids, documents.texts(doc_ids), documents.places(doc_ids), strict=True):
                known[doc_id] = text, None, place
        hits = []
        for rank, hit in enumerate(row["hits"], start=1):
            text, url, place = known[hit["doc_id"]]
            hits.append({"rank": rank, "text": text, "url": url, "place": place or None, **hit})
        return hits
