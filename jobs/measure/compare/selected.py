"""How many strategies the selecting arms of an ablation chose for a query: the distribution of DMQR-RAG's Figure 2."""

from __future__ import annotations

from dataclasses import dataclass

from jobs.measure.judged_rows import database
from jobs.runs.folder import RunFolder


@dataclass(frozen=True)
class SelectedOfArm:
    """What an arm selected for the committed queries."""

    arm: str
    queries: dict[int, int]
    """Number of selected strategies -> queries, by number."""

    @property
    def mean(self) -> float:
        """Returns the mean number of selected strategies of a query."""
        total = sum(self.queries.values())
        return sum(number * count for number, count in self.queries.items()) / total if total else 0.0

    def share(self, number: int) -> float:
        """Returns the share of the queries that have so many strategies, 0 to 1."""
        total = sum(self.queries.values())
        return self.queries.get(number, 0) / total if total else 0.0


def selected_of_arms(run: RunFolder) -> list[SelectedOfArm]:
    """Returns what the arms selected, of those that select.

    Raises:
        ConfigError: files of the ablation cannot be read.
    """
    files, found = list(run.tables.get("selections", ())), []
    if not files:
        return []
    with database(run) as connection:
        for arm in run.record["ablation"]["arms"]:
            if arm["rewrites_of"] is None or not arm["strategies"] or arm.get("seed_of") is not None:
                continue
            rows = connection.execute(
                "SELECT len(list_intersect(strategies, $strategies)) AS number, count(*) FROM rows_of($files)"
                " WHERE arm = $reading AND strategies IS NOT NULL GROUP BY number ORDER BY number",
                {"strategies": list(arm["strategies"]), "files": files, "reading": arm["rewrites_of"]},
            ).fetchall()
            if rows:
                found.append(SelectedOfArm(arm["name"], {int(number): count for number, count in rows}))
    return found
