"""A server with a model in the forms of text-embeddings-inference, of vLLM, or of another, with the faults that real ones have.

What the model computes is given as functions; the forms were read off TEI's router and vLLM 0.32 (`entrypoints/pooling`).
"""

from __future__ import annotations

import json
import math
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

Body = dict[str, Any]
Embed = Callable[[Sequence[str]], Sequence[Sequence[float]]]
Score = Callable[[str, Sequence[str]], Sequence[float]]


@dataclass(frozen=True)
class Said:
    """What the server says instead of a good answer; seconds: that it takes; drip: seconds before each byte of the body."""

    status: int = 200
    content: bytes = b""
    headers: Mapping[str, str] = field(default_factory=dict)
    seconds: float = 0.0
    drip: float = 0.0


def tei_error(status: int, words: str, kind: str) -> Said:
    return Said(status, json.dumps({"error": words, "message": words, "error_type": kind, "type": kind}).encode())


def vllm_error(status: int, words: str, kind: str = "BadRequestError") -> Said:
    return Said(status, json.dumps({"error": {"message": words, "type": kind, "param": None, "code": status}}).encode())


NOT_FOUND = Said(404, b'{"detail":"Not Found"}')
OVERLOADED = tei_error(429, "Model is overloaded", "Overloaded")
INFERENCE_FAILED = tei_error(424, "Inference failed", "Backend")


