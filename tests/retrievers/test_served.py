"""Encoders and rerankers at servers: what is sent, retried, given up and refused, against fakes of TEI and vLLM at the wire."""

import base64
import pickle
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cluster import outages
from cluster.errors import RetrieverError
from retrievers.encoder import encoder_differences, encoder_identity
from retrievers.local.build import build_local_index
from retrievers.local.index import open_retriever
from retrievers.local.settings import LocalSettings
from retrievers.reranker import reranker_identity
from retrievers.retriever import SearchText
from retrievers.served.client import ModelServer, ServedFacts
from retrievers.served.encoder import OpenaiEncoder
from retrievers.served.reranker import ServerReranker
from retrievers.served.server import Server, ServerAway, TextRefused
from retrievers.settings import OpenaiEncoderSettings, RerankSettings
from tests.support.cluster.clock import Clock
from tests.support.retrievers.blocks import index_fields
from tests.support.retrievers.fake_models import INFERENCE_FAILED, NOT_FOUND, OVERLOADED, FakeModels, tei_error, vllm_error
from tests.support.retrievers.web_server import WebServer
from tests.support.wire import Said
from tests.support.wire_errors import no_access, quotes, waited_for

pytestmark = pytest.mark.usefixtures("short_pauses")
BLOCKED = b"<html>blocked \xed\xa0\xbd</html>"  # by a firewall, which does not take texts such as `../../etc/passwd`


def vector(text: str) -> list[float]:
    """Another direction for every text, and no length 1."""
    return [len(text) + 1.0, text.count("a") + 1.0, text.count(" ") + 2.0]


def embed(texts: Sequence[str]) -> list[list[float]]:
    return [vector(text) for text in texts]


def score(query: str, texts: Sequence[str]) -> list[float]:
    return [float(len(set(query) & set(text))) - 3.12345 for text in texts]


def encoder_at(fake: FakeModels, **more: Any) -> OpenaiEncoder:
    given = {"kind": "openai", "model": "tiny", "base_url": fake.address, "patience_minutes": 5} | more
    return OpenaiEncoder(OpenaiEncoderSettings(**given))


def reranker_at(fake: FakeModels, **more: Any) -> ServerReranker:
    given = {"kind": "server", "model": "tiny", "base_url": fake.address, "patience_minutes": 5} | more
    return ServerReranker(RerankSettings(**given))


def searches(*texts: str) -> list[SearchText]:
    return [SearchText(text) for text in texts]


