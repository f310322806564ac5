"""Slices of the counted keys: which key is in which, and the means there."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from jobs.config.config import EvaluateSettings
from jobs.log.judgements import Judgements
from jobs.measure.comparison import Comparison, compare
from jobs.measure.slices import MOST_VALUES, NONE, OTHERS, thirds
from tests.support.jobs.run_folders import Row, ablation, arm, ask

ARMS = [arm("full"), arm("original")]


def sliced(folder: Path, queries: list[Row], names: list[str], grades: Any = None, **more: Any) -> Comparison:
    lists = {
        "full": {row["query_id"]: ["a"] for row in queries},
        "original": {row["query_id"]: ["x", "a"] if n % 2 else ["a"] for n, row in enumerate(queries)},
    }
    grades = grades or {row["query_id"].upper(): {"a": 1} for row in queries}
    run = ablation(folder, ARMS, lists, queries, more.pop("log_map", None), **more)
    return compare(run, Judgements("", grades), EvaluateSettings(measures=["RR"], slices=names))


def keys(comparison: Comparison) -> dict[str, int]:
    return {one.value: one.keys for one in comparison.slices}


def test_means_and_differences_of_a_slice(tmp_path: Path) -> None:
    queries = [ask(f"q{n}", "one two" if n < 3 else "one two three four") for n in range(5)]
    found = sliced(tmp_path, queries, ["words"])
    short, middle = found.slices
    assert (short.name, short.value, short.keys, short.few) == ("words", "1-2", 3, True)
    assert short.means == {"full": (1, pytest.approx(1 / 6)), "original": (pytest.approx(5 / 6), 0)}
    assert (middle.value, middle.keys, middle.means["full"][1]) == ("3-5", 2, 0.25)


def test_words_and_scripts(tmp_path: Path) -> None:
    texts = ["lamp", "lamp in the old tower now", "лампа", "12", "a b c"]
    found = sliced(tmp_path, [ask(f"q{n}", text) for n, text in enumerate(texts)], ["words", "language"])
    assert [(one.name, one.value, one.keys) for one in found.slices if one.name == "words"] == [
        ("words", "1-2", 3), ("words", "3-5", 1), ("words", "6 and more", 1),
    ]  # fmt: skip
    scripts = {one.value: one.keys for one in found.slices if one.name == "script"}
    assert scripts == {"Latin": 3, "Cyrillic": 1, "none": 1}
    assert any(note.startswith("script: of most of a query's letters") for note in found.notes)


def test_frequency_is_by_thirds_of_the_whole_logs_traffic(tmp_path: Path) -> None:
    queries = [
        ask("q0", "most", 40),
        ask("q1", "much a", 15),
        ask("q2", "much b", 15),
        *(ask(f"t{n}", f"rare{n}") for n in range(30)),
    ]
    found = sliced(tmp_path, queries, ["frequency"])
    assert keys(found) == {"head": 1, "torso": 2, "tail": 30}
    judged = sliced(tmp_path / "few", queries, ["frequency"], {"Q1": {"a": 1}, "T5": {"a": 1}})
    assert keys(judged) == {"torso": 1, "tail": 1}


@pytest.mark.parametrize("name", ["difficulty", "frequency", "words", "language"])
def test_a_column_of_the_log_is_what_its_name_means(tmp_path: Path, name: str) -> None:
    queries = [ask(f"q{n}", f"text{n}", values=[(name, "low" if n < 2 else "high")]) for n in range(6)]
    found = sliced(tmp_path, queries, [name])
    assert [(one.name, one.value, one.keys) for one in found.slices] == [(name, "high", 4), (name, "low", 2)]
    assert f"{name}: the log's column of this name" in found.notes


def test_difficulty_is_by_the_baselines_own_value(tmp_path: Path) -> None:
    assert thirds(np.array([0.9, 0.1, 0.5, 0.2, 0.6, 1.0])) == ["easy", "hard", "medium", "hard", "medium", "easy"]
    assert thirds(np.zeros(5)) == ["hard"] * 5
    found = sliced(tmp_path, [ask(f"q{n}", f"text{n}") for n in range(6)], ["difficulty"])
    hard, medium = found.slices
    assert (hard.value, hard.keys, hard.means["full"][1]) == ("hard", 3, 0.5)
    assert (medium.value, medium.means["full"][1]) == ("medium", 0)
    assert any("regression to the mean" in note for note in found.notes)


def test_a_column_of_the_log(tmp_path: Path) -> None:
    countries = ["de", "fr", "de", None]
    queries = [ask(f"q{n}", f"text{n}", values=[("country", one)]) for n, one in enumerate(countries)]
    found = sliced(tmp_path, queries, ["country", "device"])
    assert [(one.name, one.value, one.keys) for one in found.slices] == [
        ("country", "de", 2), ("country", "fr", 1), ("country", NONE, 1),
    ]  # fmt: skip
    assert "no slices by device: no such column was kept" in found.notes


def test_rare_values_are_one_slice(tmp_path: Path) -> None:
    queries = [ask(f"q{n:02d}", f"text{n}", values=[("it's", "all" if n < 5 else f"v{n}")]) for n in range(50)]
    found = sliced(tmp_path, queries, ["it's"])
    assert len(found.slices) == MOST_VALUES
    assert (found.slices[0].value, found.slices[0].keys) == ("all", 5)
    assert (found.slices[-1].value, found.slices[-1].keys) == (OTHERS, 50 - 5 - (MOST_VALUES - 2))
    assert sum(one.keys for one in found.slices) == 50


def test_query_types_are_the_logs_or_those_that_an_arm_selects_by(tmp_path: Path) -> None:
    queries = [ask(f"q{n}", f"text{n}") for n in range(3)]
    none = {"strategies": [], "reason": None}
    selections = [
        {"query_id": "q0", "arm": "original", "query_type": "vague"} | none,
        {"query_id": "q0", "arm": "full", "query_type": "broad"} | none,
        {"query_id": "q1", "arm": "original", "query_type": "vague"} | none,
        {"query_id": "q1", "arm": "full", "query_type": None} | none,
    ]
    found = sliced(tmp_path / "selected", queries, ["query_type"], selections=selections)
    assert keys(found) == {"broad": 1, "vague": 1, NONE: 1}
    typed = [row | {"query_type": "own"} for row in queries]
    assert keys(sliced(tmp_path / "own", typed, ["query_type"], selections=selections)) == {"own": 3}
    for name, given in (("none", None), ("adaptive", [one | {"query_type": None} for one in selections])):
        by_rules = sliced(tmp_path / name, queries, ["query_type"], selections=given)
        assert keys(by_rules) == {"keywords": 3}
        assert "query_type: by the rules for English, since no arm selects by it" in by_rules.notes


def test_a_rejected_row_has_no_value(tmp_path: Path) -> None:
    queries = [ask("q0", "text", 2), ask("q1", "other", 1)]
    log_map = [("Q0", "q0"), ("Q1", "q1"), ("bad", None)]
    grades = {name: {"a": 1} for name, _ in log_map}
    found = sliced(tmp_path, queries, ["words", "frequency"], grades, log_map=log_map)
    assert [(one.value, one.keys) for one in found.slices if one.name == "words"] == [("1-2", 2), (NONE, 1)]
    assert [one.keys for one in found.slices if one.value == NONE] == [1, 1]
