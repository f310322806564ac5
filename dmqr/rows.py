"""The results of `plan` and `rewrite`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby
from operator import itemgetter
from typing import TYPE_CHECKING, Any

from dmqr.result import Result

if TYPE_CHECKING:
    from jobs.try_one.rewritten import RewrittenQueries


class Planned(Result):
    """The work and the cost of a run before it is started."""

    def __init__(self, values: dict[str, Any], warnings: Sequence[str]) -> None:
        """Takes what `dmqr plan --json` prints, and the warnings of the call."""
        from jobs.plan.table import plan_table

        super().__init__(lambda: values, lambda: plan_table(values), warnings=warnings)

    @property
    def folder(self) -> str:
        """The folder that the run would have."""
        return str(self.values["folder"])


class Rewrites(Result):
    """The rewrites of some queries, in their order."""

    def __init__(self, rewritten: RewrittenQueries) -> None:
        """Takes what was rewritten."""
        self.table = rewritten.rewrites
        """A `pyarrow.Table`: query, and the columns of `rewrites/` (query_id, strategy, position, text, weight, ...)."""
        self.errors = rewritten.errors
        """A `pyarrow.Table`: query, and the columns of `errors/`: what the LLM did not give."""
        self.costs = rewritten.costs
        """A `pyarrow.Table`: query, and the columns of `costs/`."""
        self.warnings = list(rewritten.warnings)
        self._notes = [f"{one['query']}: {one['component']}: {one['reason']}" for one in self.errors.to_pylist()]

    def __iter__(self) -> Iterator[dict[str, Any]]:
        """Yields the rows of `table`."""
        return iter(self.table.to_pylist())

    def __len__(self) -> int:
        """Returns the number of rewrites."""
        return int(self.table.num_rows)

    def page(self) -> Any:
        """Returns strategy, text and weight of each, by query."""
        from jobs.pages.render import Head, Table

        rows: list[list[Any]] = []
        for query, texts in groupby(self, itemgetter("query")):
            for number, row in enumerate(texts):
                rows.append(["" if number else query, row["strategy"], row["weight"], row["text"]])
        return Table([Head("query"), Head("strategy"), Head("weight", "{:g}".format), Head("text")], rows).terminal()
