"""The look-up function: Python's is the `query_id` of the tables, and Java's and JavaScript's give the same keys."""

from __future__ import annotations

import os
import random
import re
import sys
import unicodedata
from pathlib import Path

import pytest

import dmqr
from jobs.log.settings import LogSettings
from rewriters.normalise import normalise, query_id
from tests.support.jobs.whole_runs import ROOT
from tests.support.look_up.runtimes import LANGUAGES, Asked, Runtime, runtime

PAGE = (ROOT / "docs" / "look-up.md").read_text(encoding="utf-8")
POINTS = [chr(point) for point in range(sys.maxunicode + 1) if not 0xD800 <= point < 0xE000]
MARKS = [char for char in POINTS if unicodedata.category(char) in {"Mn", "Mc"}]
FOLDED = [char for char in POINTS if char.casefold() != char]
SPACES = " \t\n\r\x0b\x1c\x1f\x85\u00a0\u2003\u3000\u2028"
NOT_SPACES = "\ufeff\u200b\u200c\u200d\u180e\x00\x7f\u00ad"
ENGLISH = "aAbBiIkKsSzZ0 '\"\\{}"


@pytest.fixture(scope="module", params=LANGUAGES)
def other(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Runtime:
    return runtime(request.param, tmp_path_factory.mktemp("classes"))


def by_python(asked: Asked, max_context_chars: int = 8000) -> str:
    try:
        return dmqr.look_up_key(asked.query, asked.context, asked.filters, max_context_chars=max_context_chars)
    except UnicodeEncodeError:
        return "refused"


def test_it_is_the_query_id_of_the_tables() -> None:
    assert dmqr.look_up_key("  Water on the ROAD ahead that isn't there ") == "bee42934aeb07bcbc440f344827289a3"
    turns = "any trains to the coast?"
    assert dmqr.look_up_key("And on Sundays?", turns) == query_id("And on Sundays?", turns)
    assert dmqr.look_up_key("a", "b", {"tenant": "north"}) == query_id("a", "b", {"tenant": "north"})


def test_of_a_long_context_the_newest_characters_count() -> None:
    most = LogSettings.model_fields["max_context_chars"].default
    old, new = "b" * 30, "a" * most
    assert dmqr.look_up_key("q", old + new) == dmqr.look_up_key("q", new) != dmqr.look_up_key("q", "b" + new[1:])
    assert dmqr.look_up_key("q", "old new", max_context_chars=3) == query_id("q", "new")


def equal_where_both_know(runtime: Runtime, asked: list[Asked], max_context_chars: int = 8000) -> int:
    """Returns how many have no code point that one of the two Unicode versions lacks, and checks that their keys are equal."""
    answers = runtime.keys(asked, max_context_chars)
    compared = [
        (one, key)
        for one, (key, known) in zip(asked, answers, strict=True)
        if known and not any(unicodedata.category(char) == "Cn" for char in one.query + (one.context or ""))
    ]
    assert [one for one, key in compared if key != by_python(one, max_context_chars)] == []
    return len(compared)


@pytest.mark.slow
def test_code_points_that_normalising_changes_have_equal_keys_and_others_drawn(other: Runtime) -> None:
    changed = [char for char in POINTS if normalise(char) != char]
    assert len(changed) > 6000
    assert equal_where_both_know(other, [*map(Asked, [*changed, *random.Random(1).sample(POINTS, 20_000)])]) > 10_000


@pytest.mark.slow
def test_all_code_points_of_unicode_13_have_equal_keys(other: Runtime) -> None:
    in_unicode_13 = 143_859 + 65 + 137_468  # graphic and format, control, private use
    assert equal_where_both_know(other, [*map(Asked, POINTS)]) >= in_unicode_13


def drawn_text(rng: random.Random) -> str:
    pools = [ENGLISH, SPACES, NOT_SPACES, MARKS, FOLDED, "\u1100\u1161\u11a8가각", POINTS, "ßŉǰΐΰẖﬀﬃ\u0345İıſKÅ¨ˢ½"]
    text = "".join(rng.choice(rng.choice(pools)) for _ in range(rng.randint(0, 9)))
    return text + rng.choice(["\ud800", "\udc00 x"]) * (rng.random() < 0.02)


def drawn(seed: int, number: int) -> list[Asked]:
    rng = random.Random(seed)
    found = []
    for _ in range(number):
        context = rng.choice([None, None, "", " \n", drawn_text(rng), f"{drawn_text(rng)}\n{drawn_text(rng)}", "😀é " * 9])
        filters = {}
        for _ in range(rng.choice([0, 0, 1, 2, 4])):
            field, value = (
                "".join(rng.choice('ab"\\\n\x01\x7f\u2028é\uffee𐐀😀') for _ in range(rng.randint(0, 3))) for _ in "kv"
            )
            filters[field] = value
        found.append(Asked(drawn_text(rng), context, filters))
    return found


@pytest.mark.slow
@pytest.mark.parametrize("number", [3000, 100_000])
def test_drawn_texts_contexts_and_filters_have_equal_keys(other: Runtime, number: int) -> None:
    asked = drawn(number, number)
    assert equal_where_both_know(other, asked, max_context_chars=12) > number / 2
    keys = [by_python(one, 12) for one in asked]
    assert number / 100 < keys.count("refused") < number / 10
    assert len(set(keys)) > number * 3 / 4


@pytest.mark.parametrize("log", ["terabyte05_50k", "bing_covid_jan2020"])
def test_the_queries_of_real_logs_have_equal_keys(other: Runtime, log: str) -> None:
    shared = os.environ.get("DMQR_SHARED")
    if not shared:
        pytest.skip("DMQR_SHARED is not set: the real logs are not here")
    dataset = pytest.importorskip("pyarrow.dataset")
    column = dataset.dataset(Path(shared) / "logs" / log, format="parquet").to_table(columns=["query"])["query"]
    queries = column.drop_null().unique().to_pylist()
    assert len(queries) > 5000
    assert [key for key, _ in other.keys(map(Asked, queries))] == [query_id(one) for one in queries]


def test_the_examples_of_the_page(other: Runtime, capsys: pytest.CaptureFixture[str]) -> None:
    (code,) = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    exec(code)
    shown = re.findall(r"# ([0-9a-f]{32})$", code, re.MULTILINE)
    assert capsys.readouterr().out.split() == shown
    asked = [
        Asked("  Water on the ROAD ahead that isn't there "),
        Asked("And on Sundays?", "any trains to the coast?"),
        Asked("opening hours", None, {"tenant": "north"}),
    ]
    assert [key for key, _ in other.keys(asked)] == shown


def test_the_page_says_for_how_many_code_points_lower_case_is_not_enough() -> None:
    def lower(text: str) -> str:
        return " ".join(unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", text).lower()).split())

    differ = sum(lower(char) != normalise(char) for char in POINTS)
    assert re.search(rf"Python 3\.11 \| [\d.]+ \| {differ} \|", PAGE)
