"""Answers at fault in the stages after rewriting are replayed: only they are asked for anew, and later jobs read the new ones.

What is to come of it is told by a run that never had an answer at fault.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from jobs.runs.folder import RunFolder
from rewriters.outcome.replays import AT_FAULT
from tests.support.jobs import step_llm
from tests.support.jobs.replayed_runs import QUERIES, Llm, Nights, folder_of, runs_below
from tests.support.jobs.step_llm import Body, kind_of, prompt_of, replay_of
from tests.support.jobs.whole_runs import rows
from tests.support.params import rest_slow
from tests.support.retrievers.web_server import WebServer

BAD = QUERIES[1]
JUDGED = [
    "iterate={by: bm25, below: 30, documents: 2, merge: best, labels: {by: llm}}",
    "answer={documents: 2}",
    "judge={relevance: {documents: 2}, accuracy: {}, nuggets: {documents_at_once: 2}}",
]
FAULTS = {  # answer at fault -> table of what it was to give, and the stage that has the error
    "iterate": ("rounds", "iterate"), "repeated": ("rounds", "iterate"), "round_grade": ("rounds", "iterate"),
    "answer": ("answers", "answer"), "citation": ("answers", "answer"),
    "relevance": ("judgements", "judge"), "accuracy": ("judgements", "judge"),
    "nuggets": ("nuggets", "judge"), "importance": ("nuggets", "judge"), "support": ("assignments", "judge"),
    "question": ("corrections", "grade"), "grade": ("grades", "grade"), "strips": ("grades", "grade"), "web": ("web", "grade"),
}  # fmt: skip
TABLES = {
    "judged": ("results", "rounds", "answers", "judgements", "nuggets", "assignments"),
    "corrected": ("results", "grades", "corrections", "web", "answers"),
}
CORRECTED = ("question", "grade", "strips", "web")  # of the config with grades and the web


def settings_of(fault: str, web: WebServer) -> list[str]:
    if fault not in CORRECTED:
        return JUDGED
    search = json.dumps(web.block())
    return ["grade={question: {}, strips: {}}", f"web={{search: {search}, when: any}}", "answer={documents: 6}"]


def table(run: RunFolder, name: str, of: Sequence[str] = QUERIES) -> list[str]:
    """The rows of some queries, but for the arm's name."""
    query = {one["query_id"]: one["query"] for one in rows(folder_of(run), "queries")}
    found = [one for one in rows(folder_of(run), name) if query[one["query_id"]] in of]
    return sorted(repr({key: value for key, value in one.items() if key != "arm"}) for one in found)


def reasons(run: RunFolder, stage: str) -> set[str]:
    """The reasons for which BAD has errors."""
    query = {one["query_id"]: one["query"] for one in rows(folder_of(run), "queries")}
    found = [one for one in rows(folder_of(run), "errors") if one["stage"] == stage]
    assert {query[one["query_id"]] for one in found} <= {BAD}
    return {one["reason"] for one in found}


