"""What makes a text no rewrite: is_repetitive, scripts, reasoning."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rewriters.reading.checks import is_in_wrong_language
from rewriters.reading.repetition import is_repetitive
from rewriters.reading.thinking import strip_thinking
from rewriters.reading.words.function_words import language_of
from rewriters.reading.words.romanised import is_romanised
from rewriters.reading.words.scripts import is_foreign, scripts
from rewriters.reading.words.sentences import whole_sentences

PASSAGE = (
    "Row upon row of vines covers the hills between Lyon and Valence, where growers have kept terraces since Roman times. "
    "The river brings cool nights, the granite holds the warmth of the day, and the wind that dries the grapes after rain "
    "is the reason why so little has to be sprayed. Of the two grapes that are allowed, one gives the colour and the other "
    "the scent; a cellar may mix them in the vat but not in the bottle, and says so on the label with a number."
)


@pytest.mark.parametrize(
    "text",
    [
        "cheap parcel " * 12,
        "a good beginning, then and then and then and then and then and then and then and then",
        "包裹价格" * 6,
        "shipping" * 5,
        "".join(map(chr, range(1000, 1100))) * 5,
        "東京の天気は、" * 30,
        "abc" * 2000,
        ", ".join(f"step {n}" for n in range(300)),
        PASSAGE + " the end." * 120,
    ],
)
def test_loops(text: str) -> None:
    assert is_repetitive(text)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "bora bora bora bora bora",
        "hahahahahahahaha",
        "1000000000000",
        "New York, New York",
        PASSAGE,
        PASSAGE + " No, no, no, no, no, no, no, no, no, no, it sings.",
        "北京今天的天气怎么样，明天会不会下雨，需要带伞吗，周末适合去爬山吗",
        "green tea, caffeine, green tea caffeine, caffeine in green tea, milligrams of caffeine in green tea",
    ],
)
def test_no_loops(text: str) -> None:
    assert not is_repetitive(text)


@given(st.text(min_size=8, max_size=60), st.integers(8, 30), st.text(max_size=10))
def test_any_unit_often_enough_loops(unit: str, times: int, before: str) -> None:
    unit = " ".join(unit.split())
    if len(unit) >= 8:
        assert is_repetitive(before + (unit + " ") * times)


@pytest.mark.parametrize(
    ("query", "rewrite", "foreign"),
    [
        ("cheap parcel", "billiges Paket", False),
        ("cheap parcel", "дешёвая посылка", True),
        ("дешёвая посылка", "посылка DHL", False),
        ("посылка DHL", "DHL parcel", True),
        ("посылка DHL", "DHL", False),
        ("iphone 16 价格", "iPhone 16 price", True),
        ("iphone 16 price", "iPhone 16 价格", True),
        ("iphone 16 price", "iPhone 16 price 价格", False),
        ("β blocker dosage", "dosage of beta blockers", False),
        ("λ-calculus 入門", "lambda calculus 入門", False),
        ("北京天气", "Beijing weather", True),
        ("北京天气", "北京 天气", False),
        ("こづつみ", "小包", False),
        ("小包の料金", "コヅツミ", False),
        ("소포 요금", "小包", True),
        ("소포 요금", "소포", False),
        ("小包", "소포", True),
        ("π", "value of pi", False),
        ("爱", "love", True),
        ("ＤＨＬ", "DHL", False),
        ("𝐃𝐇𝐋 parcel", "Пакет", True),
        ("12 + 7", "сложение", False),
        ("parcel", "12", False),
        ("كتاب", "book", True),
        ("สภาพอากาศ", "weather", True),
        ("แท็กซี่", "แท็กซี่ taxi", False),
    ],
)
def test_scripts_of_another_language(query: str, rewrite: str, foreign: bool) -> None:
    assert is_foreign(query, rewrite) == foreign


@pytest.mark.parametrize(
    ("latin", "native"),
    [
        ("aaj ka mausam delhi", "आज दिल्ली का मौसम"),
        ("delhi me aaj mausam kaisa hai", "दिल्ली में आज बादल छाए रहेंगे।"),
        ("vanakkam chennai vaanilai", "வணக்கம் சென்னை வானிலை"),
        ("toukyou tenki ashita", "東京 天気 明日"),
        ("beijing ditie shijian", "北京地铁时间"),
        ("pogoda v moskve zavtra", "погода в Москве завтра"),
        ("kayfa 7alak ma3na", "معنى كيف حالك"),
        ("seoul matjip chucheon", "서울 맛집 추천"),
        ("kairos athina avrio", "καιρός αθήνα αύριο"),
        ("mezeg avir tel aviv", "מזג אוויר תל אביב"),
        ("rakha thong wanni", "ราคาทองวันนี้"),
        ("ayfon 16 tsena", "айфон 16 цена"),
    ],
)
def test_romanised_texts_are_told(latin: str, native: str) -> None:
    assert is_romanised(latin, native, scripts(native))
    assert not is_in_wrong_language(native, latin)


@pytest.mark.parametrize(
    ("query", "rewrite"),
    [
        ("cheap parcel", "дешёвая посылка"),
        ("cheap flights to paris", "飞往巴黎的廉价航班"),
        ("green tea caffeine", "绿茶咖啡因"),
        ("learn python in one day", "учить питон за один день"),
        ("how to rent a car in iceland", "как арендовать машину в исландии"),
        ("who won the world cup", "ワールドカップ優勝国"),
        ("weather in delhi today", "आज का मौसम"),
        ("chicken recipe easy", "आसान मुर्गी बनाने की विधि"),
        ("book", "كتاب"),
        ("gold price today", "ราคาทองคำวันนี้"),
        ("दिल्ली का मौसम", "Delhi weather forecast"),
        ("cuanto cuesta enviar un paquete de lyon a oporto", "how much does it cost to send a parcel from Lyon to Porto"),
        ("wie hoch ist der eiffelturm", "what is the height of the Eiffel Tower"),
        ("comment louer une voiture en islande", "how to rent a car in Iceland with what documents"),
    ],
)
def test_translations_are_told(query: str, rewrite: str) -> None:
    assert is_in_wrong_language(rewrite, query)


@pytest.mark.parametrize(
    ("query", "rewrite"),
    [
        ("айфон 16 цена", "iPhone 16"),
        ("letra de la cancion i will always love you", "what is the song I Will Always Love You"),
        ("die hard the movie", "der film die hard"),
        ("cuanto cuesta un paquete", "precio paquete Lyon Porto"),
        ("el nino effects", "what are the effects of El Niño"),
    ],
)
def test_what_may_be_the_query_s_language_is_not_refused(query: str, rewrite: str) -> None:
    assert not is_in_wrong_language(rewrite, query)


@pytest.mark.parametrize(
    ("text", "language"),
    [
        ("how much does it cost to send a parcel", "English"),
        ("wie hoch ist der eiffelturm", "German"),
        ("comment louer une voiture pour les vacances", "French"),
        ("come arrivare a roma dal mare", "Italian"),
        ("jak dziala pompa ciepla i czy jest droga", "Polish"),
        ("green tea caffeine", None),
        ("letra de la cancion i will always love you", None),
    ],
)
def test_the_language_of_a_text_is_said_where_it_is_sure(text: str, language: str | None) -> None:
    assert language_of(text) == language


@given(st.text(), st.text())
def test_a_text_is_never_a_translation_of_itself(text: str, other: str) -> None:
    assert not is_in_wrong_language(text, text)
    is_in_wrong_language(text, other)


@pytest.mark.parametrize(
    ("text", "whole"),
    [
        ("A licence is needed to drive. It costs 3", "A licence is needed to drive."),
        ("A licence is needed to drive. It costs 3.", "A licence is needed to drive."),
        ('He said: "A licence is needed." And th', 'He said: "A licence is needed."'),
        ("The fee is paid before the visit. Approx. 20 per", "The fee is paid before the visit."),
        ("It is written by Dr. Smith and p", ""),
        ("See page 3 of e.g. this", ""),
        ("Short one. And", ""),
        ("租车需要护照和信用卡以及驾照。还", "租车需要护照和信用卡以及驾照。"),
        ("ต้องใช้หนังสือเดินทาง และ", ""),
        ("", ""),
    ],
)
def test_a_cut_passage_ends_with_a_whole_sentence(text: str, whole: str) -> None:
    assert whole_sentences(text) == whole


@given(st.text(), st.text(max_size=30))
def test_what_is_left_of_a_cut_passage_is_its_beginning(text: str, more: str) -> None:
    whole = whole_sentences(f"{text}. {more}")
    assert f"{text}. {more}".startswith(whole)


@given(st.text(alphabet=st.characters(codec=None)))
def test_a_text_shares_its_scripts_with_itself(text: str) -> None:
    assert not is_foreign(text, text)
    assert "" not in scripts(text)


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        ("<think>a</think>b", "b"),
        ("a</think>b", "b"),
        ("b<think>a", "b"),
        ("<THINK>a</Think>b", "b"),
        ("<think>a</think>b<think>c</think>d", "b d"),
        ("<think>a<think>b</think>c</think>d", "d"),
        ("a < b > c", "a < b > c"),
        ("no tags", "no tags"),
        ("<think></think>", ""),
    ],
)
def test_reasoning_is_taken_off(text: str, kept: str) -> None:
    assert " ".join(strip_thinking(text, "a query").split()) == kept


def test_a_query_about_the_tag_keeps_it_but_for_a_block_at_the_start() -> None:
    query = "what does <think> mean"
    assert strip_thinking("meaning of <think> in models", query) == "meaning of <think> in models"
    assert strip_thinking("<think>hm</think>meaning of <think>", query) == "meaning of <think>"
    assert strip_thinking(" <think>hm", query) == ""
