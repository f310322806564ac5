"""Values that several arms have in common, each once."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Generic, TypeVar

Value = TypeVar("Value")


class Distinct(Generic[Value]):
    """Values in order of first use, each once."""

    def __init__(self) -> None:
        self._places: dict[Hashable, int] = {}
        self.values: list[Value] = []

    def place(self, key: Hashable, value: Value) -> int:
        """Returns the index of the first value of a key."""
        if key not in self._places:
            self._places[key] = len(self.values)
            self.values.append(value)
        return self._places[key]
