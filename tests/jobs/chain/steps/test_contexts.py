"""The documents of an answer as a prompt shows them, and the citations of an answer."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from jobs.chain.arms.resources import AnsweredBy
from jobs.chain.arms.tasks import LlmTask
from jobs.chain.steps.contexts import FoundText, citations, context_of, without_citations
from rewriters.engines.settings import RecordedSettings
from rewriters.steps.settings import AnswerSettings
from rewriters.steps.step import load_step

STEP = load_step("answer", frozenset({"query", "documents", "context"}), "answer.prompt", {}, None)
ENGINE = AnsweredBy(RecordedSettings(kind="recorded", path="x"), {})


def generation(**settings: Any) -> LlmTask:
    return LlmTask("answer", "answer", AnswerSettings(**settings), STEP, ENGINE, {})


def words(text: str) -> int:
    return len(text.split())


def found(*texts: str) -> list[FoundText]:
    return [FoundText(f"d{number}", 1.0 / number, text, "") for number, text in enumerate(texts, start=1)]


def test_what_has_no_room_is_left_out_and_counted() -> None:
    context = context_of(generation(context_tokens=6), found("a b", "c d", "e f"), words)
    assert context.documents == ("d1", "d2")
    assert (context.left_out, context.cut) == (1, 0)
    first = context_of(generation(context_tokens=4), found("a b c d e f", "g"), words)
    assert first.documents == ("d1",)
    assert (first.left_out, first.cut) == (1, 1)
    assert words(first.text) <= 4
    short = context_of(generation(document_chars=3), found("abcdef", "ab"), words)
    assert (short.text, short.cut) == ("[1]\nabc ...\n\n[2]\nab", 1)
    both = context_of(generation(document_chars=9, context_tokens=4), found("a b c d e f g", "abcdefghijkl"), words)
    assert (both.documents, both.left_out, both.cut) == (("d1",), 1, 1)  # cut twice, and one cut of what is left out


@given(st.lists(st.text("ab ", min_size=1, max_size=60), max_size=6), st.integers(1, 30))
def test_a_context_never_exceeds_its_tokens(texts: list[str], most: int) -> None:
    context = context_of(generation(context_tokens=most, separator=" | "), found(*texts), words)
    assert len(context.documents) + context.left_out == len(texts)
    if len(context.documents) > 1:
        assert words(context.text) <= most
    assert context.documents == tuple(f"d{number}" for number in range(1, len(context.documents) + 1))


def test_citations_are_checked_against_the_context() -> None:
    assert citations("So [2]. And [1, 2], [3][1].", ["a", "b"]) == (("b", "a"), (3,))
    assert citations("In [2019] it was [0].", ["a"])[1] == (0,)  # a year is none
    assert citations("All of [1-3, 5], and [4–3].", list("abcd")) == (("a", "b", "c", "d"), (5,))
    assert without_citations("In [2019] so [1], [2]; [3-4].").split() == ["In", "[2019]", "so", "."]
    assert citations("None.", []) == ((), ())
