"""A strategy with a language of its own: in its prompt and its requests, and in what its answer may be."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from cluster.errors import RewriterError
from rewriters.engines import Completion, Request
from rewriters.pool import Entry, load, load_pool
from rewriters.query import Query
from rewriters.rewriter import Rewriter, Rewriting
from rewriters.settings import SelectAdaptive

ENGLISH: Entry = {"general": {"language": "English"}}
QUERY = Query("1", "как отправить посылку")


def rewriter(*entries: Entry, language: str | None = None, **more: Any) -> Rewriter:
    pool = load_pool(entries, language)
    return Rewriter(Rewriting(pool, language=language, decoding={"temperature": 0.0, "max_tokens": 9}, **more))


def answered(request: Request, text: str) -> tuple[Request, Completion]:
    return request, Completion(text, "stop", "m", 1, 0, 1, None, 0.0, attempts=1)


def test_its_request_is_its_own_and_says_it() -> None:
    joint, own = rewriter("general", "keyword", ENGLISH).requests(QUERY)
    assert (joint.name, own.name, own.recorded_as) == ("dmqr", "general(language=English)", "general")
    assert "in the language of the query" in joint.prompt
    assert "English" not in joint.prompt
    assert "English" in own.prompt
    assert "the language of the query" not in own.prompt
    alone = rewriter("general", "keyword").requests(QUERY)
    assert [one.prompt_hash for one in alone] == [joint.prompt_hash]  # the others ask what they asked before


def test_only_its_texts_may_be_in_another_script() -> None:
    both = rewriter("keyword", ENGLISH, "core_content", calls="separate")
    found = both.read(QUERY, [answered(one, "how to send a parcel") for one in both.requests(QUERY)])
    assert {(one.strategy, one.text) for one in found.rewrites} == {("general(language=English)", "how to send a parcel")}
    assert {(one.strategy, one.reason) for one in found.failures} == {
        ("keyword", "wrong_language"), ("core_content", "wrong_language")
    }  # fmt: skip


def test_it_wins_over_the_common_language_and_may_be_it() -> None:
    of_all, own, same = (load(entry, "German") for entry in ("general", ENGLISH, {"general": {"language": "German"}}))
    assert ["English" in one.prompt for one in (of_all, own, same)] == [False, True, False]
    assert ["German" in one.prompt for one in (of_all, own, same)] == [True, False, True]
    assert [one.is_joint for one in (of_all, own, same)] == [True, False, True]


def test_adaptive_selection_says_it_beside_the_strategy() -> None:
    (request,) = rewriter("keyword", ENGLISH, select=SelectAdaptive(kind="adaptive")).requests(QUERY)
    lines = [line for line in request.prompt.splitlines() if "Write it in English" in line]
    assert len(lines) == 1
    assert lines[0].startswith("- General")


def test_a_prompt_that_cannot_say_it_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text("label: Mine\nprompt: |-\n  Rewrite it.\n\n  Query: {query}\n")
    with pytest.raises(RewriterError, match=r"prompt has no \{language\}, and language: English is to be told"):
        load({str(path): {"language": "English"}})
    path.write_text("label: Mine\nlanguage: English\nprompt: |-\n  Rewrite it in {language}.\n\n  Query: {query}\n")
    assert "Rewrite it in English." in load(str(path)).prompt
    assert load(str(path)).any_language
