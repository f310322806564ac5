"""RM3, and a strategy that takes batches, by the contract of all strategies in Python."""

from __future__ import annotations

from pathlib import Path

import pytest

from dmqr.testing import StrategyContract, strategy_of
from rewriters.python.strategy import PythonStrategy
from tests.support.plugins import page_file

RM3 = str(Path(__file__).resolve().parents[2] / "configs" / "plugins" / "rm3.py")


class TestRm3(StrategyContract):
    def settings(self) -> PythonStrategy:
        return strategy_of(f"{RM3}:Rm3", terms=4)


class TestBatched(StrategyContract):
    changed = ("", "")
    """A text of the page's file, and what stands in its place."""

    @pytest.fixture(autouse=True)
    def file(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.chdir(tmp_path)
        Path("batched.py").write_text(page_file("batched.py").replace(*self.changed))

    def settings(self) -> PythonStrategy:
        return strategy_of("batched.py:Batched")


class OfItsNeighbours(TestBatched):
    changed = ("query.text.split()", "queries[-1].text.split()")


def test_a_batch_in_which_queries_differ_by_their_neighbours_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("batched.py").write_text(page_file("batched.py").replace(*OfItsNeighbours.changed))
    with pytest.raises(AssertionError, match="in batches of 2"):
        OfItsNeighbours().test_a_batch_has_the_texts_of_each_query_alone()
