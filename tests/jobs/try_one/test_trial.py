"""One query through every stage without Ray: what it comes to, what is shown of it, what is refused."""

import io
import json
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from cluster.errors import ConfigError
from cluster.run.meter import Meter
from jobs.__main__ import main
from jobs.chain.stages.retrieve import Retrieve
from jobs.chain.stages.rewrite import Rewrite
from jobs.config.load import load_config
from jobs.pages.try_one import page
from jobs.try_one import trial as module
from jobs.try_one.outcome import Trial
from jobs.try_one.trial import LoadedConfig
from retrievers.local.build import build_local_index
from tests.support.jobs.terminals import printed
from tests.support.retrievers.blocks import index_fields

Values = dict[str, Any]
QUERY = "how does a lighthouse lamp work"
ANSWER = {
    "general": "how is the lamp of a lighthouse built",
    "keyword": "lighthouse lamp lens",
    "pseudo_answer": "A lens throws the light of a lamp across the sea.",
    "core_content": "lighthouse lamp",
}


@pytest.fixture
def job(tmp_path: Path, values: Values, bm25: Values, config_file: Callable[[Any], str]) -> Callable[..., str]:
    """The config of a small job, written with changes; its log is not there."""
    recorded = tmp_path / "recorded.jsonl"
    recorded.write_text(json.dumps({"query": QUERY, "completions": {"dmqr": json.dumps(ANSWER)}}) + "\n")
    values["rewrite"]["engine"]["path"] = str(recorded)
    values["retrieve"]["retrievers"] = {"bm25": bm25}
    values["rerank"] = {"kind": "none"}
    values["output"] = str(tmp_path / "runs")

    def write(**changes: Any) -> str:
        return config_file(values | changes)

    return write


def tried(path: str, query: str = QUERY, label: str = "small") -> Trial:
    with LoadedConfig(load_config(path), path, label) as loaded:
        return loaded.try_query(query, lambda words: None)


def shown(*trials: Trial, width: int = 80, prompts: bool = False) -> str:
    return printed(page(trials, prompts), width)


def test_a_query_goes_through_every_stage(job: Callable[..., str], tmp_path: Path) -> None:
    trial = tried(job())
    assert {one["strategy"]: one["text"] for one in trial.row["rewrites"]} == ANSWER
    assert [hit["doc_id"] for hit in trial.row["hits"]][:2] == ["d01", "d02"]
    assert trial.row["hits"][0]["text"].startswith("Lighthouses. A keeper")
    assert trial.spent["retrieve"]["bm25@"]["searches"] == 5
    strategies = {hit["doc_id"]: {source["strategy"] for source in hit["sources"]} for hit in trial.row["hits"]}
    alone = {doc_id for doc_id, found in strategies.items() if "original" not in found}
    assert alone
    assert shown(trial).count("not found by the original") == len(alone)
    assert not (tmp_path / "runs").exists()


def test_why_a_rewrite_is_missing_is_said_and_the_original_is_searched_all_the_same(job: Callable[..., str]) -> None:
    trial = tried(job(), "bread and yeast")
    assert trial.row["rewrites"] == []
    assert [hit["doc_id"] for hit in trial.row["hits"]]
    assert [error["reason"] for error in trial.row["errors"]] == ["not_recorded"] * 4
    text = " ".join(shown(trial).split())
    assert text.count("has no completion 'dmqr'") == text.count("not_recorded") == 1
    assert "(general, keyword, pseudo_answer, core_content)" in text
    beside = shown(trial, tried(job(), "bread and yeast", "other"))
    assert beside.count("'dmqr'") == 2  # once for each config


def test_texts_searched_together_are_one_list(job: Callable[..., str], bm25: Values) -> None:
    path = job(retrieve={"retrievers": {"one": bm25, "both": bm25 | {"together": True}}})
    trial = tried(path)
    assert [(one["strategy"], one["retriever"]) for one in trial.row["lists"]][:2] == [
        ("together", "both"),
        ("original", "one"),
    ]
    assert len(trial.row["lists"]) == 6
    assert all(one["hits"] for one in trial.row["lists"])
    text = shown(trial)
    assert "6 searches, 4 saved" in text
    assert "both searched all texts as one, so there is no list of the original alone" in " ".join(text.split())
    assert "not found by the original" not in text  # nobody knows
    assert "together" in text
    assert [(one["strategy"], one["hits"]) for one in tried(path, "zzz").row["lists"]] == [("original", [])] * 2


def test_a_query_that_a_run_would_reject_is_refused(job: Callable[..., str]) -> None:
    with pytest.raises(ConfigError, match="the query is only white space; a run would reject such a log row as 'empty'"):
        tried(job(), "  \n ")
    with pytest.raises(ConfigError, match=r"the query has 2,001 characters, log\.max_chars is 2,000"):
        tried(job(), "x" * 2001)


