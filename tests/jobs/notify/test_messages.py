"""What stands in a message, whatever stands in a job: no text of an error that may hold one, valid JSON, Slack's escapes."""

from __future__ import annotations

import json
import math
import re
import signal
from html import unescape
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from cluster.errors import CODES, ConfigError, DmqrError, LogError, Stopped
from jobs.config.notify import NotifySettings
from jobs.notify.message import LIMITS, Away, Ending, JobFigures, Leading, Message, ending, outage_line

TEXT = "why does bread rise"
SAFE = {
    "stopped-errors", "stopped-cost", "stopped-stall", "stopped-lease", "interrupted", "log-missing",
    "storage-away", "run-changed", "index-missing", "cluster-small",
}  # fmt: skip
UNSAFE = {
    "stopped-failure", "worker-died", "log-column", "log-unreadable", "judgements", "strategy", "server-away", "server-access",
    "elastic-refused", "corpus", "index-damaged", "run-file", "prompt", "selection", "internal-error", "plugin", "config-value",
}  # fmt: skip
words = st.text(st.characters(codec=None), max_size=30)  # halves of surrogate pairs, too
numbers = st.floats(allow_nan=True, allow_infinity=True)


@pytest.mark.parametrize("code", sorted(CODES))
def test_lines_that_may_hold_a_text_are_not_told(code: str) -> None:
    found = ending(Stopped(code, f"query {TEXT}: went wrong\nhere; try again", 1))
    if code == "run-held":
        assert found is None
        return
    assert found is not None
    assert "\n" not in found.line
    assert len(found.line) > 20
    if code in SAFE:
        assert found.line == f"query {TEXT}: went wrong here; try again"
    if code in UNSAFE:
        assert TEXT not in found.line
    assert found.event == ("interruption" if code == "interrupted" else "limit" if code in LIMITS else "failure")


def test_each_way_to_end() -> None:
    stays = "interrupted; what is committed stays"
    assert ending(KeyboardInterrupt()) == Ending("interruption", 130, "interrupted", stays)
    assert ending(SystemExit(signal.SIGTERM)) == Ending("interruption", 143, "interrupted", stays)
    assert ending(LogError("log-missing", "a.parquet: has no rows; give another")) == Ending(
        "failure", 2, "log-missing", "a.parquet: has no rows; give another"
    )
    refused, stopped = (ending(Stopped("log-column", TEXT, code)) for code in (2, 1))
    assert refused is not None
    assert refused.line.endswith("; standard error, or the exception, has the line")  # there may be no log
    assert stopped is not None
    assert stopped.line.endswith("; the log has the line")
    failed = ending(ValueError(TEXT))
    assert failed is not None
    assert (failed.event, failed.exit_code, failed.code) == ("failure", 1, None)
    assert TEXT not in failed.line
    assert ending(ConfigError("run-held", "another driver works on it; wait")) is None
    assert issubclass(ConfigError, DmqrError)


@given(
    words, words, st.none() | words, st.none() | words, st.integers(0, 10**9), st.none() | st.integers(0, 10**9),
    st.none() | st.floats(0, 1), st.none() | st.floats(0, 1e9),
    st.none() | st.tuples(words, words, numbers, st.none() | numbers),
)  # fmt: skip
def test_whatever_stands_in_it_it_is_json_and_a_text(
    name: str, line: str, run: str | None, folder: str | None, done: int, of: int | None, traffic: float | None,
    usd: float | None, measure: Any,
) -> None:  # fmt: skip
    leading = None if measure is None else Leading(measure[0], measure[1], measure[2], "original", measure[3]).values()
    message = Message(
        "limit", "ablate", name, line, run, folder, 1, "stopped-cost", JobFigures(done, of, traffic, usd), leading
    )
    values = json.loads(message.body("json"), parse_constant=pytest.fail)
    assert values["queries"] == {"done": done, "of": of}
    assert values["name"].encode("utf-8", "replace") == name.encode("utf-8", "replace")
    if leading is not None:
        assert math.isfinite(values["measure"]["value"])
    text = json.loads(message.body("slack"))["text"]
    assert "<" not in text
    assert ">" not in text
    assert unescape(text).count("\n") <= 4
    assert "\r" not in text


def test_slacks_text_of_an_outage() -> None:
    away = Away("S3 at host:9000", 0.0, 90.0, 120.0)
    message = Message(
        "outage", "run", "n", outage_line(away), "n-1", "/runs/n-1", figures=JobFigures(10, 20, 0.75, 1.5), outage=away
    )
    assert message.text().splitlines() == [
        "*n-1*: waits for a service",
        "S3 at host:9000 has not answered for 1 min 30 s; the job gives up after 2 min 00 s",
        "10 of 20 queries, 75.0 % of the traffic, $1.50",
        "/runs/n-1",
    ]
    assert message.values()["outage"] == {
        "service": "S3 at host:9000", "since": "1970-01-01T00:00:00Z", "seconds": 90, "gives_up_after_seconds": 120,
    }  # fmt: skip


def test_the_page_says_what_is_sent() -> None:
    page = (Path(__file__).parents[3] / "docs/notifications.md").read_text(encoding="utf-8")
    (shown,) = re.findall(r"```json\n(.*?)```", page, re.DOTALL)
    values = json.loads(shown)
    assert list(values) == list(Message("limit", "run", "n", "x").values())
    table = page[page.index("| key | |") :].partition("\n\n")[0]
    assert re.findall(r"`(\w+)`", "".join(line.split("|")[1] for line in table.splitlines()[2:])) == list(values)
    configs = [yaml.safe_load(block)["notify"] for block in re.findall(r"```yaml\n(.*?)```", page, re.DOTALL)]
    assert len([NotifySettings.model_validate(one) for of in configs for one in of]) == 4
