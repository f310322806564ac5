"""A config whose models and indexes are loaded in this process, without Ray, for one query after the other.

The workers are those of a run (`jobs/chain/pipeline.py`), in a temporary folder, so that a result is that of a run.
"""

from __future__ import annotations

import difflib
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from functools import cached_property

import pyarrow as pa
import pyarrow.parquet as pq

from cluster import costs
from cluster.errors import ClusterError, ConfigError
from cluster.run.meter import Meter
from cluster.run.session import InProcessSession
from cluster.run.stage import Stage
from cluster.storage.copies import work_folder
from jobs.chain.completions import Completions
from jobs.chain.cuts import cuts_of
from jobs.chain.search_texts import query_texts
from jobs.chain.store.files import NO_STORE
from jobs.config.config import Config
from jobs.job.engine import open_worker_engine
from jobs.job.opening import open_documents
from jobs.job.prepare import Ready, leave, prepare_query
from jobs.job.searched import searched_indexes
from jobs.log.rejections import Rejection, judge
from jobs.run.job import run_of
from jobs.tables import ORIGINAL, QUERIES
from jobs.terminal.formats import unpriced
from jobs.try_one.requests import all_requests
from jobs.try_one.trial import NOTHING, Given, Row, Trial, check_utf8, document_counts, one_arm_row
from retrievers.retriever import DocumentStore
from retrievers.union.documents import all_documents
from retrievers.web.hits import indexed_text
from rewriters.engines.recorded import RecordedEngine
from rewriters.normalise import normalise
from rewriters.rewriter import Rewriter
from rewriters.strategy import searched_as_one

REWRITE = "rewrite"
SKIPPED = ("read", "write")  # the query is given, and nothing is committed
SIMILAR = 3  # recorded queries that are named where one is not recorded
_COMPARED = 5000  # recorded queries, at most, that are compared with it: a tenth of a second
Phase = Callable[[str], object]


