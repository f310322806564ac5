"""What was selected for the queries of a shard, as counts of its manifest; and the same read from the sums of all shards.

Keys, with an empty type where queries have none: `selected/<type>/<strategy>`, `selections/<type>/<number of strategies>` and
`texts/<type>/<number of texts>` count queries; `further_texts/<strategy>` counts texts beside the first of each query.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import pyarrow as pa
import pyarrow.compute as pc


def further_texts(rewrites: pa.Table) -> dict[str, int]:
    """Returns strategy -> number of its texts beside the first of each query, of strategies that have any."""
    texts = Counter(rewrites.column("strategy").to_pylist())
    first = Counter(rewrites.group_by(["query_id", "strategy"]).aggregate([]).column("strategy").to_pylist())
    return dict(texts - first)


def not_selected(tables: Mapping[str, pa.Table], planned: int) -> int:
    """Returns the number of (query, strategy) pairs that the selection left out.

    Args:
        tables: of a shard.
        planned: number of planned strategies.
    """
    if "selections" not in tables:
        return 0
    chosen: int = pc.sum(pc.list_value_length(tables["selections"].column("strategies"))).as_py() or 0
    return planned * len(tables["selections"]) - chosen


def selection_counts(tables: Mapping[str, pa.Table]) -> Counter[str]:
    """Returns the numbers of a shard's queries by selected strategy, number of these, and number of texts."""
    counts: Counter[str] = Counter()
    if "selections" not in tables:
        return counts
    texts = Counter(tables["rewrites"].column("query_id").to_pylist())
    for row in tables["selections"].select(["query_id", "query_type", "strategies"]).to_pylist():
        query_type = row["query_type"] or ""
        counts.update(f"selected/{query_type}/{strategy}" for strategy in row["strategies"])
        counts[f"selections/{query_type}/{len(row['strategies'])}"] += 1
        counts[f"texts/{query_type}/{texts[row['query_id']]}"] += 1
    return counts


@dataclass
class Selected:
    """What was selected for some queries."""

    strategies: Counter[str] = field(default_factory=Counter)
    """Strategy -> number of queries for which it was selected."""
    numbers: Counter[int] = field(default_factory=Counter)
    """Number of selected strategies -> number of queries."""
    texts: Counter[int] = field(default_factory=Counter)
    """Number of texts -> number of queries."""

    @property
    def queries(self) -> int:
        """Returns the number of queries."""
        return self.numbers.total()

    @property
    def mean_strategies(self) -> float:
        """Returns the mean number of selected strategies of a query."""
        return _mean(self.numbers)

    @property
    def mean_texts(self) -> float:
        """Returns the mean number of texts of a query."""
        return _mean(self.texts)

    def share(self, strategy: str) -> float:
        """Returns the share of the queries for which a strategy was selected, 0 to 1."""
        return self.strategies[strategy] / self.queries if self.queries else 0.0

    def __add__(self, other: Selected) -> Selected:
        """Returns both together."""
        return Selected(self.strategies + other.strategies, self.numbers + other.numbers, self.texts + other.texts)


def selected_by_type(counts: Mapping[str, int], strategies: Sequence[str]) -> dict[str, Selected]:
    """Returns query type -> what was selected, the most frequent type first; empty for a run without selection.

    Args:
        counts: sums over shards.
        strategies: the planned ones.
    """
    found: dict[str, Selected] = {}
    for query_type, number, n in _numbers(counts, "selections"):
        found.setdefault(query_type, Selected()).numbers[number] += n
    for query_type, number, n in _numbers(counts, "texts"):
        found[query_type].texts[number] += n
    for query_type, one in found.items():
        for strategy in strategies:
            one.strategies[strategy] = counts.get(f"selected/{query_type}/{strategy}", 0)
    return dict(sorted(found.items(), key=lambda pair: (-pair[1].queries, pair[0])))


def _numbers(counts: Mapping[str, int], prefix: str) -> Iterator[tuple[str, int, int]]:
    """Yields (type, number, number of queries) of the keys of a prefix."""
    for key, n in counts.items():
        if key.startswith(f"{prefix}/"):
            query_type, _, number = key.removeprefix(f"{prefix}/").rpartition("/")
            yield query_type, int(number), n


def _mean(numbers: Counter[int]) -> float:
    total = numbers.total()
    return sum(number * n for number, n in numbers.items()) / total if total else 0.0
