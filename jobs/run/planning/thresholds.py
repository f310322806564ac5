"""Thresholds that are quantiles: taken when a job is planned, from the scores of a sample of its queries.

BM25 has no scale, so that a number fits one index and one log.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from cluster.run.shards import read_plan
from cluster.storage import Storage, open_storage
from jobs.chain.arms.shared_work import SharedWork
from jobs.chain.arms.thresholds import SampledThreshold, sampled_thresholds, with_thresholds
from jobs.chain.search_texts import filters_of
from jobs.chain.searches import IndexSearches
from jobs.chain.store.files import NO_STORE, StoreFiles
from jobs.job.opening import open_retriever
from jobs.run.planning.sample import PlannedQueries, read_sample
from retrievers.retriever import RankedList, Retriever, SearchText
from rewriters.scores.gate import best_of, decide, lead_of
from rewriters.scores.thresholds import Quantile, at_quantile

SHARE_SAMPLE = Quantile(quantile=0.5, sample=200)  # queries by which `plan` says how many the gate lets be rewritten


class SampledLists:
    """Searches samples of a job's queries; each is read, and searched by a retriever, once."""

    def __init__(self, work: SharedWork, queries: PlannedQueries, store: StoreFiles) -> None:
        """Reads nothing yet; `store` has lists of other jobs."""
        self._work, self._queries, self._store = work, queries, store
        self._read: dict[tuple[int, int], pa.Table] = {}
        self._opened: dict[str, Retriever] = {}
        self._lists: dict[tuple[Any, ...], list[RankedList]] = {}

    def lists(self, retriever: str, of: Quantile) -> list[RankedList]:
        """Returns the lists of the originals of a sample; `retriever` is a key of `SharedWork.retrievers`.

        Raises:
            RetrieverError: The index cannot be searched.
        """
        key = retriever, of.sample, of.seed
        if key not in self._lists:
            table, opened = self._sample(of), self._work.retrievers[retriever]
            if retriever not in self._opened:
                settings = opened.settings.at(opened.identity)
                self._opened[retriever] = open_retriever(opened.name, settings, expect_identity=opened.identity)
            only, ids = filters_of(table, self._work.filters), table.column("query_id").to_pylist()
            texts = [SearchText(text, "query", one) for text, one in zip(table.column("query").to_pylist(), only, strict=True)]
            wanted: dict[Any, list[str]] = {}
            for text, query_id in zip(texts, ids, strict=True):
                wanted.setdefault(text, []).append(query_id)
            searches = IndexSearches(opened, self._opened[retriever], self._store)
            found = dict(zip(wanted, searches(wanted), strict=True))
            searches.save()
            self._lists[key] = [found[text] for text in texts]
        return self._lists[key]

    def _sample(self, of: Quantile) -> pa.Table:
        key = of.sample, of.seed
        if key not in self._read:
            self._read[key] = read_sample(self._queries, of.sample, of.seed)
        return self._read[key]


def taken_thresholds(work: SharedWork, samples: SampledLists) -> dict[str, dict[str, Any]]:
    """Returns the thresholds of a job that are quantiles, by key, as a plan keeps them; JSON-able values.

    Raises:
        RetrieverError: An index cannot be searched.
    """
    wanted = sampled_thresholds(work)
    return {key: _taken(one, samples.lists(one.retriever, one.settings)) for key, one in wanted.items()}


def _taken(one: SampledThreshold, lists: Sequence[RankedList]) -> dict[str, Any]:
    value_of = best_of if one.of == "best" else lead_of
    values = [value_of(found.scores[:2].tolist()) for found in lists]
    value = at_quantile(values, one.settings.quantile)
    below = sum(found < value for found in values)
    return {"where": one.where, "by": one.by, "of": one.of, "quantile": one.settings.quantile, "value": value,
            "queries": len(values), "below": below, "seed": one.settings.seed}  # fmt: skip


def threshold_words(one: Mapping[str, Any]) -> str:
    """Returns a threshold as a plan keeps it, in words."""
    scores = "best scores" if one["of"] == "best" else "leads"
    return (
        f"{one['where']}: {one['value']:.6g}, the {one['quantile']:g} quantile of the {scores} of {one['by']} for "
        f"{one['queries']:,} sampled queries ({one['below']:,} of them are below)"
    )


def numbers(taken: Mapping[str, Mapping[str, Any]]) -> dict[str, float]:
    """Returns key -> number, of thresholds as a plan keeps them."""
    return {key: float(one["value"]) for key, one in taken.items()}


def of_latest_run(output: Storage, name: str) -> dict[str, dict[str, Any]]:
    """Returns the thresholds that the newest finished run of a name has taken, by key; {} without such a run."""
    latest = json.loads(output.get(f"{name}/latest.json") or b"{}")
    plan = read_plan(open_storage(output.url(latest["run_id"]))) if "run_id" in latest else None
    return {} if plan is None else plan.thresholds


@dataclass(frozen=True)
class SampledGate:
    """What a sample of a job's queries says of its thresholds."""

    thresholds: Mapping[str, Mapping[str, Any]]
    """Those that are quantiles, as a plan keeps them."""
    rewritten: float | None = None
    """The share of the queries that the gate lets be rewritten; None: there is no gate, or it is not known."""


def sampled_gate(
    work: SharedWork, queries: PlannedQueries, stored: Mapping[str, Mapping[str, Any]] | None = None
) -> SampledGate:
    """Returns what a sample says of the thresholds of a run, for `plan`; it adds nothing to the store.

    Args:
        work: Of one arm.
        queries: Of which some are searched; without a gate and quantiles none.
        stored: The thresholds of a plan that is stored; None: none is.

    Raises:
        RetrieverError: The index cannot be searched.
    """
    samples = SampledLists(work, queries, NO_STORE)
    taken = taken_thresholds(work, samples) if stored is None else stored
    gate = next((one.gate for one in with_thresholds(work, numbers(taken)).readings if one.gate is not None), None)
    if gate is None:
        return SampledGate(taken)
    below, lead = gate.settings.below, gate.settings.lead
    assert not isinstance(below, Quantile)
    assert not isinstance(lead, Quantile)
    lists = samples.lists(gate.retriever, SHARE_SAMPLE)
    sure = sum(decide(gate.settings.by, found.scores[:2].tolist(), below, lead).sure for found in lists)
    return SampledGate(taken, 1 - sure / max(1, len(lists)))
