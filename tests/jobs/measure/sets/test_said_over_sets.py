"""What a comparison over sets takes over from its sets: the judge's noise, warnings, names, seeds."""

from __future__ import annotations

import json
import zlib
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pytest

from jobs.__main__ import main
from jobs.measure.compare.comparison import Comparison
from jobs.measure.seeds import Seeded
from jobs.measure.sets.over_sets import SetsComparison, compare_over_sets
from jobs.pages.sets.tables import sets_tables, sets_values
from jobs.terminal.tables import page_text
from tests.support.jobs.drawn_sets import write_paper
from tests.support.jobs.report_ablations import ARMS, MEASURES, ArmOf, comparison_of, values_of
from tests.support.rewriters.fake_server import FakeServer

FAR = [ArmOf("original", "always", ()), ArmOf("low", effect=-0.3), ArmOf("high", effect=0.3), ArmOf("top", effect=0.31)]


def noisy(one: Comparison, noise: float) -> Comparison:
    """The comparison by a judge of this noise, in each measure."""
    frame = replace(one.frame, noise=(noise,) * len(MEASURES))
    found = [replace(of, within_noise=of.arm != "original" and abs(of.difference) < noise) for of in one.differences]
    return replace(one, frame=frame, differences=tuple(found))


def over(*noises: float, arms: list[ArmOf] = FAR) -> SetsComparison:
    sets = {f"set {n}": comparison_of(arms, values_of(arms, 60, seed=n)) for n in range(len(noises))}
    return compare_over_sets({name: noisy(one, noise) for (name, one), noise in zip(sets.items(), noises, strict=True)})


def test_arms_nearer_than_the_judge_s_noise_have_one_place_and_no_verdict() -> None:
    first = MEASURES[0]
    exact, found = over(0.0, 0.0), over(2.0, 2.0)
    assert Counter(one.verdict for one in exact.over.values())["better"] > 0
    assert {one.verdict for one in found.over.values()} == {None}
    assert {(one.better, one.worse) for one in found.over.values()} == {(0, 0)}
    assert set(found.places(None, first).values()) == {"best"}
    assert set(exact.places(None, first).values()) == {"best", "second"}
    text = page_text(sets_tables(found), 100)
    assert "~ nearer than the judge's noise" in text
    row = next(line for line in text.splitlines() if line.startswith("high"))
    assert row.count("~") == 3
    assert "~" not in page_text(sets_tables(exact), 100).partition("sets:")[0].replace("~ nearer", "")


def test_over_sets_the_noise_is_the_mean_of_the_sets() -> None:
    first, large = MEASURES[0], 1.0
    difference = abs(over(0.0, 0.0).over["high", first].difference)
    assert not over(difference * 1.5, 0.0).over["high", first].within_noise
    assert over(difference * 1.5, large).over["high", first].within_noise
    assert over(large, 0.0).noise(None, first) == pytest.approx(large / 2)


def test_second_names_parts_and_substitutes_are_said_with_their_set() -> None:
    sets = {f"set {n}": comparison_of(ARMS, values_of(ARMS, 40, seed=n)) for n in range(2)}
    further: dict[str, Any] = {"parts": {"general": ("general", "keyword")}, "same_as": {"keyword": "general"}}
    sets["set 1"] = replace(sets["set 1"], **further, substituted=("no LLM answers for keyword: not measured here",))
    found = compare_over_sets(sets)
    assert "keyword is general under another name: the same system, not tested again (set 1)" in found.notes
    assert "no LLM answers for keyword: not measured here (set 1)" in found.notes
    assert any(note.startswith("§ general: texts are parts of the answers") for note in found.notes)
    assert found.named("general") == "general §"
    assert sets_values(found)["same_as"] == {"keyword": "general"}
    assert "general §" in page_text(sets_tables(found), 100)


