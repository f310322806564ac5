"""RESULTS.md keeps what other benchmarks have written, and the table says what is missed and what was not measured."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))

from all import LIMITS, shown  # noqa: E402
from limits.rounds import Row, Spent, alternated  # noqa: E402
from results import put_section, table  # noqa: E402


def test_a_section_is_replaced_and_the_others_stay(tmp_path: Path) -> None:
    file = tmp_path / "RESULTS.md"
    for heading, body in (("Limits", "one\n"), ("Small jobs", "two\n\n### more\n\nthree"), ("Limits", "four")):
        put_section(heading, body, file)
    written = file.read_text(encoding="utf-8")
    assert [line for line in written.splitlines() if line.startswith("## ")] == ["## Limits", "## Small jobs"]
    assert "one" not in written
    assert written.endswith("## Limits\n\nfour\n\n## Small jobs\n\ntwo\n\n### more\n\nthree\n")
    before = written
    put_section("Limits", "four", file)
    assert file.read_text(encoding="utf-8") == before


def test_a_body_with_a_heading_of_sections_is_refused(tmp_path: Path) -> None:
    with pytest.raises(AssertionError):
        put_section("Limits", "one\n## two", tmp_path / "RESULTS.md")


def test_the_table_says_what_is_met_missed_and_not_measured() -> None:
    rows = [
        Row("a", "bare", 300, "texts", Spent(2.0, 1.0), Spent(3.0, 2.5)),
        Row("b", "bare", 10, "texts", Spent(2.0, None), Spent(1.0, None)),
        Row("c", "bare", reason="vllm is not installed"),
    ]
    assert [row.met for row in rows] == [True, False, False]
    lines = shown(rows).splitlines()[2:]
    assert lines == [
        "| a | 150 texts/s | bare | 100 texts/s | 1.50 | 2.50 | 0.90 | yes |",
        "| b | 5.0 texts/s | bare | 10.0 texts/s | 0.50 |  | 0.90 | no |",
        "| c | not measured: vllm is not installed | bare |  |  |  | 0.90 | not measured |",
    ]
    assert table(["x"], [["1"]]) == "| x |\n| --- |\n| 1 |"


def test_rounds_are_in_turns_and_medians_are_told() -> None:
    called: list[str] = []

    def side(name: str, *seconds: float) -> object:
        left = iter(seconds)

        def once() -> Spent:
            called.append(name)
            return Spent(next(left), None)

        return once

    found = alternated({"ours": side("ours", 9, 1, 2), "bare": side("bare", 4, 4, 5)}, 3)  # type: ignore[dict-item]
    assert called == ["ours", "bare", "bare", "ours", "ours", "bare"]
    assert found == {"ours": Spent(2, None), "bare": Spent(4, None)}


def test_all_limits_are_run_and_described() -> None:
    files = {path.stem for path in (HERE / "limits").glob("*.py") if re.search(r"^def measure\(", path.read_text(), re.M)}
    assert files == set(LIMITS)
