"""Measures of ranked lists, computed by ir_measures and under its names, and which of them the lists reach.

A list shorter than a measure reads is whole where it is also shorter than everything that could have cut it: the search found
no more. Else it may have been cut, by `retrieve.depth`, `fuse.depth`, `fuse.keep`, `rerank.keep`, `ablate.keep` or the depth
of a strategy or of a hybrid retriever, and R@100 of lists cut at 10 documents is R@10: with the defaults R@100 of the original
alone was .357, that of its own 100 documents .604 (BM25, 93 queries). Such measures and arms are left out.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from jobs.config.config import Config
from jobs.config.settings import EvaluateSettings
from jobs.job.measure_checks import deeper
from jobs.measure.judged_rows import CountedKeys
from jobs.measure.significance import Floats, Numbers
from jobs.terminal.formats import and_more
from retrievers.ranking import encode

MEASURES: tuple[str, ...] = tuple(EvaluateSettings().measures)  # by default
DEPTH = 10  # the deepest cutoff of one of them
CHUNK = 2000  # lists measured at a time
_POOLED = ("Bpref", "infAP")  # measures that tell documents of the pool that are not judged from those of no relevance

GradedList = tuple[Mapping[str, int], Sequence[str]]  # what a list is measured by, doc_id -> grade, and its doc_ids, best first


def title(name: str) -> str:
    """Returns a measure as it is shown: DMQR-RAG calls Success@5 H@5."""
    return f"{name} (H@5)" if name.startswith("Success") and name.endswith("@5") else name


class ListMeasures:
    """The measures of lists by grades that are given once, as documents are named for trec_eval and for Compat alike."""

    def __init__(self, names: Sequence[str], grades: Iterable[Mapping[str, int]]) -> None:
        """Prepares the measures.

        Args:
            names: measures that ir_measures knows (`check_measures` of jobs/job/measure_checks.py).
            grades: doc_id -> grade, of each list to be measured. One below zero is pooled and not judged for Bpref and infAP,
                as trec_eval has it, else zero: gdeval, which computes ERR, fails on it.
        """
        import ir_measures

        measures = [ir_measures.parse_measure(name) for name in names]
        self._column = {measure: place for place, measure in enumerate(measures)}
        self._numbers: dict[str, str] = {}  # doc_id -> number: trec_eval cuts a text at NUL
        known: dict[tuple[int, int], dict[str, int]] = {}  # by identity: the grades of several lists
        every = list(grades)

        def qrels_from(least: int) -> dict[str, dict[str, int]]:
            for qrels in every:
                if (id(qrels), least) not in known:
                    known[id(qrels), least] = {self._number(doc_id): max(least, grade) for doc_id, grade in qrels.items()}
            return {str(place): known[id(one), least] for place, one in enumerate(every)}

        by_least = {least: [one for one in measures if (one.NAME in _POOLED) == (least < 0)] for least in (0, -1)}
        self._lists = len(every)
        self._evaluators = [ir_measures.evaluator(some, qrels_from(least)) for least, some in by_least.items() if some]

    def __call__(self, lists: Iterable[Sequence[str]]) -> Floats:
        """Returns (lists, measures): the values of the doc_ids of each list, best first; zero for a list without documents."""
        run = {}
        for position, doc_ids in enumerate(lists):
            if doc_ids:
                # strictly falling scores, so that no measure reorders ties; above zero, what Compat takes missing documents for
                numbers = map(self._number, doc_ids)
                run[str(position)] = {number: float(len(doc_ids) - rank) for rank, number in enumerate(numbers)}
        values = np.zeros((self._lists, len(self._column)))
        for metric in (metric for one in self._evaluators for metric in one.iter_calc(run)) if run else ():
            if metric.query_id in run:  # gdeval, which computes ERR, adds a line of means
                values[int(metric.query_id), self._column[metric.measure]] = metric.value
        return values

    def _number(self, doc_id: str) -> str:
        return self._numbers.setdefault(doc_id, str(len(self._numbers)))


def measured_lists(names: Sequence[str], lists: Sequence[GradedList]) -> Floats:
    """Returns (lists, measures): the value of each list; arguments as of `ListMeasures`."""
    chunks = [lists[begin : begin + CHUNK] for begin in range(0, len(lists), CHUNK)]
    values = [ListMeasures(names, [grades for grades, _ in chunk])([doc_ids for _, doc_ids in chunk]) for chunk in chunks]
    return np.concatenate([np.zeros((0, len(names))), *values])


class MeasuredCells:
    """Values of each arm and key, filled table by table."""

    def __init__(self, measures: Sequence[str], arms: Sequence[Mapping[str, Any]], counted: CountedKeys, depth: int) -> None:
        """Begins with zeros; `arms`: as `run.json` records those of an ablation."""
        self.measures, self.records, self.counted, self.depth = tuple(measures), arms, counted, depth
        self.arms = {arm["name"]: place for place, arm in enumerate(arms)}
        self.places = {key: place for place, key in enumerate(counted.keys)}
        self.values = np.zeros((len(arms), len(measures), len(self.places)))
        self.condensed = np.zeros_like(self.values)
        self.shown = np.zeros((len(arms), len(self.places)), np.int64)  # documents down to `depth`
        self.unjudged = np.zeros_like(self.shown)

    def measure(self, rows: pa.Table, judged: Mapping[str, Mapping[str, int]]) -> None:
        """Measures all results of some queries.

        `rows` has `query_id`, `arm` and `doc_id`, by query, arm and rank; `judged`: key -> doc_id -> grade.
        """
        encoded = (encode(rows.column(name).combine_chunks()) for name in ("query_id", "arm", "doc_id"))
        (query, queries), (arm, arms), (doc, docs) = ((codes, names.to_pylist()) for codes, names in encoded)
        begins = np.flatnonzero(np.diff(query, prepend=-1) | np.diff(arm, prepend=-1)).tolist()
        lists: dict[tuple[str, tuple[str, ...]], tuple[int, GradedList]] = {}  # key and list -> its place among them

        def place_of(key: str, doc_ids: tuple[str, ...]) -> int:
            return lists.setdefault((key, doc_ids), (len(lists), (judged[key], doc_ids)))[0]

        known: dict[tuple[str, bytes], tuple[int, int, int, int]] = {}
        cells: list[tuple[int, ...]] = []
        for begin, end in zip(begins, [*begins[1:], len(query)], strict=True):
            arm_number = self.arms.get(arms[arm[begin]])
            if arm_number is None:
                continue
            codes = doc[begin:end]
            for key in self.counted.of_query.get(queries[query[begin]], ()):
                grades, same = judged[key], (key, codes.tobytes())
                if same not in known:
                    doc_ids = tuple(docs[code] for code in codes.tolist())
                    first = doc_ids[: self.depth]
                    kept = tuple(doc_id for doc_id in doc_ids if doc_id in grades)[: self.depth]
                    without = sum(doc_id not in grades for doc_id in first)
                    known[same] = place_of(key, first), place_of(key, kept), len(first), without
                cells.append((arm_number, self.places[key], *known[same]))
        if not cells:
            return
        measured = measured_lists(self.measures, [graded for _, graded in lists.values()])
        arm_number, key, plain, condensed, shown, unjudged = np.array(cells).T
        self.values[arm_number, :, key] = measured[plain]
        self.condensed[arm_number, :, key] = measured[condensed]
        self.shown[arm_number, key], self.unjudged[arm_number, key] = shown, unjudged

    def choose(self, by: int) -> None:
        """Fills oracle arms: for each key the best member by a measure, the first of equal ones, in all measures."""
        keys = np.arange(len(self.places))
        for arm in (arm for arm in self.records if arm.get("members")):
            members = np.array([self.arms[name] for name in arm["members"]])
            best, arm_number = members[self.values[members, by].argmax(axis=0)], self.arms[arm["name"]]
            self.values[arm_number], self.condensed[arm_number] = self.values[best, :, keys].T, self.condensed[best, :, keys].T
            self.shown[arm_number], self.unjudged[arm_number] = self.shown[best, keys], self.unjudged[best, keys]


def reached(
    measures: Sequence[str], reads: Sequence[int], arms: Sequence[str], stay: Collection[str], lengths: Numbers,
    least: Numbers, config: Config, *, is_run: bool,
) -> tuple[list[int], list[int], tuple[str, ...]]:  # fmt: skip
    """Returns places of the arms and measures to compare, no list of which was cut above a depth, and why others are left out.

    A measure that lists of an arm in `stay` do not reach is left out; then an arm that does not reach the first measure; then
    other measures that arms do not reach. `reads`: documents of a list that each measure reads; `lengths`, (arms, keys):
    documents of each list, as far as read; `least`, (arms,): what `cut_from` returns; `config`, `is_run`: see `deeper`.
    """
    lists = {depth: (lengths >= least[:, None]) & (lengths < depth) for depth in set(reads)}
    cut = np.stack([lists[depth].any(axis=1) for depth in reads], axis=1)
    fixed = np.array([arm in stay for arm in arms])
    whole = np.flatnonzero(~cut[fixed].any(axis=0)).tolist()
    left = np.flatnonzero(fixed | ~cut[:, whole[0]]) if whole else np.arange(len(arms))
    kept = [place for place in whole if not cut[left, place].any()]

    def note(names: Sequence[str], depth: int, mine: Sequence[int], suffix: str = "") -> str:
        ends, few = lengths[mine][lists[depth][mine]], int(lists[depth][mine].any(axis=0).sum())
        whose = "every arm" if len(mine) == len(arms) > 2 else and_more([arms[place] for place in mine])
        at = f"{ends.min():,}" + f" to {ends.max():,}" * bool(ends.min() < ends.max())
        why = f"reads {depth:,} documents, lists end at {at} ({whose}; {few:,} of {lengths.shape[1]:,} judged)"
        return f"{suffix}{', '.join(names)}: left out: {why}; {deeper(config, names, ends.min(), is_run=is_run)}"

    notes = []
    for depth in sorted(lists):
        names = [name for place, name in enumerate(measures) if reads[place] == depth and place not in kept]
        mine = [place for place in left.tolist() if lists[depth][place].any()]
        notes += [note(names, depth, mine)] if names else []
    if len(left) < len(arms):
        first = kept[0] if kept else 0
        out = [place for place in range(len(arms)) if place not in left]
        notes.append(note(measures[first : first + 1], reads[first], out, f"{and_more([arms[place] for place in out])}: "))
    return left.tolist(), kept, tuple(notes)
