"""What the gate of a run or an arm has saved: the queries that were not rewritten, and what that would have cost."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from cluster.costs import START_UP, stage_sums
from cluster.prices import Prices
from jobs.counts import GateQueries
from jobs.runs.folder import RunFolder
from jobs.terminal.formats import count, money, percent


class GateSaving(NamedTuple):
    """What a gate has saved, at the mean cost of a query that was rewritten. None: it is not known."""

    sure: int  # queries that were not rewritten
    unsure: int  # queries that were
    requests: float | None  # to the LLM, that were not needed; None where no query was rewritten
    usd: float | None  # None without prices, too, and where all answers came from the store

    @property
    def words(self) -> str:
        """Returns it in words."""
        queries = self.sure + self.unsure
        share = f" ({percent(self.sure / queries)})" if queries else ""
        words = f"{count(self.sure)} of {count(queries)} queries{share} not rewritten"
        if self.requests:
            usd = "" if self.usd is None else f" and {money(self.usd)}"
            words += f", which saves about {count(self.requests)} requests{usd}"
        return words


def gate_saving(counts: Mapping[str, int], requests: float, usd: float | None) -> GateSaving | None:
    """Returns what a gate has saved, by the counts of a run or arm; None where no query came to one.

    `requests` are those that its queries needed, and `usd` is what these cost.
    """
    sure, unsure = (counts.get(GateQueries(verdict).key, 0) for verdict in ("sure", "unsure"))
    if not sure + unsure:
        return None
    if not unsure:
        return GateSaving(sure, unsure, None, None)
    return GateSaving(sure, unsure, sure * requests / unsure, None if usd is None else sure * usd / unsure)


def saving_of_run(run: RunFolder, prices: Prices | None) -> GateSaving | None:
    """Returns what the gate of a run has saved; None without a gate."""
    parts = {key: sums for key, sums in run.spent.get("rewrite", {}).items() if not key.startswith(START_UP)}
    sums = stage_sums({"rewrite": parts})
    made, reused = sums.get("requests", 0), sums.get("reused", 0)
    usd = None
    if prices is not None and made:
        billed = run.bill(prices)
        usd = sum(billed.of("rewrite", key, one) for key, one in parts.items()) * (made + reused) / made
    return gate_saving(run.counts, made + reused, usd)
