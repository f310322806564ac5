"""A strategy whose texts are made by code: what its author derives."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, ClassVar

from cluster.settings import Settings
from rewriters.python.given import FirstLists, Reads
from rewriters.query import Query

GivenText = str | tuple[str, float]
"""A text to search, or one with the weight of its list."""


class PythonStrategy(Settings):
    """A strategy in Python; its fields are the parameters that a config may give it.

    A class derives it and has `rewrite(query)`, which gives the texts of one query, or `rewrite(query, lists)` where it says
    what it `reads`. What raises is an error of that query alone.
    """

    fields: ClassVar[Mapping[str, Any]] = {}
    """Fields of a strategy (docs/strategy-files.md) with their values, where a config has no other: `n`, the most texts of a
    query (1), `search_as`, `weight`, `max_chars`, ..."""
    columns: ClassVar[tuple[str, ...]] = ()
    """Columns of the log whose values are in `query.values`."""

    @property
    def reads(self) -> Reads | None:
        """What it reads of the original's lists; None: nothing, and `rewrite` takes the query alone."""
        return None

    def open(self) -> Callable[..., Iterable[GivenText]]:
        """Returns what is called for each query, made once in each worker: here a model is loaded, where there is one."""
        return self.rewrite

    def rewrite(self, query: Query, lists: FirstLists | None = None) -> Iterable[GivenText]:
        """Returns the texts of a query, the dearest first, some with weights."""
        raise NotImplementedError(f"{type(self).__name__} has no method rewrite")
