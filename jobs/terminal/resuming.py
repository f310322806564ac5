"""How a person is told to go on with a job: a command, or a call of Python, to which settings can be added."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def python_call(function: str, config: str, settings: Mapping[str, Any], more: Mapping[str, Any]) -> str:
    """Returns a call in words, like `dmqr.run('mine.yaml', label='b', **{'fuse.k': 10})`.

    Args:
        function: its name.
        config: its first argument, as it is written.
        settings: overrides by key.
        more: other arguments; those that are None are left out.
    """
    arguments = [config, *(f"{name}={value!r}" for name, value in more.items() if value is not None)]
    return f"{function}({', '.join([*arguments, *([f'**{dict(settings)!r}'] if settings else [])])})"


def with_setting(again: str, key: str, value: float, shown: str = "") -> str:
    """Returns a command, or a call, with one more override, which replaces one of that key.

    `shown`: the form of the value in a command.
    """
    if not again.startswith("dmqr."):
        return f"{again} --set {key}={value:{shown}}"
    added = f"{key!r}: {value!r}}})"
    return again.removesuffix("})") + f", {added}" if again.endswith("})") else again.removesuffix(")") + f", **{{{added}"
