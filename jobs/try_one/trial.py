"""What `try` is given besides a query, and what comes of sending one through every stage; `jobs/try_one/stages.py` makes it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from cluster import costs
from cluster.errors import ConfigError, nearest
from cluster.http import encodable
from jobs.chain.arms.shared_work import SharedWork
from jobs.chain.cuts import Cuts
from jobs.chain.paid_before import ASKED_COLUMNS
from jobs.chain.stages.candidates import Candidates
from jobs.chain.stages.stored_rows import results_of, with_no_hits
from jobs.config.config import Config
from jobs.log.check import LogColumns
from retrievers.fusion import takes_part
from retrievers.lists import BESIDE, ORIGINAL


@dataclass(frozen=True)
class Given:
    """The context and the values of a query."""

    context: str | None = None
    """The earlier turns, oldest first; None: nothing is given."""
    values: dict[str, str] = field(default_factory=dict)
    """Column of the log -> value."""

    def check(self, columns: LogColumns, config_file: str) -> None:
        """Checks that a log of these columns has what is given.

        Raises:
            ConfigError: it has no contexts, or no such column; or a text is not UTF-8.
        """
        texts = {f"--value {name}": text for name, text in self.values.items()}
        if self.context is not None:
            texts["--context"] = self.context
            if columns.context_column is None:
                raise ConfigError(
                    "argument", f"--context: {config_file} names no log.context_column; set it, or leave --context out"
                )
        for name in self.values:
            if name not in columns.values:
                near = nearest(name, columns.values) if columns.values else "; leave it out"
                raise ConfigError("argument", f"--value {name}: no prompt or selection of {config_file} uses it{near}")
        for option, text in texts.items():
            check_utf8(option, text)


NOTHING = Given()


def check_utf8(what: str, text: str) -> None:
    """Checks that an argument was UTF-8.

    Raises:
        ConfigError: it was not.
    """
    if text != encodable(text):
        raise ConfigError("argument", f"{what}: is not UTF-8; give it in a terminal that is")


def read_values(given: Iterable[str]) -> dict[str, str]:
    """Returns name -> text of arguments NAME=TEXT.

    Raises:
        ConfigError: one has no name, or a name comes twice.
    """
    values: dict[str, str] = {}
    for one in given:
        name, sign, text = one.partition("=")
        if not name or not sign:
            raise ConfigError("argument", f"--value {one}: is not NAME=TEXT; write it as --value country=Iceland")
        if name in values:
            raise ConfigError("argument", f"--value {name}: is given twice, and a query has one value; give one")
        values[name] = text
    return values


Row = dict[str, Any]


def one_arm_row(table: pa.Table, work: SharedWork) -> Row:
    """Returns a block of one query and one arm after the ordering stage, as Python values.

    `candidates`, `hits`, `rounds`, `grades`, `correction` (with `pages`) and `answer` are as in their tables; `selection` and
    `chosen` are null where nothing is chosen, `answer` where no LLM answers. `scored` are the candidates that the reranker has
    scored, null where it scored none.
    """
    block = Candidates(table, work)
    row: Row = (
        with_no_hits(table, block)
        .drop_columns(["documents", "fused", *(["scores"] * ("scores" in table.column_names))])
        .to_pylist()[0]
    )
    of = block.of(0)
    columns = block.doc_ids.take(pa.array(of.document)).to_pylist(), of.score.tolist(), block.sources.to_pylist()
    row["candidates"] = [
        {"doc_id": doc_id, "score": score, "sources": sources} for doc_id, score, sources in zip(*columns, strict=True)
    ]
    names = ("doc_id", "score", "fused_score", "rerank_score", "sources")
    ranked, _ = results_of(table.column("query_id").combine_chunks(), block, work, 0)
    row["hits"] = [{name: one[name] for name in names} for one in ranked.to_pylist()]
    for one in row["rewrites"]:
        del one["arm"]
    selection = next(iter(row.pop("selections")), None)
    row["selection"] = selection and {name: value for name, value in selection.items() if name != "arm"}
    row["rounds"] = [{name: value for name, value in one.items() if name != "answer"} for one in row.pop("rounds", ())]
    inner = ("answer", "texts", "places")
    row["grades"] = [{name: value for name, value in one.items() if name != "answer"} for one in row.pop("grades", ())]
    for key, column in (("correction", "corrections"), ("answer", "answers")):
        one = next(iter(row.pop(column, ())), None)
        row[key] = one and {name: value for name, value in one.items() if name not in inner}
    for name in ASKED_COLUMNS:
        row.pop(name, None)
    return row


@dataclass(frozen=True)
class Trial:
    """The result of one config for the query."""

    label: str
    config: Config
    row: Row
    """The row before the last stage, as Python values: rewrites, candidates, hits, errors; and the retrieved `lists`, and
    `context` and `values`, which prompts were given."""
    texts: dict[str, str]
    """doc_id -> indexed text, for the results."""
    document_counts: dict[str, int]
    """`found`, `results`, and reason -> number of documents that were found but are not results."""
    spent: costs.Totals
    """Costs without start-up."""
    usd: float | None
    start_up: dict[str, float] = field(default_factory=dict)
    """Stage -> seconds of loading models and indexes, once per worker."""
    requests: list[Row] = field(default_factory=list)
    """Of each request: prompt, raw answer, what it took; an error in place of the answer."""
    similar: list[str] = field(default_factory=list)
    """Queries that are recorded, where this one is not."""
    unpriced: str = ""
    """Why there is no `usd`."""
    places: dict[str, str] = field(default_factory=dict)
    """doc_id -> source and page of a result, as an answer cites it; "" without a source."""

    @property
    def addresses(self) -> dict[str, str]:
        """Returns doc_id -> address of pages of the web."""
        return {page["doc_id"]: page["url"] for page in self.row.get("web") or ()}

    @property
    def not_selected(self) -> list[str]:
        """Returns the planned strategies that were not selected for the query."""
        selected = self.row["selection"]
        return [] if selected is None else [name for name in self.config.rewrite.planned if name not in selected["strategies"]]

    @property
    def why_selected(self) -> str:
        """Returns the query type and the reason for what was selected; empty where nothing was said."""
        selected = self.row["selection"] or {"query_type": None, "reason": None}
        query_type, reason = selected["query_type"] or "", selected["reason"] or ""
        return reason if reason.startswith(query_type) else ": ".join(filter(None, [query_type, reason]))


TextId = tuple[str, int]  # strategy and position


def text_names(texts: Iterable[TextId]) -> dict[TextId, str]:
    """Returns (strategy, position) -> its name: the strategy's, with the position where the strategy has several texts."""
    texts = list(texts)
    several = {strategy for strategy, position in texts if position > 1}
    return {text: f"{text[0]} {text[1]}" if text[0] in several else text[0] for text in texts}


