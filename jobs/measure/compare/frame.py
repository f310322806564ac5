"""The measures of every arm of an ablation, key by key: the frame of query x arm x measure that all comparisons start from.

Keys are counted as `evaluate` counts them (jobs/measure/evaluate/per_query.py): judged, in the log, with a committed query.
Arms often have the same list for a query, so each distinct list of a query is measured once.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cluster.errors import ConfigError
from jobs.job.measure_names import check_grades, check_measures, deepest_rank, depths
from jobs.log.judgements import Judgements, Key
from jobs.measure.compare.clusters import Numbers, query_clusters
from jobs.measure.evaluate import judged_rows
from jobs.measure.evaluate.intervals import Floats
from jobs.measure.evaluate.looked import Looked, looked, uneven
from jobs.measure.evaluate.measure import GradedList, measured_lists
from jobs.measure.evaluate.per_query import committed_keys, database
from jobs.measure.evaluate.unknown import UnknownDocuments, unknown_documents
from jobs.runs.folder import RunFolder
from rewriters.normalise import normalise


@dataclass(frozen=True)
class Frame:
    """Values by arm, measure and key, in order of the keys' queries; rejected log rows last."""

    arms: tuple[str, ...]
    measures: tuple[str, ...]
    """As ir_measures prints them; the first one decides."""
    keys: tuple[str, ...]
    """The counted keys."""
    query_ids: tuple[str | None, ...]
    """The query of each; None for a rejected log row."""
    queries: tuple[str | None, ...]
    """The text of each."""
    counts: Numbers
    """(keys,): how often the log has the key's query; 1 for a rejected row."""
    values: Floats
    """(arms, measures, keys): 0 without results."""
    condensed: Floats
    """(arms, measures, keys): of the lists without their unjudged documents (condensed lists: Sakai, Alternatives to Bpref,
    SIGIR 2007), as deep as the ablation holds them."""
    lengths: Numbers
    """(arms, keys): documents of each list, down to `depth`."""
    least: Numbers
    """(arms,): the fewest documents of a list from which something may have been cut off (jobs/measure/evaluate/looked.py)."""
    unjudged: Floats
    """(arms,): share of the results, down to `depth`, without a judgement; NaN for an arm without results."""
    failed: Numbers
    """(arms,): keys whose committed query has no result; they count zero. Rejected rows are not among them."""
    judged: int
    """Number of keys with judgements."""
    missing: int
    """Number of judged keys that are not in the log."""
    not_committed: int
    """Number of judged keys whose query is not committed yet."""
    rejected: int
    """Number of counted keys that are rejected log rows; they count zero."""
    clusters: Numbers
    """(keys,): number of the cluster of near-duplicate queries (jobs/measure/compare/clusters.py); each rejected row is one."""
    depth: int
    """The deepest rank that a measure reads."""
    key: Key
    """What the judgements name."""
    unmatched: tuple[str, str] | None
    """If no judged key is in the log: a key of the judgements and one of the log, as examples."""
    unknown: UnknownDocuments | None = None
    """The judged documents that no index of the config itself has."""

    @cached_property
    def weights(self) -> Floats:
        """Returns (keys,): each key's share of the traffic; a query's traffic is divided among its keys. They sum to 1."""
        keys_of = Counter(self.query_ids)
        share = self.counts / np.array([keys_of[query_id] if query_id else 1 for query_id in self.query_ids], np.float64)
        weights: Floats = share / share.sum()
        return weights

    @cached_property
    def reads(self) -> tuple[int, ...]:
        """Returns the deepest rank that each measure reads."""
        return depths(self.measures)

    def looked(self, arm: int, measure: int) -> Looked | None:
        """Returns how deep a measure looked into the lists of an arm, if they were cut above its depth; None else."""
        return looked(self.lengths[arm], self.least[arm], self.reads[measure])

    def uneven(self, arm: int, other: int, measure: int) -> bool:
        """Returns whether lists of two arms end at different depths above that of a measure, one of them cut."""
        return uneven(self.lengths[arm], self.least[arm], self.lengths[other], self.least[other], self.reads[measure])

    @property
    def drawn(self) -> int:
        """Returns the number of clusters."""
        return int(self.clusters.max(initial=-1)) + 1


