"""What a rewrite has lost of its query: numbers, names, quoted phrases; few false alarms."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rewriters.guards.preserve import lost, parts, repaired


def flags(query: str, text: str) -> set[str]:
    return {f"{part.flag.removeprefix('lost_')} {part.value}" for part in lost(text, parts(query))}


@pytest.mark.parametrize(
    ("query", "text", "missing"),
    [
        ("renting a car at 67 in march 2025", "renting a car as a pensioner in march 2025", {"number 67"}),
        ("is 2.5 kg of flour too much", "is 3.5 kg of flour too much", {"number 2.5"}),
        ("flights 14-21 december", "flights 14 december", {"number 21"}),
        ("what did Marie Sklodowska study in paris", "what did Marie study", {"name Sklodowska"}),
        ("is the B57 sold in black", "is the bomber sold in black", {"name B57"}),
        ("my new iPhone-12 gets hot", "my new phone gets hot", {"name iPhone-12"}),
        ('who wrote "the winter lamp" first', "who wrote the lamp of winter first", {"phrase winter lamp"}),
        ("wer schrieb „Das kalte Licht“ zuerst", "wer schrieb das Licht zuerst", {"phrase Das kalte Licht"}),
        ("2019年の台風", "去年の台風", {"number 2019"}),
        ("北京地铁10号线首末班车时间", "北京地铁 首班车 末班车 时刻表", {"number 10"}),
        ("周杰伦2004年发行了哪张专辑", "周杰伦 专辑", {"number 2004"}),
        ("新幹線で東京から大阪まで2時間", "新幹線 東京 大阪", {"number 2"}),
        ("サッカーワールドカップ2022優勝国", "ワールドカップの優勝国", {"number 2022"}),
        ("ราคาทองคำวันนี้ปี2567", "ราคาทองคำ", {"number 2567"}),
        ("งบประมาณปี๒๕๖๗", "งบประมาณ", {"number ๒๕๖๗"}),
        ("华为mate60多少钱", "华为手机价格", {"name mate60"}),
        ("我想买iPhone手机", "我想买手机", {"name iPhone"}),
        ("去Paris旅游要多少钱", "去法国旅游 费用", {"name Paris"}),
    ],
)
def test_what_is_lost(query: str, text: str, missing: set[str]) -> None:
    assert flags(query, text) == missing


@pytest.mark.parametrize(
    ("query", "text"),
    [
        ("2 cups of rice", "two cups of rice"),
        ("the 3rd crusade", "third crusade"),
        ("sequel 2 of a film", "film sequel, part II"),
        ("a loan of 1,500 euros", "loan, 1500 €"),
        ("a loan of 1.50 euros", "loan, 1.5 €"),
        ("a crowd of 12000", "crowd of 12k"),
        ("on 2025-03-05", "on 5 March 2025"),
        ("run 5kg of wash", "wash, 5 kg"),
        ("the capital of Iceland", "Iceland's capital"),
        ("a driver from Germany", "German driver"),
        ("height of the Eifel Tower in metres", "how high is the Eiffel Tower"),
        ("treaties of the United Nations on water", "UN treaties, water"),
        ("patients with Low Renal Function (LRF) and pain", "LRF patients pain"),
        ("my iPhone 12 is hot", "iphone12 hot"),
        ('who sang "Blue Harbour" live', "Blue Harbour, live, singer"),
        ("How many moons has Saturn", "moons of saturn"),
        ("What happened? Then rain came", "what happened when it rained"),
        ("WHAT IS NEW IN OSLO", "what is new there"),
        ("What Is The Best Way To Bake Bread At Home", "baking bread"),
        ("what is NOT allowed on board", "things forbidden on board"),
        ("write to anna.berg7@example.org about Porto trips", "trips in Porto"),
        ('a 27" monitor for 24" desks', "monitor of 27 inches for desks of 24 inches"),
        ('"a whole query in quotes"', "query in quotes"),
        ("東京タワーの高さ", "塔の高さ"),
        ("北京地铁10号线首末班车时间", "北京地铁十号线 时刻表"),
        ("华为mate60多少钱", "华为 Mate 60 价格"),
        ("什么是5G。Warum brauche ich das", "5G 是什么"),
    ],
)
def test_what_is_not_lost(query: str, text: str) -> None:
    assert flags(query, text) == set()


def test_a_query_has_lost_nothing_of_itself_and_a_phrase_counts_once() -> None:
    assert [part.flag for part in parts('who played in "Harbour 17" for Nokia')] == ["lost_phrase", "lost_name"]


@given(st.text(max_size=60))
def test_no_text_has_lost_anything_of_itself(text: str) -> None:
    assert lost(text, parts(text)) == []


@given(st.text(st.sampled_from("北京地铁号線でサッカー優勝ราคาทองกิ่ลາ๒12３"), max_size=30))
def test_scripts_without_case_and_spaces_have_no_names(text: str) -> None:
    assert {part.flag for part in parts(text)} <= {"lost_number"}


WORDS = st.lists(st.sampled_from(['"old mill"', "Oslo", "B57", "12", "3.5kg", "and", "why", "2024-01-31", "Ärger"]), max_size=8)


@given(WORDS, st.sampled_from([None, ", "]))
def test_what_is_repaired_has_all_and_begins_as_it_was(query: list[str], separator: str | None) -> None:
    wanted = parts("is it " + " ".join(query))
    text = repaired("something else", lost("something else", wanted), separator)
    assert lost(text, wanted) == []
    assert text.startswith("something else")


def test_repairs_are_joined_as_the_strategy_joins() -> None:
    missing = lost("cars", parts("cars in Oslo under $5,000"))
    assert repaired("cars", missing, ", ") == "cars, Oslo, $5,000"
    assert repaired("cars", missing, None) == "cars Oslo $5,000"
