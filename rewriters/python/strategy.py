"""A strategy whose texts are made by code: what its author derives."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, ClassVar

from cluster.settings import Settings
from rewriters.python.given import FirstLists, Reads
from rewriters.query import Query

GivenText = str | tuple[str, float]
"""A text to search, or one with the weight of its list."""


class PythonStrategy(Settings):
    """A strategy in Python; its fields are the parameters that a config may give it.

    A class derives it and has `rewrite(query)`, which gives the texts of one query, or `many(queries)`, which gives those of
    several, a list each; `rewrite(query, lists)` and `many(queries, lists)` where it says what it `reads`. What raises is an
    error of that query alone.
    """

    fields: ClassVar[Mapping[str, Any]] = {}
    """Fields of a strategy (docs/strategy-files.md) with their values, where a config has no other: `n`, the most texts of a
    query (1), `search_as`, `weight`, `max_chars`, ..."""
    columns: ClassVar[tuple[str, ...]] = ()
    """Columns of the log whose values are in `query.values`."""
    batch: ClassVar[int] = 64
    """Queries that `many` is given at a time, at most."""

    @property
    def reads(self) -> Reads | None:
        """What it reads of the original's lists; None: nothing, and `rewrite` takes the query alone."""
        return None

    def open(self) -> Any:
        """Returns what is asked, made once in each worker: here a model is loaded, where there is one.

        It is called for each query, as `rewrite` is, or has a method `many`.
        """
        return self if hasattr(self, "many") else self.rewrite

    def rewrite(self, query: Query, lists: FirstLists | None = None) -> Iterable[GivenText]:
        """Returns the texts of a query, the dearest first, some with weights."""
        raise NotImplementedError(f"{type(self).__name__} has no method rewrite or many")
