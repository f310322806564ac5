"""Several answers to one prompt: each is a text of its own."""

from __future__ import annotations

import json
from pathlib import Path

from rewriters.engines import Completion
from rewriters.engines.recorded import RecordedEngine
from rewriters.query import Query
from rewriters.rewriter import Rewriter
from rewriters.selection import Choice
from tests.support.rewriters.pools import answered, asked, rewriter, said

QUERY = "how tall is the eiffel tower"
THREE = {"rewrite": {"n": 3, "temperature": 0.7}}
BROKEN = Completion(None, None, "m", attempts=2, error_reason="timed_out", error_message="no answer in 60 s")


def three() -> Rewriter:
    return rewriter([THREE], decoding={"temperature": 0.0, "seed": 5})


def test_so_many_requests_differ_in_number_and_seed_alone() -> None:
    _, requests = asked(three(), QUERY)
    assert [one.sample for one in requests] == [0, 1, 2]
    assert [one.decoding for one in requests] == [{"temperature": 0.7, "seed": seed} for seed in (5, 6, 7)]
    assert len({(one.name, one.recorded_as, one.prompt, one.prompt_hash) for one in requests}) == 1
    assert requests[0].name == "rewrite(n=3,temperature=0.7)"


def test_so_many_completions_are_so_many_positions() -> None:
    made = answered(three(), QUERY, "height of the eiffel tower", "eiffel tower metres", "eiffel tower size")
    assert [(one.position, one.text, one.parsed_as) for one in made.rewrites] == [
        (1, "height of the eiffel tower", "salvage"),
        (2, "eiffel tower metres", "salvage"),
        (3, "eiffel tower size", "salvage"),
    ]
    assert made.failures == []


def test_they_are_read_in_the_order_of_their_numbers() -> None:
    one = three()
    query, requests = asked(one, QUERY)
    answers = list(zip(requests, map(said, ("tower a", "tower b", "tower c")), strict=True))
    assert one.read(query, answers[::-1]) == one.read(query, answers)


def test_one_that_fails_is_a_note_and_the_others_count() -> None:
    for broken, why in ((BROKEN, "timed_out"), (said(""), "empty")):
        made = answered(three(), QUERY, "height of the eiffel tower", broken, "eiffel tower size")
        assert [(one.position, one.text) for one in made.rewrites] == [
            (1, "height of the eiffel tower"),
            (2, "eiffel tower size"),
        ]
        assert [(one.reason, one.message) for one in made.failures] == [("texts_dropped", f"1 of 3 texts are left out: {why}")]


def test_the_same_answer_again_is_one_text_without_a_note() -> None:
    made = answered(three(), QUERY, "eiffel tower size", "Eiffel Tower size", "eiffel tower size")
    assert [(one.position, one.text) for one in made.rewrites] == [(1, "eiffel tower size")]
    assert made.failures == []


def test_all_that_fail_are_one_failure() -> None:
    (failure,) = answered(three(), QUERY, BROKEN, BROKEN, BROKEN).failures
    assert (failure.strategy, failure.reason, failure.message) == (
        "rewrite(n=3,temperature=0.7)", "timed_out", "no answer in 60 s",
    )  # fmt: skip


def test_a_query_that_needs_fewer_texts_asks_for_fewer() -> None:
    one = three()
    (name,) = (strategy.name for strategy in one.strategies)
    assert len(one.requests(Query("id1", QUERY), Choice({name: 2}))) == 2
    assert one.requests(Query("id1", QUERY), Choice({})) == []


def test_a_recording_has_them_as_a_list(tmp_path: Path) -> None:
    path = tmp_path / "r.jsonl"
    samples = ["height of the eiffel tower", {"text": "eiffel tower size", "usage": {"completion_tokens": 4}}]
    path.write_text(json.dumps({"query": QUERY, "completions": {"rewrite": samples}}) + "\n")
    engine = RecordedEngine(path)
    one = three()
    query, requests = asked(one, QUERY)
    answers = list(engine.complete(requests))
    engine.close()
    assert [completion.completion_tokens for _, completion in answers] == [0, 4, 0]
    assert answers[2][1].error_reason == "not_recorded"
    assert "sample 3" in str(answers[2][1].error_message)
    made = one.read(query, answers)
    assert [one.text for one in made.rewrites] == ["height of the eiffel tower", "eiffel tower size"]
