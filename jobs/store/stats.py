"""`store stats`: what lies in a store, what it cost once, and what runs have saved by it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from cluster.costs import COMPLETION_QUANTITIES, Prices, Totals, add_totals
from cluster.errors import ClusterError
from cluster.run.shards import manifests, spent
from cluster.storage import Storage, open_storage
from jobs.chain.store.files import MADE_AT, read_range
from jobs.chain.store.forgotten import forgotten_queries
from jobs.chain.store.layout import MADE
from jobs.runs.folder import find_runs
from jobs.store.contents import StoredSpace, abouts, stored_spaces

_TYPES = {name: pa.float64() if "seconds" in name else pa.int64() for name in COMPLETION_QUANTITIES}
_OF_WORK = ("seconds", "device_seconds", "searches")  # of searching and scoring
_PAID = pa.schema([("query_id", pa.string()), ("model", pa.string()), *_TYPES.items(), MADE_AT])


@dataclass(frozen=True)
class SpaceStats:
    """One space of a store.

    Attributes:
        kind: Of its rows.
        name: Its hash.
        about: What made its rows, as it was noted when it was begun.
        files: That jobs read.
        replaced: Files beside those, which others have replaced and which go later.
        most_together: In how many files one query_id may lie.
        rows: In the files that jobs read.
        size: Their bytes.
        used: The last day on which a job has used it; None: not known.
        paid: What its completions cost once, by quantity; empty for other kinds.
    """

    kind: str
    name: str
    about: Mapping[str, Any]
    files: int
    replaced: int
    most_together: int
    rows: int
    size: int
    used: str | None
    paid: Mapping[str, float]


class Saved(NamedTuple):
    """What runs took from the store in place of paying for it.

    Attributes:
        stage: That took it.
        component: Request, retriever or model.
        model: Of completions and scores; may be empty.
        reused: How many.
        quantities: What they would have cost: of completions as those of the model in the store on average, else as what the
            runs themselves have searched and scored.
        usd: In money, tokens at the prices of the standard tier: of which tier an answer was is not stored; None: there are no
            prices.
    """

    stage: str
    component: str
    model: str
    reused: int
    quantities: Mapping[str, float]
    usd: float | None


@dataclass(frozen=True)
class StoreStats:
    """A store.

    Attributes:
        spaces: Of it.
        forgotten: Queries that were forgotten.
        runs: How many runs were looked at for what they saved; None: nobody said where they are.
        saved: By stage and component.
    """

    spaces: list[SpaceStats]
    forgotten: int
    runs: int | None
    saved: list[Saved]

    def values(self) -> dict[str, Any]:
        """Returns it as JSON-able values."""
        return asdict(self) | {"saved": [one._asdict() for one in self.saved]}


def store_stats(storage: Storage, output: Storage | None, prices: Prices | None) -> StoreStats:
    """Returns what lies in a store, and what the runs below an output have saved; files are read, nothing is written.

    Raises:
        ClusterError: A file is damaged.
    """
    spaces = stored_spaces(storage)
    about = abouts(storage, [one.space for one in spaces])
    models: dict[str, Counter[str]] = {}
    found = [_space_stats(storage, one, about[one.space], models) for one in spaces]
    runs: int | None = None
    totals: Totals = {}
    if output is not None:
        runs, totals = _spent(output)
    return StoreStats(found, len(forgotten_queries(storage)), runs, _saved(totals, models, prices))


def _space_stats(storage: Storage, one: StoredSpace, about: Mapping[str, Any], models: dict[str, Counter[str]]) -> SpaceStats:
    """Returns what lies in a space; adds what its completions cost to that of their models."""
    rows, names, paid = 0, one.read, Counter[str]()
    for name in names:
        key = f"{one.space.folder}/{name}"
        if one.space.kind != "completions":
            with storage.open(key) as file:
                rows += pq.ParquetFile(file).metadata.num_rows
            continue
        table = read_range(storage, key, schema=_PAID)
        rows += table.num_rows
        for row in table.group_by("model").aggregate([(of, "sum") for of in _TYPES] + [(MADE, "count")]).to_pylist():
            sums = {of: row[f"{of}_sum"] or 0 for of in _TYPES}
            paid.update(sums)
            models.setdefault(row["model"] or "", Counter()).update(sums | {"rows": row[f"{MADE}_count"]})
    used = one.last_used(about)
    size = sum(one.files[name] for name in names)
    return SpaceStats(*one.space, about, len(names), len(one.replaced), one.most_together, rows, size, used, dict(paid))


def _spent(output: Storage) -> tuple[int, Totals]:
    """Returns the number of runs below an output, and what they have spent and taken from a store."""
    sums: Totals = {}
    count = 0
    for folder, record in find_runs(output):
        if "costs" in record:  # of a finished run, which may have thousands of commits
            add_totals(sums, record["costs"])
        else:
            try:
                add_totals(sums, spent(manifests(open_storage(output.url(folder)))))
            except ClusterError:  # of another version
                continue
        count += 1
    return count, sums


def _saved(totals: Totals, models: Mapping[str, Mapping[str, float]], prices: Prices | None) -> list[Saved]:
    found = []
    for stage, components in totals.items():
        for key, sums in components.items():
            if not (reused := int(sums.get("reused", 0))):
                continue
            component, _, model = key.partition("@")
            of_model = models.get(model)
            made = of_model["rows"] if of_model else sums.get("pairs", 0) or sums.get("searches", 0)
            known = {of: of_model[of] for of in _TYPES} if of_model else {of: sums.get(of, 0) for of in _OF_WORK}
            quantities = {of: value / made * reused for of, value in known.items() if value} if made else {}
            usd = None if prices is None else prices.usd({stage: {key: quantities}})
            found.append(Saved(stage, component, model, reused, quantities, usd))
    return found