def arms_of(run: RunFolder) -> list[dict[str, Any]]:
    """Returns the arms of an ablation, as `run.json` has them.

    Raises:
        ConfigError: the folder is that of a run.
    """
    try:
        arms: list[dict[str, Any]] = run.record["ablation"]["arms"]
    except KeyError:
        raise ConfigError(
            "run-missing", f"{run.storage.root}: is a run, which has no arms; give an ablation's folder"
        ) from None
    return arms


def measure_arms(run: RunFolder, judgements: Judgements, measures: Sequence[str]) -> Frame:
    """Returns the measures of every arm's committed results.

    Memory is that of `values` and `condensed` (8 bytes each per arm, measure and key), 16 bytes per arm and key, some hundred
    bytes per key, and DuckDB's 256 MB.

    Args:
        run: an ablation.
        judgements: of log rows or queries.
        measures: names that ir_measures knows.

    Raises:
        ConfigError: a measure cannot be computed, or files of the ablation cannot be read.
    """
    names = check_measures(measures)
    check_grades(names, judgements)
    arms = arms_of(run)
    with database(run) as connection:
        query_of = judged_rows.query_of(connection, run, judgements)
        keys_of = committed_keys(query_of, judged_rows.not_committed(connection, run))
        unmatched = None if query_of else judged_rows.unmatched(connection, run, judgements)
        rejected = sorted(key for key, query_id in query_of.items() if query_id is None)
        keys = [key for keys in keys_of.values() for key in keys] + rejected
        grid = _Cells(names, [arm["name"] for arm in arms], keys, deepest_rank(names))
        places = {key: place for place, key in enumerate(keys)}
        wanted = {query_id: [(places[key], judgements.grades[key]) for key in of] for query_id, of in keys_of.items()}
        for rows in judged_rows.arm_results(connection, run):
            grid.measure(rows, wanted)
        asked = _asked(connection, run)
    for arm in arms:
        if arm.get("members"):
            grid.choose(arm["name"], arm["members"])
    query_ids = [query_of[key] for key in keys]
    found = [asked[query_id] if query_id else (None, None, 1) for query_id in query_ids]
    with np.errstate(invalid="ignore"):
        unjudged = grid.unjudged.sum(axis=1) / grid.shown.sum(axis=1)
    return Frame(
        arms=tuple(grid.arms),
        measures=names,
        keys=tuple(keys),
        query_ids=tuple(query_ids),
        queries=tuple(query for query, _, _ in found),
        counts=np.array([log_count for _, _, log_count in found], np.int64),
        values=grid.values,
        condensed=grid.condensed,
        lengths=grid.shown,
        least=np.array([_least(arms, arm) for arm in arms], np.int64),
        unjudged=unjudged,
        failed=(grid.shown[:, : len(keys) - len(rejected)] == 0).sum(axis=1),
        judged=len(judgements.grades),
        missing=len(judgements.grades) - len(query_of),
        not_committed=len(query_of) - len(keys),
        rejected=len(rejected),
        clusters=query_clusters([text for _, text, _ in found]),
        depth=grid.depth,
        key=judgements.key,
        unmatched=unmatched,
        unknown=unknown_documents(run, judgements),
    )


def _least(arms: Sequence[Mapping[str, Any]], arm: Mapping[str, Any]) -> int:
    """Returns `Frame.least` of an arm: of one that chooses, the least of its members; 1 where it is not said."""
    members = [one for one in arms if one["name"] in (arm.get("members") or ())]
    return min((_least(arms, one) for one in members), default=int(arm.get("cut_from") or 1))


