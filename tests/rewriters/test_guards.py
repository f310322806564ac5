"""Guards around a query: what is sent, searched, lost and masked, and their laws."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rewriters.engines import Completion
from rewriters.guards.guards import compared, near_duplicates
from rewriters.guards.mask import Mask, unmasked
from rewriters.guards.preserve import lost, parts, repaired
from rewriters.pool import load_pool
from rewriters.query import Query
from rewriters.reasons import FLAGS, GUARDED
from rewriters.results import Guarded, Rewritten
from rewriters.rewriter import Rewriter, Rewriting
from rewriters.settings import GuardSettings
from tests.support.rewriters.pools import FOUR, answered, rewriter

QUERY = Query("id", "how to reach Oslo from Bergen in 7 hours")

TEXTS = {
    "general": "how to get from Bergen to Oslo in 7 hours",
    "keyword": "Bergen, Oslo, travel",
    "pseudo_answer": "The train from Bergen takes about seven hours.",
    "core_content": "travel, Oslo, Bergen",
}


def guarded(entries: Any = FOUR, calls: str = "joint", **guards: Any) -> Rewriter:
    return rewriter(entries, calls, guards=GuardSettings(**guards))


def read(one: Rewriter, texts: dict[str, str] = TEXTS) -> Rewritten:
    answers = [texts.get(request.name, json.dumps(texts)) for request in one.requests(QUERY)]
    return answered(one, QUERY.text, *answers)


def flags(found: Rewritten) -> dict[str, tuple[str, ...]]:
    return {one.strategy: one.guards for one in found.rewrites}


def reasons(found: Rewritten) -> dict[str, str]:
    return {one.strategy: one.reason for one in found.failures}


def test_by_default_texts_are_flagged_and_all_are_searched() -> None:
    found = read(guarded())
    assert {one.strategy: one.text for one in found.rewrites} == TEXTS
    assert flags(found) == {
        "general": (), "keyword": ("lost_number",), "pseudo_answer": (), "core_content": ("lost_number", "near_duplicate"),
    }  # fmt: skip
    assert (found.failures, found.guarded) == ([], ())


def test_repaired_texts_have_what_was_missing() -> None:
    found = read(guarded(preserve="repair"))
    assert {one.strategy: one.text for one in found.rewrites} == TEXTS | {
        "keyword": "Bergen, Oslo, travel, 7",
    }
    assert flags(found)["keyword"] == ("lost_number", "repaired")
    assert "lost_number" in flags(found)["core_content"]  # which is to leave out


def test_a_parameter_says_whether_a_strategy_preserves() -> None:
    pool = [{"keyword": {"preserve": False}}, {"core_content": {"preserve": True}}]
    found = read(guarded(pool, preserve="repair"))
    assert [one.text for one in found.rewrites] == [TEXTS["keyword"], f"{TEXTS['core_content']} 7"]


def test_a_repair_that_would_be_too_long_is_not_made() -> None:
    (short,) = load_pool([{"core_content": {"max_chars": 20, "preserve": True}}])
    one = Rewriter(Rewriting((short,), "separate", guards=GuardSettings(preserve="repair")))
    (request,) = one.requests(QUERY)
    (rewrite,) = one.read(QUERY, [(request, Completion("from Bergen to Oslo", "stop", "m"))]).rewrites
    assert (rewrite.text, rewrite.guards) == ("from Bergen to Oslo", ("lost_number",))


def test_what_is_dropped_is_a_note_of_its_strategy() -> None:
    found = read(guarded(preserve="drop"))
    assert list(flags(found)) == ["general", "pseudo_answer", "core_content"]
    assert reasons(found) == {"keyword": "not_preserved"}
    assert found.guarded == (Guarded("keyword", "not_preserved", 1),)


def test_near_duplicates_are_not_searched_and_the_earlier_stays() -> None:
    found = read(guarded(near_duplicates="drop"), texts=TEXTS | {"general": QUERY.text + "?", "keyword": QUERY.text})
    assert list(flags(found)) == ["pseudo_answer", "core_content"]
    assert reasons(found) == {"general": "near_duplicate", "keyword": "near_duplicate"}
    assert found.guarded == (Guarded("general", "near_duplicate", 1), Guarded("keyword", "near_duplicate", 1))


def test_a_strategy_that_keeps_some_texts_has_a_note_with_how_many_it_lost() -> None:
    answer = "\n".join(["1. Oslo from Bergen", "2. from Bergen, Oslo", "3. ferries of Bergen", "4. n/a"])
    found = read(guarded(["multi_query"], near_duplicates="drop"), texts={"multi_query": answer})
    assert [(one.position, one.text) for one in found.rewrites] == [(1, "Oslo from Bergen"), (3, "ferries of Bergen")]
    (note,) = found.failures
    assert (note.reason, note.message) == ("texts_dropped", "2 of 4 texts are left out: empty, near_duplicate")


SECRET = Query("id", "refund for ann@example.org, asked on +49 30 1234567", "earlier: ann@example.org wrote")


@pytest.mark.parametrize("calls", ["joint", "separate"])
def test_what_is_masked_is_not_sent_and_comes_back(calls: str) -> None:
    pool = load_pool(FOUR, context=True)
    one = Rewriter(Rewriting(pool, calls, {}, context=True, guards=GuardSettings(mask=["mail", "phone"])))
    requests = one.requests(SECRET)
    for request in requests:
        assert "ann@" not in request.prompt
        assert "1234567" not in request.prompt
        assert request.prompt.count("<MAIL_1>") == 2
        assert request.query == SECRET.text  # recordings are found by it
    texts = dict.fromkeys(FOUR, "refund, <mail_1>, <PHONE_1>")
    completions = [(r, Completion(texts.get(r.name, json.dumps(texts)), "stop", "m")) for r in requests]
    found = one.read(SECRET, completions)
    assert {rewrite.text for rewrite in found.rewrites} == {"refund, ann@example.org, +49 30 1234567"}
    assert all("masked" in rewrite.guards for rewrite in found.rewrites)
    (note,) = found.failures
    assert (note.strategy, note.reason, note.message) == ("", "masked", "sent with placeholders for mail 1, phone 1")


def test_a_masked_prompt_is_another_request_and_others_are_as_they_were() -> None:
    plain, masking = guarded(), guarded(mask=["mail"])
    assert plain.requests(QUERY) == masking.requests(QUERY)
    query = Query("id", "refund for ann@example.org")
    assert plain.requests(query)[0].variables != masking.requests(query)[0].variables


def test_whether_a_strategy_preserves_is_no_part_of_its_identity() -> None:
    (strategy,) = load_pool(["keyword"])
    assert strategy.model_copy(update={"preserve": False}).identity() == strategy.identity()


TEXT = st.sampled_from(["Bergen, Oslo", "Oslo Bergen 7", QUERY.text, "", "n/a", "train of Bergen", "Oslo?"])


@given(
    st.fixed_dictionaries(dict.fromkeys(FOUR, TEXT)),
    st.sampled_from(["count", "drop", "repair"]),
    st.sampled_from(["count", "drop"]),
)
def test_every_strategy_ends_with_texts_or_one_reason(texts: dict[str, str], preserve: str, near_duplicates: str) -> None:
    found = read(guarded(preserve=preserve, near_duplicates=near_duplicates), texts=texts)
    made = {one.strategy for one in found.rewrites}
    failed = [one.strategy for one in found.failures]
    assert sorted([*made, *failed]) == sorted(FOUR)
    assert {one.strategy for one in found.failures if one.reason in GUARDED} == {one.strategy for one in found.guarded} - made
    assert {flag for one in found.rewrites for flag in one.guards} <= set(FLAGS)


ALL = ("mail", "phone", "card")

PERSONAL = ["a@b.io", "+49 30 1234567", "4111111111111111", "x-y.z@q.example"]

WORDS = st.lists(st.sampled_from(['"old mill"', "Oslo", "B57", "12", "3.5kg", "and", "why", "2024-01-31", "Ärger"]), max_size=8)


@given(st.text(max_size=60), st.sampled_from(["query", "passage"]))
def test_a_text_has_lost_nothing_of_itself_and_is_a_near_duplicate_of_itself(text: str, search_as: str) -> None:
    assert lost(text, parts(text)) == []
    assert near_duplicates(compared(text, search_as), compared(text, search_as))
    changed = text.upper().lower()
    assert near_duplicates(compared(text, search_as), compared(changed, search_as)) or changed != text.lower()


@given(st.text(st.sampled_from("北京地铁号線でサッカー優勝ราคาทองกิ่ลາ๒12３"), max_size=30))
def test_scripts_without_case_and_spaces_have_no_names(text: str) -> None:
    assert {part.flag for part in parts(text)} <= {"lost_number"}


@given(WORDS, st.sampled_from([None, ", "]))
def test_what_is_repaired_has_all_and_begins_as_it_was(query: list[str], separator: str | None) -> None:
    wanted = parts("is it " + " ".join(query))
    text = repaired("something else", lost("something else", wanted), separator)
    assert lost(text, wanted) == []
    assert text.startswith("something else")


def test_repairs_are_joined_as_the_strategy_joins_and_a_phrase_counts_once() -> None:
    missing = lost("cars", parts("cars in Oslo under $5,000"))
    assert repaired("cars", missing, ", ") == "cars, Oslo, $5,000"
    assert repaired("cars", missing, None) == "cars Oslo $5,000"
    assert [part.flag for part in parts('who played in "Harbour 17" for Nokia')] == ["lost_phrase", "lost_name"]


def test_placeholders_are_of_the_kinds_asked_for_and_hold_for_all_texts_of_a_query() -> None:
    assert Mask(["mail"])("a@b.io +49 30 1234567") == "<MAIL_1> +49 30 1234567"
    assert Mask([])("a@b.io") == "a@b.io"
    mask = Mask(ALL)
    assert (mask("a@b.io"), mask("x@y.io, a@b.io"), mask.counts) == ("<MAIL_1>", "<MAIL_2>, <MAIL_1>", {"mail": 2})


@given(st.lists(st.sampled_from([*PERSONAL, "why", "12", "MAIL_1"])))
def test_what_was_masked_comes_back(pieces: list[str]) -> None:
    text, mask = " ".join(pieces), Mask(ALL)
    masked = mask(text)
    assert unmasked(masked, mask.values) == text
    assert not any(secret in masked for secret in PERSONAL)


def test_a_passage_and_a_query_are_near_duplicates_if_their_words_are_equal_in_order() -> None:
    query = compared("rye bread keeps", "query")
    assert not near_duplicates(query, compared("keeps rye bread", "passage"))
    assert near_duplicates(query, compared("Rye bread keeps.", "passage"))
