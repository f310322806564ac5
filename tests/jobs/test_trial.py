"""One query through every stage without Ray: what it comes to, what is shown of it, what is refused."""

from __future__ import annotations

import io
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from cluster.errors import ConfigError
from jobs.__main__ import main
from jobs.config.config import Config
from jobs.config.load import load_config
from jobs.try_one.page import page
from jobs.try_one.trial import Trial, document_counts, found_by, try_query
from rewriters.strategy import template_hash

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
    return try_query(load_config(path), path, query, label, lambda words: None)


def shown(*trials: Trial, width: int = 80) -> str:
    text = io.StringIO()
    Console(file=text, width=width, highlight=False, markup=False, emoji=False).print(page(trials))
    return text.getvalue()


def test_a_query_goes_through_every_stage(job: Callable[..., str], tmp_path: Path) -> None:
    trial = tried(job())
    assert {one["strategy"]: one["text"] for one in trial.row["rewrites"]} == ANSWER
    assert [hit["doc_id"] for hit in trial.row["hits"]][:2] == ["d01", "d02"]
    assert trial.texts["d01"].startswith("Lighthouses. A keeper")
    assert trial.spent["retrieve"]["bm25@"]["searches"] == 5
    assert not (tmp_path / "runs").exists()


def test_the_page_says_what_was_rewritten_found_and_fused(job: Callable[..., str]) -> None:
    text = shown(tried(job()))
    for words in (QUERY, "lighthouse lamp lens", "1 request", "original", "minmax over 5 lists", "not reranked", "fell away"):
        assert words in text
    assert "not found by the original" not in text.split("results")[0]
    assert max(map(len, text.splitlines())) <= 80


def test_why_a_rewrite_is_missing_is_said_and_the_original_is_searched_all_the_same(job: Callable[..., str]) -> None:
    trial = tried(job(), "bread and yeast")
    assert trial.row["rewrites"] == []
    assert [hit["doc_id"] for hit in trial.row["hits"]]
    assert shown(trial).count("not_recorded") == 4


def test_a_document_that_only_a_rewrite_found_is_marked(job: Callable[..., str]) -> None:
    trial = tried(job())
    alone = {hit["doc_id"] for hit in trial.row["hits"] if "original" not in found_by(hit["sources"])}
    assert alone
    assert shown(trial).count("not found by the original") == len(alone)


def test_a_list_without_a_hit_is_shown_as_such(job: Callable[..., str]) -> None:
    trial = tried(job(), "zzz")
    assert [(one["strategy"], one["hits"]) for one in trial.row["lists"]] == [("original", [])]
    text = shown(trial)
    assert "nothing" in text
    assert "minmax over 1 lists" in text


def test_a_query_that_a_run_would_reject_is_refused(job: Callable[..., str]) -> None:
    with pytest.raises(ConfigError, match="the query is only white space; a run would reject such a log row as 'empty'"):
        tried(job(), "  \n ")
    with pytest.raises(ConfigError, match=r"the query has 2,001 characters, log\.max_chars is 2,000"):
        tried(job(), "x" * 2001)


def test_without_strategies_the_original_stands_alone(job: Callable[..., str]) -> None:
    trial = tried(job(rewrite={"strategies": []}))
    assert {run["strategy"] for run in trial.row["lists"]} == {"original"}
    assert "none are planned" in shown(trial)


def test_what_a_query_holds_cannot_steer_the_terminal(job: Callable[..., str]) -> None:
    text = shown(tried(job(), "lamp \x1b[31mred\x07 \u202egnp.exe [bold]x[/bold]"))
    assert not {"\x1b", "\x07", "\u202e"} & set(text)
    assert "[bold]x[/bold]" in text


def test_several_configs_stand_side_by_side(job: Callable[..., str], tmp_path: Path) -> None:
    one = tried(job(), label="four")
    other = tried(job(rewrite={"strategies": []}), label="alone")
    text = shown(one, other)
    assert "four" in text
    assert "alone" in text
    assert "= d01" in text.replace("  ", " ")
    assert max(map(len, text.splitlines())) <= 80


doc_ids = st.lists(st.sampled_from("abcdefgh"), unique=True, max_size=8)


@given(
    st.lists(st.tuples(st.sampled_from(["original", "keyword", "general"]), doc_ids), max_size=4),
    st.integers(1, 6),
    st.dictionaries(st.sampled_from(["original", "keyword", "keyword/bm25"]), st.sampled_from([0.0, 1.0])),
    st.data(),
)
def test_every_document_that_was_found_is_a_result_or_fell_away_for_one_reason(
    lists: list[tuple[str, list[str]]], depth: int, weights: dict[str, float], data: st.DataObject
) -> None:
    config = Config.model_validate(
        {
            "name": "p", "log": {"path": "l", "query_column": "q"}, "rewrite": {"engine": {"kind": "recorded", "path": "r"}},
            "retrieve": {"retrievers": {"bm25": {"kind": "local", "index": "i"}}}, "output": "o",
            "fuse": {"depth": depth, "weights": weights},
        }
    )  # fmt: skip
    found = sorted({doc_id for _, ids in lists for doc_id in ids[:depth]})
    candidates = data.draw(st.lists(st.sampled_from(found), unique=True)) if found else []
    hits = data.draw(st.lists(st.sampled_from(candidates), unique=True)) if candidates else []
    row = {
        "rewrites": [],
        "lists": [
            {"strategy": s, "retriever": "bm25", "position": 1, "hits": [{"doc_id": d, "score": 1.0} for d in ids]}
            for s, ids in lists
        ],
        "candidates": [{"doc_id": doc_id} for doc_id in candidates],
        "hits": [{"doc_id": doc_id} for doc_id in hits],
    }
    counts = document_counts(config, row)
    assert all(count >= 0 for count in counts.values())
    assert counts.pop("found") == len({doc_id for _, ids in lists for doc_id in ids}) == sum(counts.values())


# ---------------------------------------------------------------- the command


def test_json_has_everything(job: Callable[..., str], capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["try", job(), QUERY, "--json"]) == 0
    (trial,) = json.loads(capfd.readouterr().out)
    assert trial["query"] == QUERY
    assert trial["results"][0]["rank"] == 1
    assert trial["results"][0]["text"].startswith("Lighthouses")
    assert trial["fell_away"]["results"] == len(trial["results"])


def test_no_ray_is_loaded(job: Callable[..., str]) -> None:
    code = (
        "import sys\nfrom jobs.__main__ import main\n"
        f"main(['try', {job()!r}, {QUERY!r}])\n"
        "print([name for name in ('ray', 'torch', 'ir_measures') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.splitlines()[-1] == "[]"


def test_a_joint_prompt_of_one_s_own_reaches_the_worker(job: Callable[..., str], values: Values, tmp_path: Path) -> None:
    (tmp_path / "prompt.txt").write_text("Go: {query}\n")
    row = tried(job(rewrite=values["rewrite"] | {"joint_prompt": str(tmp_path / "prompt.txt")})).row
    assert {rewrite["prompt_hash"] for rewrite in row["rewrites"]} == {template_hash("Go: {query}")}
