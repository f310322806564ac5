"""The bill of a run in USD: what was spent at its price, and the time of the nodes, shared by what their workers did.

With `node_hour` time is billed as nodes x the wall time of each start, from the driver's first step to its last record.
That money is shared in proportion to worker seconds: attributed to a stage, start-up, lost, idle, and the wall time of the
driver. Stages whose workers hold accelerators share the nodes that have some; the other stages (`write` too, wherever it runs)
and the driver share the nodes without; where there is one kind of node, all share it. So the lines add up to the bill.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from cluster.costs import DRIVER, START_UP, Totals
from cluster.prices import Prices
from cluster.run.pool_sizes import stage_of_pool
from jobs.runs.starts import TIMES, Start

Share = tuple[str, str]  # stage, and one of TIMES


@dataclass(frozen=True)
class Bill:
    """The bill of a run; `usd_of` divides it by component of a stage, `idle` and `lost` are the rest."""

    prices: Prices
    spent: Totals
    nodes: Mapping[Share, float] = field(default_factory=dict)  # USD of the nodes' time

    @property
    def usd(self) -> float:
        return self.prices.usd(self.spent) + sum(self.nodes.values())

    def usd_of(self, stage: str, key: str, sums: Mapping[str, float]) -> float:
        """Returns the USD of quantities of a component (`key`: component@model), their seconds' share of the nodes included."""
        usd = self.prices.usd({stage: {key: dict(sums)}})
        name = _time(key)
        seconds = self._seconds.get((stage, name), 0.0)
        return usd + (self.nodes.get((stage, name), 0.0) * _worked(stage, sums) / seconds if seconds else 0.0)

    def of_stages(self, stages: Iterable[str]) -> float:
        """Returns the USD of stages, without what was idle or lost."""
        return sum(self.usd_of(stage, key, sums) for stage in stages for key, sums in self.spent.get(stage, {}).items())

    @property
    def lost(self) -> float:
        """Returns the USD of the nodes' time that was lost to starts that did not end in order."""
        return sum(usd for (_, name), usd in self.nodes.items() if name == "lost")

    @property
    def idle(self) -> float:
        """Returns the USD of the nodes' time in which workers had nothing to do."""
        return sum(self.nodes.values()) - self.lost - sum(usd for share, usd in self.nodes.items() if self._seconds.get(share))

    @cached_property
    def _seconds(self) -> dict[Share, float]:
        """Returns the seconds of `spent` by stage: attributed, and start-up."""
        seconds: dict[Share, float] = {}
        for stage, components in self.spent.items():
            for key, sums in components.items():
                share = stage, _time(key)
                seconds[share] = seconds.get(share, 0.0) + _worked(stage, sums)
        return seconds


def bill(prices: Prices, starts: Sequence[Start], times: Sequence[Mapping[str, Any]], spent: Totals) -> Bill:
    """Returns the bill of a run.

    `times` are the `node_time` of these starts; `spent` are the costs of the committed shards and of the drivers.
    """
    nodes: dict[Share, float] = {}
    by_number = {one["start"]: one for one in times}
    for start in starts if prices.node_hour is not None else ():
        stages = by_number.get(start["start"], {}).get("stages", {})
        for share, usd in _shared(prices, start, stages).items():
            nodes[share] = nodes.get(share, 0.0) + usd
    return Bill(prices, spent, nodes)


def _shared(prices: Prices, start: Start, stages: Mapping[str, Mapping[str, float]]) -> dict[Share, float]:
    """Returns the money of a start's nodes by what their time was used for."""
    money = prices.node_usd(start.get("node_seconds", {}))
    accelerated = {stage_of_pool(pool) for pool, of in start["pools"].items() if of["gpus"]}
    seconds = {(stage, name): times[name] for stage, times in stages.items() for name in TIMES}
    driver = start.get("spent", {}).get(DRIVER, {})
    seconds[DRIVER, "attributed"] = sum(sums.get("driver_seconds", 0.0) for sums in driver.values())
    result: dict[Share, float] = {}
    for kind, usd in money.items():
        own = {share: one for share, one in seconds.items() if len(money) == 1 or (share[0] in accelerated) == (kind == "gpu")}
        mine = own if sum(own.values()) else seconds
        whole = sum(mine.values())
        for share, share_of in mine.items() if whole else [((DRIVER, "idle"), 1.0)]:
            result[share] = result.get(share, 0.0) + usd * share_of / (whole or 1.0)
    return result


def _time(key: str) -> str:
    return "start_up" if key.startswith(START_UP) else "attributed"


def _worked(stage: str, sums: Mapping[str, float]) -> float:
    return sums.get("driver_seconds" if stage == DRIVER else "seconds", 0.0)
