"""What stands in for an answer that cannot be used is noted and counted; a length that only guides fails no text."""

from __future__ import annotations

from pathlib import Path

import pytest

from jobs.runs.sums import fallbacks, many_fallbacks
from rewriters.engines import Completion
from rewriters.pool import load_pool
from rewriters.query import Query
from rewriters.results import Rewritten
from rewriters.rewriter import Rewriter, Rewriting

VIEWS = str(Path(__file__).parents[2] / "configs" / "strategies" / "book_views.yaml")
QUERY = Query("0" * 32, "how do teams keep their figures honest")


def read(answer: str, **parameters: object) -> Rewritten:
    rewriter = Rewriter(Rewriting(tuple(load_pool([{VIEWS: parameters} if parameters else VIEWS])), "separate"))
    (request,) = rewriter.requests(QUERY)
    return rewriter.read(QUERY, [(request, Completion(answer, "stop", "m"))])


@pytest.mark.parametrize("answer", ["[]", "I am sorry, I cannot help with that", ""])
def test_the_original_that_stands_in_is_a_note(answer: str) -> None:
    found = read(answer)
    assert [(one.text, one.parsed_as) for one in found.rewrites] == [(QUERY.text, "original")]
    (note,) = found.failures
    assert (note.strategy, note.reason) == ("book_views", "fell_back")
    assert note.message.startswith("the original query stands in for the answer, which cannot be used (")


def test_a_range_of_words_that_guides_flags_a_text_and_fails_none() -> None:
    answer = '["data governance and integrity checks", "why wrong figures cost companies money", "audit comparison"]'
    found = read(answer)
    assert [one.guards for one in found.rewrites] == [("too_short",)] * 3
    assert found.failures == []
    strict = read(answer, words={"least": 10, "most": 20})
    assert [one.reason for one in strict.failures] == ["fell_back"]


def test_many_fallbacks_are_warned_of() -> None:
    counts = {"queries": 9, "error/rewrite/book_views/fell_back": 7, "error/rewrite/other/unparsable": 9}
    assert fallbacks(counts) == {"book_views": 7}
    (sentence,) = many_fallbacks(counts, 0.01).values()
    assert sentence.startswith("for 7 of 9 queries the answer of book_views cannot be used")
    assert "more than half" in sentence
    assert not many_fallbacks({"queries": 1000, "error/rewrite/book_views/fell_back": 7}, 0.01)
