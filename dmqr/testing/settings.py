"""The contract of a plug-in's settings; settings by the names that a config has; texts that tests of all kinds send."""

import pickle
from collections.abc import Callable
from typing import Any, Generic, TypeVar

from pydantic import TypeAdapter, ValidationError

from cluster.errors import DmqrError
from cluster.settings import REQUIRED, Settings
from retrievers.kinds import AnyRetrieverSettings, RetrieverSettings
from retrievers.rerankers.settings import AnyRerankerSettings, RerankerSettings
from rewriters.engines.settings import AnyEngineSettings, EngineSettings

OwnSettings = TypeVar("OwnSettings", RetrieverSettings, EngineSettings, RerankerSettings)
HOSTILE = (
    "", " \n\t", "?", "a" * 5_000, "word " * 3_000, "\x00\x07 bell", 'unbalanced ( " [ {', "AND OR NOT * ~2 ^3 f:v \\ / <b>",
    "ключ 鍵 مفتاح 🗝️ e\u0301", "\u202eright to left", "{query} {{x}} %s ${HOME}", "'; DROP TABLE x; --", "null", "0", "-1e999",
)  # fmt: skip
"""Texts that queries of a log have been seen to be."""


def settings_of(kind: str, **values: Any) -> RetrieverSettings:
    """Returns the settings of a retriever as a config has them; files of `kind` are relative to the current folder.

    Raises:
        ValueError: They are wrong, or there is no such code.
    """
    return _validated(AnyRetrieverSettings, kind, values)


def engine_settings_of(kind: str, **values: Any) -> EngineSettings:
    """Returns the settings of an engine as `settings_of` does those of a retriever."""
    return _validated(AnyEngineSettings, kind, values)


def reranker_settings_of(kind: str, **values: Any) -> RerankerSettings:
    """Returns the settings of a reranker as `settings_of` does those of a retriever."""
    return _validated(AnyRerankerSettings, kind, values)


def _validated(model: Any, kind: str, values: Any) -> Any:
    try:
        return TypeAdapter(model).validate_python({"kind": kind, **values}, context=REQUIRED)
    except ValidationError as error:
        first = error.errors()[0]
        raise ValueError(f"{'.'.join(map(str, first['loc'])) or kind}: {first['msg']}") from None


def refusal_of(call: Callable[[], object], otherwise: str) -> str:
    """Returns the line with which a call is refused; fails with `otherwise` where it is not."""
    try:
        call()
    except DmqrError as error:
        line = str(error)
        assert "\n" not in line, "an error is one line"
        return line
    raise AssertionError(otherwise)


class SettingsContract(Generic[OwnSettings]):
    """The contract of a plug-in's settings."""

    def settings(self) -> OwnSettings:
        """Returns the settings under test; to be overridden."""
        raise NotImplementedError("return the settings under test, for example by settings_of(...)")

    def test_settings_are_frozen_and_go_through_a_pickle(self) -> None:
        """A worker is given the settings, and nobody changes them."""
        settings = self.settings()
        assert isinstance(settings, Settings), "settings derive from the project's class"
        assert type(settings).model_config.get("frozen"), "settings are frozen"
        assert type(settings).model_config.get("extra") == "forbid", "a key that the class does not have is refused"
        assert pickle.loads(pickle.dumps(settings)) == settings
