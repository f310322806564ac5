"""Of several stored answers to a request an export takes that which nights read."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from jobs.__main__ import main
from rewriters.outcome.retries import FIRST_TRY
from tests.support.jobs.replayed_runs import QUERIES, REFUSED, Llm, Nights, errors, folder_of, runs_below, texts
from tests.support.rewriters.fake_server import Body

BAD = QUERIES[1]
HALF = json.dumps({"general": "a lamp that is seen from the sea"})


def exported(nights: Nights, *settings: str) -> dict[str, Any]:
    """Query -> its completions in an export."""
    assert main(["store", "export", nights.path, "--out", "out.jsonl", *(f"--set={one}" for one in settings)]) == 0
    return {one["query"]: one["completions"] for one in map(json.loads, Path("out.jsonl").read_text().splitlines())}


@pytest.mark.slow
def test_a_worse_answer_of_a_replay_is_not_exported(told_nights: Nights, told: Llm, capfd: pytest.CaptureFixture[str]) -> None:
    told.faulty = {BAD: [HALF, REFUSED]}
    told_nights.run("one")
    told_nights.replay("runs/small", "missing")
    found = exported(told_nights)
    assert found[BAD]["dmqr"]["text"] == HALF
    assert told_nights.run("two") == []
    read = texts(runs_below(Path("runs"))[-1])
    assert told_nights.run("recorded", "rewrite.engine={kind: recorded, path: out.jsonl}", "store=null") == []
    assert texts(runs_below(Path("runs"))[-1]) == read
    assert read[BAD] == json.loads(HALF)


@pytest.mark.slow
def test_of_equal_answers_the_last_is_exported(told_nights: Nights, told: Llm) -> None:
    halves = [json.dumps({"general": f"a lamp that is seen from the sea, {number}"}) for number in range(2)]
    told.faulty = {BAD: halves}
    told_nights.run("one")
    told_nights.replay("runs/small", "missing")
    assert exported(told_nights)[BAD]["dmqr"]["text"] == halves[1]


def test_the_try_that_serves_is_exported(told_nights: Nights, told: Llm) -> None:
    def text(body: Body) -> str:
        asked, number = body["messages"][0]["content"], body.get("seed", 0) // FIRST_TRY
        return REFUSED if BAD in asked and number != 1 else json.dumps({"general": f"a lamp {number}", "keyword": "sea"})

    told.server._text = text
    told_nights.run("one", "rewrite.retries=1")
    found = exported(told_nights, "rewrite.retries=1")
    assert json.loads(found[BAD]["dmqr"]["text"])["general"] == "a lamp 1"
    Path("out.jsonl").unlink()
    assert exported(told_nights)[BAD]["dmqr"]["text"] == REFUSED  # a config without tries reads the first answer


@pytest.mark.slow
def test_the_type_that_a_replay_was_told_decides_what_is_exported(told_nights: Nights, told: Llm) -> None:
    def text(body: Body) -> str:
        asked = body["messages"][0]["content"]
        if "type" in asked.lower() and "general" not in asked:
            return "broad" if body.get("seed") or BAD not in asked else "no idea"
        return json.dumps({"general": "a lamp", "keyword": "sea"})

    told.server._text = text
    rules = {
        "rules": [{"type": "narrow", "contains": ["lamp"]}], "otherwise": "broad",
        "descriptions": {"narrow": "asks for one thing", "broad": "asks for many"},
        "strategies": {"narrow": "none", "broad": ["general", "keyword"]},
    }  # fmt: skip
    Path("rules.yaml").write_text(json.dumps(rules))
    select = "rewrite.select={kind: classified, rules: rules.yaml, by: llm}"
    told_nights.run("one", select)
    assert (BAD, "classify", "not_classified") in errors(runs_below(Path("runs"))[-1])
    told_nights.replay("runs/small", "not_classified")
    found = exported(told_nights, select)
    assert (found[BAD]["classify"]["text"], "dmqr" in found[BAD]) == ("broad", True)


@pytest.mark.slow
def test_what_only_a_replay_was_answered_is_known_to_an_import(
    told_nights: Nights, told: Llm, capfd: pytest.CaptureFixture[str]
) -> None:
    told.faulty = {BAD: [REFUSED, REFUSED]}
    told_nights.run("one")
    told_nights.replay("runs/small", "refusal")
    exported(told_nights)
    capfd.readouterr()
    assert main(["store", "import", told_nights.path, "out.jsonl", "--json"]) == 0
    done = json.loads(capfd.readouterr().out)
    assert (done["completions"], done["known"], done["missing"]) == (0, len(QUERIES), 0)
    assert folder_of(runs_below(Path("runs"))[-1]).exists()
