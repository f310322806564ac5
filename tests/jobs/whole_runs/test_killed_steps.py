"""Runs that are killed while an LLM or the web is asked: no answer is asked for again, and the rows are the same."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from tests.support.jobs import corrective_llm
from tests.support.jobs.corrective_llm import kind_of, prompt_of
from tests.support.jobs.in_process_runs import job_in_process
from tests.support.jobs.whole_runs import PATIENCE, ROOT
from tests.support.retrievers.web_server import WebServer
from tests.support.rewriters.fake_server import FakeServer

IN_FLIGHT = 2
TABLES = ("results", "rounds", "answers", "judgements")
STEPS = {
    "iterate": "Tried before", "grade for a round": "One word:",
    "answer": "Question:", "judge": "Document",
}  # fmt: skip


def said(body: dict[str, Any]) -> str:
    prompt = body["messages"][-1]["content"]
    if STEPS["iterate"] in prompt:
        return json.dumps({"query": f"{prompt.rpartition('Query: ')[2]} moon yeast lamp"})
    if STEPS["grade for a round"] in prompt:
        return "ambiguous"
    if STEPS["answer"] in prompt:
        return "So it is [1]."
    return json.dumps({"match": 2, "trust": 2, "overall": 2})


def step_of(body: dict[str, Any]) -> str | None:
    prompt = body["messages"][-1]["content"]
    return next((step for step, mark in STEPS.items() if mark in prompt), None)


def started(path: str, folder: Path, *settings: str) -> subprocess.Popen[bytes]:
    flags = [word for one in settings for word in ("--set", one)]
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    return subprocess.Popen([sys.executable, "-m", "jobs", "run", path, *flags], cwd=folder, env=environment, **quiet)  # type: ignore[call-overload,no-any-return]


def rows(folder: Path, tables: Sequence[str] = TABLES) -> dict[str, list[str]]:
    return {name: sorted(map(repr, pq.read_table(folder / name).to_pylist())) for name in tables}


def killed_and_resumed(path: str, folder: Path, due: Callable[[], bool]) -> None:
    """Runs a job, kills it as soon as it is due, and runs it to its end."""
    running = started(path, folder)
    end = time.monotonic() + PATIENCE
    while not due():
        assert running.poll() is None
        assert time.monotonic() < end
        time.sleep(0.02)
    running.kill()
    running.wait()
    assert started(path, folder).wait(PATIENCE) == 0


@pytest.mark.slow
@pytest.mark.parametrize("step", STEPS)
def test_what_was_answered_is_not_asked_again(
    step: str, tmp_path: Path, values: dict[str, Any], bm25: dict[str, Any], config_file: Callable[[Any], str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    with FakeServer(["one-8b"], text=said, seconds=0.3) as server:
        engine = {"kind": "openai", "model": "one-8b", "base_url": server.address, "max_in_flight": IN_FLIGHT}
        values["iterate"] = {"by": "bm25", "below": 3.0, "labels": {"by": "llm"}, "engine": engine}
        values["iterate"]["labels"]["grades"] = {"engine": engine}
        values["answer"] = {"documents": 2, "engine": engine}
        values["judge"] = {"relevance": {"documents": 2}, "engine": engine}
        path = job_in_process(tmp_path, values, bm25, config_file)
        killed_and_resumed(path, tmp_path, lambda: sum(step_of(body) == step for body in server.bodies) >= 3)
        sent = Counter(json.dumps(body["messages"]) for body in server.bodies if step_of(body))
        assert sum(sent.values()) - len(sent) <= 3 * IN_FLIGHT  # of each of the stages that ask, at work on different shards
        (resumed,) = [one for one in (tmp_path / "runs").glob("small-*") if one.is_dir()]
        before = len(server.bodies)
        assert started(path, tmp_path, "name=whole", "store=null").wait(PATIENCE) == 0
        assert sum(step_of(body) is not None for body in server.bodies[before:]) == len(sent)
        (whole,) = [one for one in (tmp_path / "runs").glob("whole-*") if one.is_dir()]
        assert rows(resumed) == rows(whole)
        before = len(server.bodies)
        assert started(path, tmp_path, "name=again").wait(PATIENCE) == 0
        assert not [body for body in server.bodies[before:] if step_of(body)]


@pytest.mark.slow
@pytest.mark.parametrize("step", ["question", "grade", "strips", "web", "search"])
def test_what_was_graded_or_found_is_not_asked_again(
    step: str, tmp_path: Path, values: dict[str, Any], bm25: dict[str, Any], config_file: Callable[[Any], str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    with FakeServer(["one-8b"], text=corrective_llm.said, seconds=0.3) as server, WebServer("searxng", seconds=0.3) as web:
        engine = {"kind": "openai", "model": "one-8b", "base_url": server.address, "max_in_flight": IN_FLIGHT}
        values["grade"] = {"engine": engine, "question": {"engine": engine}, "strips": {"engine": engine}}
        values["web"] = {"search": {**web.block(), "max_in_flight": IN_FLIGHT}, "when": "any", "engine": engine}
        values["answer"] = {"documents": 6, "engine": engine}
        path = job_in_process(tmp_path, values, bm25, config_file)

        def prompts() -> list[str]:
            return [prompt for body in server.bodies if kind_of(prompt := prompt_of(body)) != "other"]

        def due() -> bool:
            return len(web.texts) >= 2 if step == "search" else sum(kind_of(one) == step for one in prompts()) >= 2

        killed_and_resumed(path, tmp_path, due)
        sent, searched = Counter(prompts()), Counter(web.texts)
        assert sum(sent.values()) - len(sent) <= 2 * IN_FLIGHT  # of each of the stages that ask
        assert sum(searched.values()) - len(searched) <= IN_FLIGHT
        (resumed,) = [one for one in (tmp_path / "runs").glob("small-*") if one.is_dir()]
        before, known = len(prompts()), len(web.texts)
        assert started(path, tmp_path, "name=whole", "store=null").wait(PATIENCE) == 0
        assert (len(prompts()) - before, len(web.texts) - known) == (len(sent), len(searched))
        (whole,) = [one for one in (tmp_path / "runs").glob("whole-*") if one.is_dir()]
        tables = ("results", "grades", "corrections", "web", "answers")
        assert rows(resumed, tables) == rows(whole, tables)
        before, known = len(prompts()), len(web.texts)
        assert started(path, tmp_path, "name=again").wait(PATIENCE) == 0
        assert (len(prompts()), len(web.texts)) == (before, known)


@pytest.mark.slow
def test_a_gate_decides_the_same_after_a_kill(
    tmp_path: Path, values: dict[str, Any], bm25: dict[str, Any], config_file: Callable[[Any], str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """What was rewritten is not asked for again."""
    monkeypatch.chdir(tmp_path)
    with FakeServer(["one-8b"], text=lambda _: json.dumps({"general": "light of a lamp"}), seconds=0.3) as server:
        engine = {"kind": "openai", "model": "one-8b", "base_url": server.address, "max_in_flight": 1}
        values["rewrite"] |= {"engine": engine, "gate": {"by": "bm25", "below": 1.2}}
        path = job_in_process(tmp_path, values, bm25, config_file)
        killed_and_resumed(path, tmp_path, lambda: len(server.bodies) >= 2)
        sent = Counter(json.dumps(body["messages"]) for body in server.bodies)
        assert sum(sent.values()) - len(sent) <= 1  # what was in flight
        (resumed,) = [one for one in (tmp_path / "runs").glob("small-*") if one.is_dir()]
        before = len(server.bodies)
        assert started(path, tmp_path, "name=whole", "store=null").wait(PATIENCE) == 0
        assert len(server.bodies) - before == len(sent)
        (whole,) = [one for one in (tmp_path / "runs").glob("whole-*") if one.is_dir()]
    tables = ("rewrites", "selections", "runs", "results")
    assert rows(resumed, tables) == rows(whole, tables)
