"""A server with a model in the forms of text-embeddings-inference, of vLLM, or of another.

What the model computes is given as functions; the forms were read off TEI's router and vLLM 0.32 (`entrypoints/pooling`).
"""

import json
import math
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tests.support.wire import Body, Said, Wire, said_json

Embed = Callable[[Sequence[str]], Sequence[Sequence[float]]]
Score = Callable[[str, Sequence[str]], Sequence[float]]


def tei_error(status: int, words: str, kind: str) -> Said:
    return said_json({"error": words, "message": words, "error_type": kind, "type": kind}, status)


def vllm_error(status: int, words: str, kind: str = "BadRequestError") -> Said:
    return said_json({"error": {"message": words, "type": kind, "param": None, "code": status}}, status)


NOT_FOUND = Said(404, b'{"detail":"Not Found"}')
OVERLOADED = tei_error(429, "Model is overloaded", "Overloaded")
INFERENCE_FAILED = tei_error(424, "Inference failed", "Backend")


class FakeModels(Wire):
    """The server, and what it was asked.

    form: tei, vllm or openai (no word of what serves it; scores are probabilities). embed, score: what the model computes;
    without either it chats. most: texts of a request; more are refused as TEI does.
    """

    def __init__(
        self, form: str = "vllm", model: str = "tiny", *, embed: Embed | None = None, score: Score | None = None,
        key: str | None = None, most: int = 32,
    ) -> None:  # fmt: skip
        super().__init__()
        self.form, self.model, self._embed, self._score, self._key, self._most = form, model, embed, score, key, most
        kind = {"embedding": {"pooling": "mean"}} if embed else {"reranker": {"id2label": {"0": "LABEL_0"}}}
        self.info: Body = {
            "model_id": model, "model_sha": "fca1", "model_dtype": "float32", "model_type": kind,
            "max_client_batch_size": most, "max_input_length": 256, "auto_truncate": True, "version": "1.8.3",
        }  # fmt: skip
        self.card: Body = {
            "id": model, "object": "model", "created": 1, "owned_by": form, "root": "hub/tiny", "max_model_len": 256,
        }  # fmt: skip
        self.asked: list[tuple[str, Body]] = []
        self.keys: set[str | None] = set()
        self.spoil: Callable[[Any], Any] = lambda answer: answer
        self.at: dict[str, Said] = {}  # path -> the answer to GET
        self._computing = threading.Lock()  # tokenizers keep the padding of a batch between two calls: one thread at a time

    @property
    def address(self) -> str:
        """Its base_url."""
        return f"{self.url}/v1"

    @property
    def texts(self) -> list[str]:
        """All texts that it was to embed or score."""
        return [text for path, body in self.asked for text in texts_of(path, body)]

    def answer(self, method: str, path: str, data: bytes, headers: Mapping[str, str]) -> Said:
        body = json.loads(data or b"{}")
        key = headers.get("Authorization")
        if method == "POST":
            with self._lock:
                self.asked.append((path, body))
                self.keys.add(key)
        if self._key is not None and key != f"Bearer {self._key}":
            return Said(401)
        return self._post(path, body) if method == "POST" else self._get(path)

    def _get(self, path: str) -> Said:
        if path in self.at:
            return self.at[path]
        if self.form == "tei":
            return said_json(self.info) if path == "/info" else Said(404)
        return said_json({"object": "list", "data": [self.card]}) if path == "/v1/models" else NOT_FOUND

    def _post(self, path: str, body: Body) -> Said:
        texts = texts_of(path, body)
        fault = self.always or self.fault([*texts, *filter(None, [body.get("query")])])
        if fault is not None:
            return fault
        if self.form == "tei":
            if len(texts) > self._most:
                return tei_error(413, f"batch size {len(texts)} > maximum allowed batch size {self._most}", "Validation")
            if not all(texts):
                return tei_error(413, "`inputs` cannot be empty", "Validation")
        elif body.get("model") != self.model:
            return vllm_error(404, f"The model `{body.get('model')}` does not exist.", "NotFoundError")
        with self._computing:
            answer = self._answer(path, body, texts)
        return NOT_FOUND if answer is None else said_json(self.spoil(answer))

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
