"""Access to a server, its choice, and what a person is told: one line, without a secret."""

import base64
import json
import logging
import re
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from cluster.errors import RetrieverError
from retrievers.corpora.builds import BuildInputs
from retrievers.elastic import connection as elastic_connection
from retrievers.elastic.build import build_elastic_index, elastic_indexes
from retrievers.elastic.connection import Connection, RequestRefused
from retrievers.retriever import SearchText, open_documents, open_retriever, retriever_identity
from tests.support.retrievers.blocks import typed
from tests.support.retrievers.elastic_server import PASSWORD, Server
from tests.support.retrievers.proxy import Fault, Proxy

BLOCK = {"kind": "elastic", "index": "docs", "url_env": "SAFE_URL"}


@pytest.fixture(autouse=True)
def _short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(elastic_connection, "_OPENING_PATIENCE", 0.3)
    for name in ("SAFE_URL", "SAFE_KEY", "SAFE_USER", "SAFE_PASSWORD"):
        monkeypatch.delenv(name, raising=False)


def refusal(block: dict[str, Any], **more: Any) -> str:
    with pytest.raises(RetrieverError) as error:
        retriever_identity("bm25", typed(block | more))
    assert "\n" not in str(error.value)
    return str(error.value)


# with security on


@pytest.mark.slow
def test_a_key_from_the_environment(
    secured_server: Server,
    corpus: Path,
    monkeypatch: pytest.MonkeyPatch,
    new_name: Callable[[], str],
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.DEBUG)
    monkeypatch.setenv("SAFE_URL", secured_server.url.replace("//", f"//elastic:{PASSWORD}@"))
    block = BLOCK | {"index": new_name()}
    (fields,) = elastic_indexes({"bm25": typed(block)}).values()
    build_elastic_index(fields, BuildInputs([corpus]))
    key = secured_server.key(block["index"])
    monkeypatch.setenv("SAFE_KEY", key)
    monkeypatch.setenv("SAFE_URL", secured_server.url)
    reader = block | {"api_key_env": "SAFE_KEY"}
    found = open_retriever("bm25", typed(reader)).search([SearchText("Fresnel")], 3).doc_ids.to_pylist()
    assert found == ["d02"]
    assert open_documents("bm25", typed(reader)).texts(["e1"]) == ["Blank. "]
    identity = json.dumps(retriever_identity("bm25", typed(reader)))
    other = reader | {"index": "other"}
    assert "does not allow GET /other with this key; give it the right" in refusal(other)
    (fields,) = elastic_indexes({"bm25": typed(reader)}).values()
    other = fields.first[1].model_copy(update={"analyzer": "standard"})
    with pytest.raises(RetrieverError, match=r"does not allow PUT /.* with this key"):
        build_elastic_index(fields._replace(bm25=("bm25", other)), BuildInputs([corpus]))
    for secret in (key, PASSWORD, base64.b64encode(f"elastic:{PASSWORD}".encode()).decode()):
        assert secret not in caplog.text
        assert secret not in identity


