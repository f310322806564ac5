"""Judgements that replays have asked for anew: who reads a judge's answer reads the one that the grade is of."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from jobs.run.planning.requests import JobRequests
from rewriters.outcome.replays import FIRST_REPLAY
from tests.support.jobs.in_process_runs import prepared_work
from tests.support.jobs.replayed_runs import Llm, Nights, good, job_with

SETTINGS = [
    "answer={documents: 2}",
    "grade={documents: 2, prompt: relevance, against: query, decoding: {temperature: 0.5}}",  # another answer to the same
    "judge={relevance: {documents: 2}}",
]


def said(body: dict[str, Any]) -> str:
    """Grades by the replay that asks; what was asked first about yeast cannot be read."""
    prompt = str(body["messages"][-1]["content"])
    if prompt.startswith("Documents:"):
        return "It is so [1]."
    if "Document:" not in prompt:
        return good(prompt.rpartition("Query: ")[2])
    replay, graded = int(body.get("seed", 0)) // FIRST_REPLAY, body["temperature"] == 0.5
    if "yeast" in prompt and not replay and not graded:
        return "hard to say"
    return json.dumps({"match": replay, "trust": int(graded), "overall": 3 if graded else 1 + min(replay, 1)})


@pytest.fixture
def nights(
    tmp_path: Path, values: dict[str, Any], bm25: dict[str, Any], config_file: Callable[[Any], str],
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[Nights]:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    llm = Llm()
    with llm.server:
        llm.server._text = said
        yield Nights(job_with(llm, values, bm25, config_file), llm)


def test_a_replay_may_ask_for_each_answer_once_more(nights: Nights) -> None:
    work = prepared_work(nights.path, SETTINGS, None).compiled.work
    once, again = (JobRequests(work, replays=replays).of_query({}) for replays in (False, True))
    assert again.number == 2 * once.number
    assert again.at_most
