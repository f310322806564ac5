"""RM3 by the contract of all strategies in Python."""

from __future__ import annotations

from pathlib import Path

from dmqr.testing import StrategyContract, strategy_of
from rewriters.python.strategy import PythonStrategy

RM3 = str(Path(__file__).resolve().parents[2] / "configs" / "plugins" / "rm3.py")


class TestRm3(StrategyContract):
    def settings(self) -> PythonStrategy:
        return strategy_of(f"{RM3}:Rm3", terms=4)
