"""How a person is told to go on: a command as it is typed, or a call that Python can read."""

from __future__ import annotations

from typing import Any

import pytest

from jobs.terminal.resuming import PythonCall, with_setting


def called(words: str) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """What a call of `run` in words passes."""
    return eval(words, {"run": lambda *given, **named: (given, named), "config": "a config"})  # type: ignore[no-any-return]


def test_a_command_gets_one_more_flag() -> None:
    assert with_setting("dmqr run a.yaml --set a=1", "limits.max_cost_usd", 2, ".2f") == (
        "dmqr run a.yaml --set a=1 --set limits.max_cost_usd=2.00"
    )
    assert with_setting("dmqr run a.yaml", "limits.error_rate", 0.02) == "dmqr run a.yaml --set limits.error_rate=0.02"


@pytest.mark.parametrize("config", ["'it''s mine.yaml'", "config"])
def test_a_call_gets_one_more_keyword_or_another_value_of_it(config: str) -> None:
    call = PythonCall.of("run", config, {"fuse.method": "rrf", "limits.error_rate": 0.1}, {"label": "b", "date": None})
    assert f"{call}" == f"run({config}, label='b', fuse__method='rrf', limits__error_rate=0.1)"
    more = with_setting(call, "limits.error_rate", 0.5)
    assert called(more)[1] == {"label": "b", "fuse__method": "rrf", "limits__error_rate": 0.5}
    assert called(with_setting(more, "limits.max_cost_usd", 3))[1]["limits__max_cost_usd"] == 3


def test_keys_that_are_no_keywords_are_a_mapping() -> None:
    call = PythonCall.of("run", "config", {"retrieve.retrievers.my-bm25.index": "b", "fuse.k": 1}, {})
    given, named = called(with_setting(call, "fuse.k", 2))
    assert (given, named) == (("a config",), {"retrieve.retrievers.my-bm25.index": "b", "fuse.k": 2})
