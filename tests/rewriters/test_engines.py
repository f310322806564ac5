"""The contract of every engine, and the door to them.

An engine joins by one entry in ENGINES: a function that, given a folder to work in, opens one which answers the query
"tea" under the names "dmqr" and "keyword", and has no answer for the query "nothing is known of this".
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from rewriters.engines import Completion, Engine, Request, open_engine
from rewriters.engines.settings import OpenaiSettings, RecordedSettings


def _recorded(folder: Path) -> Engine:
    path = folder / "recorded.jsonl"
    completions = {
        "dmqr": "general: green tea",
        "keyword": {"text": "tea, green", "usage": {"prompt_tokens": 90, "cached_tokens": 60, "completion_tokens": 4}},
    }
    path.write_text(json.dumps({"query": "tea", "completions": completions}) + "\n")
    return open_engine(RecordedSettings(kind="recorded", path=str(path)))


ENGINES: dict[str, Callable[[Path], Engine]] = {"recorded": _recorded}

ANSWERED, UNANSWERED = "tea", "nothing is known of this"


def ask(query: str, name: str = "dmqr", query_id: str = "q1") -> Request:
    return Request(query_id, query, name, f"Rewrite.\n\nQuery: {query}", "0" * 16, None, {"max_tokens": 64})


@pytest.fixture(params=sorted(ENGINES))
def engine(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Engine]:
    opened = ENGINES[request.param](tmp_path)
    assert opened.kind == request.param
    yield opened
    opened.close()


class TestEveryEngine:
    def test_every_request_comes_back_once(self, engine: Engine) -> None:
        asked = [ask(ANSWERED, name, f"q{n}") for n in range(3) for name in ("dmqr", "keyword")] + [ask(UNANSWERED)]
        answered = [request for request, _ in engine.complete(asked)]
        assert sorted((r.query_id, r.query, r.name) for r in answered) == sorted((r.query_id, r.query, r.name) for r in asked)
        assert all(any(request is one for one in asked) for request in answered)

    def test_an_answer_has_text_and_counts_that_add_up(self, engine: Engine) -> None:
        ((_, completion),) = engine.complete([ask(ANSWERED, "keyword")])
        assert completion.text
        completion.text.encode("utf-8")
        assert completion.finish_reason in ("stop", "length")
        assert completion.model
        assert (completion.error_reason, completion.error_message) == (None, None)
        assert 0 <= completion.cached_tokens <= completion.prompt_tokens
        assert completion.completion_tokens >= 0
        assert completion.seconds >= 0
        assert completion.attempts >= 1

    def test_what_fails_is_data_and_stops_no_other_request(self, engine: Engine) -> None:
        outcome = {r.query: c for r, c in engine.complete([ask(UNANSWERED), ask(ANSWERED, query_id="q2")])}
        failed = outcome[UNANSWERED]
        assert failed.text is None
        assert failed.error_reason
        assert failed.error_reason.isidentifier()
        assert failed.error_message
        assert "\n" not in failed.error_message
        assert outcome[ANSWERED].text

    def test_nothing_asked_is_nothing_answered(self, engine: Engine) -> None:
        assert list(engine.complete([])) == []

    def test_it_can_be_asked_again_and_left_half_way(self, engine: Engine) -> None:
        half = iter(engine.complete([ask(ANSWERED), ask(ANSWERED, "keyword")]))
        next(half)
        del half
        assert len(list(engine.complete([ask(ANSWERED), ask(ANSWERED, "keyword")]))) == 2

    def test_its_identity_is_json_and_stable_and_names_its_kind(self, engine: Engine) -> None:
        identity = engine.identity()
        assert json.loads(json.dumps(identity)) == identity == engine.identity()
        assert identity["kind"] == engine.kind

    def test_closing_twice_does_nothing(self, engine: Engine) -> None:
        engine.close()
        engine.close()


def test_a_completion_says_nothing_unless_told() -> None:
    assert Completion("x", "stop", "m") == Completion("x", "stop", "m", 0, 0, 0, None, 0.0, 1, None, None)


def test_the_provider_is_the_host_without_credentials() -> None:
    settings = {"kind": "openai", "model": "m", "base_url": "https://user:secret@api.example.org:8443/v1"}
    assert OpenaiSettings.model_validate(settings).provider == "api.example.org:8443"
