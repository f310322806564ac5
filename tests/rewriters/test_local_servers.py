"""The engine `openai` with servers of one's own machine, by the example of docs/settings.md: no key, no usage, no schemas."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from rewriters.engines.openai.engine import OpenaiEngine
from rewriters.engines.settings import OpenaiSettings
from rewriters.pool import load_pool
from rewriters.query import Query
from rewriters.rewriter import Rewriter, Rewriting
from tests.support.rewriters.fake_server import Body, FakeServer, Reply, refusal

Opened = Callable[..., OpenaiEngine]
PAGE = Path(__file__).parents[2] / "docs" / "settings.md"
ANSWER = json.dumps({"general": "knots that hold a loop", "keyword": "knot loop rope"})


def example() -> dict[str, Any]:
    """The engine that docs/settings.md shows for Ollama."""
    section = PAGE.read_text(encoding="utf-8").partition("**Ollama, llama.cpp and LM Studio**")[2]
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
