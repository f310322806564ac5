"""Sums over the committed shards, and what is kept of each beside them.

A manifest takes 8 KB of memory and more, most of it costs by stage, component and quantity. Of a hundred thousand the sums are
kept, and of each shard what is asked of it alone.
"""

import sys
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from cluster import costs
from cluster.run.shards import File, Manifest, Plan, manifests
from cluster.storage import Storage
from jobs.terminal.formats import percent

SecondsByStart = dict[int, dict[str, dict[str, float]]]  # number of a start -> stage -> busy seconds by what they were for


@dataclass
class Tally:
    """The numbers, counts, costs and busy seconds of the committed shards."""

    shards: set[int] = field(default_factory=set)
    counts: Counter[str] = field(default_factory=Counter)
    spent: costs.Totals = field(default_factory=dict)
    by_start: SecondsByStart = field(default_factory=dict)

    def add(self, manifest: Manifest) -> None:
        """Adds a shard; one that was added before is ignored."""
        if manifest.shard not in self.shards:
            self.shards.add(manifest.shard)
            self.counts.update(manifest.counts)
            costs.add_totals(self.spent, manifest.spent)
            apart = {stage: {"attributed": seconds} for stage, seconds in manifest.seconds.items()}  # of reading and writing
            costs.add_totals(self.by_start, {int(start): seconds for start, seconds in manifest.by_start.items()})
            costs.add_totals(self.by_start, {manifest.start: apart})


@dataclass(slots=True)
class Committed:
    """The record of a committed shard: its files and counts; its costs are in the sums."""

    shard: int
    files: dict[str, list[File]]
    counts: dict[str, int]


def tally_of(storage: Storage) -> Tally:
    """Returns the tally of all manifests of a run."""
    tally = Tally()
    for manifest in manifests(storage):
        tally.add(manifest)
    return tally


def kept(committed: Iterable[Manifest]) -> tuple[list[Committed], Tally]:
    """Returns the record of each shard, in the order of the manifests, and their tally."""
    shards, tally = [], Tally()
    for manifest in committed:
        tally.add(manifest)
        counts = {sys.intern(name): n for name, n in manifest.counts.items()}
        files = {sys.intern(table): files for table, files in manifest.files.items()}
        shards.append(Committed(manifest.shard, files, counts))
    return shards, tally


def covered(plan: Plan, counts: Mapping[str, int]) -> float | None:
    """Returns the share of the traffic whose queries are committed; None where nobody asked anything."""
    traffic = plan.counts.get("traffic")
    return counts.get("log_rows", 0) / traffic if traffic else None


def covered_words(plan: Plan, counts: Mapping[str, int]) -> str:
    """Returns `covered` as the end of a sentence; "" if everything is committed or the share is unknown."""
    share = covered(plan, counts)
    if share is None or counts.get("queries", 0) == plan.counts["queries"]:
        return ""
    return f", {percent(share)} of the traffic"
