"""Settings that the engine of Chat Completions servers refuses before a job begins, and in which words."""

import socket
from collections.abc import Callable
from typing import Any

import pytest

from cluster.errors import RewriterError
from rewriters.engines.openai.engine import OpenaiEngine
from rewriters.engines.settings import OpenaiSettings
from tests.support.rewriters.fake_server import FakeServer, Reply, refusal

KEY = "sk-very-secret-0123456789"


def an_engine(base_url: str = "http://127.0.0.1:1/v1", **changes: Any) -> OpenaiEngine:
    return OpenaiEngine(OpenaiSettings(**{"kind": "openai", "model": "tiny", "base_url": base_url} | changes))


def refused(make: Callable[[], object]) -> str:
    with pytest.raises(RewriterError) as error:
        make()
    assert "\n" not in str(error.value)
    assert KEY not in repr(error.value)
    return str(error.value)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"base_url": "host:8000/v1"}, "base_url must be like http://host:8000/v1, without ? or #, found: 'host:8000/v1'"),
        ({"base_url": "ftp://host/v1"}, "found: 'ftp://host/v1'"),
        ({"base_url": "http:///v1"}, "found: 'http:///v1'"),
        ({"base_url": "http://host:99999/v1"}, "base_url must be like http://host:8000/v1, without ? or #: Port out of range"),
        ({"base_url": f"http://host/v1?key={KEY}"}, "found: 'http://host/v1?...'"),
        ({"base_url": f"http://me:{KEY}@host/v1"}, "base_url must not hold user and password (at host)"),
        ({"base_url": f"http://{KEY}@host/v1"}, "base_url must not hold user and password (at host)"),
        ({"api_key_env": "NOT_SET"}, "the environment variable NOT_SET (api_key_env) is not set or empty"),
        ({"api_key_env": "BLANK"}, "the environment variable BLANK (api_key_env) is not set or empty"),
        ({"api_key_env": "TWO_LINES"}, "the environment variable TWO_LINES (api_key_env) holds characters that no key has"),
        ({"args": {"stream": True}}, "args must not have stream"),
    ],
)
def test_settings_that_cannot_work(monkeypatch: pytest.MonkeyPatch, changes: dict[str, Any], said: str) -> None:
    monkeypatch.setenv("BLANK", "  ")
    monkeypatch.setenv("TWO_LINES", f"{KEY}\n{KEY}")
    assert said in refused(lambda: an_engine(**changes))


def test_a_proxy_that_is_no_http_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("http_proxy", "socks5://localhost:1")
    assert "the proxy in http_proxy is not an HTTP proxy" in refused(lambda: an_engine("http://example.org/v1"))


def test_a_server_with_the_model_passes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TEA_KEY", KEY)
    with FakeServer(["small", "tiny"], key=KEY) as server:
        an_engine(f"{server.address}/", api_key_env="TEA_KEY").check()
        assert (server.listings, server.bodies) == (1, [])


@pytest.mark.parametrize(
    ("reply", "said"),
    [
        (
            refusal(404, "Not Found"),
            "/v1/chat/completions does not exist (HTTP 404: Not Found); correct base_url, which usually ends in /v1",
        ),
        (Reply(307, b"", {"Location": "/login"}), "/v1/chat/completions does not exist (HTTP 307: Temporary Redirect)"),
        (
            refusal(418, "short and stout"),
            "completions answers HTTP 418: short and stout; correct base_url, which usually ends",
        ),
        (
            Reply(content=b"<html>hello</html>"),
            "answers HTTP 200, but the body is not JSON: <html>hello</html>; correct base_url",
        ),
        (Reply(content=b'{"data": [1]}'), "/v1/chat/completions answers HTTP 200, but it has no choices: "),
        (Reply(content=b'{"data": [{"id": 1}]}'), "/v1/chat/completions answers HTTP 200, but it has no choices: "),
        (
            Reply(content=b'{"error": {"code": 401, "message": "no key"}}'),
            "/v1/chat/completions needs a key (HTTP 401: no key)",
        ),
        (Reply(fault="reset"), "no answer from http://127.0.0.1:"),
        (Reply(fault="hang"), "in time; start the server, or correct base_url"),
        (Reply(fault="cut"), "its body is broken"),
    ],
)
def test_an_answer_that_is_neither_a_list_of_models_nor_a_completion(reply: Reply, said: str) -> None:
    with FakeServer(reply, answer=lambda _: reply) as server:
        seconds = 0.3 if reply.fault == "hang" else 10.0  # with less, a busy machine is taken for a hang
        assert said in refused(an_engine(server.address, timeout_seconds=seconds).check)


