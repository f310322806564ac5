"""How a person is told to go on: a command as it is typed, or a call that Python can read."""

from __future__ import annotations

from typing import Any

import pytest

from jobs.terminal.resuming import python_call, with_setting


def test_a_command_gets_one_more_flag() -> None:
    assert with_setting("dmqr run a.yaml --set a=1", "limits.max_cost_usd", 2, ".2f") == (
        "dmqr run a.yaml --set a=1 --set limits.max_cost_usd=2.00"
    )


@pytest.mark.parametrize("config", ["'it''s mine.yaml'", "config"])
@pytest.mark.parametrize("settings", [{}, {"limits.error_rate": 0.1, "retrieve.retrievers.my-bm25": {"k": 1}}])
def test_a_call_gets_one_more_setting_or_another_value_of_it(config: str, settings: dict[str, Any]) -> None:
    class dmqr:
        @staticmethod
        def run(*given: Any, **named: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
            return given, named

    call = python_call("dmqr.run", config, settings, {"label": "b", "date": None})
    once = with_setting(call, "limits.error_rate", 0.3)
    twice = with_setting(once, "limits.error_rate", 0.5)
    for words, more in ((call, {}), (once, {"limits.error_rate": 0.3}), (twice, {"limits.error_rate": 0.5})):
        given, named = eval(words, {"dmqr": dmqr, "config": "its mine.yaml"})
        assert (given, named) == (("its mine.yaml",), {"label": "b"} | settings | more)
