"""The run's budget for requests that are paid for, divided among the workers that send them."""

from __future__ import annotations


class Budget:
    """Grants money to workers before they spend it, so that all of them together stay within the limit."""

    def __init__(self, limit: float | None) -> None:
        """Grants nothing yet; `limit` is in USD, None without one."""
        self._limit = limit
        self._elsewhere = 0.0
        self._granted: dict[str, float] = {}

    def spent_elsewhere(self, usd: float) -> None:
        """Records what the run has cost apart from the requests that are granted here: earlier starts, other stages."""
        self._elsewhere = usd

    def reserve(self, worker: str, spent: float, wanted: float) -> float:
        """Returns the USD that a worker may have spent in all from now on; less than it wants where less is left.

        What a dead worker was granted stays granted: nobody knows how much of it was spent.
        """
        if self._limit is None:
            return float("inf")
        granted = max(self._granted.get(worker, 0.0), spent)
        self._granted[worker] = granted
        left = self._limit - self._elsewhere - sum(self._granted.values())
        self._granted[worker] += max(0.0, min(wanted, left))
        return self._granted[worker]
