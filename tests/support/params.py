"""Parameters of which a few are tested at each commit."""

from collections.abc import Collection, Iterable
from typing import Any

import pytest


def rest_slow(values: Iterable[Any], fast: Collection[Any]) -> list[Any]:
    """The parameters; those that are not among `fast` make slow tests."""
    return [one if one in fast else pytest.param(one, marks=pytest.mark.slow) for one in values]
