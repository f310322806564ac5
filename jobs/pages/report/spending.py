"""The costs of a run: by stage, by strategy, and reconciled with its worker time.

The figures of a stage are measured. Where nodes are billed, `idle` and `lost` are lines of their own, and all lines add up to
the bill (`jobs/runs/bill.py`). Those of a strategy are shares of joint work: a request of several strategies is divided by the
number of queries for which each was selected (equally where every strategy is), a retriever's searches by the number of lists.
Costs common to all strategies (fusing, reranking, reading, writing, start-up of workers, the driver, requests to S3, a
retriever that searches all texts of a query as one) are not divided.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from cluster import costs
from cluster.costs import START_UP, Prices
from jobs.chain.pipeline import COSTED
from jobs.pages.report.figures import Figures
from retrievers.lists import TOGETHER
from rewriters.adaptive import REQUEST_NAME as ADAPTIVE
from rewriters.joint import REQUEST_NAME as JOINT

COMMON = "all strategies together"


@dataclass(frozen=True)
class Spent:
    """A line of a cost table. `sums`: quantity -> amount; `start_up`: seconds, not included in `sums`."""

    name: str
    sums: dict[str, float]
    usd: float | None
    start_up: float = 0.0
    share: float = 0.0
    parts: list[Spent] = field(default_factory=list)

    def __getitem__(self, quantity: str) -> float:
        """Returns the amount of a quantity; 0 if there is none."""
        return self.sums.get(quantity, 0.0)


@dataclass(frozen=True)
class Spending:
    """The cost tables by stage and by strategy, and their common total."""

    total: Spent
    stages: list[Spent]
    strategies: list[Spent]
    quantities: list[str]
    """The quantities with a total above 0: device_seconds, driver_seconds and those of costs.QUANTITIES."""
    recorded: float
    """Worker seconds, attributed and start-up, of all starts: the total's seconds, summed by start."""
    storage: dict[str, dict[str, float]] = field(default_factory=dict)
    """Stage -> quantity of costs.STORAGE: what it sent to S3."""
    of_nodes: float = 0.0
    """USD of the total that are of nodes."""

    @property
    def seconds(self) -> float:
        """Returns the seconds of the total, start-up included."""
        return self.total["seconds"] + self.total.start_up

    @property
    def adds_up(self) -> bool:
        """Returns whether `recorded` and `seconds` agree within 0.01 s + 1e-6 of the total."""
        return abs(self.recorded - self.seconds) <= 0.01 + 1e-6 * self.seconds


def spending(figures: Figures, prices: Prices | None) -> Spending:
    """Returns the costs of the committed shards; without `prices` quantities only."""
    spent = figures.run.spent
    billed = None if prices is None else figures.run.bill(prices)
    lines = [(stage, key, sums) for stage, components in spent.items() for key, sums in components.items()]

    def usd(stage: str, key: str, sums: dict[str, float]) -> float | None:
        return None if billed is None else billed.of(stage, key, sums)

    rest = {name: usd for name, usd in (("idle", billed.idle), ("lost", billed.lost)) if usd} if billed else {}
    every = [(line[2], usd(*line), 1.0, _is_start_up(line[1])) for line in lines]
    everything = _line("total", every + [({}, money, 1.0, False) for money in rest.values()], None)
    stages = []
    for stage in sorted(spent, key=lambda name: (COSTED.index(name) if name in COSTED else len(COSTED), name)):
        own = [line for line in lines if line[0] == stage]
        work = [line for line in own if not _is_start_up(line[1])]
        parts = [_line(_label(line[1]), [(line[2], usd(*line), 1.0, False)], everything) for line in work if _label(line[1])]
        whole = _line(stage, [(line[2], usd(*line), 1.0, _is_start_up(line[1])) for line in own], everything, parts)
        stages.append(whole)
    around = [_line(name, [({}, money, 1.0, False)], everything) for name, money in rest.items()]
    shared: dict[str, list[tuple[dict[str, float], float | None, float, bool]]] = {}
    for line in lines:
        for name, share in _shares(figures, line[0], line[1]).items():
            shared.setdefault(name, []).append((line[2], usd(*line), share, _is_start_up(line[1])))
    names = ["original", *figures.strategies, COMMON]
    order = [name for name in names if name in shared] + [name for name in shared if name not in names]
    strategies = [_line(name, shared[name], everything) for name in order]
    quantities = [name for name in ("device_seconds", "driver_seconds", *costs.QUANTITIES) if everything[name]]
    recorded = sum(start.attributed + start.start_up for start in figures.starts)
    nodes = sum(billed.nodes.values()) if billed else 0.0
    storage = {stage: sums for stage in spent if (sums := spent[stage].get(costs.STORAGE_COMPONENT))}
    return Spending(everything, stages + around, strategies + around, quantities, recorded, storage, nodes)


def _line(
    name: str,
    shares: list[tuple[dict[str, float], float | None, float, bool]],
    whole: Spent | None,
    parts: list[Spent] | None = None,
) -> Spent:
    """Returns the sum of (quantities, usd, share, whether it is start-up), with its share of `whole`."""
    sums: dict[str, float] = {}
    start_up, money = 0.0, 0.0
    for amounts, usd, share, starting in shares:
        money += (usd or 0.0) * share
        for quantity, amount in amounts.items():
            if starting and quantity == "seconds":
                start_up += amount * share
            else:
                sums[quantity] = sums.get(quantity, 0.0) + amount * share
    priced = all(usd is not None for _, usd, _, _ in shares)
    spent = Spent(name, sums, money if priced else None, start_up, 1.0, parts or [])
    if whole is None:
        return spent
    if whole.usd and spent.usd is not None:
        share = spent.usd / whole.usd
    else:
        seconds = whole["seconds"] + whole.start_up
        share = (spent["seconds"] + spent.start_up) / seconds if seconds else 0.0
    return Spent(name, sums, spent.usd, start_up, share, parts or [])


def _shares(figures: Figures, stage: str, key: str) -> dict[str, float]:
    """Returns strategy -> its share of a component's costs; the shares add up to 1."""
    component = key.partition("@")[0]
    if component and not component.startswith(START_UP) and key != costs.STORAGE_COMPONENT:
        if stage == "rewrite":
            return _requested(figures, component) or {component: 1.0}
        if stage == "retrieve":
            lists = figures.lists.get(component, {})
            if TOGETHER not in lists and (total := sum(lists.values())):
                return {name: count / total for name, count in lists.items() if count}
    return {COMMON: 1.0}


def _requested(figures: Figures, request: str) -> dict[str, float]:
    """Returns strategy -> its share of a request of several strategies, by the queries for which it was selected.

    Empty for a request of one strategy, for the question of which type a query is, and where nothing was selected.
    """
    strategies = {JOINT: figures.sharing, ADAPTIVE: figures.strategies}.get(request, [])
    chosen = figures.selected
    weights = {name: chosen.strategies[name] if chosen else 1 for name in strategies}
    total = sum(weights.values())
    return {name: weight / total for name, weight in weights.items() if weight}


def _is_start_up(key: str) -> bool:
    return key.startswith(START_UP)


def _label(key: str) -> str:
    component, _, model = key.partition("@")
    if key == costs.STORAGE_COMPONENT:
        return "requests to S3"
    return f"{component} ({model})" if component and model else component
