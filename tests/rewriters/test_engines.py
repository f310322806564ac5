"""The contract of every engine, and the door to them.

An engine joins by one entry in ENGINES: a function that, given a folder to work in, returns the settings of one which answers
the query "tea" under the names "dmqr" and "keyword", and has no answer for the query "nothing is known of this".
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from dmqr.testing import EngineContract
from rewriters.engines.openai.engine import OpenaiEngine
from rewriters.engines.settings import EngineSettings, OpenaiSettings, RecordedSettings
from rewriters.pool import load_pool
from rewriters.query import Query
from rewriters.rewriter import Rewriter, Rewriting
from tests.support.rewriters.fake_server import Body, FakeServer, Reply, refusal


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


PAGE = Path(__file__).parents[2] / "docs" / "engines-and-indexes.md"
ANSWER = json.dumps({"general": "knots that hold a loop", "keyword": "knot loop rope"})


def example() -> dict[str, Any]:
    """The engine that docs/engines-and-indexes.md shows for Ollama."""
    section = PAGE.read_text(encoding="utf-8").partition("### Ollama, llama.cpp, LM Studio")[2]
    block = re.search(r"```yaml\n(.*?)```", section, re.S)
    assert block is not None
    engine: dict[str, Any] = yaml.safe_load(block[1])["rewrite"]["engine"]
    return engine


def without_schemas(body: Body) -> Reply | None:
    """As LM Studio and older builds of llama.cpp refuse what they cannot make a grammar of."""
    return refusal(400, "'response_format.type' must be 'text'") if "response_format" in body else None


@pytest.mark.parametrize(
    ("models", "answer", "left_out"),
    [
        (["llama3.2:latest", "qwen3:8b"], None, None),  # Ollama
        (["/models/qwen3-8b-q4.gguf"], None, None),  # llama-server, which takes any name
        (["qwen3:8b"], without_schemas, "response_format"),
        (Reply(content=b'{"error": "Unexpected endpoint or method. (GET /v1/models)"}'), without_schemas, "response_format"),
    ],
    ids=["Ollama", "llama.cpp", "no schemas", "no list"],
)
def test_the_example_of_the_docs_rewrites(models: Any, answer: Any, left_out: str | None) -> None:
    rewriter = Rewriter(Rewriting(load_pool(["general", "keyword"]), decoding={"max_tokens": 64, "temperature": 0.0}))
    query = Query("q1", "knot for a fixed loop")
    with FakeServer(
        models, usage=False, text=lambda _: f"<think>\nhm\n</think>\n```json\n{ANSWER}\n```", answer=answer
    ) as server:
        server.aliases.add("qwen3:8b")
        engine = OpenaiEngine(OpenaiSettings(**example() | {"base_url": server.address}))
        engine.check()
        answers = list(engine.complete(rewriter.requests(query)))
        engine.close()
        assert {body["model"] for body in server.bodies} == {"qwen3:8b"}
        assert all("Authorization" not in headers for headers in server.headers)
    found = rewriter.read(query, answers)
    assert {rewrite.strategy: rewrite.text for rewrite in found.rewrites} == json.loads(ANSWER)
    ((_, done),) = answers
    assert (done.usage, done.left_out) == ("counted", left_out)
    assert done.prompt_tokens > 0 < done.completion_tokens
