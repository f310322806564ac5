"""Whole runs over a data set in its own form: what the same rows as tables give, with ablate, resuming, plan and submit."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from jobs.__main__ import main
from tests.support.jobs.field_sets import QRELS, QUERIES, lines, write_beir
from tests.support.jobs.whole_runs import rows

Write = Callable[..., str]


@pytest.fixture
def config(values: dict[str, Any], config_file: Callable[[Any], str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Write:
    """Writes a config with these parts, a recording of rewrites, and an index that is built of its corpus."""
    monkeypatch.chdir(tmp_path)
    answers = [{"query": text, "completions": {"dmqr": json.dumps({"general": f"about {text}"})}} for text in QUERIES.values()]
    lines(tmp_path / "recorded.jsonl", answers)

    def write(name: str, **parts: Any) -> str:
        values["rewrite"]["strategies"] = ["general"]
        bm25 = {"kind": "local", "index": f"index-{name}", "analyzer": "english"}
        found = values | {"name": name, "rerank": {"kind": "none"}, "retrieve": {"retrievers": {"bm25": bm25}}}
        return config_file(found | {"cluster": {"address": "none", "shard_size": 2}} | parts)

    return write


def named(name: str) -> dict[str, Any]:
    """The parts of a config that name a data set, once for all."""
    return {"log": {"path": name}, "corpus": {"path": name}, "evaluate": {"qrels": name}}


def done(*words: str, capsys: pytest.CaptureFixture[str]) -> str:
    code, out = main([*words]), capsys.readouterr()
    assert code == 0, out.err
    return out.out


def test_topics_with_a_file_of_judgements(config: Write, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_beir(tmp_path / "small")
    (tmp_path / "topics.tsv").write_text("".join(f"{key}\t{text}\n" for key, text in QUERIES.items()))
    parts = named("beir:small") | {"log": {"path": "topics:topics.tsv"}, "evaluate": {"qrels": "small/qrels/train.tsv"}}
    place = Path(done("run", config("topics", **parts), capsys=capsys).splitlines()[-1])
    assert {row["log_id"] for row in rows(place, "query_map")} == QUERIES.keys()
    assert json.loads((place / "evaluation.json").read_text())["judged"] == len(QRELS["train"])
