"""How a person is told to go on with a job: a command, or a call of Python, to which settings can be added."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Self


class PythonCall(str):
    """A call of Python in words, like `dmqr.run('mine.yaml', fuse__k=10)`."""

    __slots__ = ("_parts",)
    _parts: tuple[str, str, Mapping[str, Any], Mapping[str, Any]]

    @classmethod
    def of(cls, function: str, config: str, settings: Mapping[str, Any], more: Mapping[str, Any]) -> Self:
        """Returns the words.

        Args:
            function: its name.
            config: its first argument, as it is written.
            settings: overrides by key.
            more: other arguments; those that are None are left out.
        """
        spelled = {key.replace(".", "__"): value for key, value in settings.items()}
        as_keywords = all(word.isidentifier() for word in spelled)
        arguments = [config] if as_keywords else [config, f"**{dict(settings)!r}"]
        arguments += [f"{name}={value!r}" for name, value in more.items() if value is not None]
        arguments += [f"{word}={value!r}" for word, value in spelled.items()] if as_keywords else []
        call = cls(f"{function}({', '.join(arguments)})")
        call._parts = function, config, dict(settings), more
        return call

    def having(self, key: str, value: Any) -> PythonCall:
        """Returns the call with one more override, which replaces one of that key."""
        function, config, settings, more = self._parts
        return PythonCall.of(function, config, {**settings, key: value}, more)


def with_setting(again: str, key: str, value: float, shown: str = "") -> str:
    """Returns a command, or a call, with one more override of the config; `shown`: the form of the value in a command."""
    return again.having(key, value) if isinstance(again, PythonCall) else f"{again} --set {key}={value:{shown}}"
