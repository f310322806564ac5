"""Texts in another language than their query: by script, and by function words."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pools import answered, rewriter

from rewriters.guards.guards import GuardRules
from rewriters.guards.language import other_language
from rewriters.settings import GuardSettings

OTHER = [
    ("iPhone 16 价格", "iPhone 16 price"),
    ("ios 17 バッテリー 減り", "iOS 17 battery drain"),
    ("погода в москве", "weather in Moscow"),
    ("aaj ka mausam delhi", "आज दिल्ली का मौसम"),
    ("cuanto dura la muda de un perro", "how long does the moulting of a dog last"),
    ("warum ist der himmel blau", "why is the sky blue and what is it made of"),
    ("how to cook the rice for a salad", "wie man den Reis für einen Salat kocht"),
    ("pourquoi le pain rassit dans le frigo", "why does bread go stale in the fridge"),
    ("как открыть дверь без ключа и не сломать", "як відкрити двері без ключа та не зламати чи"),
]
SAME = [
    ("iPhone 16 价格", "苹果手机 16 价格"),  # the Latin name is written out
    ("wifi 路由器", "无线路由器"),
    ("新幹線 時間", "しんかんせんのじかん"),
    ("weather berlin", "Wetter Berlin"),  # names and nouns alone tell no language
    ("2 + 2", "addition"),
    ("c'est la vie meaning", "meaning of the phrase c'est la vie"),
    ("how to say good morning in german", "the German for good morning: how it is said"),
    ("der untergang movie", "the film about the last days in the bunker, Der Untergang"),
    ("hvad er den bedste cykel til børn", "bedste cykel til børn og hvor den kan købes"),
    ("π", "pi"),
    ("αvβ8 integrin on tTregs", "Itgb8 on tTregs"),  # symbols within a name
]


@pytest.mark.parametrize(("query", "text"), OTHER)
def test_another_language_or_script(query: str, text: str) -> None:
    assert other_language(query, text)


@pytest.mark.parametrize(("query", "text"), SAME)
def test_what_may_be_the_same_language(query: str, text: str) -> None:
    assert not other_language(query, text)


@given(st.text(max_size=60), st.text(alphabet="xyz0 ", max_size=20))
def test_a_text_that_has_the_whole_query_is_in_its_language(query: str, more: str) -> None:
    assert not other_language(query, f"{query} {more}")


def test_it_is_flagged_and_searched_unless_a_language_is_asked_for() -> None:
    texts = {
        "general": "iPhone 16 price",
        "keyword": "iPhone 16, 价格",
        "pseudo_answer": "iPhone 16 的价格",
        "core_content": "价格",
    }

    def flags(**more: object) -> dict[str, tuple[str, ...]]:
        one = rewriter(list(texts), **more)
        return {rewrite.strategy: rewrite.guards for rewrite in answered(one, "iPhone 16 价格", json.dumps(texts)).rewrites}

    found = flags()
    assert list(found) == list(texts)
    assert "other_language" in found["general"]
    assert not any("other_language" in found[name] for name in list(texts)[1:])
    assert "other_language" not in flags(guards=GuardRules(GuardSettings(language="off")))["general"]