@pytest.mark.slow
def test_a_wrong_key_is_refused_and_not_repeated(secured: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SAFE_URL", secured)
    monkeypatch.setenv("SAFE_KEY", "bm90LWEta2V5OnNlY3JldC1zYXVjZQ==")
    said = refusal(BLOCK, api_key_env="SAFE_KEY")
    assert said == f"retrieve.retrievers.bm25: {secured} does not accept the key; correct SAFE_KEY in the environment"
    assert "asks for a key; name its variable in api_key_env" in refusal(BLOCK)
    monkeypatch.setenv("SAFE_URL", secured.replace("//", "//elastic:wrong-Word@"))
    assert refusal(BLOCK) == f"retrieve.retrievers.bm25: {secured} does not accept the key; correct SAFE_URL in the environment"


@pytest.mark.slow
def test_a_password_in_the_address_is_used_and_not_shown(secured: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SAFE_URL", secured.replace("//", f"//elastic:{PASSWORD}@"))
    said = refusal(BLOCK, index="nothing-there")
    assert f"index nothing-there at {secured}: there is none" in said
    assert PASSWORD not in said


def test_a_key_with_a_secret_in_the_servers_words(elastic_answers: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SAFE_KEY", "top-secret")
    error = {"type": "security_exception", "reason": "the key top-secret\nis not\x1b[31m enough"}
    block = elastic_answers(403, {"error": error})
    with pytest.raises(RetrieverError) as refused:
        Connection("here", typed(block | {"api_key_env": "SAFE_KEY"})).send("GET", "/docs")
    assert str(refused.value).endswith("give it the right: the key *** is not?[31m enough")


# what the environment and the config say


@pytest.mark.parametrize(
    ("block", "variables", "words"),
    [
        ({}, {}, "bm25.url_env: the environment has no SAFE_URL; set it to one such as http://host:9200"),
        ({}, {"SAFE_URL": "localhost:9200"}, "bm25.url_env: SAFE_URL holds no address; set it to one such as"),
        ({}, {"SAFE_URL": "http://h:9200:1"}, "SAFE_URL holds no address"),
        (
            {"api_key_env": "SAFE_KEY"},
            {"SAFE_URL": "http://h"},
            "bm25: the environment variable SAFE_KEY (api_key_env) is not set or empty; set it to the key",
        ),
    ],
)
def test_refused_before_anything_is_sent(
    block: dict[str, Any], variables: dict[str, str], words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert words in refusal(BLOCK | block)


def test_several_nodes(elasticsearch: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as gone:
        closed = gone.getsockname()[1]
    monkeypatch.setenv("SAFE_URL", f"http://127.0.0.1:{closed}, {elasticsearch}")
    connection = Connection("here", typed(BLOCK))
    for _ in range(4):  # the node that is gone is asked no more
        assert connection.request("GET", "/_cluster/health")["status"] in ("green", "yellow")


# which server it is


def test_nobody_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SAFE_URL", "http://127.0.0.1:9")
    said = refusal(BLOCK)
    assert said == (
        "retrieve.retrievers.bm25: no valid answer from http://127.0.0.1:9: Connection refused; "
        "start the server, or correct SAFE_URL"
    )


def test_no_secure_connection(elasticsearch: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SAFE_URL", elasticsearch.replace("http:", "https:"))
    assert re.search(
        r"no secure connection to https://\S+: .*; name its authority's file in SSL_CERT_FILE, or correct SAFE_URL$",
        refusal(BLOCK),
    )


@pytest.mark.parametrize(("version", "taken"), [("10.0.0", False), ("7.17.29", False), ("8.0.0", True), ("9.2.1", True)])
def test_servers_of_the_client_s_major_and_of_the_next_are_taken(elastic_answers: Any, version: str, taken: bool) -> None:
    block = elastic_answers(200, {"version": {"number": version}})
    if taken:
        Connection("here", typed(block)).check()
    else:
        words = rf"is Elasticsearch {version}, the client installed here is 8\.\d+\.\d+, for servers 8.x and 9.x; take such a s"
        assert re.search(words, refusal(block))
    silent = elastic_answers(400, {"error": {"type": "media_type_header_exception", "reason": "Invalid media-type"}})
    assert "is of another major version than the client installed here; take a server of the client's" in refusal(silent)


@pytest.mark.parametrize("kind", ["answer", "html"])  # another product, a login page
def test_something_else_that_speaks_http(elastic_answers: Any, kind: str) -> None:
    other = {"version": {"number": "2.19.0", "distribution": "opensearch"}}
    block = elastic_answers(200, other, kind=kind, headers={"Content-Type": "application/json"})
    assert re.search(r"the server at http://\S+ is not Elasticsearch; correct SAFE_URL$", refusal(block))


def test_a_key_that_may_not_ask_for_the_version(elastic_answers: Any) -> None:
    block = elastic_answers(403, {"error": {"type": "security_exception", "reason": "no monitor"}})
    Connection("here", typed(block)).check()


@pytest.fixture
def elastic_answers(serve: Callable[..., Proxy], monkeypatch: pytest.MonkeyPatch) -> Any:
    """A server that says of itself what no server here does; gives the block of a retriever on it."""

    def answering(status: int, body: dict[str, Any], kind: str = "answer", **more: Any) -> dict[str, Any]:
        fault = Fault(kind, status=status, body=body, **more)
        monkeypatch.setenv("SAFE_URL", serve(lambda _: fault).url)
        return dict(BLOCK)

    return answering


def test_a_search_that_a_firewall_refuses_is_refused_alone(serve: Callable[..., Proxy]) -> None:
    refused, answered = Fault("html", status=403), Fault("answer", status=200, body={"responses": []})
    serve(lambda request: refused if b"passwd" in request.body else answered)
    connection = Connection("bm25", typed(BLOCK | {"url_env": "PROXY_URL"}))
    bad = b'{}\n{"query": "../passwd"}\n'

    def send(body: bytes) -> None:
        connection.send("POST", "/docs/_msearch", body)

    with pytest.raises(RetrieverError) as first:
        send(bad)
    assert (first.value.code, type(first.value)) == ("server-access", RetrieverError)
    send(b"{}\n{}\n")
    for _ in range(19):
        with pytest.raises(RequestRefused, match="refuses the request POST /docs/_msearch"):
            send(bad)
    with pytest.raises(RetrieverError, match=r"what stands before .* refuses POST"):
        send(bad)
    send(b"{}\n{}\n")
    with pytest.raises(RequestRefused):
        send(bad)
