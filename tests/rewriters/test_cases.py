"""Functions of texts: tables of arguments and results (cases.yaml), and laws of checks and of the normal form."""

import os
import re
import unicodedata
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from rewriters.adaptive import reason_in
from rewriters.classifier import Rules, load_rules
from rewriters.engines import Completion
from rewriters.engines.anthropic import MessagesProtocol
from rewriters.engines.openai.protocol import ChatProtocol
from rewriters.guards.guards import compared, near_duplicates
from rewriters.guards.mask import Mask, has_check_digit, unmasked
from rewriters.guards.preserve import lost, parts
from rewriters.lengths import UNSPACED, length
from rewriters.normalise import PLAIN, id_bytes, normalise, query_id
from rewriters.pool import Entry, load, load_pool, named
from rewriters.query import Query
from rewriters.reading.checks import is_in_wrong_language, is_repetitive
from rewriters.reading.json_object import is_error
from rewriters.reading.thoughts import strip_thinking
from rewriters.reading.words.languages import folded, is_foreign, language_of, language_scripts, scripts
from rewriters.reading.words.romanisation import is_romanised
from rewriters.reading.words.sentences import whole_sentences
from rewriters.rewriter import Rewriter, Rewriting
from rewriters.selection import Choice, chosen, decide
from rewriters.settings import SelectAdaptive, SelectClassified, SelectColumn
from rewriters.steps.results import StepResult, read_step
from rewriters.steps.step import LlmStep
from tests.support.rewriters.fake_server import completion
from tests.support.rewriters.messages_server import message
from tests.support.rewriters.pools import FOUR, TRAINED, a_file, answered, cut, rewriter, said, texts_of

GRADED = LlmStep(name="grade", prompt="{query}", output="grade", grades={"relevant": 2, "ambiguous": 1, "irrelevant": 0})

GRADES = LlmStep(name="rate", prompt="{query}", output="grades", keys=("a", "b"), grades={str(n): n for n in range(4)})

OBJECT = LlmStep(name="parts", prompt="{query}", output="object", keys=("question", "why"))


def masked(text: str) -> str:
    mask = Mask(("mail", "phone", "card"))
    assert unmasked(mask(text), mask.values) == text
    return mask(text)


def near(one: str, other: str) -> bool:
    found = near_duplicates(compared(one, "query"), compared(other, "query"))
    assert found == near_duplicates(compared(other, "query"), compared(one, "query"))
    return found


def by_own_rule(condition: dict[str, Any], query: str) -> bool:
    types = {"comparison": "weighs", "question": "asks"}
    rules = {"rules": [{"type": "comparison", **condition}], "otherwise": "question", "descriptions": types}
    return Rules.model_validate(rules | {"strategies": dict.fromkeys(types, 1)}).type_of(query) == "comparison"


def step_result(step: LlmStep, text: str) -> StepResult:
    result = read_step(step, Completion(text, "stop", "tiny"), "q")
    assert (result.reason is None) == (result.text is not None)
    return result


def marked(fields: dict[str, Any], answer: str, is_cut: bool = False) -> list[list[object]] | str:
    found = texts_of(a_file(**fields), cut(answer) if is_cut else answer, "caffeine in green tea and coffee")
    return found if isinstance(found, str) else [list(text) for text in found]


def reader_of_three(answer: str) -> str:
    found = texts_of(load("multi_query"), answer, "caffeine in green tea and coffee")
    wanted = ["caffeine content of green tea", "how much caffeine has coffee", "tea or coffee for the morning"]
    assert [text for _, text, _ in found] == wanted
    return found[0][2]


def trained(name: str, answer: str, is_cut: bool) -> list[str]:
    one = Rewriter(Rewriting(load_pool([TRAINED[name]]), decoding={"temperature": 0.0, "max_tokens": 512}))
    query = "is the keeper of the old lighthouse older than its lamp?"
    made = answered(one, query, cut(answer) if is_cut else said(answer))
    assert bool(made.failures) == (not made.rewrites or (is_cut and name != "qmd_passage"))
    return [one.text for one in made.rewrites]


POOL: list[Entry] = [*FOUR, {"rag_fusion": {"n": 2}}, {"rag_fusion": {"n": 3, "temperature": 0.5}}]