def test_what_a_query_holds_cannot_steer_the_terminal(job: Callable[..., str]) -> None:
    text = shown(tried(job(), "lamp \x1b[31mred\x07 \u202egnp.exe [bold]x[/bold]"))
    assert not {"\x1b", "\x07", "\u202e"} & set(text)
    assert "[bold]x[/bold]" in text


def test_several_configs_stand_side_by_side(job: Callable[..., str], tmp_path: Path) -> None:
    one = tried(job(), label="four")
    other = tried(job(rewrite={"strategies": []}), label="alone")
    assert {run["strategy"] for run in other.row["lists"]} == {"original"}
    assert "none are planned" in shown(other)
    text = shown(one, other)
    assert "four" in text
    assert "alone" in text
    assert "= d01" in text.replace("  ", " ")
    assert max(map(len, text.splitlines())) <= 80


def test_models_are_loaded_once_for_many_queries(job: Callable[..., str], monkeypatch: pytest.MonkeyPatch) -> None:
    built: list[str] = []
    monkeypatch.setattr(module, "Meter", lambda stage, start: (built.append(stage.name), Meter(stage, start))[1])
    path = job()
    with LoadedConfig(load_config(path), path, "small") as loaded:
        loaded.load(lambda words: None)
        trials = [loaded.try_query(query, lambda words: None) for query in (QUERY, "bread and yeast", QUERY)]
    assert len(built) == len(set(built)) > 2
    assert trials[0].row["hits"] == trials[2].row["hits"]
    assert [trial.spent["rewrite"]["dmqr@recorded"]["requests"] for trial in trials] == [1, 1, 1]


def test_models_are_loaded_while_the_llm_answers(job: Callable[..., str], monkeypatch: pytest.MonkeyPatch) -> None:
    loading, seen = threading.Event(), []
    rewrite, retrieve = Rewrite.__call__, Retrieve.__init__
    monkeypatch.setattr(Rewrite, "__call__", lambda self, table: (seen.append(loading.wait(400)), rewrite(self, table))[1])
    monkeypatch.setattr(Retrieve, "__init__", lambda self, **settings: (loading.set(), retrieve(self, **settings))[1])
    assert tried(job()).row["hits"]
    assert seen == [True]


# ---------------------------------------------------------------- the command


def test_the_verb_has_results_and_requests(job: Callable[..., str], capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["try", job(), QUERY, "--json"]) == 0
    (trial,) = json.loads(capfd.readouterr().out)
    assert trial["query"] == QUERY
    assert trial["results"][0]["rank"] == 1
    assert trial["results"][0]["text"].startswith("Lighthouses")
    counts = trial["documents"]
    assert counts["found"] >= counts["candidates"] >= counts["results"] == len(trial["results"]) > 0
    (request,) = trial["requests"]
    assert (request["request"], request["answer"]) == ("dmqr", json.dumps(ANSWER))
    assert request["prompt"].endswith(f"Query: {QUERY}")
    assert list(request["schema"]["properties"]) == list(ANSWER)
    trial = tried(job())
    assert "Reply with one JSON object" not in shown(trial)
    text = shown(trial, trial, width=200, prompts=True)
    assert text.count("request dmqr") == text.count(json.dumps(ANSWER)) == text.count("- general (General Search") == 2


@pytest.mark.parametrize(("terminal", "code"), [(False, 1), (True, 0)])
def test_lines_of_standard_input_are_tried_one_after_the_other(
    job: Callable[..., str], capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, terminal: bool, code: int
) -> None:
    """At a terminal it asks for them until the end of input."""
    lines = io.StringIO(f"{QUERY}\n  \n{'x' * 2001}\nsea\n")
    monkeypatch.setattr(lines, "isatty", lambda: terminal)
    monkeypatch.setattr(sys, "stdin", lines)
    assert main(["try", job(), "--json"]) == code
    printed = capfd.readouterr()
    assert [json.loads(line)[0]["query"] for line in printed.out.splitlines()] == [QUERY, "sea"]
    assert "dmqr try: QUERY: the query has 2,001 characters" in printed.err
    assert ("Type a query; Ctrl-D ends." in printed.err) == terminal
    assert printed.err.count("query> ") == 5 * terminal


def test_results_of_two_corpora_have_their_texts(job: Callable[..., str], bm25: Values, tmp_path: Path) -> None:
    more = {"x1": "a lamp of another lighthouse", "x2": "a lens of another lamp"}
    pq.write_table(pa.table({"doc_id": list(more), "text": list(more.values())}), tmp_path / "more.parquet")
    build_local_index(tmp_path / "more", tmp_path / "more.parquet", index_fields("english"))
    found = tried(job(retrieve={"retrievers": {"bm25": bm25, "more": bm25 | {"index": str(tmp_path / "more")}}}))
    texts = {hit["doc_id"]: hit["text"] for hit in found.row["hits"]}
    assert more.items() <= texts.items()
    assert any(doc_id.startswith("d") for doc_id in texts)