@pytest.mark.parametrize(
    "models",
    [
        refusal(404, "Invalid request URL"),
        refusal(400, "No route for that URI"),
        refusal(403, "You have insufficient permissions for this operation. Missing scopes: api.model.read"),
        Reply(content=b'{"error": "Unexpected endpoint or method. (GET /v1/models)"}'),
        Reply(content=b'{"object": "list", "data": []}'),
        Reply(content=b'{"data": [1]}'),
        ["tiny:latest"],
    ],
)
def test_where_the_list_of_models_fails_or_lacks_the_name_one_completion_decides(
    models: Reply | list[str], caplog: pytest.LogCaptureFixture
) -> None:
    missing = refusal(404, 'model "tinny" not found, try pulling it first')
    with FakeServer(models, answer=lambda body: missing if body["model"] == "tinny" else None) as server:
        server.aliases.add("tiny")
        an_engine(server.address).check()
        assert [body["model"] for body in server.bodies] == ["tiny"]
        said = refused(an_engine(server.address, model="tinny").check)
    assert "does not have the model (HTTP 404" in said or "no model 'tinny' at " in said
    assert ("tiny:latest" in said) == ("tiny:latest" in caplog.text) == isinstance(models, list)


def test_a_field_that_the_first_completion_is_refused_for_is_no_matter_of_the_model() -> None:
    words = "Unsupported parameter: 'max_tokens' is not supported with this model. Use 'max_completion_tokens' instead."
    with FakeServer(refusal(404, "no"), answer=lambda _: refusal(400, words, param="max_tokens")) as server:
        an_engine(server.address).check()


def test_a_model_that_is_not_listed_gets_the_nearest_and_some_names() -> None:
    names = [f"model-{n}" for n in range(30)] + ["tiny-8b"]
    with FakeServer(names) as server:
        said = refused(an_engine(server.address, model="tinny-8b").check)
    assert f"no model 'tinny-8b' at {server.address}; did you mean 'tiny-8b'? (known: model-0, " in said
    assert said.endswith(" and 7 more) (HTTP 404: The model `tinny-8b` does not exist); name one of them")


def test_a_busy_server_is_asked_again_before_it_is_refused() -> None:
    busy = Reply(503, b"loading", {"Retry-After": "0.05"})
    with FakeServer(busy, answer=lambda _: busy) as server:
        said = refused(an_engine(server.address).check)
        assert (server.listings, len(server.bodies)) == (3, 3)
    assert "/v1/chat/completions is failing (HTTP 503: loading); try again when it works" in said


def test_no_server_there() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    for host in ("127.0.0.1", "localhost"):
        said = refused(an_engine(f"http://{host}:{port}/v1").check)
        assert f"no answer from http://{host}:{port}/v1: Connection refused; start the server, or correct base_url" in said
    assert "no answer from http://no-such-host.invalid/v1: " in refused(an_engine("http://no-such-host.invalid/v1").check)


def test_tls_where_there_is_none() -> None:
    with FakeServer() as server:
        said = refused(an_engine(server.address.replace("http:", "https:")).check)
    assert "no TLS with https://127.0.0.1:" in said
    assert said.endswith("correct base_url, which may have to begin with http:")