def choice_by_cell(cell: str | None) -> Choice:
    one = rewriter(POOL, select=SelectColumn(kind="column", column="methods"))
    return one.choose(Query("id1", "tea", None, {} if cell is None else {"methods": cell}))


def by_cell(cell: str | None) -> list[str]:
    choice = choice_by_cell(cell)
    assert choice.note is None
    return list(choice.texts)


def note_of_cell(cell: str) -> str:
    choice = choice_by_cell(cell)
    assert list(choice.texts) == [strategy.name for strategy in load_pool(POOL)]
    note, _, end = str(choice.note).partition(" (known: general, ")
    assert end.endswith("; add it; all strategies are taken")
    return note


def by_adaptive_answer(answer: str | None, end: str) -> list[Any]:
    completion = Completion(answer, end, "m", error_reason=None if answer is not None else "timed_out", error_message="late")
    made = answered(rewriter([*FOUR, "rag_fusion"], select=SelectAdaptive(kind="adaptive")), "how much caffeine", completion)
    failed = {one.strategy: one.reason for one in made.failures}
    texts: dict[str, list[str]] = {}
    for rewrite in made.rewrites:
        texts.setdefault(rewrite.strategy, []).append(rewrite.text)
        assert (rewrite.position, rewrite.selected_reason) == (len(texts[rewrite.strategy]), made.choice.reason)
    assert list(made.choice.texts) == [name for name in (*FOUR, "rag_fusion") if name in texts.keys() | failed.keys()]
    return [texts, made.choice.reason, failed, sorted({rewrite.parsed_as for rewrite in made.rewrites})]


def typed_by_llm(answer: str | None) -> str | None:
    select = SelectClassified(kind="classified", by="llm")
    one = rewriter(["hyde", "multi_query", "step_back", "decompose"], select=select, rules=load_rules("english"))
    choice = one.choose(Query("id1", "printer not working"), said(answer))
    assert choice.answered == (choice.query_type != "debugging")
    return choice.query_type


def answer_of_openai(content: object, reason: object) -> list[str]:
    found = ChatProtocol().completion(completion(content, finish_reason=reason))
    return [found.text, found.finish_reason]


def ended_at_anthropic(words: str) -> str:
    found = MessagesProtocol().completion(message("so", stop_reason=words, thought="hm"))
    assert found.text == "so"
    return found.finish_reason


FUNCTIONS: dict[str, Callable[..., Any]] = {
    "is_error": is_error,
    "is_foreign": is_foreign,
    "is_romanised": lambda latin, native: (
        is_romanised(latin, native, scripts(native)) and not is_in_wrong_language(native, latin)
    ),
    "is_in_wrong_language": is_in_wrong_language,
    "language_of": language_of,
    "whole_sentences": whole_sentences,
    "strip_thinking": lambda text, query: " ".join(strip_thinking(text, query).split()),
    "length": length,
    "normalise": normalise,
    "lost": lambda query, text: sorted(f"{part.flag[5:]} {part.value}" for part in lost(text, parts(query))),
    "masked": masked,
    "unmasked": lambda text: unmasked(text, {"MAIL_1": "a@b.io"}),
    "has_check_digit": has_check_digit,
    "near_duplicates": near,
    "gate": lambda scores, below: list(decide("bm25", scores, below)),
    "type_of": load_rules("english").type_of,
    "reason_in": reason_in,
    "name_of": lambda entry: named(entry).name,
    "grade": lambda text: step_result(GRADED, text).grade,
    "object": lambda text: dict(step_result(OBJECT, text).fields) or None,
    "grades": lambda text: dict(step_result(GRADES, text).grades) or None,
    "marked": marked,
    "trained": trained,
    "phrases": by_own_rule,
    "reader_of_three": reader_of_three,
    "by_cell": by_cell,
    "note_of_cell": note_of_cell,
    "by_adaptive_answer": by_adaptive_answer,
    "chosen": lambda wanted: chosen(wanted, load_pool(POOL), "here"),
    "typed_by_llm": typed_by_llm,
    "answer_of_openai": answer_of_openai,
    "ended_at_anthropic": ended_at_anthropic,
}

