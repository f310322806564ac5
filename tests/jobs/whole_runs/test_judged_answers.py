"""Judgements of answers in whole runs in this process: accuracy against gold answers, and criteria."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from cluster.errors import ConfigError
from jobs.__main__ import main
from tests.support.jobs.in_process_runs import QUERIES, finished, job_in_process, prepared_work, rows
from tests.support.rewriters.fake_server import FakeServer

CRITERIA = (
    "correctness", "faithfulness", "relevance", "thoroughness", "harmlessness", "readability", "logicality", "creativity",
)  # fmt: skip
GOLD = {QUERIES[2]: ["the moon", "gravity"], QUERIES[3]: ["the sun"]}
VAGUE = QUERIES[4]  # the judge does not commit itself on its answer


def prompt_of(body: dict[str, Any]) -> str:
    return str(body["messages"][-1]["content"])


def question(prompt: str) -> str:
    return prompt.partition("Question: ")[2].partition("\n")[0]


def said(body: dict[str, Any]) -> str:
    """Answers with the first document's number; judges queries with gold answers right; grades criteria by their place."""
    prompt, system = prompt_of(body), body["messages"][0]["content"]
    if "creativity" in system:
        return json.dumps({name: place % 6 for place, name in enumerate(CRITERIA)})
    if "Reference answers:" in prompt:
        if question(prompt) == VAGUE:
            return "It depends."
        return "incorrect" if "(none is known)" in prompt else "Correct."
    return f"On {question(prompt)} it says so [1]."


@pytest.fixture
def server() -> Iterator[FakeServer]:
    with FakeServer(["judge-70b"], text=said) as one:
        yield one


@pytest.fixture
def job(
    tmp_path: Path, values: dict[str, Any], bm25: dict[str, Any], config_file: Callable[[Any], str], server: FakeServer,
    monkeypatch: pytest.MonkeyPatch,
) -> str:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    Path("gold.tsv").write_text("".join(f"{query}\t{one}\n" for query, of in GOLD.items() for one in of))
    engine = {"kind": "openai", "model": "judge-70b", "base_url": server.address}
    values["answer"] = {"documents": 2, "engine": engine}
    values["judge"] = {"engine": engine, "accuracy": {}, "criteria": {}}
    values["evaluate"] = {"answers": "gold.tsv", "key": "query"}
    return job_in_process(tmp_path, values, bm25, config_file)


def asked(server: FakeServer, words: str) -> list[str]:
    """The prompts of one kind that were sent."""
    return [prompt_of(one) for one in server.bodies if words in prompt_of(one)]


@pytest.mark.slow
def test_gold_answers_are_found_by_every_key_and_count_for_the_run(job: str, server: FakeServer) -> None:
    first = finished(prepared_work(job, [], None))
    ids = {one["query"]: one["query_id"] for one in rows(first, "queries")}
    sent = len(asked(server, "Answer of the system:"))
    Path("by_id.tsv").write_text("".join(f"{ids[query]}\t{one}\n" for query, of in GOLD.items() for one in of))
    Path("by_log.tsv").write_text(
        "".join(f"{one['log_id']}\t{gold}\n" for one in rows(first, "query_map") for q in GOLD for gold in GOLD[q]
                if one["query_id"] == ids[q])
    )  # fmt: skip
    for key, path in (("query_id", "by_id.tsv"), ("log_id", "by_log.tsv")):
        run = finished(prepared_work(job, [f"evaluate.key={key}", f"evaluate.answers={path}"], None))
        assert rows(run, "judgements") == rows(first, "judgements")
    assert len(asked(server, "Answer of the system:")) == sent
    Path("gold.tsv").write_text(f"{QUERIES[0]}\tyeast\n")
    other = finished(prepared_work(job, [], None))
    assert other.storage.root != first.storage.root
    changed = [QUERIES[0], *GOLD]
    again = asked(server, "Answer of the system:")[sent:]
    assert sorted(map(question, again)) == sorted(changed)


def test_without_answers_there_is_nothing_to_judge(job: str) -> None:
    with pytest.raises(ConfigError, match="accuracy and criteria are of answers"):
        prepared_work(job, ["answer=null"], None)


@pytest.mark.slow
def test_the_closing_table_has_the_means(job: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", job]) == 0
    out = " ".join(capsys.readouterr().out.split())
    assert "answers, accuracy accuracy 0.40 (5 queries)" in out
    assert "creativity 1.00 (6 queries)" in out
