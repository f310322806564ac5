"""The contract of every engine, and the door to them.

An engine joins by one entry in ENGINES: a function that, given a folder to work in, returns the settings of one which answers
the query "tea" under the names "dmqr" and "keyword", and has no answer for the query "nothing is known of this".
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from dmqr.testing import EngineContract
from rewriters.engines.settings import EngineSettings, OpenaiSettings, RecordedSettings


def _recorded(folder: Path) -> EngineSettings:
    path = folder / "recorded.jsonl"
    completions = {
        "dmqr": "general: green tea",
        "keyword": {"text": "tea, green", "usage": {"prompt_tokens": 90, "cached_tokens": 60, "completion_tokens": 4}},
    }
    path.write_text(json.dumps({"query": "tea", "completions": completions}) + "\n")
    return RecordedSettings(kind="recorded", path=str(path))


ENGINES: dict[str, Callable[[Path], EngineSettings]] = {"recorded": _recorded}

ANSWERED, UNANSWERED = "tea", "nothing is known of this"


@pytest.fixture(params=sorted(ENGINES))
def engine_settings(request: pytest.FixtureRequest, tmp_path: Path) -> EngineSettings:
    return ENGINES[request.param](tmp_path)


class TestEveryEngine(EngineContract):
    answered = ANSWERED

    @pytest.fixture(autouse=True)
    def given(self, engine_settings: EngineSettings) -> None:
        self._settings = engine_settings

    def settings(self) -> EngineSettings:
        return self._settings

    def test_an_answer_has_its_model(self) -> None:
        ((_, completion),) = self.opened().complete([self.request(ANSWERED, "keyword")])
        assert completion.text
        assert completion.model
        assert completion.finish_reason in ("stop", "length")
        assert (completion.error_reason, completion.error_message) == (None, None)

    def test_what_fails_stops_no_other_request(self) -> None:
        asked = [self.request(UNANSWERED), self.request(ANSWERED, query_id="q2")]
        outcome = {request.query: completion for request, completion in self.opened().complete(asked)}
        assert outcome[UNANSWERED].text is None
        assert outcome[ANSWERED].text

    def test_its_identity_names_its_kind(self) -> None:
        assert self.opened().identity()["kind"] == self.opened().kind == self.settings().kind


def test_the_provider_is_the_host_without_credentials() -> None:
    settings = {"kind": "openai", "model": "m", "base_url": "https://user:secret@api.example.org:8443/v1"}
    assert OpenaiSettings.model_validate(settings).provider == "api.example.org:8443"
