"""Errors of queries and log rows by reason, with a few examples of each."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from jobs.counts import ErrorCount, ErrorQueries, counts_of
from jobs.pages.render import Code, Head, Section, Table, share
from jobs.pages.summary import guard_words
from jobs.runs.folder import RunFolder
from jobs.runs.reading import database, files
from jobs.tables import NOTES
from jobs.terminal.formats import count, percent, queries

EXAMPLES = 3
CHARACTERS = 600  # of an answer
AT_THE_END = ("truncated", "repetition")  # reasons of answers whose end says more than their beginning


class Example(NamedTuple):
    """One answer or log row with an error, by query_id or log_id."""

    about: str
    strategies: str
    message: str
    raw: str


def cases(run: RunFolder) -> list[tuple[str, str, int, Mapping[str, int]]]:
    """Returns the errors by stage and reason, failures before notes: the queries with it, and strategy -> rewrites lost to it.

    An answer that lacks several rewrites counts once.
    """
    order = {name: place for place, name in enumerate(run.config.rewrite.planned)}
    lost: dict[tuple[str, str], dict[str, int]] = {}
    for of, number in sorted(counts_of(run.counts, ErrorCount), key=lambda one: order.get(one[0].component, len(order))):
        lost.setdefault((of.stage, of.reason), {}).update({of.component: number} if of.component else {})
    found = [(*key, run.counts[ErrorQueries(*key).key], by) for key, by in lost.items()]
    return sorted(found, key=lambda case: (case[1] in NOTES, -case[2], case[0], case[1]))


def examples(run: RunFolder) -> dict[tuple[str, str], list[Example]]:
    """Returns up to EXAMPLES of each (stage, reason), from as few shards as possible."""
    missing, read = {(stage, reason): EXAMPLES for stage, reason, *_ in cases(run)}, []
    for manifest in run.manifests:
        here: dict[tuple[str, str], int] = {}
        for of, number in counts_of(manifest.counts, ErrorCount):
            here[of.stage, of.reason] = max(number, here.get((of.stage, of.reason), 0))
        if "errors" in manifest.files and any(missing.get(key, 0) > 0 for key in here):
            read.append(manifest)
            missing = {key: left - here.get(key, 0) for key, left in missing.items()}
    found: dict[tuple[str, str], list[Example]] = {}
    query = f"""
        SELECT stage, reason, query_id, list_sort(list_distinct(list(component))), min(message), {_EXCERPT} FROM rows_of(?)
        GROUP BY stage, reason, query_id, raw
        QUALIFY row_number() OVER (PARTITION BY stage, reason ORDER BY query_id, raw) <= {EXAMPLES} ORDER BY query_id, raw
    """
    with database() as connection:
        for manifest in read:
            rows = connection.execute(query, [files(run, "errors", [manifest])]).fetchall()
            for stage, reason, query_id, names, message, raw in rows:
                one = Example(query_id, ", ".join(filter(None, names)), message or "", raw or "")
                of_reason = found.setdefault((stage, reason), [])
                of_reason += [one] * (len(of_reason) < EXAMPLES)
    return found


def errors_section(run: RunFolder, found: Mapping[tuple[str, str], list[Example]], *, texts: bool) -> Section:
    """Returns the section on errors; without `texts` the examples are ids."""
    known = cases(run)
    names: dict[str, str] = {}
    if texts and found:
        query = "SELECT query_id, query FROM rows_of(?) WHERE query_id IN (SELECT unnest(?))"
        with database() as connection:
            ids = [one.about for of in found.values() for one in of]
            names = dict(connection.execute(query, [run.tables["queries"], ids]).fetchall())
    counts, total = run.counts, run.counts["queries"]
    rows = [
        [
            reason + " (a note, no failure)" * (reason in NOTES), stage, number, number / total if total else None,
            ", ".join(f"{name} {n:,}" for name, n in lost.items()) or None,
        ]
        for stage, reason, number, lost in known
    ]  # fmt: skip
    columns = [Head("reason"), Head("stage"), Head("queries", count), Head("share of queries", share)]
    parts: list[Table | Code] = [Table([*columns, Head("rewrites lost, by strategy")], rows)] if rows else []
    for stage, reason, *_ in known:
        shown = [_words(example, names.get(example.about), texts) for example in found.get((stage, reason), ())]
        parts += [Code(f"Examples: {reason} in {stage}", "\n\n".join(shown))] if shown else []
    rejected = _rejected(run)
    if rejected:
        columns = [Head("rejected log rows"), Head("rows", count)]
        parts.append(Table(columns, [[reason, number] for reason, number, _ in rejected]))
        for reason, _, of in rejected:
            parts.append(Code(f"Examples: {reason}", "\n\n".join(_words(example, None, texts) for example in of)))
    failed, planned = counts["failed_queries"], run.plan.counts
    words = "No query has an error."
    if failed:
        words = f"{queries(failed)} of {total:,} ({percent(failed / total)}) have an error; "
        words += "they have results all the same if any list had a hit."
    words += f" {planned['rejected']:,} of {planned['log_rows']:,} log rows were rejected." if planned["rejected"] else ""
    if guards := guard_words(run):
        words += f" Guards: {guards}."
    return Section("errors", "Errors", words, parts)


def _rejected(run: RunFolder) -> list[tuple[str, int, list[Example]]]:
    """Returns reason, number and examples of rejected log rows; there may be millions, so DuckDB counts them."""
    names = [run.storage.url(file.key) for file in run.plan.tables.get("errors", []) if file.rows]
    query = f"""
        SELECT reason, count(*), min_by({{'about': log_id, 'message': message, 'raw': {_EXCERPT}}}, log_id, {EXAMPLES})
        FROM rows_of(?) GROUP BY reason ORDER BY count(*) DESC, reason
    """
    with database() as connection:
        rows = connection.execute(query, [names]).fetchall() if names else []
    return [
        (reason, number, [Example(one["about"], "", one["message"] or "", one["raw"] or "") for one in of])
        for reason, number, of in rows
    ]


_EXCERPT = (
    f"CASE WHEN reason IN {AT_THE_END} AND length(raw) > {CHARACTERS} THEN '… ' || right(raw, {CHARACTERS}) "
    f"WHEN length(raw) > {CHARACTERS} THEN left(raw, {CHARACTERS}) || ' …' ELSE raw END"
)
"""SQL for the telling part of an answer."""


def _words(one: Example, query: str | None, texts: bool) -> str:
    if not texts:
        return one.about
    lines = [("id", one.about), ("query", query), ("strategies", one.strategies), ("message", one.message), ("answer", one.raw)]
    return "\n".join(f"{name}: {words}" for name, words in lines if words)
