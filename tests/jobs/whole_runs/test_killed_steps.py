"""Runs and ablations that are killed while they ask: no answer is asked for again, and the rows are the same."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from tests.support.jobs import corrective_llm
from tests.support.jobs.corrective_llm import kind_of, prompt_of
from tests.support.jobs.in_process_runs import finished, prepared_work, rows
from tests.support.jobs.whole_runs import PATIENCE, ROOT
from tests.support.retrievers.web_server import WebServer
from tests.support.rewriters.fake_server import FakeServer

pytestmark = [pytest.mark.slow, pytest.mark.overlapping]

IN_FLIGHT = 2

STEPS = {
    "iterate": "Tried before", "grade for a round": "One word:",
    "answer": "Question:", "judge": "Document",
}  # fmt: skip


def said(body: dict[str, Any]) -> str:
    prompt = prompt_of(body)
    if STEPS["iterate"] in prompt:
        return json.dumps({"query": f"{prompt.rpartition('Query: ')[2]} moon yeast lamp"})
    if STEPS["grade for a round"] in prompt:
        return "ambiguous"
    if STEPS["answer"] in prompt:
        return "So it is [1]."
    return json.dumps({"match": 2, "trust": 2, "overall": 2})


def step_of(prompt: str) -> str | None:
    return next((step for step, mark in STEPS.items() if mark in prompt), None)


Request = tuple[str, str]  # server, text


def prompts(server: FakeServer) -> list[Request]:
    return [("llm", prompt_of(body)) for body in list(server.bodies)]


def searches(web: WebServer) -> list[Request]:
    return [("web", text) for text in list(web.texts)]


def check(
    path: str,
    servers: Sequence[FakeServer | WebServer],
    asked: Callable[[], list[Request]],
    due: Callable[[], bool],
    lost: dict[str, int],
    tables: tuple[str, ...],
    ablate: dict[str, Any] | None = None,
) -> None:
    """Kills a job as soon as it is due, runs it to its end, and compares it with an undisturbed run without a store.

    No more than `lost` requests to a server are repeated, and a later run with the store asks for nothing.
    """
    verb = ["run", path] if ablate is None else ["ablate", path, "--set", f"ablate={json.dumps(ablate)}"]
    quiet, environment = subprocess.DEVNULL, os.environ | {"PYTHONPATH": str(ROOT)}
    running = subprocess.Popen([sys.executable, "-m", "jobs", *verb], env=environment, stdout=quiet, stderr=quiet)
    end = time.monotonic() + PATIENCE
    while not due():
        assert running.poll() is None
        assert time.monotonic() < end
        time.sleep(0.02)
    running.kill()
    running.wait()
    for slow in servers:
        slow.seconds = 0.0
    gone_on = finished(prepared_work(path, [], ablate))
    sent = Counter(asked())
    for server, most in lost.items():
        assert sum(count - 1 for request, count in sent.items() if request[0] == server) <= most
    undisturbed = finished(prepared_work(path, ["name=whole", "store=null"], ablate))
    whole = Counter(asked()) - sent
    assert Counter(server for server, _ in whole.elements()) == Counter(server for server, _ in sent)
    for table in tables:
        assert sorted(map(repr, rows(gone_on, table))) == sorted(map(repr, rows(undisturbed, table))), table
    before = len(asked())
    finished(prepared_work(path, ["name=again"], ablate))
    assert len(asked()) == before


@pytest.mark.parametrize("step", STEPS)
def test_what_was_answered_is_not_asked_again(step: str, small_job: Callable[..., str], values: dict[str, Any]) -> None:
    with FakeServer(["one-8b"], text=said, seconds=0.3) as server:
        engine = {"kind": "openai", "model": "one-8b", "base_url": server.address, "max_in_flight": IN_FLIGHT}
        labels = {"by": "llm", "grades": {"engine": engine}}
        values["iterate"] = {"by": "bm25", "below": 3.0, "labels": labels, "engine": engine}
        values["answer"] = {"documents": 2, "engine": engine}
        values["judge"] = {"relevance": {"documents": 2}, "engine": engine}

        def asked() -> list[Request]:
            return [one for one in prompts(server) if step_of(one[1])]

        def due() -> bool:
            return sum(step_of(prompt) == step for _, prompt in asked()) >= 3

        lost = {"llm": 3 * IN_FLIGHT}  # of each of the stages that ask, at work on different shards
        check(small_job(), [server], asked, due, lost, ("results", "rounds", "answers", "judgements"))


@pytest.mark.parametrize("step", ["question", "grade", "strips", "web", "search"])
def test_what_was_graded_or_found_is_not_asked_again(step: str, small_job: Callable[..., str], values: dict[str, Any]) -> None:
    with FakeServer(["one-8b"], text=corrective_llm.said, seconds=0.3) as server, WebServer("searxng", seconds=0.3) as web:
        engine = {"kind": "openai", "model": "one-8b", "base_url": server.address, "max_in_flight": IN_FLIGHT}
        values["grade"] = {"engine": engine, "question": {"engine": engine}, "strips": {"engine": engine}}
        values["web"] = {"search": {**web.block(), "max_in_flight": IN_FLIGHT}, "when": "any", "engine": engine}
        values["answer"] = {"documents": 6, "engine": engine}

        def asked() -> list[Request]:
            return [*searches(web), *(one for one in prompts(server) if kind_of(one[1]) != "other")]

        def due() -> bool:
            return len(web.texts) >= 2 if step == "search" else sum(kind_of(prompt) == step for _, prompt in asked()) >= 2

        lost = {"llm": 2 * IN_FLIGHT, "web": IN_FLIGHT}  # of each of the stages that ask
        check(small_job(), [server, web], asked, due, lost, ("results", "grades", "corrections", "web", "answers"))


def test_a_gate_decides_the_same_after_a_kill(small_job: Callable[..., str]) -> None:
    with FakeServer(["one-8b"], text=lambda _: json.dumps({"general": "light of a lamp"}), seconds=0.3) as server:
        engine = {"kind": "openai", "model": "one-8b", "base_url": server.address, "max_in_flight": 1}
        path = small_job(rewrite={"engine": engine, "gate": {"by": "bm25", "below": 1.2}})
        tables = ("rewrites", "selections", "runs", "results")
        check(path, [server], lambda: prompts(server), lambda: len(server.bodies) >= 2, {"llm": 1}, tables)


def test_a_killed_ablation_goes_on_and_its_arms_are_those_of_an_undisturbed_one(small_job: Callable[..., str]) -> None:
    answer = json.dumps({"general": "light of a lamp", "keyword": "moon"})
    with FakeServer(["one-8b"], text=lambda _: answer, seconds=0.3) as server:
        engine = {"kind": "openai", "model": "one-8b", "base_url": server.address, "max_in_flight": 1}
        path = small_job(rewrite={"engine": engine, "strategies": ["general", "keyword"]})
        arms = {"subsets": "all", "grid": {"fuse.method": ["rrf", "minmax"]}}
        check(
            path, [server], lambda: prompts(server), lambda: len(server.bodies) >= 4, {"llm": 1}, ("rewrites", "results"), arms
        )


def test_what_the_web_has_found_is_not_searched_again(small_job: Callable[..., str], bm25: dict[str, Any]) -> None:
    with WebServer("searxng", seconds=0.3) as web:
        path = small_job(retrieve={"retrievers": {"bm25": bm25, "web": {**web.block(), "max_in_flight": IN_FLIGHT}}})
        check(path, [web], lambda: searches(web), lambda: len(web.texts) >= 3, {"web": IN_FLIGHT}, ("web", "runs", "results"))