TABLES = yaml.load(Path(__file__).with_name("cases.yaml").read_bytes(), yaml.CSafeLoader)


@pytest.mark.parametrize(("name", "case"), [(name, case) for name, cases in TABLES.items() for case in cases])
def test_a_function_returns_what_its_table_says(name: str, case: list[Any]) -> None:
    *arguments, result = case
    assert FUNCTIONS[name](*arguments) == result


PASSAGE = (
    "Row upon row of vines covers the hills between Lyon and Valence, where growers have kept terraces since Roman times. "
    "The river brings cool nights, the granite holds the warmth of the day, and the wind that dries the grapes after rain "
    "is the reason why so little has to be sprayed. Of the two grapes that are allowed, one gives the colour and the other "
    "the scent; a cellar may mix them in the vat but not in the bottle, and says so on the label with a number."
)

LOOPS = [
    "cheap parcel " * 12, "包裹价格" * 6, "shipping" * 5, "東京の天気は、" * 30, "abc" * 2000,
    "".join(map(chr, range(1000, 1100))) * 5,
    "a good beginning, then and then and then and then and then and then and then and then",
    ", ".join(f"step {n}" for n in range(300)), PASSAGE + " the end." * 120,
]  # fmt: skip

NO_LOOPS = [
    "", "bora bora bora bora bora", "hahahahahahahaha", "1000000000000", "New York, New York", PASSAGE,
    PASSAGE + " No, no, no, no, no, no, no, no, no, no, it sings.",
    "北京今天的天气怎么样，明天会不会下雨，需要带伞吗，周末适合去爬山吗",
    "green tea, caffeine, green tea caffeine, caffeine in green tea, milligrams of caffeine in green tea",
]  # fmt: skip


def test_loops_are_told_from_other_texts() -> None:
    assert [text for text in LOOPS if not is_repetitive(text)] == []
    assert [text for text in NO_LOOPS if is_repetitive(text)] == []


@given(st.text(min_size=8, max_size=60), st.integers(8, 30), st.text(max_size=10))
def test_any_unit_often_enough_loops(unit: str, times: int, before: str) -> None:
    unit = " ".join(unit.split())
    if len(unit) >= 8:
        assert is_repetitive(before + (unit + " ") * times)


@given(st.text(), st.text())
def test_a_text_is_never_a_translation_of_itself(text: str, other: str) -> None:
    assert not is_in_wrong_language(text, text)
    is_in_wrong_language(text, other)


@given(st.text(), st.text(max_size=30))
def test_what_is_left_of_a_cut_passage_is_its_beginning(text: str, more: str) -> None:
    whole = whole_sentences(f"{text}. {more}")
    assert f"{text}. {more}".startswith(whole)


@given(st.text(alphabet=st.characters(codec=None)))
def test_a_text_shares_its_scripts_with_itself(text: str) -> None:
    assert not is_foreign(text, text)
    assert "" not in scripts(text)


ASCII = st.text(st.characters(max_codepoint=127), max_size=60)


@given(ASCII)
def test_ascii_has_no_script_but_latin(text: str) -> None:
    # An ideograph beside it is looked at letter by letter.
    assert scripts(text) == scripts(f"{text} 字") - {"han-kana"}
    assert language_scripts(text) == scripts(text)
    assert folded(text) == folded(f"{text} é")[:-2]


@given(ASCII, ASCII)
def test_ascii_is_never_in_another_script(query: str, rewrite: str) -> None:
    assert not is_foreign(query, rewrite)
    assert not is_foreign(f"{query} ½", rewrite)  # not ASCII, and no letter: by the whole comparison
    assert language_of(query) == language_of(f"{query} ½")


@given(st.lists(st.text("abcdé", min_size=1), max_size=6), st.text("東京宿", max_size=6))
def test_words_and_characters_add_up(words: list[str], characters: str) -> None:
    assert length(" ".join(words) + characters) == len(words) + len(characters)


