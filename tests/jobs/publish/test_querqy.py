"""Rules for Querqy: hostile queries and rewrites are read back word by word; what its grammar cannot write is left out."""

from __future__ import annotations

import random
import re
from collections import Counter
from typing import Any

import pytest

from jobs.publish.formats.querqy import COUNTED, MOST_BOOSTS, ROWS, boosted_words, input_of, rule_of, synonym_of
from jobs.publish.formats.rule_texts import SHORT_WORDS
from rewriters.normalise import normalise, query_id
from tests.support.jobs.querqy_grammar import Rule, Unreadable, read_rules

HOSTILE = [
    '"', "\\", "=>", "#", "*", "@", "{", "}", "$1", "$$2", ":", "<<", ">>", "%%", "~2", "+", "-", "//", "def", "a:b", "and",
    "@_id:", "}@", "\\#", '\\"', "c#", "c++", "12:30", "don't", "½", "ß", "😀", "👩‍🔬", "שלום", "\u202eabc", "北京", "e\u0301",
    "\x00", "\x1b", "\ufeff", "\u200b", "up(5):", "synonym:", "5", "٣", "word", "notebook", "cheap",
]  # fmt: skip


def row_of(query: str, *texts: str, key: str | None = None, weight: float = 0.5, search_as: str = "query") -> dict[str, Any]:
    rewrites = [
        {"strategy": "keyword", "position": number, "text": text, "weight": weight, "search_as": search_as}
        for number, text in enumerate(texts, start=1)
    ]
    words = normalise(query)
    return {"key": key or query_id(words), "query": words, "context": None, "rewrites": rewrites}


def drawn_text(rng: random.Random, most: int) -> str:
    joined = ["", " ", " ", " "]
    return "".join(rng.choice(HOSTILE) + rng.choice(joined) for _ in range(rng.randint(1, most))).strip()


def drawn_rows(number: int) -> list[dict[str, Any]]:
    rng, rows = random.Random(number), {}
    while len(rows) < number:
        texts = [drawn_text(rng, rng.choice([3, 12])) for _ in range(rng.randint(1, 4))]
        row = row_of(drawn_text(rng, 6), *texts, weight=rng.choice([1, 0.8, 1e-7, 1e20, 1 / 3]))
        rows[row["key"]] = row
    return list(rows.values())


def letters(texts: list[str]) -> list[str]:
    return re.findall(r"\w+", " ".join(texts))


def written(rows: list[dict[str, Any]]) -> tuple[dict[str, Rule], Counter[str]]:
    counts = Counter(dict.fromkeys(COUNTED, 0))
    text = "".join(rule for row in rows if (rule := rule_of(row, counts)))
    return {rule.properties["_id"]: rule for rule in read_rules(text)}, counts


@pytest.mark.slow
def test_hostile_queries_and_rewrites_are_read_back() -> None:
    rows = drawn_rows(10_000)
    rules, counts = written(rows)
    assert counts["rules"] == len(rules) > 3000
    assert sum(counts[reason] for reason in ROWS) == len(rows) - len(rules)
    for row in rows:
        if (rule := rules.get(row["key"])) is None:
            continue
        assert rule.words == row["query"].split(" ")
        texts, weight = {one["text"] for one in row["rewrites"]}, row["rewrites"][0]["weight"]
        for words in (one.words for one in rule.instructions if one.kind == "SYNONYM"):
            assert any(
                letters([text]) == letters(words) and same(text, words) for text in texts if len(text.split()) <= SHORT_WORDS
            )
        assert all(one.parameter == pytest.approx(weight, rel=1e-5) for one in rule.instructions if one.kind == "SYNONYM")
        boosts = [one for one in rule.instructions if one.kind == "UP"]
        long = [text for text in texts if len(text.split()) > SHORT_WORDS]
        assert {*letters([word.casefold() for one in boosts for word in one.words])} <= {*letters([*map(str.casefold, long)])}
        assert all(len(one.words) == 1 for one in boosts)
        assert sum(one.parameter for one in boosts) <= weight * len(long) * (1 + 1e-5)
    written_ones = Counter(one.kind for rule in rules.values() for one in rule.instructions)
    assert written_ones == {"SYNONYM": counts["synonyms"], "UP": counts["boosts"]}
    assert min(counts["synonyms"], counts["boosts"], counts["synonyms_cleaned"]) > 500


def same(text: str, words: list[str]) -> bool:
    """Whether the words are the text's but for characters that cannot be written."""
    lost = r"[:$\\=>\s\x00-\x1f\x7f-\x9f]"
    return re.sub(lost, "", text) == re.sub(lost, "", "".join(words))


