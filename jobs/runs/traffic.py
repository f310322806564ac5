"""How much of the traffic a run covers: the frequent queries come first, so that it is more than its share of the queries."""

from __future__ import annotations

from collections.abc import Mapping

from cluster.run.shards import Plan
from jobs.terminal.formats import percent


def covered(plan: Plan, counts: Mapping[str, int]) -> float | None:
    """Returns the share of the traffic whose queries are committed; None where nobody asked anything."""
    traffic = plan.counts.get("traffic")
    return counts.get("log_rows", 0) / traffic if traffic else None


def covered_words(plan: Plan, counts: Mapping[str, int]) -> str:
    """Returns `covered` in words that go on behind others; "" where all is committed, or it is not known."""
    share = covered(plan, counts)
    if share is None or counts.get("queries", 0) == plan.counts["queries"]:
        return ""
    return f", {percent(share)} of the traffic"