@pytest.fixture(params=["tei", "vllm"])
def form(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def embedding(form: str) -> Iterator[FakeModels]:
    with FakeModels(form, embed=embed, most=4) as fake:
        yield fake


@pytest.fixture
def reranking(form: str) -> Iterator[FakeModels]:
    with FakeModels(form, score=score, most=4) as fake:
        yield fake


# ---------------------------------------------------------------- what is sent, and what is made of the answers


def test_an_error_of_a_worker_reaches_the_driver_as_it_is() -> None:
    assert pickle.loads(pickle.dumps(ServerAway("server-away", "no answer", "unavailable", answers=False))).line == "no answer"


def test_vectors_are_of_length_1_with_the_prefix_of_their_kind(embedding: FakeModels) -> None:
    encoder = encoder_at(embedding, query_prefix="query: ", passage_prefix="passage: ")
    found = encoder.encode([SearchText("a b"), SearchText("a b", "passage"), SearchText("a b")])
    wanted = np.array(embed(["query: a b", "passage: a b", "query: a b"]))
    np.testing.assert_allclose(found, wanted / np.linalg.norm(wanted, axis=1, keepdims=True), rtol=1e-6)
    assert (found.dtype, encoder.dim, encoder.encode([]).shape) == (np.float32, 3, (0, 3))
    assert sorted(embedding.texts) == ["a probe", "passage: a b", "query: a b"]  # each once


def test_no_request_has_more_texts_than_the_server_takes_and_few_are_in_flight(embedding: FakeModels) -> None:
    texts = [f"text {'a' * n}" for n in range(41)]
    found = encoder_at(embedding, batch=10, max_in_flight=3).encode(searches(*texts))
    np.testing.assert_allclose(found[17] @ np.array(vector(texts[17])), np.linalg.norm(vector(texts[17])), rtol=1e-6)
    most = 4 if embedding.form == "tei" else 10
    assert max(len(body["input"]) for _, body in embedding.asked) == most
    assert len(embedding.asked) == 1 + -(-41 // most)
    assert 1 <= embedding.most_in_flight <= 3


def test_what_is_asked_of_each_server(embedding: FakeModels, reranking: FakeModels) -> None:
    encoder_at(embedding, dimensions=2).encode(searches("one"))
    reranker_at(reranking, max_length=100).score(["one"], ["two"])
    path, body = embedding.asked[-1]
    cut = {"truncate_prompt_tokens": -1} if embedding.form == "vllm" else {}
    sent = {"model": "tiny", "input": ["one"], "encoding_format": "float", "dimensions": 2}
    assert (path, body) == ("/v1/embeddings", sent | cut)
    assert reranking.asked[-1] == {
        "tei": ("/rerank", {"query": "one", "texts": ["two"], "raw_scores": True, "truncate": True}),
        "vllm": (
            "/v1/rerank",
            {
                "model": "tiny", "query": "one", "documents": ["two"], "use_activation": False,
                "truncate_prompt_tokens": 100, "max_tokens_per_query": 75,
            },
        ),
    }[reranking.form]  # fmt: skip


def test_a_request_for_each_query_and_as_many_texts_as_the_server_takes(reranking: FakeModels) -> None:
    reranker = reranker_at(reranking)
    queries, passages = ["one"] * 6 + ["two"] * 2 + ["one"], [f"passage {n}" for n in range(8)] + ["passage 0"]
    found = reranker.score(queries, passages)
    wanted = [score(query, [passage])[0] for query, passage in zip(queries, passages, strict=True)]
    assert found.tolist() == pytest.approx(np.round(wanted, 4))
    assert reranker.requests(["two", "three"]) == {"two": 1}
    assert reranker.requests(["one", "two"]) == {"one": 2 if reranking.form == "tei" else 1}
    assert not reranker.requests(["one", "two"])


def test_probabilities_of_another_server_are_not_rounded_until_they_tie() -> None:
    with FakeModels("openai", score=lambda _, texts: [-10.0 - len(text) for text in texts]) as fake:
        reranker = reranker_at(fake)
        found = reranker.score(["q"] * 2, ["a", "ab"])
    assert found.tolist() == [0.000017, 0.000006]
    assert reranker.identity() == {"kind": "server", "model": "tiny", "raw_scores": False}


@given(st.lists(st.text(max_size=3), unique=True, min_size=1, max_size=9), st.integers(1, 4))
def test_a_batch_that_is_too_large_is_halved(items: list[str], most: int) -> None:
    def send(part: Sequence[str], _: threading.Event) -> list[str]:
        if len(part) > most:
            raise TextRefused("server", "too large")
        return [item.upper() for item in part]

    settings = OpenaiEncoderSettings(kind="openai", model="tiny", base_url="http://127.0.0.1:9/v1")
    with patch.object(ModelServer, "_read_facts", lambda *_: ServedFacts("openai", {})):
        server = ModelServer("encoder", settings, "embedding")
    assert server.answers([items], send) == [item.upper() for item in items]


# ---------------------------------------------------------------- failures


@pytest.mark.parametrize(
    "said",
    [
        OVERLOADED, Said(503, b"unhealthy"), Said(429, b"", {"Retry-After": "0"}), Said(429, b"", {"Retry-After": "soon"}),
        INFERENCE_FAILED, vllm_error(500, "the engine fell over", "InternalServerError"), Said(200, b"<html>"),
    ],
    ids=lambda said: f"{said.status} {said.headers or said.content[:8]}",
)  # fmt: skip
def test_a_passing_failure_is_retried(embedding: FakeModels, said: Said) -> None:
    encoder = encoder_at(embedding)
    embedding.fail("late", said, 1)
    assert encoder.encode(searches("late", "early")).shape == (2, 3)
    assert embedding.texts.count("late") == 2


@pytest.mark.parametrize(
    ("said", "words", "sends"),
    [
        (tei_error(413, "`inputs` must have less than 512 tokens. Given: 600", "Validation"), "HTTP 413: `inputs` must", 1),
        (tei_error(422, "Tokenization error", "Tokenizer"), "HTTP 422: Tokenization error", 1),
        (vllm_error(400, "maximum context length is 512"), "HTTP 400: maximum context length", 1),
        (INFERENCE_FAILED, "HTTP 424: Inference failed; sent 2 times", 2),
        (Said(200, b'{"data": []}'), "HTTP 200, but it holds", 2),
        (Said(200, b"plain", {"Content-Encoding": "gzip"}), "its body is broken: Error -3 while decompressing", 2),
        *((Said(status, BLOCKED), f"HTTP {status}: <html>blocked", 1) for status in (403, 404, 405)),
    ],
)
def test_a_text_that_the_server_does_not_take_fails_alone_and_is_not_sent_again(
    embedding: FakeModels, reranking: FakeModels, said: Said, words: str, sends: int
) -> None:
    encoder, reranker = encoder_at(embedding), reranker_at(reranking)
    embedding.fail("bad", said)
    reranking.fail("bad", said)
    for ask in (lambda: encoder.encode(searches("a", "bad", "b")), lambda: reranker.score(["q"] * 3, ["a", "bad", "b"])):
        with pytest.raises(TextRefused) as refused:
            ask()
        assert words in str(refused.value)
        assert "\n" not in str(refused.value)
    asked = embedding.texts.count("bad"), reranking.texts.count("bad")
    assert max(asked) <= 3 * sends  # with others, and alone
    for again in (lambda: encoder.encode(searches("c", "bad")), lambda: reranker.score(["q"] * 2, ["c", "bad"])):
        with pytest.raises(TextRefused):
            again()
    assert asked == (embedding.texts.count("bad"), reranking.texts.count("bad"))
    assert encoder.encode(searches("c")).shape == (1, 3)
    assert len(reranker.score(["q"], ["c"])) == 1


NAN = float("nan")


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        (lambda data: data[:-1], "it holds 1 embeddings for 2 texts"),
        (lambda data: [*data, data[0]], "it holds 3 embeddings for 2 texts"),
        (lambda data: [one | {"index": 0} for one in data], "or their numbers are wrong"),
        (lambda data: [one | {"index": "first"} for one in data], "or their numbers are wrong"),
        (lambda data: [one | {"embedding": [NAN, 1.0, 2.0]} for one in data], "an embedding is not finite, or zero"),
        (lambda data: [one | {"embedding": [0.0, 0.0, 0.0]} for one in data], "an embedding is not finite, or zero"),
        (lambda data: [one | {"embedding": [10**400, 1, 2]} for one in data], "int too large to convert to float"),
        (lambda data: [one | {"embedding": [1.0, 2.0]} for one in data], "have shape (2,), where 3 dimensions were before"),
        (lambda data: [data[0] | {"embedding": [1.0]}, data[1]], "or they differ in length"),
        (lambda data: [one | {"embedding": None} for one in data], "dimensions were before"),
        (lambda data: "none", "it holds no embeddings"),
    ],
)
def test_vectors_that_are_none_are_refused(spoil: Callable[[Any], Any], words: str) -> None:
    with FakeModels(embed=embed) as fake:
        encoder = encoder_at(fake)
        fake.spoil = lambda answer: answer | {"data": spoil(answer["data"]) if len(answer["data"]) > 1 else []}
        with pytest.raises(TextRefused):
            encoder.encode(searches("a", "b"))
        with pytest.raises(TextRefused, match=r"HTTP 200, but") as refused:
            encoder._send(searches("a", "b"), threading.Event())
        assert words in str(refused.value)


