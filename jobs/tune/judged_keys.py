"""The judged keys of a run that a tuning counts, by query, and what it leaves out."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

import duckdb

from cluster.errors import ConfigError
from jobs.log.judgements import Judgements
from jobs.measure.evaluate import judged_rows
from jobs.measure.evaluate.evaluate import Evaluation
from jobs.measure.evaluate.per_query import committed_keys
from jobs.runs.folder import RunFolder


def judged_keys(
    connection: duckdb.DuckDBPyConnection, run: RunFolder, judgements: Judgements
) -> tuple[dict[str, list[str]], list[str]]:
    """Returns query_id -> its judged keys, of the committed queries, and what is not counted, a sentence each.

    Rejected log rows are left out: no setting can change their zero.

    Raises:
        ConfigError: There are none.
    """
    query_of = judged_rows.query_of(connection, run, judgements)
    pending = judged_rows.not_committed(connection, run)
    keys_of = committed_keys(query_of, pending)
    if not keys_of:
        raise ConfigError("judgements", _nothing(connection, run, judgements, query_of, pending))
    return keys_of, _left_out(judgements, query_of, keys_of)


def _nothing(
    connection: duckdb.DuckDBPyConnection,
    run: RunFolder,
    judgements: Judgements,
    query_of: Mapping[str, str | None],
    pending: Collection[str],
) -> str:
    """Returns why no judged query can be counted, in the words of `evaluate`."""
    judged, waiting = len(judgements.grades), sum(query_id in pending for query_id in query_of.values())
    unmatched = None if query_of else judged_rows.unmatched(connection, run, judgements)
    said = Evaluation(judged, judged - len(query_of), {}, None, None, waiting, unmatched=unmatched, key=judgements.key).warning
    return f"{judgements.path}: {said or 'nothing is measured: all judged log rows were rejected; give other judgements'}"


def _left_out(judgements: Judgements, query_of: Mapping[str, str | None], keys_of: Mapping[str, Sequence[str]]) -> list[str]:
    """Returns what of the judgements is not counted, and how."""
    counted, rejected = sum(map(len, keys_of.values())), sum(one is None for one in query_of.values())
    pending = len(query_of) - rejected - counted
    left = [(len(judgements.grades) - len(query_of), "not in the log"), (rejected, "rejected"), (pending, "not committed yet")]
    words = ", ".join(f"{count:,} {why}" for count, why in left if count)
    notes = [f"left out of what is judged: {words}"] if words else []
    if counted > len(keys_of):
        notes.append(f"a query counts once, with the mean of its judged log rows ({counted:,} of {len(keys_of):,} queries)")
    return notes