def test_the_terminal_shows_the_deviation_over_seeds_of_each_set() -> None:
    sets = {f"set {n}": comparison_of(FAR, values_of(FAR, 30, seed=n)) for n in range(2)}
    of = {name: {"low": 0.0123 + n / 10, "top": None if n else 0.0456} for n, name in enumerate(sets)}
    for name, one in sets.items():
        answers = np.zeros((2, len(MEASURES), 30))
        seeds = {arm: Seeded((arm, f"{arm} #2"), answers) for arm, value in of[name].items() if value is not None}
        found = tuple(replace(each, deviation=of[name].get(each.arm)) for each in one.differences)
        sets[name] = replace(one, frame=replace(one.frame, seeds=seeds), differences=found)
    plain = compare_over_sets(
        {"set 0": comparison_of(FAR, values_of(FAR, 30)), "set 1": comparison_of(FAR, values_of(FAR, 30))}
    )
    assert "±" not in page_text(sets_tables(plain), 100)
    text = page_text(sets_tables(compare_over_sets(sets)), 100)
    table = text.partition(f"± of seeds, {MEASURES[0]}")[2].splitlines()
    assert [line.split() for line in table[1:3]] == [["top", "0.0456", "-"], ["low", "0.0123", "0.1123"]]


def test_failed_and_left_out_queries_are_said_of_each_set() -> None:
    sets = {f"set {n}": comparison_of(ARMS, values_of(ARMS, 40, seed=n)) for n in range(2)}
    failed = np.arange(len(ARMS), dtype=np.int64)
    sets["set 0"] = replace(sets["set 0"], frame=replace(sets["set 0"].frame, failed=failed, missing=3, not_committed=2))
    found = compare_over_sets(sets)
    judged = next(note for note in found.notes if note.startswith("judged keys"))
    assert judged.startswith("judged keys: set 0 40 (3 not in the log, 2 of queries not committed yet), set 1 40;")
    zero = f"counted as zero: 0 to {len(ARMS) - 1} without results, by arm (most: {ARMS[-1].name}) (set 0)"
    assert zero in found.notes


def test_a_set_without_variance_is_named_as_why_there_is_no_test() -> None:
    one, single = comparison_of(FAR, values_of(FAR, 40)), comparison_of(FAR, values_of(FAR, 1))
    found = compare_over_sets({"many": one, "single": single})
    assert {of.corrected for of in found.over.values()} == {None}
    assert any(note.startswith("no test over sets: single, whose queries are near-duplicates") for note in found.notes)


def test_of_one_set_there_is_no_mean_over_sets() -> None:
    text = page_text(sets_tables(over(0.0)), 100)
    assert " mean" not in text.splitlines()[0]
    assert "no test over sets as draws" not in text


@pytest.mark.slow
def test_people_s_judgements_of_a_set_and_an_llm_s_of_another_have_no_mean(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    def grade(body: dict[str, Any]) -> str:
        said = str(body["messages"][-1]["content"])
        return json.dumps({"match": 0, "trust": 0, "overall": zlib.crc32(said.encode()) % 4})

    monkeypatch.chdir(tmp_path)
    path = write_paper(tmp_path)
    text = path.read_text().replace('evaluate: {qrels: "data/{set}/qrels.tsv", measures', "evaluate: {measures")
    text = text.replace("sets: [birds, tools]", "sets: {birds: {qrels: data/birds/qrels.tsv}, tools: {}}")
    with FakeServer(["judge-70b"], text=grade) as server:
        engine = f'{{kind: openai, base_url: "{server.address}", model: judge-70b}}'
        path.write_text(text + f"judge: {{engine: {engine}, relevance: {{documents: 10}}}}\n")
        assert main(["ablate", str(path), "--json"]) == 0
        found = json.loads(capfd.readouterr().out)["comparisons"]
        assert {kind: list(one["sets"]) for kind, one in found.items()} == {"lists": ["birds"], "relevance": ["birds", "tools"]}
        assert any(note.startswith("warning: tools is not measured, and is in no mean") for note in found["lists"]["notes"])
        assert not any("is not measured" in note for note in found["relevance"]["notes"])
        file = next(tmp_path.glob("runs/paper-*/per_query.parquet"))
        rows = duckdb.sql(f"SELECT DISTINCT \"set\", measure FROM '{file}' ORDER BY ALL").fetchall()
        assert {one for one in rows if not one[1].startswith("judged ")} == {("birds", "nDCG@10"), ("birds", "R@5")}
        assert {one[0] for one in rows if one[1] == "judged nDCG@10"} == {"birds", "tools"}
        # measures that the judge's grades do not reach are none of the sets that people judged
        assert main(["ablate", str(path), "--set", "evaluate.measures=[nDCG@20, R@5]", "--set", "output=other"]) == 0
