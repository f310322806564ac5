"""What holds for every strategy in Python."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar

from dmqr.testing.settings import HOSTILE, SettingsContract
from rewriters.python.given import FirstHit, FirstLists
from rewriters.python.strategy import PythonStrategy
from rewriters.python.texts import OpenedCode, WeightedText
from rewriters.query import Query


class StrategyContract(SettingsContract):
    """What holds for every strategy in Python."""

    queries: Sequence[str] = ("light of a lamp at sea", "why does bread rise", "東京タワー")
    values: ClassVar[Mapping[str, str | None]] = {}
    """Columns of the log that it reads."""
    lists: ClassVar[FirstLists] = {
        "bm25": (
            FirstHit("d2", 7.5, "Lighthouses. A lens threw the light of a small lamp across the sea."),
            FirstHit("d5", 3.0, "Tides. The moon pulls the sea twice a day."),
        )
    }
    """What it is given where it reads lists."""

    def settings(self) -> PythonStrategy:
        """Returns the strategy under test; to be overridden."""
        raise NotImplementedError("return the strategy under test, for example by strategy_of(...)")

    def rewritten(self, *texts: str, lists: FirstLists | None = None) -> list[list[WeightedText]]:
        """Returns the texts of queries, as a run checks them, by the strategy opened once."""
        queries, read, opened = self._given(texts, lists)
        return [opened.texts([query], [read])[0] for query in queries]

    def _given(
        self, texts: Sequence[str], lists: FirstLists | None = None
    ) -> tuple[list[Query], FirstLists | None, OpenedCode]:
        strategy = self.settings()
        queries = [Query(f"q{number}", text, None, self.values) for number, text in enumerate(texts)]
        return queries, None if strategy.reads is None else self.lists if lists is None else lists, OpenedCode(strategy)

    def test_it_gives_texts(self) -> None:
        """Texts, or pairs of a text and its weight; at most so many as its `n` says; some of these queries have one."""
        assert any(self.rewritten(*self.queries)), "no query of this contract has a text; set others"

    def test_a_query_has_the_same_texts_again_and_whatever_was_asked_before(self) -> None:
        """What a strategy gives is stored, and found again by the query, the code and its parameters."""
        once = self.rewritten(*self.queries)
        assert self.rewritten(*self.queries) == once
        assert self.rewritten(*reversed(self.queries)) == once[::-1]

    def test_a_batch_has_the_texts_of_each_query_alone(self) -> None:
        """Which queries are asked together depends on the shard and on what is stored; only of a strategy with `many`."""
        queries, read, opened = self._given([*self.queries, *HOSTILE, self.queries[0]])
        if opened.batch > 1:
            alone = [opened.texts([query], [read])[0] for query in queries]
            for size in (2, 3, len(queries)):
                parts = [queries[begin : begin + size] for begin in range(0, len(queries), size)]
                assert [one for part in parts for one in opened.texts(part, [read] * len(part))] == alone, (
                    f"in batches of {size}"
                )

    def test_hostile_queries_are_no_errors(self) -> None:
        """Whatever a log has: what raises is an error of its query."""
        for text in HOSTILE:
            self.rewritten(text)

    def test_lists_may_be_empty(self) -> None:
        """A query may find nothing, or documents without a text."""
        if self.settings().reads is not None:
            self.rewritten(*self.queries, lists=dict.fromkeys(self.lists, ()))
            self.rewritten(*self.queries, lists={name: (FirstHit("d1", 1.0, ""),) for name in self.lists})
