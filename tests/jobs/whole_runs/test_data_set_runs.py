"""Whole runs over a data set in its own form: what the same rows as tables give, with ablate, resuming, plan and submit."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from jobs.__main__ import main
from tests.support.jobs.field_sets import QRELS, QUERIES, lines, registered, write_beir, write_tables
from tests.support.jobs.whole_runs import rows

SAME = ("queries", "query_map", "rewrites", "results")
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


@pytest.mark.slow
def test_a_folder_and_an_id_give_what_the_same_rows_as_tables_give(
    config: Write, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    registered("ours/whole")
    folder = write_beir(tmp_path / "small")
    parts = {
        "tables": write_tables(tmp_path / "tables"),
        "beir": named(f"beir:{folder}"),
        "irds": named("irds:ours/whole/test"),
    }
    found, measured, tables = {}, {}, {}
    for name, of in parts.items():
        out = done("run", config(name, **of), capsys=capsys)
        place = Path(out.splitlines()[-1])
        tables[name] = out
        found[name] = {table: sorted(map(repr, rows(place, table))) for table in SAME}
        evaluation = json.loads((place / "evaluation.json").read_text())
        measured[name] = {key: evaluation[key] for key in ("measures", "judged", "missing")}
    assert found["beir"] == found["irds"] == found["tables"]
    assert measured["beir"] == measured["irds"] == measured["tables"]
    assert measured["beir"]["missing"] == 0
    assert "3 rows; 2 queries of other splits left out" in tables["beir"]
    assert "left out" not in tables["irds"] + tables["tables"]


def test_topics_with_a_file_of_judgements(config: Write, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_beir(tmp_path / "small")
    (tmp_path / "topics.tsv").write_text("".join(f"{key}\t{text}\n" for key, text in QUERIES.items()))
    parts = named("beir:small") | {"log": {"path": "topics:topics.tsv"}, "evaluate": {"qrels": "small/qrels/train.tsv"}}
    place = Path(done("run", config("topics", **parts), capsys=capsys).splitlines()[-1])
    assert {row["log_id"] for row in rows(place, "query_map")} == QUERIES.keys()
    assert json.loads((place / "evaluation.json").read_text())["judged"] == len(QRELS["train"])


@pytest.mark.slow
def test_plan_says_what_is_left_out_and_evaluate_takes_a_name(
    config: Write, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_beir(tmp_path / "small")
    path = config("planned", **named("beir:small/train"))
    assert "2 rows in 1 file; 3 queries of other splits left out" in done("plan", path, capsys=capsys)
    place = done("run", path, capsys=capsys).splitlines()[-1]
    out = done("evaluate", place, "beir:small/train", "--json", capsys=capsys)
    assert json.loads(out)["judged"] == 2
    assert main(["evaluate", place, "beir:small/dev"]) == 2
    assert "no judgements qrels/dev.tsv in small" in capsys.readouterr().err
    built = done("index", path, "--corpus", "beir:small", capsys=capsys)
    assert "7 documents, exists already" in built