class _Cells:
    """What is measured of each arm and key, filled table by table."""

    def __init__(self, measures: Sequence[str], arms: Sequence[str], keys: Sequence[str], depth: int) -> None:
        self.measures, self.depth = measures, depth
        self.arms = {name: place for place, name in enumerate(arms)}
        self.values = np.zeros((len(arms), len(measures), len(keys)))
        self.condensed = np.zeros_like(self.values)
        self.shown = np.zeros((len(arms), len(keys)), np.int64)  # documents down to `depth`
        self.unjudged = np.zeros_like(self.shown)

    def measure(self, rows: pa.Table, wanted: Mapping[str, Sequence[tuple[int, Mapping[str, int]]]]) -> None:
        """Measures all results of some queries.

        Args:
            rows: `query_id`, `arm`, `doc_id`, by query, arm and rank.
            wanted: query_id -> places and grades of its keys; other queries are ignored.
        """
        (queries, query), (arms, arm), (docs, doc) = (_encoded(rows.column(name)) for name in ("query_id", "arm", "doc_id"))
        begins = np.flatnonzero(np.diff(query, prepend=-1) | np.diff(arm, prepend=-1)).tolist()
        lists: dict[tuple[int, tuple[str, ...]], tuple[int, GradedList]] = {}  # key and list -> its place among them

        def place_of(key: int, grades: Mapping[str, int], doc_ids: tuple[str, ...]) -> int:
            return lists.setdefault((key, doc_ids), (len(lists), (grades, doc_ids)))[0]

        known: dict[tuple[int, bytes], tuple[int, int, int, int]] = {}
        cells: list[tuple[int, ...]] = []
        for begin, end in zip(begins, [*begins[1:], len(query)], strict=True):
            place = self.arms.get(arms[arm[begin]])
            if place is None:
                continue
            codes = doc[begin:end]
            for key, grades in wanted.get(queries[query[begin]], ()):
                same = (key, codes.tobytes())
                if same not in known:
                    doc_ids = tuple(docs[code] for code in codes.tolist())
                    first = doc_ids[: self.depth]
                    kept = tuple(doc_id for doc_id in doc_ids if doc_id in grades)[: self.depth]
                    without = sum(doc_id not in grades for doc_id in first)
                    known[same] = place_of(key, grades, first), place_of(key, grades, kept), len(first), without
                cells.append((place, key, *known[same]))
        if not cells:
            return
        measured = measured_lists(self.measures, [one for _, one in lists.values()])
        place, key, plain, condensed, shown, unjudged = np.array(cells).T
        self.values[place, :, key] = measured[plain]
        self.condensed[place, :, key] = measured[condensed]
        self.shown[place, key], self.unjudged[place, key] = shown, unjudged

    def choose(self, arm: str, members: Sequence[str]) -> None:
        """Makes an oracle arm: for each key its best member by the first measure, the first of equal ones, in all measures."""
        places = np.array([self.arms[name] for name in members])
        best, keys = places[self.values[places, 0].argmax(axis=0)], np.arange(self.values.shape[2])
        place = self.arms[arm]
        self.values[place], self.condensed[place] = self.values[best, :, keys].T, self.condensed[best, :, keys].T
        self.shown[place], self.unjudged[place] = self.shown[best, keys], self.unjudged[best, keys]


def _encoded(column: pa.ChunkedArray) -> tuple[list[str], np.ndarray]:
    """Returns the distinct texts of a column, and the place of each row's among them."""
    encoded = pc.dictionary_encode(column.combine_chunks())
    return encoded.dictionary.to_pylist(), encoded.indices.to_numpy()


def _asked(connection: duckdb.DuckDBPyConnection, run: RunFolder) -> dict[str, tuple[str, str, int]]:
    """Returns wanted query_id -> the query, its words (those of earlier turns, too) in normal form, and its log_count."""
    context = "context" if run.config.log.context_column is not None else "NULL"
    rows = connection.execute(
        f"SELECT query_id, query, {context}, log_count FROM read_parquet(?) SEMI JOIN wanted USING (query_id)",
        [run.tables["queries"]],
    ).fetchall()
    return {query_id: (query, normalise(f"{before or ''} {query}"), log_count) for query_id, query, before, log_count in rows}
