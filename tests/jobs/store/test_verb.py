"""The verb store, as it is typed; rows by age, on S3, and of two jobs at once."""

import json
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from cluster.errors import ConfigError
from cluster.storage import open_storage
from cluster.storage.s3_client import take_traffic
from jobs.__main__ import main
from jobs.config.load import load_config
from jobs.store.collect import collect
from jobs.store.compact import compact
from jobs.store.forget import forget
from tests.support.cluster.s3_server import S3Server
from tests.support.jobs.nights import NEW, QUERIES, Nights, log, results, totals
from tests.support.jobs.stored import found, opened, put, texts
from tests.support.jobs.whole_runs import ROOT, finish, rows
from tests.support.rewriters.fake_server import FakeServer

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


@pytest.mark.slow
def test_a_run_compacts_the_store_when_it_is_finished(
    nights: Nights, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("jobs.store.compact.MOST_TOGETHER", 1)
    nights.run("one")
    log([*QUERIES, NEW])
    assert main(["run", nights.path, "--label", "two"]) == 0
    assert "3 files are 1 now" in capfd.readouterr().err
    assert len(list(Path("runs/store").glob("v1/completions/*/merged-*"))) == 1
    assert nights.run("three")[1:] == (0, 0)


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (["gc", "nowhere", "--unused", "30d"], "nowhere: there is no store (no folder v1)"),
        (["stats", "facts"], 'Unknown command "stats"; see dmqr store --help'),
        (["gc"], "CONFIG|STORE"),
        (["forget", "facts"], "QUERY"),
        (["forget", "facts", "a", "b"], "Unused Tokens: ['b']"),
        (["gc", "facts"], "parameter --unused requires an argument"),
        (["gc", "facts", "--unused", "30"], "--unused 30: is not a duration; give one like 12h, 30d or 8w"),
        (["gc", "facts", "--unused", "30d", "--own"], "Unknown option: --own"),
        (["forget", "facts", "a", "--own", "--all"], "--own: contradicts --all; give one of them"),
        (["gc", "facts", "--unused", "30d", "--set", "a=b"], "--set: changes a config, and facts is not one; leave it out"),
    ],
)
def test_what_is_refused(store: Path, capsys: pytest.CaptureFixture[str], words: list[str], line: str) -> None:
    assert main(["store", *words]) == 2
    assert line in capsys.readouterr().err


@pytest.mark.parametrize("value", ["30", "0d", "1y", "-1d"])
def test_it_is_a_duration(nights: Nights, value: str) -> None:
    with pytest.raises(ConfigError, match="store_ttl"):
        load_config(nights.path, [f'store_ttl="{value}"'])


NUMBERED = [f"query {number}" for number in range(20)]


def test_a_store_on_s3(s3: S3Server) -> None:
    store = s3.fresh()
    storage = open_storage(store)
    for night in range(6):
        put(store, dict.fromkeys(NUMBERED[night:], f"night {night}"), BEGAN + night)
    early = opened(store)
    take_traffic()
    before = texts(store, NUMBERED)
    apart = take_traffic()
    assert before == dict.fromkeys(NUMBERED, "night 0")
    (done,) = compact(storage, grace=0.0)
    assert done.files == (6, 1)
    take_traffic()
    assert texts(store, NUMBERED) == before
    together = take_traffic()
    assert apart["get"] - together["get"] == 5  # of six files one is left
    assert {name: apart[name] for name in ("list", "put")} == {name: together[name] for name in ("list", "put")}
    assert found(early, NUMBERED) == before
    forget(storage, "query 3", None, others="none")
    assert sorted(texts(store, NUMBERED)) == sorted({*NUMBERED} - {"query 3"})
    assert collect(storage, 86_400.0) == []


@pytest.mark.slow
@pytest.mark.parametrize("known", ["nothing", "all but one query"])
@pytest.mark.parametrize("place", ["folder", "s3"])
def test_two_jobs_at_once(
    nights: Nights, llm: FakeServer, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest, known: str, place: str
) -> None:
    s3: S3Server | None = request.getfixturevalue("s3") if place == "s3" else None
    address = str(Path("facts").absolute()) if s3 is None else s3.fresh("facts")
    store, settings = open_storage(address), [f"store={address}"]
    if known != "nothing":
        nights.run("one", *settings)
    missing = [NEW] if known != "nothing" else [*QUERIES, NEW]
    log([*QUERIES, NEW])
    alone = nights.run("alone", "store=null")[0]
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    before = len(llm.bodies)
    started = [
        subprocess.Popen(
            [sys.executable, "-m", "jobs", "run", nights.path, "--label", label, "--set", settings[0]],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )
        for label in ("two", "three")
    ]  # fmt: skip
    while any(process.poll() is None for process in started):
        if list(store.list()):
            compact(store, grace=0.0)
    ended = [finish(process) for process in started]
    assert [done.code for done in ended] == [0, 0], [done.err for done in ended]
    folders = [Path(done.out.splitlines()[-1]) for done in ended]
    for folder in folders:
        assert results(folder) == results(alone)
        assert sorted(map(repr, rows(folder, "rewrites"))) == sorted(map(repr, rows(alone, "rewrites")))
        # each has an answer to each query, from the store or paid for, and pays for no query twice nor for a known one
        paid = Counter(one["query_id"] for one in rows(folder, "costs") if one["stage"] == "rewrite" and one["requests"])
        assert max(paid.values(), default=0) <= 1
        assert len(paid) <= len(missing)
        assert totals(folder, "requests")["rewrite"] + totals(folder, "reused")["rewrite"] == len(QUERIES) + 1
        assert totals(folder, "pairs")["rerank"] <= totals(alone, "pairs")["rerank"]
    asked = Counter(str(body["messages"]) for body in llm.bodies[before:])
    assert len(asked) == len(missing)
    assert max(asked.values()) <= 2
    assert sum(asked.values()) == sum(totals(folder, "requests")["rewrite"] for folder in folders)
    third = nights.run("four", *settings)
    assert third[1:] == (0, 0)
    assert results(third[0]) == results(alone)
