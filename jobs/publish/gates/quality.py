"""The gate of quality: the served hits of judged queries, else the best scores of the reranker."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from jobs.config.publish import PublishGates
from jobs.log.judgements import Judgements
from jobs.measure import judged_rows
from jobs.measure.frame import Frame, measure
from jobs.measure.list_portions import lists_known
from jobs.measure.measures import measured_lists
from jobs.publish.export import ExportRecord
from jobs.publish.gates.gate import GateResult
from jobs.runs.folder import RunFolder
from jobs.runs.reading import database
from jobs.terminal.formats import figure

_SERVED = """
SELECT query_id, list(doc_id ORDER BY rank) FROM rows_of($results) SEMI JOIN wanted USING (query_id)
WHERE rank <= $hits GROUP BY query_id
"""
_NAME = "quality"
_ROUNDING = 1e-9
Docs = Mapping[str, Sequence[str]]


def quality(
    run: RunFolder,
    record: ExportRecord,
    gates: PublishGates,
    judgements: Judgements | None,
    before: ExportRecord | None,
    served: Path | None,
) -> GateResult:
    """Returns what the quality of the served hits says.

    A judge grades the results of its own run. What the original alone finds is not held against them, and the promoted version
    on those queries alone whose documents there it has graded, too: ungraded ones would count as not relevant.

    Args:
        run: Of the version.
        record: Its export.
        gates: The bounds.
        judgements: Of its queries; None: the reranker's scores count.
        before: The promoted version; None: nothing is promoted.
        served: A local file of what that serves (`jobs.publish.target.SERVED`); None: it was exported without rows.
    """
    if judgements is None:
        return _by_reranker(record, gates, before)
    bound, hits, name = gates.quality, record.choices["hits"], judgements.measures(run.config.evaluate.measures)[0]
    frame = measure(run, judgements, [name], alone=False)
    if not frame.keys:
        return _not_measured("no judged query is in the log", bound.floor)
    own = _means(frame, name, judgements, _own(run, hits, frame))
    mean = float(own.mean())
    said = f"{name} of the served hits is {figure(mean)} over {len(frame.keys):,} judged keys"
    checks: list[tuple[str, bool]] = []
    if bound.floor is not None:
        checks.append((f"at least {figure(bound.floor)}", mean >= bound.floor))
    if bound.below_original is not None and judgements.judge is not None:
        said += ", not held against the original alone, whose list no judge has graded"
    elif bound.below_original is not None and lists_known(run):
        least = float(_means(frame, name, judgements, _alone(run, hits, frame)).mean()) - bound.below_original
        checks.append(
            (f"at least {figure(least)}, as {_less('the original alone', bound.below_original)}", mean >= least - _ROUNDING)
        )
    if bound.below_promoted is not None and before is not None and served is not None:
        old = _old(served, frame)
        both = [place for place, query_id in enumerate(frame.query_ids) if query_id in old]
        told = both if judgements.judge is None else [place for place in both if _graded(frame, place, judgements, old)]
        if len(told) < len(both):
            less = f"{before.version} on {len(both) - len(told):,} of {len(both):,} queries that both have"
            said += f", not held against {less}: the judge has not graded all documents there"
        if told:
            now, then = float(own[told].mean()), float(_means(frame, name, judgements, old)[told].mean())
            which = (
                f"{len(told):,} of them that {before.version} has, too" if len(told) == len(both) else f"other {len(told):,}"
            )
            words = f"{figure(now)} on the {which}, at least"
            words += f" {figure(then - bound.below_promoted)}, as {_less('that', bound.below_promoted)}"
            checks.append((words, now >= then - bound.below_promoted - _ROUNDING))
    return _result(mean, said, checks)


def _by_reranker(record: ExportRecord, gates: PublishGates, before: ExportRecord | None) -> GateResult:
    found, bound = record.best_scores, gates.quality
    if found is None:
        return _not_measured("there are no judgements and no reranker's scores to measure it by", bound.floor)
    if bound.floor is not None:
        return _not_measured("there are no judgements to measure it by", bound.floor)
    mean, said = (
        found["mean"],
        f"the mean of the best reranker scores is {figure(found['mean'])} over {found['queries']:,} queries",
    )
    checks: list[tuple[str, bool]] = []
    old = None if before is None else before.best_scores
    if bound.below_promoted is not None and before is not None and old is not None and old["by"] == found["by"]:
        hits, of_old = record.choices["hits"], before.choices["hits"]
        if hits != of_old:  # the best of more hits is never worse
            words = f"{said}, not held against {before.version}, which has {of_old} hits of a query in place of {hits}"
            return _result(mean, words, checks)
        least = old["mean"] - bound.below_promoted
        checks.append(
            (f"at least {figure(least)}, as {_less(before.version, bound.below_promoted)}", mean >= least - _ROUNDING)
        )
    return _result(mean, said, checks)


def _not_measured(why: str, floor: float | None) -> GateResult:
    """Returns what the gate says where the measure is not known: with a floor it does not hold."""
    if floor is None:
        return GateResult(_NAME, True, None, why)
    return GateResult(_NAME, False, None, f"{why}, and it must be at least {figure(floor)} (floor)")


def _result(mean: float, said: str, checks: Sequence[tuple[str, bool]]) -> GateResult:
    if not checks:
        return GateResult(_NAME, True, mean, f"{said}, and there is nothing to hold it against")
    failed = [words for words, passed in checks if not passed]
    return GateResult(
        _NAME, not failed, mean, f"{said}, {'; '.join(failed or [words for words, _ in checks])}".replace("; ", " and ")
    )


def _less(of: str, tolerance: float) -> str:
    return f"{of} has {figure(tolerance)} more" if tolerance else f"{of} has"


def _means(frame: Frame, name: str, judgements: Judgements, docs: Docs) -> Any:
    """Returns the measure of each judged key by what is served for its query."""
    pairs = zip(frame.keys, frame.query_ids, strict=True)
    lists = [(judgements.grades[key], list(docs.get(query_id or "", ()))) for key, query_id in pairs]
    return measured_lists([name], lists)[:, 0]


def _graded(frame: Frame, place: int, judgements: Judgements, docs: Docs) -> bool:
    """Returns whether the judge graded all documents of a key's query that the measure reads."""
    served = docs[frame.query_ids[place] or ""][: frame.depth]
    return all(doc_id in judgements.grades[frame.keys[place]] for doc_id in served)


