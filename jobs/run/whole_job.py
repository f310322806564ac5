"""Guards over all queries of a job, counted at its end from the stored tables: a resumed job counts as a whole one.

repeated_text   texts that many distinct queries have from one strategy, such as a placeholder in place of a passage
lost_rare_word  queries with a rare word that none of their texts has

Distinct are the normal forms of the queries of the job's own log: the same words of several tenants (`retrieve.filters`) or
after several earlier turns are one, both for texts that are repeated and for words that are rare. A word is kept by its first
letters, an inflection, an abbreviation or a corrected spelling (`rewriters/guards/preserve.py`). Words of fewer than four
characters, without letters, or in scripts without spaces between words are not looked for, nor those of queries without any
text. What people wrote and where the original stands in is no repeated text.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import duckdb

from cluster.cause import one_line
from cluster.errors import ClusterError
from cluster.run.shards import Plan, manifests
from cluster.storage import Storage
from jobs.counts import FlaggedTexts, arm_key
from jobs.job.prepare import Prepared
from jobs.runs.tally import Committed, kept
from jobs.terminal.logs import event
from rewriters.guards.preserve import NAME, Part, lost
from rewriters.settings import GuardSettings

REPEATED, RARE = "repeated_text", "lost_rare_word"
COUNTED = {
    REPEATED: "many queries have the same text",
    RARE: "queries, not texts, with a rare word that none of their texts has",
}
"""What is counted here, with what it says."""
SHOWN = 10  # repeated texts that are named
_PORTION = 50_000  # rows of rewrites/ that are looked at together
_LEAST_CHARS = 4
_FOLDED = "lower(strip_accents({}))"
_WORDS = rf"list_distinct(regexp_extract_all({_FOLDED.format('normalised')}, '[\p{{L}}\p{{M}}\p{{N}}]+'))"  # of a query
_UNSPACED = r"[\p{Han}\p{Hiragana}\p{Katakana}\p{Thai}\p{Lao}\p{Khmer}\p{Myanmar}]"


class TextsOf(NamedTuple):
    """The texts of a run, or of an arm.

    Attributes:
        arm: Its name; None: a run's.
        reading: Value of `rewrites.arm`; None: a run's table has no such column.
        strategies: Those that it has.
    """

    arm: str | None
    reading: str | None
    strategies: tuple[str, ...]

    def key(self, strategy: str, flag: str) -> str:
        """Returns what texts with a flag are counted by."""
        key = FlaggedTexts(strategy, flag).key
        return key if self.arm is None else arm_key(self.arm, key)


def whole_job(prepared: Prepared, plan: Plan) -> dict[str, Any]:
    """Returns `counts` and the most `repeated` texts of a job whose shards are committed; `unknown`: why not."""
    storage, rewrite = prepared.storage, prepared.config.rewrite
    parts = _parts(rewrite.planned, prepared.notes)
    committed = kept(manifests(storage))[0] if parts else []
    if not any(one.files.get("rewrites") for one in committed):
        return {}
    try:
        counts, repeated = _counted(storage, plan, rewrite.guards, committed, parts)
    except (duckdb.Error, OSError, ClusterError) as error:
        why = one_line(error, None)
        event("warning", f"repeated texts and lost rare words are not counted: {why}", logging.WARNING)
        return {"unknown": why}
    return {"counts": dict(counts), "repeated": repeated}


def _parts(strategies: Sequence[str], notes: Mapping[str, Any]) -> list[TextsOf]:
    if "ablation" not in notes:
        return [TextsOf(None, None, tuple(strategies))] if strategies else []
    return [
        TextsOf(arm["name"], arm["rewrites_of"], tuple(arm["strategies"]))
        for arm in notes["ablation"]["arms"]
        if arm["rewrites_of"] is not None and arm["strategies"]
    ]


def _counted(
    storage: Storage, plan: Plan, settings: GuardSettings, committed: Sequence[Committed], parts: Sequence[TextsOf]
) -> tuple[Counter[str], list[dict[str, Any]]]:
    from jobs.runs.reading import database, portions

    counts: Counter[str] = Counter()
    repeated: list[dict[str, Any]] = []
    with database() as connection:
        connection.execute(
            "CREATE TEMP TABLE queries AS SELECT query_id, normalised FROM rows_of(?)",
            [[storage.url(file.key) for file in plan.tables["queries"]]],
        )
        if settings.repeated is not None:
            files = [storage.url(file.key) for one in committed for file in one.files.get("rewrites", ())]
            _find_repeated(connection, files, settings.repeated, by_arm=parts[0].reading is not None)
            for part in parts:
                for strategy, texts in _repeated_counts(connection, part):
                    counts[part.key(strategy, REPEATED)] += texts
            names = ("strategy", "text", "queries")
            rows = connection.execute(
                "SELECT strategy, text, max(queries) FROM repeated GROUP BY ALL ORDER BY 3 DESC, 1, 2 LIMIT ?", [SHOWN]
            )
            repeated = [dict(zip(names, row, strict=True)) for row in rows.fetchall()]
        if settings.rare_words:
            _find_common(connection, settings.rare_words)
            for portion in portions(committed, "rewrites", _PORTION):
                files = [storage.url(file.key) for one in portion for file in one.files.get("rewrites", ())]
                for part in parts if files else ():
                    found = len(
                        {query_id for query_id, word, texts in _candidates(connection, files, part) if _lost(word, texts)}
                    )
                    counts[part.key("", RARE)] += found
    return +counts, repeated


def _find_repeated(connection: duckdb.DuckDBPyConnection, files: list[str], least: int, *, by_arm: bool) -> None:
    """Makes the table `repeated`: arm, strategy, text, numbers of queries and of texts; first by hashes, which are small."""
    arm = "arm" if by_arm else "NULL::VARCHAR"
    texts = f"""
        SELECT {arm} AS reading, strategy, query_id, text FROM rows_of($files)
        WHERE parsed_as NOT IN ('original', 'override')
    """
    connection.execute(
        f"""
        CREATE TEMP TABLE repeated AS
        WITH frequent AS (
            SELECT reading, strategy, hash(text) AS key FROM ({texts}) GROUP BY ALL HAVING count(*) >= $least
        ),
        found AS MATERIALIZED (
            FROM ({texts}) AS t WHERE EXISTS (
                FROM frequent AS f
                WHERE f.reading IS NOT DISTINCT FROM t.reading AND f.strategy = t.strategy AND f.key = hash(t.text)
            )
        )
        SELECT reading, strategy, text, count(DISTINCT normalised) AS queries, count(*) AS texts
        FROM found JOIN queries USING (query_id) GROUP BY ALL HAVING queries >= $least
        """,
        {"files": files, "least": least},
    )


def _repeated_counts(connection: duckdb.DuckDBPyConnection, part: TextsOf) -> list[tuple[str, int]]:
    rows: list[tuple[str, int]] = connection.execute(
        """
        SELECT strategy, sum(texts)::BIGINT FROM repeated
        WHERE reading IS NOT DISTINCT FROM ? AND strategy IN (SELECT unnest(?)) GROUP BY strategy ORDER BY strategy
        """,
        [part.reading, list(part.strategies)],
    ).fetchall()
    return rows


def _find_common(connection: duckdb.DuckDBPyConnection, share: float) -> None:
    """Makes the table `common`: the words that more than a share of all distinct queries have."""
    connection.execute(
        f"""
        CREATE TEMP TABLE common AS
        WITH asked AS (SELECT DISTINCT normalised FROM queries)
        SELECT word FROM (SELECT unnest({_WORDS}) AS word FROM asked)
        GROUP BY word HAVING count(*) > ? * (SELECT count(*) FROM asked)
        """,
        [share],
    )


def _candidates(connection: duckdb.DuckDBPyConnection, files: list[str], part: TextsOf) -> Iterator[tuple[str, str, list[str]]]:
    """Yields (query_id, rare word, texts) where no text has the first letters of the word."""
    by_arm = "" if part.reading is None else "AND arm = $reading"
    rows = connection.execute(
        rf"""
        WITH texts AS (
            SELECT query_id, list(text) AS texts, string_agg({_FOLDED.format("text")}, chr(10)) AS folded
            FROM rows_of($files) WHERE strategy IN (SELECT unnest($strategies)) {by_arm} GROUP BY query_id
        ),
        rare AS (
            SELECT query_id, unnest({_WORDS}) AS word
            FROM queries WHERE query_id IN (SELECT query_id FROM texts)
        )
        SELECT query_id, word, texts FROM rare JOIN texts USING (query_id) ANTI JOIN common USING (word)
        WHERE length(word) >= {_LEAST_CHARS} AND regexp_matches(word, '\p{{L}}') AND NOT regexp_matches(word, '{_UNSPACED}')
        AND NOT contains(folded, left(word, greatest({_LEAST_CHARS}, ceil(length(word) * 0.6)::BIGINT)))
        """,
        {"files": files, "strategies": list(part.strategies)} | ({} if part.reading is None else {"reading": part.reading}),
    )
    while some := rows.fetchmany(1000):
        yield from some


def _lost(word: str, texts: Sequence[str]) -> bool:
    part = [Part(NAME, word, word)]
    return all(lost(text, part) for text in texts)
