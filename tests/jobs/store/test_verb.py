"""The verb `store`, as it is typed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from jobs.__main__ import main
from tests.support.jobs.nights import QUERIES, Nights
from tests.support.jobs.stored import put, texts

BEGAN = 1_790_000_000.0


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A store beside no runs, in the current folder."""
    monkeypatch.chdir(tmp_path)
    for number in range(3):
        put(tmp_path / "facts", {"moon and tides": f"{number}", "yeast": f"{number}"}, BEGAN + number)
    return tmp_path / "facts"


def printed(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    assert main(["store", *words]) == 0
    return capsys.readouterr().out


def test_gc(store: Path, capsys: pytest.CaptureFixture[str]) -> None:
    values = json.loads(printed(capsys, "gc", "facts", "--unused", "30d", "--json"))
    (one,) = values["compacted"]
    assert (one["kind"], one["name"], one["files"], one["dropped"]) == ("completions", "engine", [3, 1], 2)
    assert texts(store, ["yeast"]) == {"yeast": "0"}
    assert "every space was used within 30d" in printed(capsys, "gc", "facts", "--unused", "30d")
    for path in store.glob("v1/used/*/*"):
        path.rename(path.with_name("2020-01-01"))
    out = printed(capsys, "gc", "facts", "--unused", "30d", "--dry-run")
    assert "would go" in out
    assert "would go; nothing was removed" in out
    assert texts(store, ["yeast"])
    for path in store.glob("v1/used/*/*"):
        path.rename(path.with_name("2020-01-01"))
    assert "removed" in printed(capsys, "gc", "facts", "--unused", "30d")
    assert texts(store, ["yeast"]) == {}


def test_forget(nights: Nights, capsys: pytest.CaptureFixture[str]) -> None:
    folder = nights.run("one")[0]
    words = ["forget", nights.path, QUERIES[2]]
    assert "rows would go: " in printed(capsys, *words, "--dry-run")
    out = printed(capsys, *words)
    assert "rows gone: " in out
    assert "runs that still hold it (1); " in out
    assert str(folder) in out
    values: dict[str, Any] = json.loads(printed(capsys, *words, "--json"))
    assert values["runs"] == [str(folder)]
    assert sum(values["rows"].values()) == 0


def test_an_output_has_its_store(nights: Nights, capsys: pytest.CaptureFixture[str]) -> None:
    folder = nights.run("one")[0]
    for given in (str(folder.parent), str(folder.parent / "store"), nights.path):
        values = json.loads(printed(capsys, "forget", given, QUERIES[2], "--dry-run", "--json"))
        assert values["store"] == str(folder.parent / "store")
        assert values["runs"] == [str(folder)]


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (["gc", "nowhere", "--unused", "30d"], "nowhere: no store lies there (no folder v1)"),
        (["stats", "facts"], 'Unknown command "stats". Available commands: gc, forget; see dmqr store --help'),
        (["gc"], "CONFIG|STORE"),
        (["forget", "facts"], "QUERY"),
        (["forget", "facts", "a", "b"], "Unused Tokens: ['b']"),
        (["gc", "facts"], "parameter --unused requires an argument"),
        (["gc", "facts", "--unused", "30"], "--unused 30: is no duration; give one like 12h, 30d or 8w"),
        (["gc", "facts", "--unused", "30d", "--own"], "Unknown option: --own"),
        (["forget", "facts", "a", "--own", "--all"], "--own: leaves what --all takes; give one"),
        (["gc", "facts", "--unused", "30d", "--set", "a=b"], "--set: facts is no config, which it would change; leave it out"),
    ],
)
def test_what_is_refused(store: Path, capsys: pytest.CaptureFixture[str], words: list[str], line: str) -> None:
    assert main(["store", *words]) == 2
    assert line in capsys.readouterr().err