@pytest.mark.parametrize(
    "spoil",
    [
        lambda results: results[:-1],
        lambda results: [one | {"relevance_score": NAN} for one in results],
        lambda results: [one | {"relevance_score": 10**400} for one in results],
        lambda results: [{"index": one["index"]} for one in results],
        lambda results: [one | {"index": one["index"] + 1} for one in results],
    ],
)
def test_scores_that_are_none_are_refused(spoil: Callable[[Any], Any]) -> None:
    with FakeModels(score=score) as fake:
        reranker = reranker_at(fake)
        fake.spoil = lambda answer: answer | {"results": spoil(answer["results"])}
        with pytest.raises(TextRefused, match="HTTP 200, but"):
            reranker.score(["q"] * 2, ["a", "b"])


def test_an_answer_that_drips_has_the_time_of_one_attempt() -> None:
    with FakeModels("tei", embed=embed) as fake:
        fake.fail("drips", Said(200, b" " * 60, drip=0.05))
        began = time.monotonic()
        with pytest.raises(TextRefused, match=r"no answer in 0\.5 s; sent 2 times"):
            encoder_at(fake, timeout_seconds=0.5).encode(searches("drips"))
        assert time.monotonic() - began < 2.9, "of 3 s for each whole answer"


@waited_for
def test_an_error_inside_a_good_answer_is_the_status_that_it_names(
    embedding: FakeModels, reranking: FakeModels, content: bytes
) -> None:
    encoder, reranker = encoder_at(embedding), reranker_at(reranking)
    for fake in (embedding, reranking):
        fake.fail("late", Said(200, content), 2)
    assert encoder.encode(searches("late")).shape == (1, 3)
    assert len(reranker.score(["q"], ["late"])) == 1
    assert (embedding.texts.count("late"), reranking.texts.count("late")) == (3, 3)


