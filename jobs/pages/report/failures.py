"""Errors of queries and log rows by reason, with a few examples of each."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from jobs.counts import ErrorCount, counts_of
from jobs.pages.report.figures import Case, Figures
from jobs.runs.folder import RunFolder
from jobs.runs.reading import database, files, queries_of
from jobs.runs.tally import Committed

EXAMPLES = 3
RAW_CHARACTERS = 600
AT_THE_END = ("truncated", "repetition")  # reasons of answers whose end says more than their beginning


@dataclass(frozen=True)
class Excerpt:
    """A part of a text, and the number of its characters `before` and `after` the part."""

    text: str
    before: int = 0
    after: int = 0


@dataclass(frozen=True)
class Example:
    """One answer or log row with an error. Texts are None if the report leaves texts out or the run has none."""

    about: str
    """query_id or log_id."""
    query: str | None
    message: str | None
    raw: Excerpt | None
    strategies: list[str]
    """Those that failed by it."""


@dataclass(frozen=True)
class Failure:
    """A reason, the number of queries or log rows, and examples."""

    case: Case
    examples: list[Example]


@dataclass(frozen=True)
class Failures:
    """Errors of queries (failures, then notes) and of log rows, by reason."""

    queries: list[Failure]
    log_rows: list[Failure]
    failed_ids: dict[str, int]
    """query_id -> shard, of the examples that are failures, not notes."""


def failures(figures: Figures, *, texts: bool) -> Failures:
    """Returns the errors of a run by reason, and with `texts` those of the examples."""
    run = figures.run
    found = _of_queries(figures)
    wanted: dict[int, set[str]] = {}
    for examples in found.values():
        for shard, example in examples:
            wanted.setdefault(shard, set()).add(example.about)
    queries = {}
    if texts:
        for shard, ids in wanted.items():
            queries.update({query_id: query for query_id, query, _ in queries_of(run, shard) if query_id in ids})
    of_queries = []
    failed = {}
    for case in figures.cases:
        cases = found.get((case.stage, case.reason), [])
        of_queries.append(Failure(case, [_told(one, queries.get(one.about), texts=texts) for _, one in cases]))
        if not case.note:
            failed.update({one.about: shard for shard, one in cases})
    return Failures(of_queries, _of_log_rows(run, texts=texts), failed)


def _of_queries(figures: Figures) -> dict[tuple[str, str], list[tuple[int, Example]]]:
    """Returns up to EXAMPLES (shard, example) of each (stage, reason), from as few shards as possible."""
    run = figures.run
    missing = {(one.stage, one.reason): EXAMPLES for one in figures.cases}
    read: list[Committed] = []
    for manifest in run.manifests:
        here = {key: count for key, count in _least(manifest.counts).items() if missing.get(key, 0) > 0}
        if here and "errors" in manifest.files:
            read.append(manifest)
            for key, count in here.items():
                missing[key] -= count
    found: dict[tuple[str, str], list[tuple[int, Example]]] = {}
    query = f"""
        SELECT stage, reason, query_id, min(message), {_excerpt("raw")}, list(component) FROM rows_of(?)
        GROUP BY stage, reason, query_id, raw
        QUALIFY row_number() OVER (PARTITION BY stage, reason ORDER BY query_id, raw) <= {EXAMPLES} ORDER BY query_id, raw
    """
    place = {name: number for number, name in enumerate(figures.strategies)}
    with database() as connection:
        for manifest in read:
            rows = connection.execute(query, [files(run, "errors", [manifest])]).fetchall()
            for stage, reason, query_id, message, raw, components in rows:
                examples = found.setdefault((stage, reason), [])
                strategies = sorted(filter(None, components), key=lambda name: (place.get(name, len(place)), name))
                if len(examples) < EXAMPLES:
                    examples.append((manifest.shard, Example(query_id, None, message, _read(raw), strategies)))
    return found


def _least(counts: Mapping[str, int]) -> dict[tuple[str, str], int]:
    """Returns (stage, reason) -> the least number of queries of a shard that have it."""
    least: dict[tuple[str, str], int] = {}
    for of, count in counts_of(counts, ErrorCount):
        least[of.stage, of.reason] = max(count, least.get((of.stage, of.reason), 0))
    return least


def _of_log_rows(run: RunFolder, *, texts: bool) -> list[Failure]:
    """Returns the rejected log rows by reason; there may be millions, so DuckDB counts them and takes the first by log_id."""
    names = [run.storage.url(file.key) for file in run.plan.tables.get("errors", []) if file.rows]
    if not names:
        return []
    query = f"""
        SELECT stage, reason, count(*),
            min_by({{'about': log_id, 'message': message, 'raw': {_excerpt("raw")}}}, log_id, {EXAMPLES})
        FROM rows_of(?) GROUP BY ALL ORDER BY count(*) DESC, reason
    """
    with database() as connection:
        rows = connection.execute(query, [names]).fetchall()
    return [
        Failure(
            Case(stage, reason, count, {}),
            [_told(Example(one["about"], None, one["message"], _read(one["raw"]), []), None, texts=texts) for one in cases],
        )
        for stage, reason, count, cases in rows
    ]


def _excerpt(column: str) -> str:
    """Returns SQL for the telling part of a text, with the length of the whole."""
    part = f"CASE WHEN reason IN {AT_THE_END} THEN right({column}, {RAW_CHARACTERS}) ELSE left({column}, {RAW_CHARACTERS}) END"
    return f"{{'text': {part}, 'end': reason IN {AT_THE_END}, 'length': length({column})}}"


def _read(excerpt: dict[str, object]) -> Excerpt | None:
    text, length = excerpt["text"], excerpt["length"]
    if not isinstance(text, str) or not isinstance(length, int):
        return None
    rest = length - len(text)
    return Excerpt(text, before=rest) if excerpt["end"] else Excerpt(text, after=rest)


def _told(one: Example, query: str | None, *, texts: bool) -> Example:
    return replace(one, query=query) if texts else replace(one, message=None, raw=None)