@pytest.mark.parametrize("fault", rest_slow(FAULTS, ["answer"]))  # a run and two replays each
def test_what_is_at_fault_in_a_step_is_asked_for_anew(
    told_nights: Nights, told: Llm, fault: str, capfd: pytest.CaptureFixture[str]
) -> None:
    broken, asked, name, stage = [fault], step_llm.ASKED.get(fault, fault), *FAULTS[fault]

    def text(body: Body) -> str:
        if fault == "strips" and kind_of(body) == "grade" and BAD in prompt_of(body):
            return "Ambiguous."
        wrong = broken and kind_of(body) == asked and BAD in prompt_of(body)
        return step_llm.at_fault(fault, body) if wrong else step_llm.said(body)

    told.server._text = text
    with WebServer("searxng") as web:
        settings = settings_of(fault, web)
        tables = TABLES["corrected" if fault in CORRECTED else "judged"]
        told_nights.run("one", *settings)
        (first,) = runs_below(Path("runs"))
        wrong = reasons(first, stage)
        assert wrong
        assert wrong <= AT_FAULT
        before = list(told.server.bodies)
        faulty = Counter(prompt_of(body) for body in before if kind_of(body) == asked and BAD in prompt_of(body))
        broken.clear()
        told_nights.run("well", "store=null", "output=well", *settings)
        (well,) = runs_below(Path("well"))

        seen = len(told.server.bodies)
        told_nights.replay(folder_of(first), *wrong)
        again = told.server.bodies[seen:]
        anew = [body for body in again if replay_of(body)]
        assert {kind_of(body) for body in anew} == {asked}
        assert {replay_of(body) for body in anew} == {1}
        assert Counter(map(prompt_of, anew)) <= faulty
        # all else that is asked is what follows from the new answer: no run was asked it before
        assert {prompt_of(body) for body in again if not replay_of(body)}.isdisjoint(map(prompt_of, before))
        replayed = runs_below(Path("runs"))[-1]
        for one in tables:
            assert table(replayed, one) == table(well, one, [BAD]), one
        assert not reasons(replayed, stage)
        assert name not in tables or table(first, name, [BAD]) != table(well, name, [BAD]) or fault == "citation"

        seen = len(told.server.bodies)
        told_nights.run("two", *settings)
        for one in tables:
            assert table(runs_below(Path("runs"))[-1], one) == table(well, one), one
        assert told.server.bodies[seen:] == []
        capfd.readouterr()
        arms = "ablate={arms: {same: {fuse.keep: 40}}}"  # of eight documents
        told_nights.command("ablate", told_nights.path, *(word for one in [*settings, arms] for word in ("--set", one)))
        arm = Path(capfd.readouterr().out.splitlines()[-1])
        shown = {one["query_id"]: one["query"] for one in rows(arm, "queries")}
        for one in tables:
            of_arm = [
                row for row in rows(arm, one) if row.get("arm", "full") in ("full", None) and shown[row["query_id"]] == BAD
            ]
            assert len(of_arm) == len(table(well, one, [BAD])), one
        # arms of single strategies have questions of their own; nothing is asked again
        known = {prompt_of(body) for body in told.server.bodies[:seen]}
        assert known.isdisjoint(map(prompt_of, told.server.bodies[seen:]))
        seen = len(told.server.bodies)
        assert trial(told_nights, settings, capfd)
        assert told.server.bodies[seen:] == []


def trial(nights: Nights, settings: Sequence[str], capfd: pytest.CaptureFixture[str]) -> dict[str, Any]:
    """What `try` shows of the query; none of it has an error."""
    capfd.readouterr()
    nights.command("try", nights.path, BAD, "--json", *(word for one in settings for word in ("--set", one)))
    (found,) = json.loads(capfd.readouterr().out)
    assert [one for one in found.get("errors", []) if one["reason"] in AT_FAULT] == []
    shown: dict[str, Any] = found
    return shown


def test_what_a_replay_asks_itself_and_fails_is_replayed_by_the_next(told_nights: Nights, told: Llm) -> None:
    """The list of nuggets is at fault; when it is there, the labels are, which nobody was asked for before."""
    broken = ["nuggets", "importance"]

    def text(body: Body) -> str:
        kind = kind_of(body)
        return step_llm.at_fault(kind, body) if kind in broken and BAD in prompt_of(body) else step_llm.said(body)

    told.server._text = text
    told_nights.run("one", *JUDGED)
    broken.remove("nuggets")
    (first,) = runs_below(Path("runs"))
    told_nights.replay(folder_of(first), "unparsable")
    second = runs_below(Path("runs"))[-1]
    assert reasons(second, "judge") == {"unparsable"}
    assert [kind_of(body) for body in told.server.bodies if replay_of(body)] == ["nuggets"]
    broken.clear()
    told_nights.replay(folder_of(second), "unparsable")
    last = runs_below(Path("runs"))[-1]
    assert not reasons(last, "judge")
    assert [kind_of(body) for body in told.server.bodies if replay_of(body)] == ["nuggets", "importance"]
    assert {row["importance"] for row in rows(folder_of(last), "nuggets")} == {"vital", "okay"}