def _own(run: RunFolder, hits: int, frame: Frame) -> dict[str, list[str]]:
    if not (results := run.tables.get("results")):
        return {}
    return _found(frame, lambda connection: connection.execute(_SERVED, {"results": results, "hits": hits}))


def _alone(run: RunFolder, hits: int, frame: Frame) -> dict[str, list[str]]:
    """Returns what the original alone finds, cut as the served hits are."""
    found: dict[str, list[str]] = {}
    with judged_rows.database(run) as connection:
        connection.register("wanted", _wanted(frame))
        for rows in judged_rows.originals(connection, run, min(run.config.results, hits)):
            for query_id, doc_id in zip(rows.column("query_id").to_pylist(), rows.column("doc_id").to_pylist(), strict=True):
                found.setdefault(query_id, []).append(doc_id)
    return found


def _old(served: Path, frame: Frame) -> dict[str, list[str]]:
    sql = "SELECT key, docs FROM rows_of($old) SEMI JOIN wanted ON key = query_id"
    return _found(frame, lambda connection: connection.execute(sql, {"old": str(served)}))


def _found(frame: Frame, asked: Callable[[Any], Any]) -> dict[str, list[str]]:
    """Returns query_id -> documents, of the judged queries."""
    with database() as connection:
        connection.register("wanted", _wanted(frame))
        return dict(asked(connection).fetchall())


def _wanted(frame: Frame) -> pa.Table:
    wanted = sorted({query_id for query_id in frame.query_ids if query_id is not None})
    return pa.table({"query_id": pa.array(wanted, pa.string())})
