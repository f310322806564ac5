"""The measures query by query, and TREC run files, that `evaluate` writes."""

from __future__ import annotations

import csv
from dataclasses import replace
from pathlib import Path

import ir_measures
import numpy as np
import pyarrow.parquet as pq
import pytest

from cluster.errors import ConfigError
from jobs.__main__ import main
from jobs.log.judgements import Judgements, read_qrels
from jobs.measure.evaluate import evaluate
from jobs.measure.export.trec import write_run
from jobs.measure.frame import measure
from jobs.measure.measures import MEASURES
from jobs.runs.folder import RunFolder
from tests.support.jobs.report_runs import Query, RunMaker, query_id

QUERIES = [
    Query("alpha \"one\", two", hits={("original", "bm25"): ["d1", "d2"], ("general", "bm25"): ["d3"]},
          texts={"general": "a"}, asked=3),
    Query("bravo", hits={("original", "bm25"): [f"d{n}" for n in range(30, 0, -1)]}),
    Query("charlie"),
]  # fmt: skip
QRELS = f"{query_id(0)}\td3\t2\n{query_id(0)}\td1\t1\n{query_id(1)}\td25\t1\n{query_id(2)}\td1\t1\nunknown\td1\t1\n"


@pytest.fixture
def run(tmp_path: Path) -> RunFolder:
    (tmp_path / "qrels.tsv").write_text(QRELS)
    return RunMaker(tmp_path)(QUERIES, ("general",))


def test_every_judged_query_with_its_measures(run: RunFolder, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    qrels = str(tmp_path / "qrels.tsv")
    for name in ("a.parquet", "a.CSV"):
        written = str(tmp_path / name)
        assert main(["evaluate", run.storage.root, qrels, "--key", "query_id", "--per-query", written]) == 0
    table = pq.read_table(tmp_path / "a.parquet")
    assert table.column_names[:4] == ["query_id", "query", "log_count", "nDCG@10"]
    rows = table.to_pylist()
    assert [(row["query_id"], row["query"], row["log_count"]) for row in rows] == [
        (query_id(n), query.name, query.asked) for n, query in enumerate(QUERIES)
    ]
    found = evaluate(run, read_qrels(qrels, key="query_id"))
    for name in MEASURES:
        assert np.mean([row[name] for row in rows]) == pytest.approx(found.pairs[name].b)
        assert np.mean([row[f"{name} original"] for row in rows]) == pytest.approx(found.pairs[name].a)
    with (tmp_path / "a.CSV").open(newline="") as file:
        read = list(csv.DictReader(file))
    assert [list(row) for row in read] == [table.column_names] * 3
    assert [[row["query"], float(row["RR@10"])] for row in read] == [[row["query"], row["RR@10"]] for row in rows]
    printed = capsys.readouterr().out
    assert "judged: 3 distinct queries" in printed
    assert f"not kept: `dmqr report {run.storage.root} --qrels FILE` writes it to the page" in printed


def test_a_trec_run_file_has_the_figures_of_evaluate(run: RunFolder, tmp_path: Path) -> None:
    qrels, path = str(tmp_path / "qrels.tsv"), str(tmp_path / "it's.run")
    assert main(["evaluate", run.storage.root, qrels, "--key", "query_id", "--trec", path]) == 0
    found = evaluate(run, read_qrels(qrels, key="query_id"))
    judged = [ir_measures.Qrel(topic, doc_id, int(grade)) for topic, doc_id, grade in map(str.split, QRELS.splitlines())]
    measures = [ir_measures.parse_measure(name) for name in MEASURES]
    lines = list(ir_measures.read_trec_run(path))
    sums = dict.fromkeys(MEASURES, 0.0)
    for one in ir_measures.iter_calc(measures, judged[:-1], lines):
        sums[str(one.measure)] += one.value
    assert {name: value / 3 for name, value in sums.items()} == pytest.approx(
        {name: pair.b for name, pair in found.pairs.items()}
    )
    topics = [line.query_id for line in lines]
    assert (topics.count(query_id(0)), topics.count(query_id(1)), len(topics)) == (3, 30, 33)  # all that were kept
    first = Path(path).read_text().splitlines()[0].split()
    assert (first[0], first[1], first[3], first[4], first[5]) == (query_id(0), "Q0", "1", "1.0", run.record["run_id"])
    assert [name for name in tmp_path.iterdir() if name.name.startswith(".")] == []


def test_a_topic_is_the_judged_log_row(run: RunFolder, tmp_path: Path) -> None:
    """Two rows of one query are two topics with the same list; a rejected row has none."""
    queries = Judgements("", {query_id(0): {"d1": 1}}, "query_id")
    ids = (query_id(0), query_id(0), None)
    write_run(
        str(tmp_path / "a.run"), run, replace(measure(run, queries), key="log_id", keys=("l1", "l2", "l3"), query_ids=ids)
    )
    lines = [line.split() for line in (tmp_path / "a.run").read_text().splitlines()]
    assert [line[0] for line in lines] == ["l1"] * 3 + ["l2"] * 3
    assert [line[2] for line in lines[:3]] == [line[2] for line in lines[3:]]


def test_a_run_without_results_gives_an_empty_file(tmp_path: Path) -> None:
    run = RunMaker(tmp_path)(QUERIES, ("general",), commit=0, finished=False)
    judgements = Judgements("", {query_id(0): {"d1": 1}}, "query_id")
    write_run(str(tmp_path / "a.run"), run, measure(run, judgements))
    assert (tmp_path / "a.run").read_text() == ""


def test_what_cannot_be_written_leaves_nothing(run: RunFolder, tmp_path: Path) -> None:
    made = RunMaker(tmp_path / "other")([Query("tea", hits={("original", "bm25"): ["d 1"]})])
    judgements = Judgements("", {query_id(0): {"d1": 1}}, "query_id")
    with pytest.raises(ConfigError, match="id 'd 1' has white space"):
        write_run(str(tmp_path / "a.run"), made, measure(made, judgements))
    with pytest.raises(OSError, match="No such file"):
        write_run(str(tmp_path / "none" / "a.run"), made, measure(made, judgements))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["other", "qrels.tsv", "small-0123456789ab"]