class LoadedConfig:
    """The stages of a config; use it in a `with`, or call `close`."""

    def __init__(self, config: Config, config_file: str, label: str, given: Given = NOTHING, ready: Ready = leave) -> None:
        """Checks the config and its engine; loads nothing yet.

        The output names the config by `label`; `given` is what the log would say of each query; `ready` may build indexes.

        Raises:
            DmqrError: `run` would refuse the config, or its log does not have what is given.
        """
        self.label, self._file, self._given = label, config_file, given
        config = config.model_copy(update={"retrieve": config.retrieve.model_copy(update={"keep_runs": True})})
        self._meters: list[Meter] = []
        self._tried = 0
        with ExitStack() as stack:
            folder = str(stack.enter_context(work_folder()))
            self._prepared = prepare_query(config, config_file, folder, ready)
            given.check(self._prepared.columns, config_file)
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
        self._work = job.compiled.work
        self._stages = [stage for stage in chain if stage.name not in SKIPPED]
        self._rewriter = Rewriter(self._prepared.rewriting)

    def __enter__(self) -> LoadedConfig:
        """Returns itself."""
        return self

    def __exit__(self, *_: object) -> None:
        """Closes it."""
        self.close()

    def close(self) -> None:
        """Closes the workers and removes the temporary folder."""
        self._opened.close()

    def load(self, report_phase: Phase) -> None:
        """Loads all models and indexes, which the first query would do otherwise; `report_phase` is called with the phase."""
        report_phase(f"{self.label}: loading models and indexes")
        self._load()

    def try_query(self, query: str, report_phase: Phase) -> Trial:
        """Returns the result of sending one query through all stages; `report_phase` is called with the current one.

        Raises:
            ConfigError: the text is not a valid query.
            DmqrError: a model or an index cannot be loaded.
        """
        asked = self._asked(query)
        row = one_arm_row(self._run_stages(self._block([asked]), report_phase), self._work)
        row |= {name: asked[name] for name in ("context", "values")}
        row["lists"] = self._lists(row)
        own = [entry for entry in row["costs"] if not entry["component"].startswith(costs.START_UP)]
        start_up: Counter[str] = Counter()
        for entry in row["costs"]:
            if entry["component"].startswith(costs.START_UP):
                start_up[entry["stage"]] += entry["seconds"]
        spent = costs.totals(pa.array(own, costs.COST))
        prices = self._prepared.prices
        missing = any(error["reason"] == "not_recorded" for error in row["errors"])
        texts, places = self._texts(row)
        ranked = {hit["doc_id"]: texts[hit["doc_id"]] for hit in row["hits"]}
        completions = Completions(self._prepared.storage, self._tried, 1, 0.0)
        return Trial(
            self.label,
            self.config,
            row,
            texts,
            document_counts(self.config, row, cuts_of(self.config, self._prepared.rewriting.cuts)),
            spent,
            None if prices is None else prices.usd(spent),
            dict(start_up),
            all_requests(self._rewriter, self._work, completions, self.config, row, ranked),
            difflib.get_close_matches(query, self.recorded[:_COMPARED], SIMILAR, 0.4) if missing else [],
            unpriced(self._file) if prices is None else "",
            places,
        )

    def rewrite(self, queries: Sequence[str], report_phase: Phase) -> pa.Table:
        """Returns the distinct queries after the rewriting stage, as a block of a run; a gate alone searches before it.

        The models and indexes of later stages are not loaded.

        Raises:
            ConfigError: a text is not a valid query.
            DmqrError: the engine, or what the gate asks, cannot be used.
        """
        table = self._block({row["query_id"]: row for row in map(self._asked, queries)}.values())
        for place, stage in enumerate(self._stages):
            report_phase(f"{self.label}: {stage.name}")
            if place == len(self._meters):
                self._build(stage)
            table = self._meters[place](table)
            if stage.name == REWRITE:
                break
        return table

    def query_id(self, query: str) -> str:
        """Returns the id that a run would give a query.

        Raises:
            ConfigError: the text is not a valid query.
        """
        return str(self._asked(query)["query_id"])

    def _asked(self, query: str) -> Row:
        """Returns the columns of a query that the log would say."""
        columns = self._prepared.columns
        context = (self._given.context or "")[-columns.max_context_chars :]
        values = {column: self._given.values.get(column) for column in columns.values}
        shown = context if normalise(context) else None
        return {"query_id": self._query_id(query, context), "query": query, "context": shown, "values": values or None}

    def _block(self, asked: Iterable[Row]) -> pa.Table:
        """Returns a block of queries, of a shard of its own, so that none takes the completions of the one before."""
        self._tried += 1
        always = {"shard": self._tried, "log_count": 1, "costs": [], "errors": []}
        return pa.Table.from_pylist([always | one for one in asked], QUERIES)

    @cached_property
    def recorded(self) -> list[str]:
        """Returns the queries whose completions are recorded; empty with another engine."""
        if self._prepared.engine is None or not self._prepared.engine.is_recorded:
            return []
        with closing(open_worker_engine(self._prepared.engine)) as engine:
            return list(engine.queries()) if isinstance(engine, RecordedEngine) else []

    def _query_id(self, query: str, context: str) -> str:
        check_utf8("QUERY", query)
        query_id = judge(query, self.config.log.max_chars, context)
        if isinstance(query_id, Rejection):
            raise ConfigError(
                "argument", f"QUERY: {query_id.message}; a run would reject such a log row as {query_id.reason!r}; give another"
            )
        return query_id.hex()

    def _load(self) -> None:
        for stage in self._stages[len(self._meters) :]:
            self._build(stage)

    def _build(self, stage: Stage) -> None:
        self._meters.append(Meter(stage, 1))
        self._opened.callback(self._meters[-1].close)

    def _run_stages(self, table: pa.Table, report_phase: Phase) -> pa.Table:
        report_phase(f"{self.label}: {self._stages[0].name}")
        if not self._meters:
            self._build(self._stages[0])
        with ThreadPoolExecutor(1) as loader:  # the other stages load while the LLM answers
            loading = loader.submit(self._load)
            table = self._meters[0](table)
            report_phase(f"{self.label}: {self._stages[1].name}")
            loading.result()
        for meter in self._meters[1:]:
            report_phase(f"{self.label}: {meter.stage.name}")
            table = meter(table)
        return table

    def _lists(self, row: Row) -> list[Row]:
        """Returns every routed list, in the order of the retrieval stage, with its stored hits.

        A retriever with `together` has one list: the one that is stored, or without any hit the original's.
        """
        retrieve = self.config.retrieve
        searched = query_texts(0, row["query"], row["rewrites"], searched_as_one(self._prepared.rewriting.pool))
        texts = [(text.strategy, text.position) for text in searched]
        stored: dict[tuple[str, int, str], list[Row]] = {}
        for file in (one for one in row["stored"] if one["table"] == "runs"):
            with self._prepared.storage.open(file["key"]) as opened_file:
                for hit in pq.read_table(opened_file).to_pylist():
                    stored.setdefault((hit["strategy"], hit["position"], hit["retriever"]), []).append(hit)
        routed = [(*text, name) for text in texts for name in retrieve.route(text[0])]
        one_by_one = [of for of in routed if not retrieve.retrievers[of[2]].together]
        found = {of: hits for of, hits in stored.items() if of not in one_by_one}
        with_hits = {name for _, _, name in found}
        nothing = [of for of in routed if of not in one_by_one and of[0] == ORIGINAL and of[2] not in with_hits]
        lists = found | {of: stored.get(of, []) for of in [*nothing, *one_by_one]}
        names = ("strategy", "position", "retriever")
        return [
            dict(zip(names, of, strict=True)) | {"hits": [{"doc_id": hit["doc_id"], "score": hit["score"]} for hit in hits]}
            for of, hits in lists.items()
        ]

    def _texts(self, row: Row) -> tuple[dict[str, str], dict[str, str]]:
        """Returns the text of each result, and where it is from (`DocumentStore.places`).

        A page has its own, of several corpora the first that has it.
        """
        found, places = {page["doc_id"]: indexed_text(page["title"], page["text"]) for page in row["web"]}, dict[str, str]()
        left = [hit["doc_id"] for hit in row["hits"] if hit["doc_id"] not in found]
        for documents in self._documents:
            is_last = documents is self._documents[-1]
            known = [True] * len(left) if is_last else documents.known(left)
            there = [doc_id for doc_id, is_known in zip(left, known, strict=True) if is_known]
            found |= zip(there, documents.texts(there), strict=True)
            places |= zip(there, documents.places(there), strict=True)
            left = [doc_id for doc_id in left if doc_id not in found]
        return found, places

    @cached_property
    def _documents(self) -> list[DocumentStore]:
        """The documents of each corpus, in order of the retrievers."""
        stores: dict[tuple[str, str | None], DocumentStore] = {}
        for index in searched_indexes(self.config.retrieve.retrievers, self._prepared.indexes):
            key = index.member, index.identity.get("corpus")
            if key not in stores:
                documents = open_documents(index.name, index.settings.at(index.identity))
                stores[key] = all_documents({index.member: documents})
        return list(stores.values())