def test_queries_are_left_out_only_for_what_cannot_be_written() -> None:
    for row in drawn_rows(3_000):
        query = row["query"]
        cannot = (
            re.search(r"(^| )[+-]\S", query)
            or re.search(r"(^| )[^ :][^ :]*:[^ ]", query)
            or "\\#" in query
            or re.search(r"[\x00-\x1f\x7f-\x9f]", query)
        )
        assert (input_of(query) is None) == bool(cannot), query


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("Notebook  CHEAP", '"notebook cheap"'),
        ('14" screen', '"14\\" screen"'),
        ("c#", '"c\\#"'),
        ("5 * 3", '"5 \\* 3"'),
        ("a\\b", '"a\\\\b"'),
        ("ends with \\", '"ends with \\\\ "'),
        ("@home => {x}", '"@home => {x}"'),
        ("why:", '"why:"'),
        (": why", '": why"'),
        ("tea - green", '"tea - green"'),
        ("site:shop.example", None),
        ("-green tea", None),
        ("\\#", None),
    ],
)
def test_inputs(query: str, expected: str | None) -> None:
    assert input_of(normalise(query)) == expected
    if expected is not None:
        (rule,) = read_rules(f'{expected} =>\n UP: a\n @_id: "1"')
        assert rule.words == normalise(query).split(" ")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Affordable  laptop", "Affordable laptop"),
        ("C# \\ *", "C\\# \\\\ \\*"),
        ("price: $100 or $$5", "price 100 or 5"),
        ("this => that =>", "this => that"),
        ("c\\#", "c \\#"),
        ("!!", ""),
        (": $1", "1"),
        (" :: =>", ""),
    ],
)
def test_synonyms(text: str, expected: str) -> None:
    assert synonym_of(text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('"Light" computers: light, LIGHT computers', "Light computers"),
        ("(It's) 3.11, c++; .NET: a=>, -(5) «x»…", "It's 3.11 c++ NET a 5 x"),
        ("-not +must - ++c c++", "not must c c++"),
        ("*raw %%query%% #5 $3 !", "raw %%query%% 5 3"),
        ("goes on => and=> on=>=>", "goes on and"),
        ("- + # 😀 ½ é", "é"),
    ],
)
def test_words_that_boost(text: str, expected: str) -> None:
    assert boosted_words(text) == expected.split()


def test_a_rule_as_it_is_written() -> None:
    row = row_of(
        "Notebook cheap", "affordable laptop", "notebook  CHEAP", "light cheap lasting", "Affordable laptop", "LIGHT computer"
    )
    row["rewrites"][2] |= {"search_as": "passage", "weight": 0.75}
    row["rewrites"][3]["weight"] = 0
    row["rewrites"][4]["search_as"] = "passage"
    counts = Counter[str]()
    assert rule_of(row, counts) == (
        '"notebook cheap" =>\n  SYNONYM(0.5): affordable laptop\n  UP(0.5): light\n  UP(0.25): lasting\n  UP(0.25): computer\n'
        f'  @_id: "{row["key"]}"\n\n'
    )
    expected = {"rules": 1, "synonyms": 1, "boosts": 3, "rewrites_as_the_query": 1, "rewrites_of_weight_0": 1}
    assert +counts == Counter(expected)


def test_of_many_words_those_boost_that_rewrites_share() -> None:
    rare, shared = " ".join(f"rare{number}" for number in range(40)), "shared by both of them too"
    row = row_of("query", f"{rare} {shared}", f"other {shared}")
    (rule,) = read_rules(rule_of(row, counts := Counter[str]()) or "")
    words = [one.words[0] for one in rule.instructions]
    assert words[:6] == ["shared", "by", "both", "of", "them", "too"]
    assert (len(words), counts["boosts_left_out"]) == (MOST_BOOSTS, 40 + 6 + 1 - MOST_BOOSTS)


def test_a_query_with_earlier_turns_or_filters_has_no_rule() -> None:
    counts = Counter[str]()
    for other in (query_id("on sundays", "any trains?"), query_id("on sundays", None, {"tenant": "north"})):
        assert rule_of(row_of("on sundays", "sunday trains", key=other), counts) is None
    assert rule_of(row_of("on sundays"), counts) is None
    assert +counts == Counter({"left_out_context_or_filters": 2, "left_out_no_rewrites": 1})


@pytest.mark.parametrize("line", ['"a:b" =>', '"a*" =>', "a =>", '"a\\" =>', '"" =>', '"a\\b" =>'])
def test_the_reader_refuses_inputs_of_another_meaning(line: str) -> None:
    with pytest.raises(Unreadable):
        read_rules(f'{line}\n UP: a\n @_id: "1"')
