"""Joined ablations: means over sets, one test over all, and what cannot be joined."""

import json
import os
import random
from pathlib import Path

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
FROZEN = {
    ("full", "nDCG@10"): (0.3437759931, -0.0081258213, -0.0485520588, 0.0323004161, 0.6883039, 0.982164275),
    ("full", "P@5"): (0.2328828828, 0.0301801801, -0.0065767110, 0.0669370714, 0.105612106, 0.316836317),
    ("original", "nDCG@10"): (0.3519018144, 0.0000000000, 0.0000000000, 0.0000000000, 1, None),
    ("original", "P@5"): (0.2027027027, 0.0000000000, 0.0000000000, 0.0000000000, 1, None),
    ("general", "nDCG@10"): (0.3341652103, -0.0177366041, -0.0691416626, 0.0336684543, 0.491082138, 0.982164275),
    ("general", "P@5"): (0.2655405405, 0.0628378378, 0.0235926716, 0.1020830039, 0.00227708003, 0.00910832013),
    ("keyword", "nDCG@10"): (0.1047830279, -0.2471187865, -0.3087817047, -0.1854558684, 4.70065425e-10, 2.82039255e-09),
    ("keyword", "P@5"): (0.0865990990, -0.1161036036, -0.1602170951, -0.0719901120, 2.76571057e-06, 1.65942634e-05),
    ("without general", "nDCG@10"): (0.2809639881, -0.0709378263, -0.1136969986, -0.0281786540, 0.00155305102, 0.0077652551),
    ("without general", "P@5"): (0.1781531531, -0.0245495495, -0.0588368822, 0.0097377831, 0.157208183, 0.316836317),
    ("without keyword", "nDCG@10"): (0.3843429378, 0.0324411233, -0.0029601425, 0.0678423893, 0.0715966525, 0.214789958),
    ("without keyword", "P@5"): (0.2765765765, 0.0738738738, 0.0393418499, 0.1084058977, 7.73484029e-05, 0.0003867420),
    ("by rank", "nDCG@10"): (0.2834358244, -0.0684659900, -0.1283366926, -0.0085952874, 0.0258932966, 0.103573187),
    ("by rank", "P@5"): (0.2097972972, 0.0070945945, -0.0355497046, 0.0497388938, 0.74016516, 0.74016516),
    ("depth=8", "nDCG@10"): (0.3066593345, -0.0452424799, -0.0797141632, -0.0107707967, 0.0111237638, 0.0111237638),
    ("depth=8", "P@5"): (0.2480855855, 0.0453828828, 0.0052529958, 0.0855127699, 0.0273658187, 0.0273658187),
}
"""Arm and measure -> mean over sets, difference, interval, p, and p by Holm or q."""


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


def test_figures_are_those_of_a_table_over_sets(folders: list[str]) -> None:
    rows = {(row["arm"], row["measure"]): row for row in dmqr.evaluate(*folders).table.to_pylist() if row["set"] is None}
    assert rows.keys() == FROZEN.keys()
    for key, frozen in FROZEN.items():
        row = rows[key]
        corrected = row["q"] if row["p_holm"] is None else row["p_holm"]
        figures = [row[name] for name in ("mean", "difference", "low", "high", "p")] + [corrected]
        assert figures == [value if value is None else pytest.approx(value, rel=1e-6, abs=1e-9) for value in frozen]


def test_figures_of_each_ablation_are_frozen(folders: list[str]) -> None:
    """As they were before tests, corrections and comparisons became one module each."""
    frozen = json.loads((Path(__file__).parent / "frozen.json").read_text())["arms"]
    names = ("mean", "weighted_mean", "condensed_mean", "difference", "low", "high", "weighted_difference", "weighted_low")
    names += ("weighted_high", "weighted_p", "effect", "p", "p_holm", "q", "p_equivalent", "detectable")
    found = {
        f"{name}/{row['arm']}/{row['measure']}": [row[of] for of in names]
        for name, folder in zip(SETS, folders, strict=True)
        for row in dmqr.evaluate(folder).table.to_pylist()
    }
    assert found.keys() == frozen.keys()
    for key, figures in found.items():
        assert figures == [None if one is None else pytest.approx(one, rel=1e-9, abs=1e-9) for one in frozen[key]], key


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