class FakeModels:
    """The server, and what it was asked.

    form: tei, vllm or openai (no word of what serves it; scores are probabilities). embed, score: what the model computes;
    without either it chats. most: texts of a request; more are refused as TEI does.
    """

    def __init__(
        self,
        form: str = "vllm",
        model: str = "tiny",
        *,
        embed: Embed | None = None,
        score: Score | None = None,
        key: str | None = None,
        most: int = 32,
        info: Mapping[str, Any] | None = None,
        port: int = 0,
    ) -> None:
        self.form, self.model, self._embed, self._score, self._key = form, model, embed, score, key
        self._most, self._port = most, port
        kind = {"embedding": {"pooling": "mean"}} if embed else {"reranker": {"id2label": {"0": "LABEL_0"}}}
        self.info: Body = {
            "model_id": model, "model_sha": "fca1", "model_dtype": "float32", "model_type": kind,
            "max_client_batch_size": most, "max_input_length": 256, "auto_truncate": True, "version": "1.8.3",
        } | dict(info or {})  # fmt: skip
        self.card: Body = {
            "id": model,
            "object": "model",
            "created": 1,
            "owned_by": form,
            "root": "hub/tiny",
            "max_model_len": 256,
        }
        self.asked: list[tuple[str, Body]] = []
        self.keys: set[str | None] = set()
        self.spoil: Callable[[Any], Any] = lambda answer: answer
        self.always: Said | None = None
        self.at: dict[str, Said] = {}  # path -> the answer to GET
        self.in_flight = self.most_in_flight = 0
        self._faults: dict[str, tuple[Said, float]] = {}
        self._shown: Counter[str] = Counter()
        self._lock = threading.Lock()
        self._computing = threading.Lock()  # tokenizers keep the padding of a batch between two calls: one thread at a time

    @property
    def address(self) -> str:
        """Its base_url."""
        return f"http://127.0.0.1:{self._port}/v1"

    @property
    def texts(self) -> list[str]:
        """All texts that it was to embed or score."""
        return [text for path, body in self.asked for text in texts_of(path, body)]

    def fail(self, text: str, said: Said, times: float = math.inf) -> None:
        """The first `times` requests with a text, or of a query, end so."""
        self._faults[text] = (said, times)

    def __enter__(self) -> FakeModels:
        fake = self

        class Requests(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            disable_nagle_algorithm = True  # else a body waits 40 ms for the acknowledgement of its headers

            def do_GET(self) -> None:
                self._reply(fake.get(self.path, self.headers.get("Authorization")))

            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                self._reply(fake.post(self.path, body, self.headers.get("Authorization")))

            def _reply(self, said: Said) -> None:
                time.sleep(said.seconds)
                self.send_response(said.status)
                for name, value in {"Content-Length": str(len(said.content)), **said.headers}.items():
                    self.send_header(name, value)
                self.end_headers()
                if not said.drip:
                    self.wfile.write(said.content)
                    return
                for byte in said.content:
                    time.sleep(said.drip)
                    self.wfile.write(bytes([byte]))

            def log_message(self, *_: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", self._port), Requests)
        self._server.daemon_threads = True
        self._port = self._server.server_address[1]
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def get(self, path: str, key: str | None) -> Said:
        if self._key is not None and key != f"Bearer {self._key}":
            return Said(401, b"")
        if path in self.at:
            return self.at[path]
        if self.form == "tei":
            return Said(content=json.dumps(self.info).encode()) if path == "/info" else Said(404)
        if path == "/v1/models":
            return Said(content=json.dumps({"object": "list", "data": [self.card]}).encode())
        return NOT_FOUND

    def post(self, path: str, body: Body, key: str | None) -> Said:
        with self._lock:
            self.asked.append((path, body))
            self.keys.add(key)
            self.in_flight += 1
            self.most_in_flight = max(self.most_in_flight, self.in_flight)
        try:
            return Said(401) if self._key is not None and key != f"Bearer {self._key}" else self._post(path, body)
        finally:
            with self._lock:
                self.in_flight -= 1

    def _post(self, path: str, body: Body) -> Said:
        if self.always is not None:
            return self.always
        texts = texts_of(path, body)
        for text in [*texts, *filter(None, [body.get("query")])]:
            said, times = self._faults.get(text, (Said(), 0))
            with self._lock:
                self._shown[text] += 1
                if self._shown[text] <= times:
                    return said
        if self.form == "tei":
            if len(texts) > self._most:
                return tei_error(413, f"batch size {len(texts)} > maximum allowed batch size {self._most}", "Validation")
            if not all(texts):
                return tei_error(413, "`inputs` cannot be empty", "Validation")
        elif body.get("model") != self.model:
            return vllm_error(404, f"The model `{body.get('model')}` does not exist.", "NotFoundError")
        with self._computing:
            answer = self._answer(path, body, texts)
        return NOT_FOUND if answer is None else Said(content=json.dumps(self.spoil(answer)).encode())

    def _answer(self, path: str, body: Body, texts: Sequence[str]) -> Any:
        if self._embed is not None and path == "/v1/embeddings":
            vectors = self._embed(texts)
            if "dimensions" in body:
                vectors = [vector[: body["dimensions"]] for vector in vectors]
            data = [{"object": "embedding", "index": i, "embedding": [float(x) for x in v]} for i, v in enumerate(vectors)]
            return {"object": "list", "data": data, "model": self.model, "usage": {"prompt_tokens": 1, "total_tokens": 1}}
        if self._score is None or path != ("/rerank" if self.form == "tei" else "/v1/rerank"):
            return None
        scores = [float(score) for score in self._score(body["query"], texts)]
        raw = {"tei": body.get("raw_scores", False), "vllm": body.get("use_activation") is False}.get(self.form, False)
        scores = scores if raw else [1 / (1 + math.exp(-score)) for score in scores]
        order = sorted(range(len(scores)), key=lambda i: -scores[i])
        if self.form == "tei":
            return [{"index": i, "score": scores[i]} for i in order]
        results = [{"index": i, "document": {"text": texts[i]}, "relevance_score": scores[i]} for i in order]
        return {"id": "score-1", "model": self.model, "usage": {"prompt_tokens": 1, "total_tokens": 1}, "results": results}


def texts_of(path: str, body: Body) -> list[str]:
    """The texts of a request to be embedded or scored, in order."""
    if path.endswith("/embeddings"):
        return list(body["input"])
    return list(body.get("texts") or body.get("documents") or [])
