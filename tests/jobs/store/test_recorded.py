"""Completions of a recording are taken for answers of the config's engine, and written as a recording again."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from jobs.__main__ import main
from rewriters.engines.recorded import RecordedEngine
from tests.support.jobs.nights import NEW, QUERIES, Nights, log, results
from tests.support.jobs.whole_runs import rows


def recording(path: str, *queries: str) -> None:
    said = {query: {"text": json.dumps({"general": f"said of {query}"}), "usage": {"prompt_tokens": 9}} for query in queries}
    lines = [{"query": query, "completions": {"dmqr": one}} for query, one in said.items()]
    Path(path).write_text("".join(json.dumps(line) + "\n" for line in lines))


def values(capsys: pytest.CaptureFixture[str], *words: str) -> dict[str, Any]:
    assert main(["store", *words, "--json"]) == 0
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


def test_a_run_pays_for_nothing_that_was_imported(nights: Nights, capsys: pytest.CaptureFixture[str]) -> None:
    recording("recorded.jsonl", *QUERIES[:4], NEW)
    told = values(capsys, "import", nights.path, "recorded.jsonl")
    assert {name: told[name] for name in ("queries", "completions", "known", "missing")} == {
        "queries": 5, "completions": 5, "known": 0, "missing": 0
    }  # fmt: skip
    again = values(capsys, "import", nights.path, "recorded.jsonl")
    assert (again["completions"], again["known"]) == (0, 5)
    folder, sent, _ = nights.run("one")
    assert sent == 2
    texts = {one["text"] for one in rows(folder, "rewrites")}
    assert {f"said of {query}" for query in QUERIES[:4]} <= texts


@pytest.mark.slow
def test_what_is_exported_can_be_run_from_and_imported(nights: Nights, capsys: pytest.CaptureFixture[str]) -> None:
    first = nights.run("one")[0]
    log([*QUERIES, NEW])
    told = values(capsys, "export", nights.path, "--out", "out.jsonl")
    assert (told["queries"], told["completions"], told["without"]) == (6, 6, 0)
    recorded = RecordedEngine("out.jsonl")
    assert sorted(recorded.queries()) == sorted(QUERIES)
    recorded.close()
    log(QUERIES)
    engine = 'rewrite.engine={"kind": "recorded", "path": "out.jsonl"}'
    second, sent, _ = nights.run("recorded", engine, "store=null")
    assert sent == 0
    assert results(second) == results(first)
    told = values(capsys, "import", nights.path, "out.jsonl", "--set", "store=elsewhere")
    assert told["completions"] == 6
    third, sent, _ = nights.run("elsewhere", "store=elsewhere")
    assert sent == 0
    assert results(third) == results(first)
    completions = [json.loads(line)["completions"]["dmqr"] for line in Path("out.jsonl").read_text().splitlines()]
    assert {one["model"] for one in completions} == {"tiny"}
    assert all(one["usage"]["completion_tokens"] >= 0 for one in completions)


def test_a_missing_answer_is_counted(nights: Nights, capsys: pytest.CaptureFixture[str]) -> None:
    Path("recorded.jsonl").write_text(json.dumps({"query": QUERIES[0], "completions": {"other": "a"}}) + "\n")
    told = values(capsys, "import", nights.path, "recorded.jsonl")
    assert (told["completions"], told["missing"]) == (0, 1)


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (["import", "CONFIG", "missing.jsonl"], "missing.jsonl: cannot be read"),
        (["import", "runs/store", "recorded.jsonl"], "runs/store: is no config, whose requests are meant; give one"),
        (["import", "CONFIG", "recorded.jsonl", "--set", "store=null"], "its store is null, so there is none"),
        (["import", "CONFIG", "recorded.jsonl", "--set", 'rewrite.engine={"kind": "recorded", "path": "recorded.jsonl"}'],
         "rewrite.engine: its answers are in no store; set the engine that runs have"),
        (["export", "CONFIG", "--out", "recorded.jsonl"], "--out recorded.jsonl: is there, and is not overwritten"),
        (["export", "CONFIG", "--out", "nowhere/a.jsonl"], "--out nowhere/a.jsonl: its folder is not there"),
        (["export", "CONFIG", "--out", "s3://bucket/a.jsonl"], "is no file of this machine"),
    ],
)  # fmt: skip
def test_what_is_refused(nights: Nights, capsys: pytest.CaptureFixture[str], words: list[str], line: str) -> None:
    recording("recorded.jsonl", QUERIES[0])
    assert main(["store", *(nights.path if word == "CONFIG" else word for word in words)]) == 2
    assert line in capsys.readouterr().err
