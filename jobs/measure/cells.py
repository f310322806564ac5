"""The cells of a frame of lists: what is measured of each arm and key, table by table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from jobs.measure.measures import GradedList, measured_lists


class MeasuredCells:
    """What is measured of each arm and key, filled table by table."""

    def __init__(self, measures: Sequence[str], arms: Sequence[str], keys: Sequence[str], depth: int) -> None:
        """Begins with zeros."""
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

    def choose(self, arm: str, members: Sequence[str], by: int) -> None:
        """Makes an oracle arm: for each key its best member by a measure, the first of equal ones, in all measures."""
        places = np.array([self.arms[name] for name in members])
        best, keys = places[self.values[places, by].argmax(axis=0)], np.arange(self.values.shape[2])
        place = self.arms[arm]
        self.values[place], self.condensed[place] = self.values[best, :, keys].T, self.condensed[best, :, keys].T
        self.shown[place], self.unjudged[place] = self.shown[best, keys], self.unjudged[best, keys]


def _encoded(column: pa.ChunkedArray) -> tuple[list[str], np.ndarray]:
    """Returns the distinct texts of a column, and the place of each row's among them."""
    encoded = pc.dictionary_encode(column.combine_chunks())
    return encoded.dictionary.to_pylist(), encoded.indices.to_numpy()
