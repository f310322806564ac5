"""The candidates of an arm after a further round: those of before and those of the refined query, merged."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import pyarrow as pa

from jobs.chain.arms.shared_work import Answer
from rewriters.steps.settings import IterateSettings

Row = dict[str, Any]


class QueryCandidates(NamedTuple):
    """What was found for a query, as Python values.

    Attributes:
        documents: Distinct, as `DOCUMENT`.
        fused: As `FUSED`, in order of arms and ranks.
        scores: As `PAIR_SCORE`; None without a reranker, or where it failed.
    """

    documents: list[Row]
    fused: list[Row]
    scores: list[Row] | None


Rankings = dict[int, list[list[Row]]]
"""Index of an arm -> its fused candidates of each round so far, that before the first round included."""


def merged(
    before: QueryCandidates,
    more: QueryCandidates,
    arms: Mapping[int, tuple[int, Answer, IterateSettings]],
    rankings: Rankings,
) -> QueryCandidates:
    """Returns the candidates of a query with those of a round.

    `best`: a document keeps its best fused score. `fuse`: the rankings of all rounds are fused by RRF, sum of 1 / (k + rank)
    (Cormack et al., SIGIR 2009). Equal scores are in order of doc_id.

    Args:
        before: Of all arms.
        more: Of the round.
        arms: Index of an arm in `more` -> its index in `before`, the arm, and how its rounds are merged.
        rankings: Of the query; that of this round is added.
    """
    documents = [dict(one) for one in before.documents]
    place = {one["doc_id"]: number for number, one in enumerate(documents)}
    for one in more.documents:
        number = place.setdefault(one["doc_id"], len(documents))
        if number == len(documents):
            documents.append({"doc_id": one["doc_id"], "scored_by": []})
        documents[number]["scored_by"] = sorted({*documents[number]["scored_by"], *one["scored_by"]})
    by_arm: dict[int, list[Row]] = {}
    for one in before.fused:
        by_arm.setdefault(one["arm"], []).append(one)
    for own, (number, answer, settings) in arms.items():
        found = [
            one | {"document": place[more.documents[one["document"]]["doc_id"]]} for one in more.fused if one["arm"] == own
        ]
        of_arm = rankings.setdefault(number, [by_arm.get(number, [])])
        if found:
            of_arm.append([one | {"arm": number} for one in found])
            by_arm[number] = _merged(of_arm, documents, answer, settings)
    scores = {(one["reranker"], one["document"]): one for one in before.scores or ()}
    for one in more.scores or ():
        at = place[more.documents[one["document"]]["doc_id"]]
        scores.setdefault((one["reranker"], at), one | {"document": at})
    fused = [one for number in sorted(by_arm) for one in by_arm[number]]
    known = before.scores is not None or more.scores is not None
    return QueryCandidates(documents, fused, list(scores.values()) if known else None)


def _merged(
    rankings: Sequence[Sequence[Row]], documents: Sequence[Row], answer: Answer, settings: IterateSettings
) -> list[Row]:
    found: dict[int, Row] = {}
    for ranking in rankings:
        for rank, one in enumerate(ranking, start=1):
            score = one["score"] if settings.merge == "best" else 1.0 / (answer.fuse.k + rank)
            if (known := found.get(one["document"])) is None:
                found[one["document"]] = one | {"score": score}
                continue
            sources = None if one["sources"] is None else [*(known["sources"] or ()), *one["sources"]]
            both = max(known["score"], score) if settings.merge == "best" else known["score"] + score
            found[one["document"]] = known | {"score": both, "sources": sources}
    ordered = sorted(found.values(), key=lambda one: (-one["score"], documents[one["document"]]["doc_id"]))
    return ordered[: answer.fuse.keep]


def candidates_of(table: pa.Table) -> list[QueryCandidates]:
    """Returns the candidates of each query of a block."""
    columns = [table.column(name).to_pylist() for name in ("documents", "fused")]
    scores = table.column("scores").to_pylist() if "scores" in table.column_names else [None] * table.num_rows
    return [QueryCandidates(*of_row) for of_row in zip(*columns, scores, strict=True)]
