"""Refusals of a config, for the tests of loading one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from cluster.errors import ConfigError
from jobs.config.load import load_config

Write = Callable[[Any], str]
Values = dict[str, Any]


def put(values: Values, dotted: str, value: object) -> None:
    *parents, last = dotted.split(".")
    for key in parents:
        values = values.setdefault(key, {})
    values[last] = value


def refusal(write: Write, content: Any, *settings: str, date: str | None = None) -> str:
    """The message without the file's name."""
    path = write(content)
    with pytest.raises(ConfigError) as refused:
        load_config(path, list(settings), date)
    text = str(refused.value)
    assert "\n" not in text
    return text.removeprefix(f"{path}: ")
