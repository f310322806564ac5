"""The queries of a run that have errors of some reasons, and what became of them in the replay that did them again."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from cluster.errors import ConfigError, nearest
from jobs.counts import ErrorQueries, counts_of
from jobs.job.replay import NOTED, Replay
from jobs.runs.folder import RunFolder
from jobs.runs.reading import database
from jobs.terminal.formats import queries

_BY_REASON = """
SELECT reason, count(DISTINCT (query_id, stage)) FROM rows_of($files) WHERE query_id IS NOT NULL
GROUP BY reason ORDER BY 2 DESC, 1
"""
_OF_NO_QUERY = "SELECT count(*) FROM rows_of($files) WHERE query_id IS NULL AND reason = $reason"
_OF_REASONS = """
SELECT DISTINCT query_id FROM rows_of($files) WHERE query_id IS NOT NULL AND reason IN (SELECT unnest($reasons))
ORDER BY query_id
"""


def replay_of(run: RunFolder, reasons: Sequence[str]) -> Replay:
    """Returns the replay of a run's queries, of those in committed shards, that have an error or a note of these reasons.

    Raises:
        ConfigError: It is an ablation, or no query has an error of a reason: none has, or rejected rows of the log alone.
    """
    where = run.storage.root
    if run.is_ablation:
        words = "is an ablation, whose arms share their answers; give a run: the config's own arm is one, by dmqr run CONFIG"
        raise ConfigError("argument", f"{where}: {words}")
    files, wanted = run.tables.get("errors", []), sorted(set(reasons))
    known = _by_reason(files)
    for reason in wanted:
        if reason not in known:
            _check_no_rejection(files, reason, where)
            found = nearest(reason, [f"{one} ({count:,})" for one, count in known.items()])
            words = f"no query of {where} has an error of this reason{found}; give one that errors/ has"
            raise ConfigError("argument", f"--reason {reason}: {words}")
    with database() as connection:
        rows = connection.execute(_OF_REASONS, {"files": files, "reasons": wanted}).fetchall()
    query_ids = [query_id for (query_id,) in rows]
    return Replay(run.record["run_id"], where, {one: known[one] for one in wanted}, query_ids, run.plan.thresholds)


def _check_no_rejection(files: Sequence[str], reason: str, where: str) -> None:
    """Refuses a reason for which rows of the log were rejected."""
    if not files:
        return
    with database() as connection:
        (count,) = connection.execute(_OF_NO_QUERY, {"files": list(files), "reason": reason}).fetchone() or (0,)
    if count:
        words = f"{count:,} rows of the log of {where} were rejected so, and are no queries; correct the log, and run it anew"
        raise ConfigError("argument", f"--reason {reason}: {words}")


def _by_reason(files: Sequence[str]) -> dict[str, int]:
    """Returns reason -> the queries that have it, each once a stage, the most first; rejected log rows are no queries."""
    if not files:
        return {}
    with database() as connection:
        return dict(connection.execute(_BY_REASON, {"files": list(files)}).fetchall())


def replay_words(run: RunFolder) -> str | None:
    """Returns whose queries a run does again, and how many have the errors still; None: it is no replay."""
    noted = run.record.get(NOTED)
    if noted is None:
        return None
    now: Counter[str] = Counter()
    for of, count in counts_of(run.counts, ErrorQueries):
        now[of.reason] += count
    changes = ", ".join(f"{reason} {before:,}, now {now[reason]:,}" for reason, before in noted["reasons"].items())
    return f"{queries(noted['queries'])} of {noted['of']}: {changes}"
