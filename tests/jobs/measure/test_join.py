"""Joined ablations: means over sets, one test over all, and what cannot be joined."""

import json
import os
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import stats

import dmqr
from jobs.__main__ import main

PAPER = """\
name: {set}
log: {{path: "data/{set}/queries.jsonl", query_column: text, id_column: _id}}
corpus: {{path: "data/{set}/corpus.jsonl"}}
rewrite: {{engine: {{kind: recorded, path: "data/{set}/recorded.jsonl"}}, strategies: [general, keyword]}}
retrieve: {{retrievers: {{bm25: {{kind: local, index: "index/{set}"}}}}}}
rerank: {{kind: none}}
evaluate: {{qrels: "data/{set}/qrels.tsv", measures: [nDCG@10, P@5]}}
ablate: {{subsets: leave_one_out, grid: {{fuse.depth: [3, 8]}}, arms: {{by rank: {{fuse.method: rrf}}}}}}
output: runs
cluster: {{address: none}}
"""
"""An ablation of nine arms over one data set."""
SIZES = {"birds": (24, 90), "tools": (37, 120)}


def write_data_set(folder: Path, name: str, queries: int, documents: int) -> None:
    """Writes one data set; a document is relevant to a query by the words of both and by chance."""
    drawn = random.Random(name)
    words = [f"{name}{number}" for number in range(60)]
    weights = [1 / (2 + number) for number in range(60)]
    texts = {f"{name}-d{n}": drawn.choices(words, weights, k=12) for n in range(documents)}
    asked = {f"{name}-q{n}": drawn.choices(words, weights, k=3) for n in range(queries)}
    rows, recorded, qrels = [], [], []
    for key, text in asked.items():
        overlap = {doc: len(set(text) & set(of)) + drawn.random() * 2 for doc, of in texts.items()}
        best = sorted(overlap, key=lambda doc: -overlap[doc])[:6]
        relevant = drawn.sample(best, 3)
        helped = drawn.sample(texts[relevant[0]], 4)
        shown = " ".join(text)
        rows.append({"_id": key, "text": shown})
        answer = {"general": " ".join([*text, *helped]), "keyword": " ".join([*helped[:2], *drawn.choices(words, k=3)])}
        recorded.append({"query": shown, "completions": {"dmqr": json.dumps(answer)}})
        qrels += [f"{key}\t{doc}\t{1 + number}" for number, doc in enumerate(relevant)]
    place = folder / name
    place.mkdir(parents=True)
    corpus = [{"doc_id": doc, "title": "", "text": " ".join(of)} for doc, of in texts.items()]
    for file, lines in (("queries", rows), ("corpus", corpus), ("recorded", recorded)):
        (place / f"{file}.jsonl").write_text("".join(json.dumps(one) + "\n" for one in lines), encoding="utf-8")
    (place / "qrels.tsv").write_text("\n".join(qrels) + "\n", encoding="utf-8")


def write_ablation(place: Path, name: str) -> Path:
    """Writes a data set and the config of an ablation over it; returns its path."""
    write_data_set(place / "data", name, *SIZES.get(name, (12, 40)))
    path = place / f"{name}.yaml"
    path.write_text(PAPER.format(set=name), encoding="utf-8")
    return path


SETS = ("birds", "tools")


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder in which two ablations are finished; tests change nothing in it."""
    place = tmp_path_factory.mktemp("sets")
    paths = [write_ablation(place, name) for name in SETS]
    before = Path.cwd()
    os.chdir(place)
    try:
        assert [main(["ablate", path.name]) for path in paths] == [0, 0]
    finally:
        os.chdir(before)
    return place


@pytest.fixture
def folders(finished: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    monkeypatch.chdir(finished)
    return [str(next(Path("runs").glob(f"{name}-*"))) for name in SETS]


def refusal(capfd: pytest.CaptureFixture[str], *words: str) -> str:
    capfd.readouterr()
    assert main(["evaluate", *words]) == 2
    return capfd.readouterr().err


def check_frozen(kind: str, rows: dict[str, dict[str, Any]], names: tuple[str, ...], close: float) -> None:
    frozen = json.loads((Path(__file__).parent / "frozen.json").read_text())[kind]
    assert rows.keys() == frozen.keys()
    for key, row in rows.items():
        figures = [None if one is None else pytest.approx(one, rel=close, abs=1e-9) for one in frozen[key]]
        assert [row[name] for name in names] == figures, key


def test_figures_are_those_of_a_table_over_sets(folders: list[str]) -> None:
    rows = {f"{row['arm']}/{row['measure']}": row for row in dmqr.evaluate(*folders).table.to_pylist() if row["set"] is None}
    check_frozen("joined", rows, ("mean", "difference", "low", "high", "p", "p_holm", "q"), 1e-6)


def test_figures_of_each_ablation_are_frozen(folders: list[str]) -> None:
    """As they were before tests, corrections and comparisons became one module each."""
    names = ("mean", "weighted_mean", "condensed_mean", "difference", "low", "high", "weighted_difference")
    names += ("p", "p_holm", "q", "p_equivalent", "detectable")
    rows = {
        f"{name}/{row['arm']}/{row['measure']}": row
        for name, folder in zip(SETS, folders, strict=True)
        for row in dmqr.evaluate(folder).table.to_pylist()
    }
    check_frozen("arms", rows, names, 1e-9)


def test_rows_of_sets_are_those_of_the_ablations_and_the_test_is_welchs(folders: list[str]) -> None:
    rows = {(row["set"], row["arm"], row["measure"]): row for row in dmqr.evaluate(*folders).table.to_pylist()}
    moved = {}
    for name, folder in zip(SETS, folders, strict=True):
        quality = dmqr.open(folder).quality()
        for row in quality.table.to_pylist():
            own = rows[name, row["arm"], row["measure"]]
            assert [own[key] for key in ("mean", "difference", "p")] == [row[key] for key in ("mean", "difference", "p")]
        keys = quality.per_query.to_pylist()
        values = {(row["arm"], row["key"]): row["value"] for row in keys if row["measure"] == "P@5"}
        moved[name] = np.array([value - values["original", key] for (arm, key), value in values.items() if arm == "full"])
    welch = stats.ttest_ind(moved["birds"], -moved["tools"], equal_var=False)
    assert rows[None, "full", "P@5"]["p"] == pytest.approx(welch.pvalue)


def test_what_cannot_be_joined_is_refused(folders: list[str], capfd: pytest.CaptureFixture[str]) -> None:
    assert "has the name birds" in refusal(capfd, folders[0], folders[0])
    assert "--arm: applies to a single run or ablation" in refusal(capfd, *folders, "--arm", "full")
    assert "there is no run" in refusal(capfd, *folders, "runs")
    assert "'none' is no arm" in refusal(capfd, *folders, "--baseline", "none")
