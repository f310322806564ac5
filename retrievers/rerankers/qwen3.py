"""Qwen3-Reranker: a pair in the model's chat template, scored by the log-odds of "yes" against "no".

The template is that of the model's card (huggingface.co/Qwen/Qwen3-Reranker-0.6B); the sigmoid of a score is the probability
that the card computes. Its conversions to one label (`Qwen3ForSequenceClassification`) have the same template and score.
"""

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np

from cluster.errors import RetrieverError
from retrievers.batches import PAIR_TOKENS, device_kind, in_order, length_batches
from retrievers.models import description, read_json
from retrievers.rerankers.cross_encoder import LoadedReranker
from retrievers.settings import RerankSettings

TEMPLATE_VERSION = 1
"""Raised when pairs are put together otherwise."""

_BEFORE = (
    "<|im_start|>system\nJudge whether the Document meets the requirements based on the Query and the Instruct provided. Note "
    'that the answer can only be "yes" or "no".<|im_end|>\n<|im_start|>user\n'
)
_AFTER = "<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n"
_INSTRUCTION = "Given a web search query, retrieve relevant passages that answer the query"
_LEAST_ROOM = 16  # tokens for query and passage


class Qwen3Reranker(LoadedReranker):
    """A Qwen3-Reranker. Cost: one tokenizer call per `CHUNK` pairs, one forward pass per length-sorted batch."""

    def __init__(self, settings: RerankSettings, device: str = "cpu") -> None:
        """Loads the model; `prompt` of the settings replaces the template's instruction.

        `max_length` counts the template, too; of what is left a query gets three quarters at most, and the passage is cut to
        the rest.
        """
        super().__init__(settings, device)
        names = read_json(description(settings.model) / "config.json").get("architectures") or []
        self._classifies = any(str(name).endswith("ForSequenceClassification") for name in names)
        self._open("AutoModelForSequenceClassification" if self._classifies else "AutoModelForCausalLM")
        self._network.config.pad_token_id = self._tokenizer.pad_token_id  # by which a classifier finds the last token
        self._answers = [self._token("no"), self._token("yes")] if not self._classifies else []
        self._before, self._after = self._ids([_BEFORE, _AFTER])
        self._query_form = f"<Instruct>: {settings.prompt or _INSTRUCTION}\n<Query>: {{}}\n<Document>: "
        self._room = settings.max_length - len(self._before) - len(self._after)
        self._query_room = (self._room - len(self._ids([self._query_form])[0])) * 3 // 4
        if self._query_room < _LEAST_ROOM:
            least = settings.max_length - self._query_room + 2 * _LEAST_ROOM
            problem = f"max_length {settings.max_length} leaves too little beside the template of {settings.model}"
            raise RetrieverError("model", f"rerank: {problem}; give {least} or more")
        self._tokens = PAIR_TOKENS[device_kind(device)]

    def _begins(self, queries: Sequence[str]) -> dict[str, str]:
        """Returns the text before the passage for each query, the query cut where it would leave the passage no room."""
        cut = {}
        for query, ids in zip(queries, self._ids(queries, self._query_room + 1), strict=True):
            whole = len(ids) <= self._query_room
            cut[query] = query if whole else self._tokenizer.decode(ids[: self._query_room], skip_special_tokens=False)
        before, after = self._query_form.split("{}")
        return {query: before + text + after for query, text in cut.items()}

    def _encoded(self, pairs: Sequence[tuple[str, str]]) -> list[list[int]]:
        begins = self._begins(list(dict.fromkeys(query for query, _ in pairs)))
        texts = [begins[query] + passage for query, passage in pairs]
        return [self._before + own + self._after for own in self._ids(texts, self._room)]

    def _forward(self, encoded: list[list[int]]) -> np.ndarray:
        lengths = np.array([len(one) for one in encoded])
        return in_order(length_batches(lengths, self._tokens), partial(self._logits, encoded))

    def _logits(self, encoded: list[list[int]], part: np.ndarray) -> Any:
        """Returns the scores of a batch, a float32 tensor of shape (n,)."""
        inputs = {"input_ids": [encoded[i] for i in part]}
        batch = self._tokenizer.pad(inputs, padding_side="left", return_tensors="pt").to(self._device)
        if self._classifies:
            return self._network(**batch).logits.view(-1).float()
        # Of the last token alone: those of all would be tokens x vocabulary.
        answers = self._network(**batch, logits_to_keep=1).logits[:, -1, self._answers].float()
        return answers[:, 1] - answers[:, 0]

    def _token(self, word: str) -> int:
        token: int | None = self._tokenizer.convert_tokens_to_ids(word)
        if token is None or token == self._tokenizer.unk_token_id:
            problem = f"model {self._settings.model} has no token {word!r}, so it is no Qwen3-Reranker"
            raise RetrieverError("model", f"rerank: {problem}; name another")
        return token