@given(st.text(st.sampled_from("ab5_-é ,;،、，；\u00a0\n東"), max_size=12) | st.text(max_size=12))
def test_a_word_has_a_letter_or_digit_and_lies_between_separators(text: str) -> None:
    parts = re.split(r"[\s,;،、，；]+", UNSPACED.sub(r" \g<0> ", text))
    assert length(text) == sum(any(map(str.isalnum, part)) for part in parts)


ANY_TEXT = st.text(alphabet=st.characters(codec=None))  # lone surrogates included

SPACES = st.text(alphabet=" \t\n\r\u00a0\u2003\u3000\x1f\x85\u2028", min_size=1, max_size=4)

CASED = st.text(alphabet="abcXYZ 0123äÖéØßñçŁ.,-'αβΓΔжШ你好キ")


@given(ANY_TEXT | st.text(alphabet=st.sampled_from("ßŉǰΐΰևẖẗẘẙẚſıİKÅﬀﬃ\u0345\u0301\u0308\u0327aiI¨ˢ")))
def test_it_is_idempotent_and_has_single_spaces_within(query: str) -> None:
    assert normalise(normalise(query)) == normalise(query) == " ".join(normalise(query).split())


@given(CASED)
def test_case_does_not_count(query: str) -> None:
    assert normalise(query.upper()) == normalise(query) == normalise(query.lower())


@given(st.lists(st.text(alphabet="abC1é汉ع", min_size=1), max_size=5), st.data())
def test_white_space_counts_only_as_a_border(words: list[str], data: st.DataObject) -> None:
    query = "".join(data.draw(SPACES) + word for word in words) + data.draw(SPACES)
    assert normalise(query) == normalise(" ".join(words))


@given(ANY_TEXT)
def test_nothing_but_nfkc_casefold_and_white_space_changes(query: str) -> None:
    def fold(text: str) -> str:
        return unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", text).casefold())

    assert "".join(normalise(query).split()) == "".join(fold(fold(query)).split())


@given(st.from_regex(PLAIN, fullmatch=True))
def test_plain_text_is_its_own_normal_form(query: str) -> None:
    assert normalise(query) == query


@given(st.text(alphabet=st.sampled_from("az AZ09~!\t\n\x0b\x1c\x1f\x00\x7fé\u00a0ſK")))
def test_no_text_that_normalising_changes_is_plain(query: str) -> None:
    assert normalise(query) == query or not re.fullmatch(PLAIN, query)


@pytest.mark.parametrize(("log", "distinct"), [("terabyte05_50k", 42_169), ("bing_covid_jan2020", 6_256)])
def test_distinct_queries_of_the_real_logs(log: str, distinct: int) -> None:
    shared = os.environ.get("DMQR_SHARED")
    if not shared:
        pytest.skip("DMQR_SHARED is not set: the real logs are not here")
    dataset = pytest.importorskip("pyarrow.dataset")
    column = dataset.dataset(Path(shared) / "logs" / log, format="parquet").to_table(columns=["query"])["query"]
    assert len({normalise(query) for query in column.to_pylist() if query and query.strip()}) == distinct


pieces = st.lists(st.sampled_from(["a", "b", " ", "\n", "\r\n", "\u2028", "\x1c", "\x00", "\u0301", ""]), max_size=6).map(
    "".join
)


@given(pieces, pieces, pieces, pieces)
def test_two_pairs_share_an_id_only_where_their_normal_forms_are_equal(a: str, after_a: str, b: str, after_b: str) -> None:
    same = (normalise(a), normalise(after_a)) == (normalise(b), normalise(after_b))
    assert (query_id(a, after_a) == query_id(b, after_b)) == same


@given(pieces)
def test_without_earlier_turns_the_id_is_that_of_the_words(query: str) -> None:
    alone = sha256(normalise(query).encode()).hexdigest()[:32]
    assert {query_id(query), query_id(query, None), query_id(query, ""), query_id(query, " \n\u3000")} == {alone}


def test_how_words_and_turns_are_joined() -> None:
    whole = b"and on sundays?\nany trains to the coast? every hour"
    assert query_id("And on  Sundays?", "Any trains to the coast?\nEvery hour") == sha256(whole).hexdigest()[:32]
    assert id_bytes("and on sundays?", "any trains to the coast? every hour").hex() == sha256(whole).hexdigest()[:32]
