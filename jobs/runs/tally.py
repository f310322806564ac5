"""Sums over the committed shards."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

from cluster import costs
from cluster.run.shards import Manifest, manifests
from cluster.storage import Storage


@dataclass
class Tally:
    """The numbers, counts and costs of the committed shards."""

    shards: set[int] = field(default_factory=set)
    counts: Counter[str] = field(default_factory=Counter)
    spent: costs.Totals = field(default_factory=dict)

    def add(self, manifest: Manifest) -> None:
        """Adds a shard; one that was added before is ignored."""
        if manifest.shard not in self.shards:
            self.shards.add(manifest.shard)
            self.counts.update(manifest.counts)
            costs.add_totals(self.spent, manifest.spent)


def tally_of(storage: Storage) -> Tally:
    """Returns the tally of all manifests of a run."""
    return summed(manifests(storage))


def summed(committed: Iterable[Manifest]) -> Tally:
    """Returns the tally of manifests."""
    tally = Tally()
    for manifest in committed:
        tally.add(manifest)
    return tally
