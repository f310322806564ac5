"""The frame of query x arm x measure and what is exported of it, against ir_measures."""

import csv
import re
from pathlib import Path
from random import Random

import ir_measures
import numpy as np
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cluster.errors import ConfigError
from jobs.__main__ import main
from jobs.config.settings import EvaluateSettings
from jobs.log.judgements import Judgements, read_qrels
from jobs.measure import judged_rows
from jobs.measure.evaluate import evaluate
from jobs.measure.exports import LONG, run_tags, write_tables, write_trec
from jobs.measure.frame import measure
from jobs.measure.measures import MEASURES
from jobs.pages.ablation import PER_QUERY, compared, write_pages
from jobs.runs.folder import RunFolder
from tests.support.jobs.run_folders import Query, RunMaker, ablation, arm, ask, query_id

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


def test_what_cannot_be_written_leaves_nothing(run: RunFolder, tmp_path: Path) -> None:
    made = RunMaker(tmp_path / "other")([Query("tea", hits={("original", "bm25"): ["d 1"]})])
    judgements = Judgements("", {query_id(0): {"d1": 1}}, "query_id")
    with pytest.raises(ConfigError, match="id 'd 1' has white space"):
        write_trec(str(tmp_path / "a.run"), made, measure(made, judgements))
    with pytest.raises(OSError, match="No such file"):
        write_trec(str(tmp_path / "none" / "a.run"), made, measure(made, judgements))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["other", "qrels.tsv", "small-0123456789ab"]


def test_another_ending_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="neither Parquet nor CSV"):
        write_tables(str(tmp_path / "a.txt"), LONG, [])


@given(st.lists(st.text(min_size=1, max_size=130), unique=True, max_size=8))
def test_any_arm_has_a_file_of_its_own(arms: list[str]) -> None:
    tags = run_tags(arms)
    assert len({tag.lower() for tag in tags.values()}) == len(arms)
    for tag in tags.values():
        assert re.fullmatch(r"[A-Za-z0-9_+=][A-Za-z0-9._+=-]{0,120}", tag)
    assert run_tags(["full", "Full", "fuse.k=10"])["fuse.k=10"] == "fuse.k=10"


def test_values_of_an_ablation_are_those_of_ir_measures_on_the_exported_files(tmp_path: Path) -> None:
    """Of drawn lists; a query has two topics, a topic was rejected, one has no list, and one is not in the log."""
    drawn, documents, names = Random(5), [f"d{n}" for n in range(14)], [f"q{n}" for n in range(12)]
    log = [*zip(names, names, strict=True), ("again", "q1"), ("rejected", None)]
    members = ["full", "original", "general"]
    lists = {one: {name: drawn.sample(documents, drawn.randint(0, 14)) for name in names[1:]} for one in members}
    arms = [*map(arm, members), arm("best", "arms", k=1, members=members[1:])]
    graded = [name for name, _ in log]
    grades = {name: {doc: drawn.randint(0, 3) for doc in drawn.sample(documents, 5)} | {"d0": 1} for name in graded}
    measures = ["nDCG@10", "R@10", "P@5", "Success@1", "RR@10", "AP", "Rprec", "Judged@5"]
    run = ablation(tmp_path / "made", arms, lists, [ask(name, f"query {name}") for name in names], log)
    done = compared(run, Judgements("", grades | {"elsewhere": {"d1": 1}}), EvaluateSettings(measures=measures), None)
    write_pages(done, texts=False)
    paths = write_trec(str(tmp_path / "exported"), run, done.comparisons.every[0].frame)
    qrels = [ir_measures.Qrel(name, doc, grade) for name, of in grades.items() for doc, grade in of.items()]
    parsed = [ir_measures.parse_measure(name) for name in measures]
    wanted = {
        (name, one.query_id, str(one.measure)): one.value
        for name, path in paths.items()
        for one in ir_measures.iter_calc(parsed, qrels, list(ir_measures.read_trec_run(path)))
    }
    rows = pq.read_table(Path(run.storage.root) / PER_QUERY).to_pylist()
    found = {(row["arm"], row["key"], row["measure"]): row["value"] for row in rows}
    assert len(found) == len(rows) == len(arms) * len(graded) * len(measures)
    assert found.keys() == wanted.keys()
    assert {place: value for place, value in found.items() if value != pytest.approx(wanted[place], rel=0, abs=1e-12)} == {}
    assert {value for (_, key, _), value in found.items() if key in ("q0", "rejected")} == {0}
    assert len({tuple(value for (of, *_), value in found.items() if of == one["name"]) for one in arms}) == 4  # arms differ


FRAME_QUERIES = [ask(f"q{n}", f"query number{n}", log_count=n + 1) for n in range(5)]

FRAME_GRADES = {f"Q{n}": {"a": 2, "b": 1, "c": 0} for n in range(5)}

