"""An ablation over sets measured otherwise: other baselines, every two arms, other judgements, what is left to judge.

Compared with the folder of each set, with scipy and statsmodels on the values of each query, and with trec_eval on run files.
"""

from __future__ import annotations

import json
import os
import random
from collections.abc import Callable
from functools import partial
from itertools import combinations, pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
import pytrec_eval
from scipy import optimize, stats
from statsmodels.stats.multitest import multipletests

import dmqr
from jobs.__main__ import main
from jobs.measure.export.trec import run_tags
from jobs.runs.sets.folder import open_sets
from tests.support.jobs.drawn_sets import write_paper

ARMS = ["full", "original", "general", "keyword", "by rank"]
SETS = ["birds", "tools"]


@pytest.fixture(scope="module")
def paper(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder with the finished ablation; tests add files, and leave what is there."""
    place = tmp_path_factory.mktemp("paper")
    write_paper(place)
    before = Path.cwd()
    os.chdir(place)
    try:
        assert main(["ablate", "paper.yaml"]) == 0
    finally:
        os.chdir(before)
    return place


@pytest.fixture
def folder(paper: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.chdir(paper)
    (found,) = paper.glob("runs/paper-*")
    return str(found)


def values_of(call: Callable[[], int], capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    capsys.readouterr()
    assert call() == 0
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


def over_sets(folder: str, capsys: pytest.CaptureFixture[str], *words: str) -> dict[str, Any]:
    found: dict[str, Any] = values_of(lambda: main(["evaluate", folder, "--json", *words]), capsys)["comparisons"]["lists"]
    return found


def arms_of(capsys: pytest.CaptureFixture[str], place: str, *words: str) -> list[dict[str, Any]]:
    """The arms of the folder of one set."""
    found: list[dict[str, Any]] = values_of(lambda: main(["evaluate", place, "--json", *words]), capsys)["arms"]
    return found


def by_query(folder: str, measure: str) -> dict[tuple[str, str], np.ndarray]:
    """Set and arm -> the values of its queries, in one order."""
    rows = [row for row in pq.read_table(f"{folder}/per_query.parquet").to_pylist() if row["measure"] == measure]
    return {
        (name, arm): np.array(
            [row["value"] for row in sorted(rows, key=lambda row: row["key"]) if (row["set"], row["arm"]) == (name, arm)]
        )
        for name in SETS
        for arm in ARMS
    }


def welch(values: dict[tuple[str, str], np.ndarray], arm: str, other: str) -> Any:
    moved = [values[name, arm] - values[name, other] for name in SETS]
    return stats.ttest_ind(moved[0], -moved[1], equal_var=False)


def smallest(values: dict[tuple[str, str], np.ndarray], arm: str, other: str, freedom: float, tests: int) -> float:
    """The true difference that is found with a power of 80 % at .05 over the number of tests, by the noncentral t."""
    moved = [values[name, arm] - values[name, other] for name in SETS]
    error = np.sqrt(sum(one.var(ddof=1) / len(one) for one in moved)) / len(moved)
    critical = stats.t.isf(0.025 / tests, freedom)
    # the power of the other tail is below 1e-6
    found = optimize.brentq(lambda shift: stats.nct.sf(critical, freedom, shift) - 0.8, 0.01, 12)
    return float(found * error)


@pytest.mark.parametrize("measure", ["nDCG@10", "R@5"])
def test_every_two_arms_over_sets_are_those_of_scipy_and_statsmodels(
    folder: str, capsys: pytest.CaptureFixture[str], measure: str
) -> None:
    found, values = over_sets(folder, capsys, "--pairs"), by_query(folder, measure)
    pairs = {(one["arm"], one["other"]): one for one in found["pairs"] if one["measure"] == measure}
    assert list(pairs) == list(combinations(ARMS, 2))
    tests = {arms: welch(values, *arms) for arms in pairs}
    known = [arms for arms, test in tests.items() if not np.isnan(test.pvalue)]
    holm = dict(zip(known, multipletests([tests[arms].pvalue for arms in known], method="holm")[1].tolist(), strict=True))
    for arms, one in pairs.items():
        low, high = (end / 2 for end in tests[arms].confidence_interval(0.95))
        assert (one["p"], one["low"], one["high"]) == pytest.approx((tests[arms].pvalue, low, high), rel=1e-6)
        assert one["p_holm"] == pytest.approx(holm[arms], rel=1e-6)
        assert one["detectable"] == pytest.approx(smallest(values, *arms, tests[arms].df, len(known)), rel=1e-5)
        assert one["q"] is None
    arms = {one["arm"]: one["measures"][measure] for one in found["arms"]}
    for arm in ARMS:  # one comparison has one p
        own = pairs.get((arm, "original")) or pairs.get(("original", arm))
        assert arms[arm]["p_holm"] == (None if own is None else own["p_holm"])
        assert arms[arm]["baseline"] == "original"


def test_the_smallest_difference_is_corrected_over_the_comparisons_with_baselines(
    folder: str, capsys: pytest.CaptureFixture[str]
) -> None:
    found, values = over_sets(folder, capsys), by_query(folder, "nDCG@10")
    for one in found["arms"]:
        of = one["measures"]["nDCG@10"]
        if one["arm"] == "original":
            assert of["detectable"] is None
        else:
            test = welch(values, one["arm"], "original")
            assert of["detectable"] == pytest.approx(smallest(values, one["arm"], "original", test.df, 4), rel=1e-5)
    assert any(note.startswith("smallest difference in nDCG@10 that these queries show") for note in found["notes"])
    assert found["pairs"] == []


@pytest.mark.slow
def test_baselines_of_arms_and_families_are_those_of_each_set(folder: str, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["--baseline", "keyword", "--baseline", "by*=full"]
    found, values = over_sets(folder, capsys, *words), by_query(folder, "nDCG@10")
    assert found["baselines"] == {"full": "full", "original": "keyword", "general": "keyword", "keyword": "keyword",
                                  "by rank": "full"}  # fmt: skip
    sets = open_sets(folder)
    assert sets is not None
    tested = {}
    for name, place in sets.folders.items():
        alone = {one["arm"]: one["measures"] for one in arms_of(capsys, place, *words)}
        for one in found["arms"]:
            for measure, over in one["measures"].items():
                own = over["sets"][name]
                assert {key: own[key] for key in alone[one["arm"]][measure] if key in own} == {
                    key: value for key, value in alone[one["arm"]][measure].items() if key in own
                }
    arms = {one["arm"]: one["measures"]["nDCG@10"] for one in found["arms"]}
    for arm, base in (("original", "keyword"), ("general", "keyword"), ("by rank", "full")):
        tested[arm] = welch(values, arm, base).pvalue
        assert arms[arm]["p"] == pytest.approx(tested[arm], rel=1e-6)
    assert [arms[arm]["p_holm"] for arm in tested] == pytest.approx(multipletests(list(tested.values()), method="holm")[1])
    assert arms["full"]["p_holm"] is None
    alike = over_sets(folder, capsys, "--baseline", "keyword")
    assert set(alike["baselines"].values()) == {"keyword"}  # of all arms
    assert main(["evaluate", folder, "--baseline", "keywrd"]) == 2
    assert "--baseline keywrd: 'keywrd' is no arm; did you mean 'keyword'?" in capsys.readouterr().err


@pytest.mark.slow
def test_tables_and_pages_have_the_pairs(folder: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    capsys.readouterr()
    latex = tmp_path / "t.tex"
    assert main(["evaluate", folder, "--pairs", "--latex", str(latex)]) == 0
    shown = capsys.readouterr().out
    assert "of 10 pairs of arms differ clearly by nDCG@10" in " ".join(shown.split())
    assert "p is Holm's over all pairs of arms of always, arms, subsets" in " ".join(shown.split())
    table = latex.read_text()
    assert table.count(r"\begin{table}") == 2
    assert "corrected over all 10 pairs" in table
    assert "$t$-test of the mean over 2 sets with the sets as strata" in table
    body = [line.removesuffix(r" \\").split(" & ") for line in table.splitlines() if line.startswith("(")]
    pairs = {(one["arm"], one["other"]): one["difference"] for one in over_sets(folder, capsys, "--pairs")["pairs"][:10]}
    names = [row[0].partition(" ")[2] for row in body]
    assert sorted(names) == sorted(ARMS)
    cell = body[0][2].split("$^")[0].replace("$-$", "-")
    expected = pairs.get((names[0], names[1])) or -pairs[names[1], names[0]]
    assert cell == f"{expected:+.{len(cell) - 3}f}"
    page = tmp_path / "p.html"
    assert main(["report", folder, "--pairs", "--baseline", "full", "--out", str(page)]) == 0
    text = page.read_text()
    assert "Every two arms, over sets" in text
    assert "corrected over all 10 pairs" in text
    assert "Every two arms" not in Path(folder, "report.html").read_text()


def test_python_compares_as_the_command_line_does(folder: str, capsys: pytest.CaptureFixture[str]) -> None:
    ablation = dmqr.open(folder)
    assert isinstance(ablation, dmqr.SetsAblation)
    quality = ablation.quality(baseline="keyword", baselines={"by*": "full"}, pairs=True, measures=["R@5"])
    words = ["--baseline", "keyword", "--baseline", "by*=full", "--pairs", "--measures", "R@5"]
    assert json.loads(json.dumps(quality.values))["comparisons"]["lists"] == over_sets(folder, capsys, *words)
    assert quality.pairs.num_rows == 10
    assert set(quality.pairs.column("kind").to_pylist()) == {"lists"}
    assert ablation.quality().pairs.num_rows == 0


@pytest.mark.slow
def test_one_sheet_of_all_sets_is_read_back_as_the_judgements_of_each(
    folder: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    sheet = tmp_path / "sheet.tsv"
    capsys.readouterr()
    assert main(["evaluate", folder, "--unjudged", str(sheet), "--unjudged-depth", "4"]) == 0
    assert f"{sheet}: not judged among the first 4 results of all arms: birds " in capsys.readouterr().out
    heading, *lines = sheet.read_text().splitlines()
    assert heading.split("\t") == ["set", "log_id", "doc_id", "grade", "arms", "rank", "weight", "query", "text"]
    sets = open_sets(folder)
    assert sets is not None
    alone: dict[str, list[str]] = {}
    for name, place in sets.folders.items():
        assert main(["evaluate", place, "--unjudged", str(tmp_path / name), "--unjudged-depth", "4"]) == 0
        alone[name] = (tmp_path / name).read_text().splitlines()[1:]
        assert [line.partition("\t")[2] for line in lines if line.startswith(f"{name}\t")] == alone[name]
        assert alone[name]
    assert len(lines) == sum(map(len, alone.values()))
    counted = {
        name: len({line.split("\t")[0] for line in Path(f"data/{name}/qrels.tsv").read_text().splitlines()}) for name in SETS
    }
    moved = [float(fields[6]) / counted[fields[0]] for fields in (line.split("\t") for line in lines)]
    assert all(a >= b - 1e-4 for a, b in pairwise(moved))  # by how much the mean over sets may move
    opened = dmqr.open(folder)
    assert isinstance(opened, dmqr.SetsAblation)
    rows = opened.quality().unjudged(4).to_pylist()
    assert [(row["set"], row["log_id"], row["doc_id"]) for row in rows] == [tuple(line.split("\t")[:3]) for line in lines]

    drawn = random.Random(9)
    grades = {}
    filled = [heading]
    for line in lines:
        fields = line.split("\t")
        if drawn.random() < 0.8:
            grades[fields[0], fields[1], fields[2]] = grade = drawn.randrange(3)
            fields[3] = str(grade)
        filled.append("\t".join(fields))
    sheet.write_text("\n".join(filled) + "\n")
    qrels: dict[str, dict[str, dict[str, int]]] = {name: {} for name in SETS}
    for name in SETS:
        before = Path(f"data/{name}/qrels.tsv").read_text()
        Path(f"data/{name}/more.tsv").write_text(before + sheet.read_text())
        for key, doc, grade in (line.split("\t") for line in before.splitlines()):
            qrels[name].setdefault(key, {})[doc] = int(grade)
    for (name, key, doc), grade in grades.items():
        qrels[name].setdefault(key, {})[doc] = grade
    trec = tmp_path / "trec"
    command = ["evaluate", folder, "data/{set}/more.tsv", "--trec", str(trec), "--no-header", "--json"]
    found = values_of(lambda: main(command), capsys)["comparisons"]["lists"]
    check_means(found, qrels, trec)
    # the same by each set's own folder, and by the config
    for name, place in sets.folders.items():
        own = arms_of(capsys, place, f"data/{name}/more.tsv")
        means = {one["arm"]: one["measures"]["nDCG@10"]["mean"] for one in own}
        assert means == {one["arm"]: one["measures"]["nDCG@10"]["sets"][name]["mean"] for one in found["arms"]}
    by_config = ["ablate", "paper.yaml", "--json", "--set", "evaluate.qrels=data/{set}/more.tsv", "--set", "output=elsewhere"]
    for settings in ([], ["--set", "ablate.sets=[tools]"]):
        again = values_of(partial(main, [*by_config, *settings]), capsys)["comparisons"]["lists"]
        tools = [one["measures"]["R@5"]["sets"]["tools"]["mean"] for one in again["arms"]]
        assert tools == [one["measures"]["R@5"]["sets"]["tools"]["mean"] for one in found["arms"]]
    # the sheet by itself judges all sets, each by its own rows
    alone_judged = over_sets(folder, capsys, str(sheet), "--trec", str(tmp_path / "sheet-trec"), "--no-header")
    only: dict[str, dict[str, dict[str, int]]] = {name: {} for name in SETS}
    for (name, key, doc), grade in grades.items():
        only[name].setdefault(key, {})[doc] = grade
    check_means(alone_judged, only, tmp_path / "sheet-trec")


def check_means(found: dict[str, Any], qrels: dict[str, dict[str, dict[str, int]]], trec: Path) -> None:
    """Compares the means of each set with trec_eval's on the run files."""
    arms = {one["arm"]: one["measures"] for one in found["arms"]}
    for name in SETS:
        evaluator = pytrec_eval.RelevanceEvaluator(qrels[name], {"ndcg_cut_10", "recall_5"})
        assert found["sets"][name]["counted"] == len(qrels[name])
        for arm, tag in run_tags(ARMS).items():
            run: dict[str, dict[str, float]] = {key: {} for key in qrels[name]}
            for key, _, doc, rank, _, _ in (line.split() for line in (trec / name / f"{tag}.run").read_text().splitlines()):
                run[key][doc] = -float(rank)
            by_key = evaluator.evaluate(run)
            for measure, named in (("nDCG@10", "ndcg_cut_10"), ("R@5", "recall_5")):
                mean = np.mean([by_key.get(key, {}).get(named, 0.0) for key in qrels[name]])
                assert arms[arm][measure]["sets"][name]["mean"] == pytest.approx(mean, abs=1e-9), (name, arm, measure)


def test_what_is_of_no_set_is_refused(folder: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    sheet = tmp_path / "sheet.tsv"
    sheet.write_text("set\tlog_id\tdoc_id\tgrade\nbirds\tbirds-q1\tbirds-d1\t1\n")
    assert main(["evaluate", folder, str(sheet)]) == 2
    words = "set tools: QRELS: " + str(sheet) + ": is a sheet of the sets birds, and none of its rows is of 'tools'"
    assert words in capsys.readouterr().err
    assert main(["evaluate", folder, "data/birds/qrels.tsv"]) == 2
    assert "QRELS: " in (said := capsys.readouterr().err)
    assert "over sets, which have judgements of their own each; name a file for each, like 'data/{set}/qrels.tsv'" in said
    assert main(["evaluate", folder, "--unjudged-depth", "3"]) == 2
    assert "--unjudged-depth 3: is of --unjudged" in capsys.readouterr().err


@pytest.mark.slow
def test_a_run_of_the_first_set_reads_that_set_of_a_sheet(folder: str, capsys: pytest.CaptureFixture[str]) -> None:
    qrels = [line.split("\t") for line in Path("data/birds/qrels.tsv").read_text().splitlines()]
    rows = [f"{name}\t{key}\t{doc}\t{grade}" for name in SETS for key, doc, grade in qrels]
    rows = [row if row.startswith("birds") else row[:-1] + "0" for row in rows]  # the same ids, and nothing relevant
    Path("sheet.tsv").write_text("\n".join(["set\tlog_id\tdoc_id\tgrade", *rows]) + "\n")
    command = ["run", "paper.yaml", "--json", "--set", "output=alone"]
    plain = values_of(lambda: main(command), capsys)
    by_sheet = values_of(lambda: main([*command, "--set", "evaluate.qrels=sheet.tsv"]), capsys)
    assert by_sheet["evaluation"]["measures"] == plain["evaluation"]["measures"]
