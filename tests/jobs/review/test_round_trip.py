"""A run, its sheet, what a person says, and the next run: approved texts are searched, banned ones never, grades are read."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from jobs.__main__ import main
from jobs.runs.folder import open_run
from rewriters.normalise import query_id
from tests.support.jobs.whole_runs import rows

APOSTROPHE = "'"  # before a cell that a spreadsheet would change
TEXTS = {
    "lighthouse keeper Ann": {"general": "lamp keeper", "keyword": "wick, lamp, hours"},
    "spring tides": {"general": "wild yeast", "keyword": "moon, new, full"},
    "bread": {"general": "rye bread", "keyword": "sourdough, yeast"},
    "zzz": {"general": "qqq", "keyword": "xxx"},
}


@pytest.fixture
def job(
    tmp_path: Path, values: dict[str, Any], bm25: dict[str, Any], config_file: Callable[[Any], str],
    monkeypatch: pytest.MonkeyPatch,
) -> str:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    pq.write_table(pa.table({"query": [query for n, query in enumerate(TEXTS) for _ in range(9 - n)]}), "log.parquet")
    lines = [json.dumps({"query": query, "completions": {"dmqr": json.dumps(texts)}}) for query, texts in TEXTS.items()]
    Path("recorded.jsonl").write_text("\n".join(lines))
    values["rewrite"]["strategies"] = ["general", "keyword"]
    values |= {"retrieve": {"retrievers": {"bm25": bm25}}, "rerank": {"kind": "none"}, "limits": {"error_rate": 1}}
    return config_file(values | {"cluster": {"address": "none", "shard_size": 2}})


@pytest.mark.slow
def test_what_a_person_says_is_what_the_next_run_does(
    job: str, passages: dict[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["run", job]) == 0
    assert main(["review", "runs/small", "--out", "sheet.csv", "--documents"]) == 0
    assert capsys.readouterr().out.splitlines()[-1] == "sheet.csv"
    with open("sheet.csv", encoding="utf-8-sig", newline="") as file:
        sheet = list(csv.DictReader(file))
    by = {(row["query"], row["strategy"]): row for row in sheet}
    assert by["lighthouse keeper Ann", "keyword"]["reasons"] == "lost_name"
    assert by["zzz", ""]["reasons"] == "no_hits"
    assert {passages[row["served"].removeprefix("'")] for row in sheet if row["served"]} == {
        row["served_text"] for row in sheet
    } - {""}
    moved = next(row for row in sheet if row["query"] == "spring tides" and "changed" in row["reasons"])
    moved |= {"status": "banned", "relevance": "1"}
    by["lighthouse keeper Ann", "keyword"] |= {"status": "approved", "text": "Ann, lighthouse, keeper"}
    by["zzz", ""] |= {"status": "pinned", "strategy": "general", "text": "galaxies"}
    with open("sheet.csv", "w", encoding="utf-8-sig", newline="") as file:
        writer = csv.DictWriter(file, list(sheet[0]))
        writer.writeheader()
        writer.writerows(sheet)
    read = ["review", "runs/small", "--read", "sheet.csv", "--overrides", "overrides.jsonl", "--qrels", "qrels.tsv", "--json"]
    assert main(read) == 0
    said = json.loads(capsys.readouterr().out)
    assert (said["overrides"]["added"], said["judgements"]["added"]) == (3, 1)
    assert (said["rows"], said["empty"]) == (len(sheet), len(sheet) - 3)

    settings = ["rewrite.guards.overrides=overrides.jsonl", "evaluate={qrels: qrels.tsv, key: query_id}"]
    flags = [word for one in settings for word in ("--set", one)]
    assert main(["run", job, "--label", "next", *flags]) == 0
    capsys.readouterr()
    assert main(["evaluate", "runs/small", "--json"]) == 0
    measured = json.loads(capsys.readouterr().out)
    assert (measured["key"], measured["judged"], measured["missing"], measured["counted"]) == ("query_id", 1, 0, 1)
    found = {(row["query_id"], row["strategy"]): row for row in rows(Path(open_run("runs/small").storage.root), "rewrites")}
    ann, zzz, tides = (query_id(query) for query in ("lighthouse keeper Ann", "zzz", "spring tides"))
    assert (found[ann, "keyword"]["text"], found[ann, "keyword"]["parsed_as"]) == ("Ann, lighthouse, keeper", "override")
    assert found[zzz, "general"]["text"] == "galaxies"
    assert (tides, moved["strategy"]) not in found
    assert moved["text"] not in {row["text"] for row in found.values()}

    assert main(["review", "runs/small", "--out", "next.csv", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["settled"] >= 1
    with open("next.csv", encoding="utf-8-sig", newline="") as file:
        again = {(row["query"], row["strategy"]) for row in csv.DictReader(file)}
    assert ("lighthouse keeper Ann", "keyword") not in again
    assert ("zzz", "general") not in again


def test_of_queries_with_turns_documents_alone_are_judged(
    job: str, values: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    turns = [None, "of the moon", "of the sun", None]
    pq.write_table(pa.table({"query": list(TEXTS), "before": turns}), "log.parquet")
    assert main(["run", job, "--set", "log.context_column=before"]) == 0
    capsys.readouterr()
    assert main(["review", "runs/small", "--out", "sheet.csv"]) == 0
    with open("sheet.csv", encoding="utf-8-sig", newline="") as file:
        sheet = list(csv.DictReader(file))
    row = next(row for row in sheet if row["context"] == "of the moon")
    for column, words in (("status", "the query has earlier turns, and overrides hold"), ("relevance", "")):
        row |= {"status": "", "relevance": ""} | {column: "banned" if column == "status" else "1"}
        with open("sheet.csv", "w", encoding="utf-8-sig", newline="") as file:
            writer = csv.DictWriter(file, list(sheet[0]))
            writer.writeheader()
            writer.writerows(sheet)
        capsys.readouterr()
        command = ["review", "runs/small", "--read", "sheet.csv", "--overrides", "o.csv", "--qrels", "q.tsv"]
        assert main(command) == (2 if words else 0)
        assert words in capsys.readouterr().err
    assert (
        Path("q.tsv").read_text() == f"{query_id('spring tides', 'of the moon')}\t{row['served'].removeprefix(APOSTROPHE)}\t1\n"
    )
    assert main([*command, "--key", "query"]) == 2
    assert "the query has earlier turns, and texts alone do not name it" in capsys.readouterr().err