ARMS = [arm("full"), arm("original"), arm("general")]

LISTS = {
    "full": {f"q{n}": ["a", "x", "b"] for n in range(5)},
    "original": {"q0": ["x", "a"], "q1": ["b"], "q2": ["x", "y"], "q3": ["c", "a", "b"]},
    "general": {"q0": ["b"], "q1": ["a", "b"], "q4": ["a"]},
    "not an arm": {"q0": ["a"]},
}

MORE = ["nDCG@10", "RR(rel=2)@3", "AP", "P@5", "Judged@2", "nDCG(dcg='exp-log2')@5"]


def test_condensed_lists_have_no_unjudged_documents(tmp_path: Path) -> None:
    lists = {"full": {"q0": ["x", "y", "a", "b", "x2", "c"]}, "original": {"q0": ["a", "b"]}}
    frame = measure(ablation(tmp_path, ARMS, lists, FRAME_QUERIES), Judgements("", {"Q0": FRAME_GRADES["Q0"]}), ["RR@2", "P@2"])
    assert frame.values[0, :, 0].tolist() == [0, 0]
    assert frame.condensed[0, :, 0].tolist() == [1, 1]  # from below the deepest rank, too
    assert (frame.condensed[1] == frame.values[1]).all()
    assert frame.unjudged[:2].tolist() == [1, 0]
    assert np.isnan(frame.unjudged[2])


def test_an_oracle_arm_is_its_best_member_query_by_query(tmp_path: Path) -> None:
    arms = [*ARMS, arm("oracle", "arms", k=1, members=["original", "general"])]
    frame = measure(
        ablation(tmp_path, arms, LISTS, FRAME_QUERIES), Judgements("", FRAME_GRADES), ["nDCG@10", "P@5", "Judged@2"]
    )
    members, oracle = frame.values[1:3], frame.values[3]
    best = members[:, 0].argmax(axis=0)
    assert best.tolist() == [0, 1, 0, 0, 1]
    assert (oracle == np.array([members[place, :, key] for key, place in enumerate(best)]).T).all()
    assert (oracle[1] < members[:, 1].max(axis=0)).sum() == 0
    assert (frame.condensed[3, 0] >= 0).all()
    assert frame.failed[3] == 0  # q2 is the original's, q4 general's
    assert frame.unjudged[3] == pytest.approx(3 / (2 + 2 + 2 + 3 + 1))


def test_keys_of_one_query_have_its_lists_and_share_its_traffic(tmp_path: Path) -> None:
    log = [("l1", "q1"), ("l2", "q1"), ("l3", "q3")]
    grades = {"l1": {"b": 1}, "l2": {"x": 1}, "l3": {"a": 1}}
    frame = measure(ablation(tmp_path, ARMS, LISTS, FRAME_QUERIES, log), Judgements("", grades), ["RR"])
    assert frame.values[1, 0].tolist() == [1, 0, 0.5]
    assert frame.counts.tolist() == [2, 2, 4]
    assert frame.weights.tolist() == pytest.approx([1 / 6, 1 / 6, 4 / 6])
    assert frame.clusters.tolist() == [0, 0, 1]


def test_earlier_turns_are_words_of_a_query(tmp_path: Path) -> None:
    queries = [
        ask("q0", "and there", context="rain in rome"),
        ask("q1", "and there", context="trains to oslo"),
        ask("q2", "rome"),
    ]
    log = {"path": "none", "query_column": "query", "context_column": "turns"}
    run = ablation(tmp_path, ARMS, LISTS, queries, None, log=log)
    grades = {f"Q{n}": {"a": 1} for n in range(3)}
    assert measure(run, Judgements("", grades), ["RR"]).clusters.tolist() == [0, 1, 2]


def test_rows_come_by_query_arm_and_rank_however_they_lie(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = measure(ablation(tmp_path / "a", ARMS, LISTS, FRAME_QUERIES), Judgements("", FRAME_GRADES), MORE)
    monkeypatch.setattr(judged_rows, "BATCH_ROWS", 1)
    turned = {name: dict(reversed(of.items())) for name, of in reversed(LISTS.items())}
    again = measure(ablation(tmp_path / "b", ARMS, turned, FRAME_QUERIES, shard_size=1), Judgements("", FRAME_GRADES), MORE)
    assert (again.values == whole.values).all()
    assert (again.condensed == whole.condensed).all()


def test_hostile_document_ids(tmp_path: Path) -> None:
    lists = {"full": {"q0": ["d\0b", "", "d 1"]}}
    grades = {"Q0": {"d\0a": 1, "": 1, "d 1": -3}}
    frame = measure(ablation(tmp_path, ARMS, lists, FRAME_QUERIES), Judgements("", grades), ["RR", "P@3", "Judged@3"])
    assert frame.values[0, :, 0].tolist() == pytest.approx([1 / 2, 1 / 3, 2 / 3])