def document_counts(config: Config, row: Row, cuts: Cuts | None = None) -> dict[str, int]:
    """Returns the number of documents found, of results, and of the others by the first cut that dropped them.

    The dropped ones and `results` add up to `found`. `row` is the query after all stages, with its lists; `cuts` are those of
    strategies and retrievers that have their own.
    """
    cuts, depth = cuts or Cuts(), config.fuse.depth
    names = ("weight", "position_weight")
    own = {(one["strategy"], one["position"]): [one[name] for name in names] for one in row["rewrites"]}
    found: set[str] = set()
    reached: set[str] = set()  # in the part of a list that is fused
    weighted: set[str] = set()  # and the list has a weight above 0
    fuse = config.fuse
    beside = [fuse.weights[key] for one in row["rewrites"] if (key := f"{BESIDE}{one['strategy']}") in fuse.weights]
    if beside:
        fuse = fuse.model_copy(update={"weights": {**fuse.weights, ORIGINAL: min(beside)}})
    for run in row["lists"]:
        ids = [hit["doc_id"] for hit in run["hits"]]
        found.update(ids)
        own_depth, floor = cuts.of(run["strategy"], run["retriever"])
        scores = [hit["score"] for hit in run["hits"]][: min(depth, own_depth or depth)]
        part = [doc_id for doc_id, score in zip(ids, scores, strict=False) if floor is None or score >= floor]
        reached.update(part)
        weights = own.get((run["strategy"], run["position"]), [1.0])  # a list of several texts as one has a weight above 0
        if takes_part(fuse, run["strategy"], run["retriever"], *weights):
            weighted.update(part)
    candidates = {candidate["doc_id"] for candidate in row["candidates"]}
    weighted |= candidates  # if the original stood in
    hits = {hit["doc_id"] for hit in row["hits"]}
    by = "fuse.depth"
    if cuts != Cuts():
        by = "fuse.depth, a strategy's depth, a score_floor or fuse.original_floor"
    return {
        "found": len(found),
        f"below the first {depth} of every list ({by})": len(found - reached - weighted),
        "only in lists of weight 0 (fuse.weights)": len(reached - weighted),
        _beyond(config): len(weighted - candidates),
        f"beyond the first {config.rerank.keep} after reranking (rerank.keep)": len(candidates - hits),
        "results": len(hits),
    }


def _beyond(config: Config) -> str:
    """Returns what documents have in common that were fused and are no candidates."""
    twins = ", or with the text of a better one (fuse.duplicates)" if config.fuse.duplicates == "drop" else ""
    return f"beyond the first {config.fuse.keep} after fusion (fuse.keep){twins}"


def trial_values(trial: Trial) -> dict[str, Any]:
    """Returns the trial as JSON-able values."""
    row = trial.row
    return {
        "config": trial.label,
        "query": row["query"],
        "query_id": row["query_id"],
        "context": row["context"],
        "values": row["values"],
        "requests": trial.requests,
        "selection": None if row["selection"] is None else row["selection"] | {"not_selected": trial.not_selected},
        "rewrites": row["rewrites"],
        "errors": row["errors"],
        "similar_recorded": trial.similar,
        "lists": [run | {"hits": run["hits"][: trial.config.fuse.depth]} for run in row["lists"]],
        "rounds": row["rounds"],
        "grades": row["grades"],
        "correction": row["correction"],
        "answer": row["answer"],
        "judgements": row.get("judgements", []),
        "results": [
            {"rank": rank, "text": trial.texts[hit["doc_id"]], "url": trial.addresses.get(hit["doc_id"])}
            | {"place": trial.places.get(hit["doc_id"]) or None, **hit}
            for rank, hit in enumerate(row["hits"], start=1)
        ],
        "fell_away": trial.document_counts,
        "costs": trial.spent,
        "usd": trial.usd,
        "unpriced": trial.unpriced,
        "start_up_seconds": trial.start_up,
    }
