"""Savings: by a gate the rewriting of some queries, and by the arms of an ablation the work that they share."""

from collections.abc import Mapping
from typing import NamedTuple

from cluster.costs import START_UP, stage_sums
from cluster.prices import Prices
from jobs.counts import GATE_QUERIES, QUANTITIES, cost_quantity, cost_stages
from jobs.runs.folder import RunFolder
from jobs.runs.sums import arm_needs
from jobs.terminal.formats import count, money, percent


class GateSaving(NamedTuple):
    """Savings of a gate, at the mean cost of a query that was rewritten. None: it is not known."""

    sure: int  # queries that were not rewritten
    unsure: int  # queries that were
    requests: float | None  # to the LLM, that were not needed; None where no query was rewritten
    usd: float | None  # None without prices, too, and where all answers came from the store

    @property
    def summary(self) -> str:
        queries = self.sure + self.unsure
        share = f" ({percent(self.sure / queries)})" if queries else ""
        text = f"{count(self.sure)} of {count(queries)} queries{share} not rewritten"
        if self.requests:
            usd = "" if self.usd is None else f" and {money(self.usd)}"
            text += f", which saves about {count(self.requests)} requests{usd}"
        return text


def gate_saving(counts: Mapping[str, int], requests: float, usd: float | None) -> GateSaving | None:
    """Returns the savings of a gate, by the counts of a run or arm; None where no query came to one.

    `requests` are those that its queries needed, and `usd` is what these cost.
    """
    sure, unsure = (counts.get(GATE_QUERIES.key(verdict), 0) for verdict in ("sure", "unsure"))
    if not sure + unsure:
        return None
    if not unsure:
        return GateSaving(sure, unsure, None, None)
    return GateSaving(sure, unsure, sure * requests / unsure, None if usd is None else sure * usd / unsure)


def saving_of_run(run: RunFolder, prices: Prices | None) -> GateSaving | None:
    """Returns the savings of a run's gate; None without a gate."""
    parts = {key: sums for key, sums in run.spent.get("rewrite", {}).items() if not key.startswith(START_UP)}
    sums = stage_sums({"rewrite": parts})
    new, reused = sums.get("requests", 0), sums.get("reused", 0)
    usd = None
    if prices is not None and new:
        billed = run.bill(prices)
        usd = sum(billed.usd_of("rewrite", key, one) for key, one in parts.items()) * (new + reused) / new
    return gate_saving(run.counts, new + reused, usd)


class Saving(NamedTuple):
    """Work by its kind: of all arms, each alone, and of the ablation.

    `executed` has each distinct request, search and pair once; `reused` of them were taken from the store.
    """

    naive: dict[str, int]
    executed: dict[str, int]
    reused: dict[str, int]


def saved(run: RunFolder) -> Saving:
    """Returns the savings of an ablation's committed shards."""
    naive, executed, reused = (dict.fromkeys(QUANTITIES, 0) for _ in range(3))
    arms = [arm["name"] for arm in run.arms]
    for needs in arm_needs(run.counts, arms).values():
        for need in needs.whole:
            naive[need.quantity] += need.amount
    for kind in QUANTITIES:
        sums = [quantities for stage in cost_stages(kind) for quantities in run.spent.get(stage, {}).values()]
        reused[kind] = int(sum(quantities.get("reused", 0) for quantities in sums))
        executed[kind] = int(sum(quantities.get(cost_quantity(kind), 0) for quantities in sums)) + reused[kind]
    return Saving(naive, executed, reused)
