"""`dmqr clicks` as it is typed, and a whole run of a UBI log that is measured by its own clicks."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from jobs.__main__ import main
from rewriters.normalise import query_id
from tests.support.jobs.ubi_exports import Row, event, search, write_lines

ASKED = {"moon and tides": ("d06", "d07"), "yeast of bread": ("d05", "d03"), "lamp of a lighthouse": ("d02", "d01")}
DOCUMENTS = [f"d0{n}" for n in range(1, 9)]


def export(folder: Path, searches: int = 60) -> None:
    """Searches in two forms; the first relevant document is clicked when it is examined, the second half as often."""
    random = np.random.default_rng(5)
    queries: list[Row] = []
    events: list[Row] = []
    for number in range(searches * len(ASKED)):
        text, relevant = list(ASKED.items())[number % len(ASKED)]
        hits = random.permutation(DOCUMENTS)[:5].tolist()
        queries.append(search(f"q{number}", text.upper() if number % 2 else text, hits, client=f"c{number % 40}"))
        for place, document in enumerate(hits, 1):
            attraction = {relevant[0]: 0.9, relevant[1]: 0.45}.get(document, 0.02)
            if random.random() < attraction / place:
                events.append(event(f"q{number}", document, place))
    write_lines(folder / "ubi_queries.ndjson", queries)
    write_lines(folder / "ubi_events.ndjson", events)


@pytest.fixture
def job(
    tmp_path: Path,
    values: dict[str, Any],
    bm25: dict[str, Any],
    config_file: Callable[[Any], str],
    monkeypatch: pytest.MonkeyPatch,
) -> str:
    monkeypatch.chdir(tmp_path)
    export(tmp_path / "log")
    values["log"] = {"path": "log", "format": "ubi"}
    values["rewrite"] = {"strategies": []}
    values["retrieve"]["retrievers"] = {"bm25": bm25}
    values |= {"rerank": {"kind": "none"}, "cluster": {"address": "none", "shard_size": 2}, "evaluate": {"key": "query_id"}}
    return config_file(values)


@pytest.mark.slow
def test_a_run_of_a_ubi_log_is_measured_by_its_clicks(job: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["clicks", job, "--out", "made/clicks.tsv", "--min-impressions", "5", "--json"]) == 0
    said = json.loads(capfd.readouterr().out)
    assert said["pairs"]["queries"] == len(ASKED)
    assert (said["searches"], said["clicks"]["dropped"]) == ({"used": 180, "left_out": {}}, {})
    assert [place["impressions"] for place in said["places"]] == [180] * 5
    assert [place["propensity"] for place in said["places"]] == pytest.approx([1, 1 / 2, 1 / 3, 1 / 4, 1 / 5], abs=0.15)
    grades = {tuple(line.split("\t")[:2]): line.split("\t")[2] for line in Path("made/clicks.tsv").read_text().splitlines()}
    for text, relevant in ASKED.items():
        assert [grades[query_id(text), document] for document in relevant] == ["3", "3"]
    assert {grade for (_, document), grade in grades.items() if document in ("d04", "d08")} <= {"0", "1"}

    assert main(["run", job]) == 0
    run = capfd.readouterr().out.splitlines()[-1]
    record = json.loads((Path(run) / "run.json").read_text())
    assert record["config"]["log"]["format"] == "ubi"
    assert main(["evaluate", run, "made/clicks.tsv", "--json"]) == 0
    measured = json.loads(capfd.readouterr().out)
    assert measured["judged"] == len(ASKED)
    assert measured["missing"] == 0


def test_the_page_and_the_table_of_pairs(job: str, capfd: pytest.CaptureFixture[str]) -> None:
    arguments = ["clicks", job, "--out", "clicks.tsv", "--model", "coec", "--pairs", "pairs.csv", "--depth", "4"]
    assert main([*arguments, "--max-queries", "0", "--actions", "click, purchase"]) == 0
    printed = capfd.readouterr()
    assert printed.out.splitlines()[-1] == "clicks.tsv"
    assert "clicks dropped: on a document that is not among those shown" in printed.out
    assert "propensity" in printed.out
    assert printed.err == ""
    assert Path("pairs.csv").read_text().startswith('"query_id","doc_id","impressions"')


def test_where_no_pair_is_judged_it_says_so(job: str, capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["clicks", job, "--out", "clicks.tsv", "--min-impressions", "1000"]) == 0
    assert "no pair was judged; lower --min-impressions" in capfd.readouterr().err
    assert Path("clicks.tsv").read_text() == ""


@pytest.mark.parametrize(
    ("more", "words"),
    [
        (["--pairs", "pairs.xls"], "--pairs pairs.xls: is neither Parquet nor CSV"),
        (["--max-queries", "-1"], "--max-queries -1: is less than 0; give 0 or more"),
        (["--depth", "0"], "--depth 0: is less than 1; give 1 or more"),
        (["--thresholds", "2,1"], "--thresholds 2,1: do not rise"),
        (["--set", "log.format=parquet", "--set", "log.query_column=q"], "log.format: clicks are read from logs of format ubi"),
        (["--set", "log.events=none"], "log.events none: no such file or folder"),
    ],
)
def test_what_is_refused(job: str, more: list[str], words: str, capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["clicks", job, "--out", "clicks.tsv", *more]) == 2
    printed = capfd.readouterr()
    assert words in printed.err
    assert len(printed.err.splitlines()) == 1
    assert not Path("clicks.tsv").exists()
