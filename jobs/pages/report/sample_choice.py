"""The choice of sample queries: some that failed, gained most, lost most and were asked most, and others evenly spread.

The choice is deterministic for a run and its judgements.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Mapping

from jobs.pages.report.judged_queries import Judged
from jobs.runs.folder import RunFolder
from jobs.runs.reading import database, queries_of, spread

SHARDS = 25  # to take evenly spread samples from; the lists of each are read
KINDS = 5  # errors, gain, loss, traffic, spread: each has an equal part of the samples

Chosen = tuple[str, str, int]  # query_id, query, log_count


def choose(run: RunFolder, failed: Mapping[str, int], judged: Judged | None, count: int) -> dict[int, list[Chosen]]:
    """Returns shard -> the sample queries, `count` at most; `failed`: query_id -> shard of queries with errors."""
    committed = {manifest.shard for manifest in run.manifests if manifest.counts["queries"]}
    if not count or not committed:
        return {}
    part = count // KINDS
    chosen: dict[int, dict[str, Chosen]] = {}
    notable = list(failed)[: max(1, part)]
    if judged is not None:
        gains = judged.by_gain()
        notable += [query_id for query_id, gain in gains[:part] if gain > 0]
        notable += [query_id for query_id, gain in gains[::-1][:part] if gain < 0]
    for shard, one in _located(run, notable, part):
        if shard in committed:
            chosen.setdefault(shard, {})[one[0]] = one
    wanted = count - sum(map(len, chosen.values()))
    enough = max(SHARDS, 2 * -(-wanted // run.plan.shard_size))  # more shards if they are small and cheap to read
    shards = spread(sorted(committed), min(enough, max(1, wanted)))
    rows = {one.number: one.rows for one in run.plan.shards}
    quotas = _quotas([rows[shard] - len(chosen.get(shard, ())) for shard in shards], wanted)
    for shard, quota in zip(shards, quotas, strict=True):
        mine = chosen.get(shard, {})
        others = spread([row for row in queries_of(run, shard) if row[0] not in mine], quota) if quota else []
        chosen[shard] = mine | {row[0]: row for row in others}
    return {shard: sorted(chosen[shard].values()) for shard in sorted(chosen) if chosen[shard]}


def _located(run: RunFolder, query_ids: Iterable[str], most_asked: int) -> list[tuple[int, Chosen]]:
    """Returns (shard, query) of these queries, and of those asked most often."""
    places: dict[str, list[tuple[int, int]]] = {}  # file -> (first row, number) of its shards, each of which is a row group
    ends: dict[str, int] = {}
    for shard in sorted(run.plan.shards, key=lambda one: (one.key, one.row_group)):
        begin = ends.get(shard.key, 0)
        places.setdefault(run.storage.url(shard.key), []).append((begin, shard.number))
        ends[shard.key] = begin + shard.rows
    source = "SELECT query_id, query, log_count, filename, file_row_number AS row FROM "
    source += "read_parquet($names, filename = true, file_row_number = true, hive_partitioning = false)"
    names, found = sorted(places), []
    ids = list(dict.fromkeys(query_ids))
    more = most_asked if run.finished else most_asked * 20  # some may not be committed
    with database() as connection:
        if ids:
            query = f"{source} WHERE query_id IN (SELECT unnest($ids))"
            found += connection.execute(query, {"names": names, "ids": ids}).fetchall()
        if most_asked:
            query = f"{source} WHERE log_count > 1 ORDER BY log_count DESC, query_id LIMIT {more}"
            done = {manifest.shard for manifest in run.manifests}
            asked = connection.execute(query, {"names": names}).fetchall()
            found += [row for row in asked if _shard(places, row) in done][:most_asked]
    return [(_shard(places, row), (row[0], row[1], row[2])) for row in found]


def _shard(places: Mapping[str, list[tuple[int, int]]], row: tuple[str, str, int, str, int]) -> int:
    shards = places[row[3]]
    return shards[bisect_right(shards, row[4], key=lambda one: one[0]) - 1][1]


def _quotas(rows: list[int], wanted: int) -> list[int]:
    """Returns the number of samples to take from each shard: equal numbers, as far as the shards have enough rows."""
    quotas = [0] * len(rows)
    left = min(wanted, sum(rows))
    while left > 0:
        open_ones = [i for i, quota in enumerate(quotas) if quota < rows[i]]
        for number, i in enumerate(open_ones):
            more = min(rows[i] - quotas[i], -(-left // (len(open_ones) - number)))
            quotas[i] += more
            left -= more
    return quotas