@no_access
def test_no_access_ends_the_run_whatever_the_status(
    embedding: FakeModels, reranking: FakeModels, status: int, content: bytes
) -> None:
    encoder, reranker = encoder_at(embedding), reranker_at(reranking)
    for fake, ask in (
        (embedding, lambda: encoder.encode(searches("a"))),
        (reranking, lambda: reranker.score(["q"], ["a"])),
        (embedding, lambda: encoder_at(embedding)),
        (reranking, lambda: reranker_at(reranking)),
    ):
        fake.always, sent = Said(status, content), len(fake.asked)
        with pytest.raises(RetrieverError, match=r"needs a key|asks for payment") as refused:
            ask()
        assert (refused.value.code, len(fake.asked)) == ("server-access", sent + 1)


@quotes
def test_what_a_refusal_quotes_is_no_spent_account(embedding: FakeModels, content: bytes) -> None:
    encoder = encoder_at(embedding)
    embedding.fail("quoted", Said(400, content))
    with pytest.raises(TextRefused, match="HTTP 400: "):
        encoder.encode(searches("quoted"))


def test_a_server_that_stays_away_ends_the_run_and_is_shown_meanwhile(
    embedding: FakeModels, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(outages, "SHORTEST", 0.0)
    encoder = encoder_at(embedding, patience_minutes=0.01)
    embedding.always = OVERLOADED
    began = time.monotonic()
    with pytest.raises(RetrieverError, match="no valid answer: HTTP 429: Model is overloaded; start the server") as away:
        encoder.encode(searches(*(f"text {n}" for n in range(30))))
    assert away.value.code == "server-away"
    assert time.monotonic() - began >= 0.6
    (shown,) = [one for one in outages.outages() if embedding.address in one.service]
    assert (shown.service, shown.patience) == (f"model server {embedding.address}", pytest.approx(0.6))
    began, sent = time.monotonic(), len(embedding.asked)
    with pytest.raises(RetrieverError):  # of a half of the block: the patience is over for all
        encoder.encode(searches("another"))
    assert len(embedding.asked) == sent + 1
    embedding.always = None
    assert encoder.encode(searches("another")).shape == (1, 3)
    assert not [one for one in outages.outages() if embedding.address in one.service]


def test_a_server_that_is_away_for_the_patience_of_one_request_refuses_no_text(
    embedding: FakeModels, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock, server = Clock(), encoder_at(embedding, patience_minutes=0.01)._server
    monkeypatch.setattr("retrievers.served.server.time", clock)
    embedding.always = OVERLOADED
    with pytest.raises(RetrieverError, match="no valid answer: HTTP 429"):  # though it began to fail after the first send
        server.ask(f"{server.base}/embeddings", {"input": ["a"]}, sending=lambda: clock.sleep(0.2))


# ---------------------------------------------------------------- what is refused before a run


def refused(fake: FakeModels, opened: Callable[..., object], **more: Any) -> tuple[str, str]:
    """The code and the line of the error."""
    with pytest.raises(RetrieverError) as refusal:
        opened(fake, **more)
    assert "\n" not in str(refusal.value)
    return refusal.value.code, str(refusal.value)


def test_a_server_that_is_not_there(form: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("retrievers.served.client._OPENING_PATIENCE", 0.1)
    with FakeModels(form, embed=embed) as fake:
        pass
    code, words = refused(fake, encoder_at)
    assert code == "server-away"
    assert words.endswith("Connection refused; start the server, or correct base_url")


@pytest.mark.parametrize(
    ("models", "more"),
    [
        (NOT_FOUND, {}),
        (Said(400, b'{"error": {"message": "No route for that URI"}}'), {}),
        (Said(content=b'{"error": "Unexpected endpoint or method. (GET /v1/models)"}'), {}),
        (Said(content=b'{"object": "list", "data": []}'), {}),
        (Said(403, b'{"error": {"message": "Missing scopes: api.model.read"}}'), {}),
        (None, {"id": "tiny:latest"}),
    ],
)
def test_a_server_that_lists_no_models_or_not_all_is_told_by_its_first_answer(
    models: Said | None, more: dict[str, str]
) -> None:
    with FakeModels("openai", embed=embed, score=score) as fake:
        fake.at = {} if models is None else {"/v1/models": models}
        fake.card |= more
        assert encoder_at(fake).identity() == {
            "kind": "openai", "model": "tiny", "dim": 3, "query_prefix": "", "passage_prefix": "",
        }  # fmt: skip
        assert len(reranker_at(fake).score(["q"], ["a"])) == 1
        for opened in (encoder_at, reranker_at):
            code, line = refused(fake, opened, model="tinny")
            assert (code, "tinny" in line) == ("model", True), line


@pytest.mark.parametrize("paths", [["/info"], ["/v1/models"], ["/info", "/v1/models"]])
def test_a_server_that_fails_on_its_facts_is_told_by_its_first_answer(
    monkeypatch: pytest.MonkeyPatch, paths: list[str]
) -> None:
    monkeypatch.setattr("retrievers.served.client._OPENING_PATIENCE", 0.1)
    with FakeModels("openai", embed=embed) as fake:
        fake.at = dict.fromkeys(paths, Said(503, b"no such route"))
        began = time.monotonic()
        assert encoder_at(fake).encode(searches("a")).shape == (1, 3)
        assert time.monotonic() - began >= 0.1  # it is waited for
        fake.always = Said(503, b"the model loads")
        code, line = refused(fake, encoder_at)
        assert (code, "no valid answer: HTTP 503: the model loads" in line) == ("server-away", True), line


@pytest.mark.parametrize(
    ("form", "serves", "opened", "more", "words"),
    [
        ("tei", "vectors", encoder_at, {"model": "tinny"}, "the server has no such model; did you mean 'tiny'? (known: tiny)"),
        ("vllm", "vectors", encoder_at, {"model": "tinny"}, "the server has no such model; did you mean 'tiny'? (known: tiny)"),
        ("tei", "scores", encoder_at, {}, "the server serves it as reranker, not as embedding; name another server"),
        ("tei", "vectors", reranker_at, {}, "the server serves it as embedding, not as reranker; name another server"),
        ("vllm", "chats", encoder_at, {}, "it gives no vectors: HTTP 404: Not Found; name a model"),
        ("vllm", "chats", reranker_at, {}, "it gives no scores: HTTP 404: Not Found; name a model"),
        ("vllm", "vectors", encoder_at, {"dimensions": 4}, "its vectors have 3 dimensions, not 4; remove dimensions"),
    ],
)
def test_a_model_that_is_another_or_not_served(
    form: str, serves: str, opened: Callable[..., object], more: dict[str, Any], words: str
) -> None:
    computes: dict[str, Any] = {"vectors": {"embed": embed}, "scores": {"score": score}, "chats": {}}[serves]
    with FakeModels(form, **computes) as fake:
        code, line = refused(fake, opened, **more)
    assert (code, words in line) == ("model", True), line


def test_a_key_comes_from_the_environment_and_is_in_no_message(form: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MODEL_KEY", "sesame-1")
    with FakeModels(form, embed=embed, key="sesame-1") as fake:
        encoder = encoder_at(fake, api_key_env="MODEL_KEY")
        assert encoder.encode(searches("a")).shape == (1, 3)
        assert fake.keys == {"Bearer sesame-1"}
        fake.fail("b", Said(400, b'{"error": "sesame-1 is not allowed"}'))
        with pytest.raises(TextRefused, match=r"HTTP 400: \*\*\* is not allowed"):
            encoder.encode(searches("b"))
        monkeypatch.setenv("MODEL_KEY", "sesame-2")
        code, words = refused(fake, encoder_at, api_key_env="MODEL_KEY")
        assert (code, "sesame" in words, "set MODEL_KEY to a valid key" in words) == ("server-access", False, True)
        code, words = refused(fake, encoder_at)
        assert (code, "name the environment variable that holds it in api_key_env" in words) == ("server-access", True)
        monkeypatch.delenv("MODEL_KEY")
        _, words = refused(fake, encoder_at, api_key_env="MODEL_KEY")
        assert "the environment variable MODEL_KEY (api_key_env) is not set" in words


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        (tei_error(413, "too long", "Validation"), "HTTP 413: too long"),
        (
            Said(500, b'{"error": "failed to encode response: json: unsupported value: NaN"}'),
            "HTTP 500: failed .*NaN; sent 2 times",
        ),
    ],
)
def test_a_document_that_is_refused_ends_the_build_and_is_named(
    embedding: FakeModels, write_corpus: Callable[..., Path], tmp_path: Path, fault: Said, words: str
) -> None:
    embedding.fail("bad", fault)
    texts = ["one", "", "two", "one", "bad", *(f"text {n}" for n in range(20)), "bad"]
    corpus = write_corpus({"doc_id": [f"d{n:02}" for n in range(len(texts))], "text": texts})
    encoder = {"kind": "openai", "model": "tiny", "base_url": embedding.address, "batch": 8}
    with pytest.raises(RetrieverError, match=rf"corpus: document 'd04' is refused by the encoder tiny at .*: {words}; change"):
        build_local_index(tmp_path / "index", corpus, index_fields(None, encoder))


def test_a_blank_document_is_not_sent_and_has_no_vector(
    embedding: FakeModels, write_corpus: Callable[..., Path], tmp_path: Path
) -> None:
    for blank in ("", " ", " \n"):
        embedding.fail(blank, Said(400, b'{"error": {"message": "\'$.input\' is invalid."}}'))
    texts = ["", "a b", "a a", " \n", "far away"]
    corpus = write_corpus({"doc_id": list("pqrst"), "text": texts})
    encoder = {"kind": "openai", "model": "tiny", "base_url": embedding.address, "passage_prefix": ""}
    build_local_index(tmp_path / "index", corpus, index_fields(None, encoder))
    opened = open_retriever("dense", LocalSettings(kind="local", index=str(tmp_path / "index"), encoder=encoder))
    for depth in (2, 5):
        found = opened.search(searches("a b", "far"), depth)
        assert np.diff(found.offsets).tolist() == [min(depth, 3)] * 2
        assert set(found.doc_ids.to_pylist()) <= set("qrt")
    assert embedding.texts.count("a b") == 2  # of the build and of the search


# ---------------------------------------------------------------- identity


def test_an_identity_is_what_the_server_says(embedding: FakeModels, reranking: FakeModels) -> None:
    settings = OpenaiEncoderSettings(kind="openai", model="tiny", base_url=embedding.address, query_prefix="q: ")
    of_tei = {"revision": "fca1", "pooling": "mean", "dtype": "float32"}
    weights = of_tei if embedding.form == "tei" else {"weights": "hub/tiny"}
    same = {"kind": "openai", "model": "tiny", "dim": 3, "max_length": 256, "query_prefix": "q: ", "passage_prefix": ""}
    found = encoder_identity(settings)
    assert found == same | weights
    assert encoder_differences(found, found | {"dtype": "float16"}) == ""
    assert "model" in encoder_differences(found, found | {"model": "other"})
    reranked = reranker_identity(RerankSettings(kind="server", model="tiny", base_url=reranking.address, max_length=100))
    embedding.card["root"] = "/models/tiny"  # a folder there says where, not which
    assert encoder_identity(settings) == same | (of_tei if embedding.form == "tei" else {})
    length = 256 if reranking.form == "tei" else 100  # TEI cuts at its own limit
    assert {name: reranked[name] for name in ("kind", "model", "raw_scores", "max_length")} == {
        "kind": "server", "model": "tiny", "raw_scores": True, "max_length": length,
    }  # fmt: skip


def test_a_proxy_is_told_its_user_and_password_and_left_out_by_host_and_port(monkeypatch: pytest.MonkeyPatch) -> None:
    with WebServer("searxng") as proxy, FakeModels("vllm", embed=embed) as fake:
        monkeypatch.setenv("http_proxy", proxy.url.replace("//", "//me:open%40sesame@"))
        monkeypatch.setenv("no_proxy", fake.url.removeprefix("http://"))
        assert encoder_at(fake).dim == 3
        away = OpenaiEncoderSettings(kind="openai", model="m", base_url="http://host:8/v1")
        with pytest.raises(RetrieverError, match="does not exist"):
            Server("encoder", "models", "http://host:8/v1", away).ask("http://host:8/v1/models")
    ((asked, _, headers),) = proxy.requests
    assert (asked, headers["Host"]) == ("GET /v1/models", "host:8")
    assert headers["proxy-authorization"] == "Basic " + base64.b64encode(b"me:open@sesame").decode()


def test_what_is_not_found_again_and_again_ends_the_run() -> None:
    with FakeModels("vllm", embed=embed) as fake:
        encoder = encoder_at(fake)
        fake.always = NOT_FOUND
        for number in range(19):
            with pytest.raises(TextRefused, match="HTTP 404"):
                encoder.encode(searches(str(number)))
        with pytest.raises(RetrieverError, match="does not exist") as gone:
            encoder.encode(searches("a"))
        assert (gone.value.code, len(fake.asked)) == ("server-away", 22)  # the first request once more


def test_a_query_that_is_refused_with_all_its_passages_is_not_of_all(reranking: FakeModels) -> None:
    """Its batches are halved side by side, so that more requests in a row are refused than of single texts."""
    reranking.fail("' or 1=1", Said(403, b"blocked"))
    reranker = reranker_at(reranking, max_in_flight=32)
    with pytest.raises(TextRefused, match="HTTP 403: blocked"):
        reranker.score(["' or 1=1"] * 1000, [f"p {number}" for number in range(1000)])
    assert len(reranker.score(["q"] * 2, ["a", "b"])) == 2
