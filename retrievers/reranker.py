"""Scores for (query, passage) pairs, and what becomes of a fused list with them.

Pairs are always (original query, document). A scorer knows texts only; `combine` knows documents.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Protocol, runtime_checkable

import numpy as np

from retrievers.encoder import Encoder, EncoderSettings, encoder_identity, encoder_settings, own_positions
from retrievers.models import local_folder, model_identity, quiet_loading, resolve_model
from retrievers.retriever import FIRST_RANK, RetrieverError, SearchText, distinct, named, unknown

KINDS = ("cross_encoder", "bi_encoder", "none")
COMBINE = ("replace", "blend")
BLEND_K = 20
_CHUNK = 4096  # pairs tokenised and sorted by length at a time: bounds memory
# Tokens of a forward, padding included. Two CPU cores, 120 pairs of SciFact: 12.7 pairs/s with 2,048 tokens, 16.2 with
# 4,096, 14.6 with 8,192, 12.0 with 32,768 (small batches stay in the cache and hardly pad).
_TOKENS = {"cpu": 4096, "cuda": 65_536}
# The same pair scored in another batch differed by up to 6e-6 (CPU, fp32, MiniLM): rounding hides nearly all of it, so
# that two runs of one job give equal rows, and a pair that stands there twice ties. On a GPU in half precision the
# differences are larger than this; compare such scores with a tolerance.
_DECIMALS = 4


@runtime_checkable
class Reranker(Protocol):
    """Scores pairs; higher is more relevant. Loaded where it is used."""

    def score(self, queries: Sequence[str], passages: Sequence[str]) -> np.ndarray:
        """One score per pair: shape (n,), float64; no pairs: shape (0,)."""
        ...

    def identity(self) -> dict[str, Any]:
        """What decides the scores; plain JSON values."""
        ...


class Reranked(NamedTuple):
    """A result: ``score`` is what it is ranked by (the reranker's, or the blend)."""

    doc_id: str
    score: float
    fused_score: float


def open_reranker(settings: Mapping[str, Any], device: str = "cpu") -> Reranker | None:
    """The scorer that the config's ``rerank`` block describes; None for ``kind: none``.

    ``cross_encoder``: model, max_length (tokens of query and passage, default 512). ``bi_encoder``: an ``encoder``
    block, or the keys of one beside ``kind``: the cosine of query and passage.

    Raises:
        RetrieverError: unknown kind; no such model, or one that is no cross-encoder.
    """
    encoder = _checked(settings)
    if settings["kind"] == "none":
        return None
    if encoder is not None:
        return BiEncoder(encoder, device)
    return CrossEncoder(*_cross_settings(settings), device=device)


def reranker_identity(settings: Mapping[str, Any]) -> dict[str, Any]:
    """What `Reranker.identity` would say, without loading the model.

    Raises:
        RetrieverError: unknown kind; no such model.
    """
    encoder = _checked(settings)
    if settings["kind"] == "none":
        return {"kind": "none"}
    if encoder is not None:
        with named("rerank.encoder"):
            return {"kind": "bi_encoder", "encoder": encoder_identity(encoder)}
    return _cross_identity(*_cross_settings(settings))


def _checked(settings: Mapping[str, Any]) -> EncoderSettings | None:
    """The encoder of a ``bi_encoder``, None for the other kinds."""
    kind = settings.get("kind")
    if kind not in KINDS:
        raise RetrieverError(f"rerank: {unknown('kind', kind, KINDS)}")
    if kind == "bi_encoder":
        keys = {*EncoderSettings._fields, "batch_size"}
        with named("rerank.encoder"):
            return encoder_settings(settings.get("encoder") or {k: v for k, v in settings.items() if k in keys})
    if kind == "cross_encoder" and not settings.get("model"):
        raise RetrieverError("rerank: no model is named; give rerank.model a folder, package:NAME or a hub name")
    return None


def _cross_settings(settings: Mapping[str, Any]) -> tuple[str, int, str]:
    return str(settings["model"]), int(settings.get("max_length") or 512), str(settings.get("dtype") or "float32")


def _cross_identity(model: str, max_length: int, dtype: str) -> dict[str, Any]:
    with named("rerank.model"):
        folder, identity = local_folder(model), model_identity(model)
    if folder is not None:  # a hub's model is looked at when it is loaded
        _check_positions(model, folder, max_length)
        _check_labels(model, folder)
    return {"kind": "cross_encoder", "model": identity, "max_length": max_length, "dtype": dtype}


def _check_positions(model: str, folder: Path, max_length: int) -> None:
    positions = own_positions(folder)
    if not 16 <= max_length <= positions:
        raise RetrieverError(f"rerank: max_length {max_length} does not fit {model}; give 16 to {positions}")


def _check_labels(model: str, folder: Path) -> None:
    said = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    labels = len(said.get("id2label") or {"0": ""})
    if labels != 1:
        raise RetrieverError(f"rerank: model {model} has {labels} labels, a reranker has 1; name another")


class CrossEncoder:
    """A BGE-style cross-encoder: one logit per pair, equal to FlagEmbedding's FlagReranker (the oracle in the tests).

    Its own loop because FlagReranker, on transformers 5, decodes and tokenises every pair twice, one at a time. Cost:
    one tokenizer call per some thousand pairs, one forward per length-sorted batch.
    """

    def __init__(self, model: str, max_length: int = 512, dtype: str = "float32", device: str = "cpu") -> None:
        """
        Args:
            max_length: tokens of a pair; the query gets three quarters at most, then the passage is cut.
            dtype: "float32", or on a GPU "float16" or "bfloat16".

        Raises:
            RetrieverError: no such model; not loadable; more than one label; more tokens than it has positions for.
        """
        if dtype not in ("float32", "float16", "bfloat16"):
            raise RetrieverError(f"rerank: {unknown('dtype', dtype, ('float32', 'float16', 'bfloat16'))}")
        folder = resolve_model(model)
        _check_positions(model, folder, max_length)
        import torch
        from transformers import AutoModelForSequenceClassification, AutoTokenizer

        quiet_loading()
        try:
            self._tokenizer: Any = AutoTokenizer.from_pretrained(str(folder), local_files_only=True)
            net, report = AutoModelForSequenceClassification.from_pretrained(
                str(folder), dtype=getattr(torch, dtype), local_files_only=True, output_loading_info=True
            )
        except Exception as e:  # corrupt weights, an architecture unknown here
            line = " ".join(str(e).split())[:300]
            raise RetrieverError(f"rerank: model {model} cannot be loaded: {type(e).__name__}: {line}; name another") from e
        if report["missing_keys"]:
            missing = ", ".join(sorted(report["missing_keys"])[:3])
            raise RetrieverError(f"rerank: model {model} is no cross-encoder: its weights lack {missing}; name another")
        if net.config.num_labels != 1:
            raise RetrieverError(f"rerank: model {model} has {net.config.num_labels} labels, a reranker has 1; name another")
        try:
            self._net: Any = net.to(device).eval()
        except (RuntimeError, AssertionError) as e:
            raise RetrieverError(
                f"rerank: no device {device} here: {' '.join(str(e).split())[:200]}; set cluster.rerank.gpus: 0"
            ) from e
        self._device = device
        self._model, self._max_length, self._dtype = model, max_length, dtype
        self._tokens = _TOKENS["cpu" if device == "cpu" else "cuda"]

    def identity(self) -> dict[str, Any]:
        """The weights, the length and the precision."""
        return _cross_identity(self._model, self._max_length, self._dtype)

    def score(self, queries: Sequence[str], passages: Sequence[str]) -> np.ndarray:
        """The logit of each pair, rounded; a pair that is there twice is scored once.

        Raises:
            ValueError: not as many queries as passages.
        """
        once, inverse = distinct(list(zip(queries, passages, strict=True)))
        if not once:
            return np.empty(0)
        short = self._cut(queries)
        scores = np.empty(len(once))
        for start in range(0, len(once), _CHUNK):
            pairs = [(short[query], passage) for query, passage in once[start : start + _CHUNK]]
            scores[start : start + len(pairs)] = self._forward(pairs)
        rounded: np.ndarray = np.round(scores, _DECIMALS)[inverse] + 0.0
        return rounded

    def _cut(self, queries: Sequence[str]) -> dict[str, str]:
        """Each distinct query, at most three quarters of the length, by way of its tokens as FlagReranker does it.

        A query that leaves the passage no room makes ``only_second`` fail for the whole call. Text made of tokens may
        have more tokens than it was made of, so what was cut is counted again.
        """
        once = list(dict.fromkeys(queries))
        room = self._max_length - self._tokenizer.num_special_tokens_to_add(pair=True) - 1
        limit = min(self._max_length * 3 // 4, room)
        short = {}
        for query, ids in zip(once, self._ids(once, limit + 1), strict=True):
            short[query] = query
            keep = limit if len(ids) > limit else len(ids)
            while keep < len(ids):
                short[query] = self._tokenizer.decode(ids[:keep], skip_special_tokens=False, clean_up_tokenization_spaces=False)
                if len(self._ids([short[query]], room + 1)[0]) <= room:
                    break
                keep = keep * 3 // 4
        return short

    def _ids(self, texts: list[str], limit: int) -> list[list[int]]:
        encoded = self._tokenizer(texts, add_special_tokens=False, truncation=True, max_length=limit)
        ids: list[list[int]] = encoded["input_ids"]
        return ids

    def _forward(self, pairs: Sequence[tuple[str, str]]) -> np.ndarray:
        import torch

        encoded = self._tokenizer(
            [query for query, _ in pairs],
            [passage for _, passage in pairs],
            truncation="only_second",
            max_length=self._max_length,
            return_attention_mask=False,
        )
        lengths = np.array([len(ids) for ids in encoded["input_ids"]])
        scores = np.empty(len(pairs))
        with torch.inference_mode():
            for part in length_batches(lengths, self._tokens):
                one = {key: [values[i] for i in part] for key, values in encoded.items()}
                batch = self._tokenizer.pad(one, return_tensors="pt").to(self._device)
                scores[part] = self._net(**batch).logits.view(-1).float().cpu().numpy()
        return scores


class BiEncoder:
    """The cosine of the query's and the passage's vectors; each distinct text is encoded once per call."""

    def __init__(self, settings: EncoderSettings, device: str = "cpu") -> None:
        """
        Raises:
            RetrieverError: no such model, or its files cannot be loaded.
        """
        self._settings = settings
        self._encoder = Encoder(settings, device)

    def identity(self) -> dict[str, Any]:
        """The encoder."""
        return {"kind": "bi_encoder", "encoder": encoder_identity(self._settings)}

    def score(self, queries: Sequence[str], passages: Sequence[str]) -> np.ndarray:
        """The cosine of each pair, rounded.

        Raises:
            ValueError: not as many queries as passages.
        """
        if len(queries) != len(passages):
            raise ValueError(f"{len(queries)} queries, {len(passages)} passages")
        left = self._encoder.encode([SearchText(query, "query") for query in queries])
        right = self._encoder.encode([SearchText(passage, "passage") for passage in passages])
        cosines: np.ndarray = np.round(np.einsum("nd,nd->n", left, right).astype(np.float64), _DECIMALS) + 0.0
        return cosines


def length_batches(lengths: np.ndarray, tokens: int) -> Iterator[np.ndarray]:
    """Places of pairs, longest first, in batches of at most ``tokens`` tokens with padding (one pair at least).

    Longest first: what does not fit in memory fails at once, not at the end.
    """
    order = np.argsort(-lengths, kind="stable")
    start = 0
    while start < len(order):
        size = max(1, tokens // max(1, int(lengths[order[start]])))
        yield order[start : start + size]
        start += size


def combine(
    doc_ids: Sequence[str], fused_scores: Sequence[float], scores: Sequence[float], how: str = "blend", keep: int = 10
) -> list[Reranked]:
    """The results: candidates in a new order, best first, equal ones by doc_id.

    - ``replace``: by the reranker's score alone.
    - ``blend``: by 1 / (20 + rank by reranker) + 1 / (20 + rank by fusion), both ranks from 1.

    A candidate whose score is NaN ranks last with the reranker (its score in ``replace`` is then -inf, which sorts).

    Args:
        doc_ids: the candidates in fused order.
        fused_scores, scores: theirs by fusion and by the reranker.
        keep: how many results.

    Raises:
        RetrieverError: ``how`` is neither.
        ValueError: lists of different lengths.
    """
    if how not in COMBINE:
        raise RetrieverError(f"rerank.combine: {unknown('combine', how, COMBINE)}")
    numbers = [-math.inf if math.isnan(score) else float(score) for score in scores]
    rows = list(zip(doc_ids, fused_scores, numbers, strict=True))
    by_reranker = sorted(rows, key=lambda row: (-row[2], row[0]))
    if how == "replace":
        return [Reranked(doc_id, score, fused) for doc_id, fused, score in by_reranker[: max(0, keep)]]
    rank = {row[0]: place for place, row in enumerate(by_reranker, FIRST_RANK)}
    blended = [
        Reranked(doc_id, round(1 / (BLEND_K + rank[doc_id]) + 1 / (BLEND_K + place), 12), fused)
        for place, (doc_id, fused, _) in enumerate(rows, FIRST_RANK)
    ]
    return sorted(blended, key=lambda hit: (-hit.score, hit.doc_id))[: max(0, keep)]
