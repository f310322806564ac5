"""Measures of ranked lists, computed by hand."""

from math import log2


def by_hand(grades: dict[str, int], ranked: list[str]) -> list[float]:
    """MEASURES in order. nDCG@10: gain the grade, discount log2(rank + 1); relevant: grade 1 and more."""
    gains = [max(0, grades.get(doc_id, 0)) / log2(rank + 1) for rank, doc_id in enumerate(ranked[:10], 1)]
    ideal = [max(0, grade) / log2(rank + 1) for rank, grade in enumerate(sorted(grades.values(), reverse=True)[:10], 1)]
    hits = [grades.get(doc_id, 0) > 0 for doc_id in ranked]
    relevant = sum(grade > 0 for grade in grades.values())
    first = hits.index(True) + 1 if True in hits[:10] else 0
    return [
        sum(gains) / sum(ideal),
        sum(hits[:10]) / relevant,
        sum(hits[:5]) / 5,
        float(any(hits[:5])),
        1 / first if first else 0.0,
    ]
