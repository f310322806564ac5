"""Forward passes: logits and vectors are transformers', without padding nearly so, on a CPU with attention of its own."""

import json
import time
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from retrievers.batches import length_batches, made_ahead, packed_batches
from retrievers.encoder import Encoder
from retrievers.encoders.bert import open_bert
from retrievers.encoders.forward import Padded, Unpadded, open_passes
from retrievers.rerankers.cross_encoder import CrossEncoder
from retrievers.retriever import SearchText
from retrievers.settings import EncoderSettings, RerankSettings
from tests.support.retrievers.tiny_encoders import COMMON, DIM, NETWORKS, TOKENS
from tests.support.retrievers.tiny_reranker import make_reranker, make_tokenizer

KINDS = ("bert", "roberta", "xlm-roberta")
TEXTS = ["yeast is in no hurry", "tides", "", "the moon pulls the sea " * 30, "a <pad> stands in this text", "<pad>"]
CLASSES = ("AutoModelForSequenceClassification", "AutoModel")


def of_each_text(query: Any, key: Any, value: Any, bounds: Any, longest: int) -> Any:
    """Returns what FlashAttention gives, one text at a time."""
    import torch

    made = []
    for begin, end in zip(bounds[:-1].tolist(), bounds[1:].tolist(), strict=True):
        assert 0 < end - begin <= longest
        rows = [states[begin:end].transpose(0, 1)[None] for states in (query, key, value)]
        made.append(torch.nn.functional.scaled_dot_product_attention(*rows)[0].transpose(0, 1))
    return torch.cat(made)


@pytest.fixture(scope="module")
def tokenizer() -> Any:
    return make_tokenizer(TEXTS, TOKENS)


def make(kind: str, tokenizer: Any, folder: Path) -> dict[str, tuple[Any, Any]]:
    """A cross-encoder and an encoder, as transformers and as this project opens them."""
    import torch
    import transformers

    sizes = COMMON | NETWORKS[kind] | {"vocab_size": len(tokenizer), "num_labels": 1}
    config = transformers.AutoConfig.for_model(kind, **sizes)
    torch.manual_seed(0)
    networks: dict[str, list[Any]] = {"theirs": [], "ours": []}
    for name in CLASSES:
        getattr(transformers, name).from_config(config).save_pretrained(folder / name)
        networks["theirs"].append(getattr(transformers, name).from_pretrained(folder / name).eval())
        networks["ours"].append(open_bert(folder / name, name == CLASSES[0], torch.float32))
    return {whose: (scorer, body) for whose, (scorer, body) in networks.items()}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("tokens", [1, 40, 10**6])
def test_padded_gives_what_transformers_gives_and_unpadded_nearly(
    tokenizer: Any, kind: str, tokens: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import torch

    monkeypatch.setattr("retrievers.encoders.forward._flash_attention", of_each_text)
    encoded = tokenizer(TEXTS, truncation=True, max_length=TOKENS, return_attention_mask=False)
    lengths = np.array([len(ids) for ids in encoded["input_ids"]])
    ways: dict[str, dict[str, np.ndarray]] = {}
    for whose, networks in make(kind, tokenizer, tmp_path).items():
        ways[whose] = {}
        for way in ("padded", "unpadded")[: 1 + (whose == "ours")]:
            scorer, body = (
                Padded(network, tokenizer, "cpu", tokens) if way == "padded" else Unpadded(network, "cpu", tokens)
                for network in networks
            )
            values = ways[whose if way == "padded" else way] = {"logits": np.empty((len(TEXTS), 1))}
            values |= {pooling: np.empty((len(TEXTS), DIM)) for pooling in ("cls", "last", "mean")}
            with torch.inference_mode():
                for part in scorer.batches(lengths):
                    values["logits"][part] = scorer.logits(encoded, part).numpy()[:, None]
                    for pooling in ("cls", "last", "mean"):
                        values[pooling][part] = body.pooled(encoded, part, pooling).numpy()
    for what, expected in ways["theirs"].items():
        np.testing.assert_array_equal(ways["ours"][what], expected, err_msg=what)
        np.testing.assert_allclose(ways["unpadded"][what], expected, atol=1e-5, err_msg=what)
        assert np.ptp(expected, axis=0).min() > 1e-3, what


def test_only_networks_that_can_are_unpadded(monkeypatch: pytest.MonkeyPatch, tokenizer: Any, tmp_path: Path) -> None:
    import torch

    networks = make("bert", tokenizer, tmp_path)
    capability = (9, 0)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: capability)
    assert isinstance(open_passes(networks["ours"][0], tokenizer, "cuda:0", 64), Padded), "float32"
    network = open_bert(tmp_path / CLASSES[0], True, torch.float16)
    assert network is not None
    assert isinstance(open_passes(network, tokenizer, "cpu", 64), Padded)
    capability = (7, 5)
    assert isinstance(open_passes(network, tokenizer, "cuda:0", 64), Padded), "before Ampere"
    capability = (9, 0)
    assert isinstance(open_passes(network, tokenizer, "cuda:0", 64), Unpadded)
    network.config.num_attention_heads = 8
    assert isinstance(open_passes(network, tokenizer, "cuda:0", 64), Padded), "heads of 4"
    assert isinstance(open_passes(networks["theirs"][0].half(), tokenizer, "cuda:0", 64), Padded), "a network of transformers"


SPECIAL = {"is_decoder": True, "hidden_act": "relu", "model_type": "electra", "auto_map": {}, "pad_token_id": ...,
           "position_embedding_type": "relative_key"}  # fmt: skip


@pytest.mark.parametrize("key", SPECIAL)
def test_networks_with_more_are_left_to_transformers(tokenizer: Any, tmp_path: Path, key: str) -> None:
    import torch

    make("bert", tokenizer, tmp_path)
    assert open_bert(tmp_path / "AutoModel", True, torch.float32) is None, "without a head"
    file = tmp_path / "AutoModel" / "config.json"
    values = json.loads(file.read_text()) | {key: SPECIAL[key]}
    file.write_text(json.dumps({name: value for name, value in values.items() if value is not ...}))
    assert open_bert(tmp_path / "AutoModel", False, torch.float32) is None


@pytest.mark.parametrize("tokens", [1, 64, 300, 10**6])
@pytest.mark.parametrize("batches_of", [packed_batches, length_batches])
def test_batches_are_full_and_longest_first(batches_of: Any, tokens: int) -> None:
    def size(part: np.ndarray) -> int:
        return int(lengths[part].sum() if batches_of is packed_batches else lengths[part].max() * len(part))

    lengths = np.random.default_rng(1).integers(1, 100, 200)
    batches = list(batches_of(lengths, tokens))
    assert sorted(np.concatenate(batches).tolist()) == list(range(200))
    assert all(len(part) == 1 or size(part) <= tokens for part in batches)
    for part, after in pairwise(batches):
        assert size(np.append(part, after[0])) > tokens, "it is full"
    assert [int(one) for one in lengths[np.concatenate(batches)]] == sorted(lengths.tolist(), reverse=True)
    assert list(batches_of(np.array([], dtype=int), tokens)) == []


def test_the_next_one_is_made_meanwhile() -> None:
    began: list[int] = []

    def make_one(number: int) -> int:
        began.append(number)
        if number == 3:
            raise ValueError("three")
        return number * 10

    found = made_ahead(make_one, range(5))
    assert next(found) == 0
    for _ in range(100):
        time.sleep(0.01 * (1 not in began))
    assert began == [0, 1], "one, and no more"
    assert [next(found), next(found)] == [10, 20]
    with pytest.raises(ValueError, match="three"):
        next(found)
    assert list(made_ahead(make_one, [])) == []


def test_heads_see_the_side_that_their_tokenizer_pads() -> None:
    """XLNet's reads the last position, where padding on the right would stand."""
    import torch
    import transformers

    left = make_tokenizer(TEXTS, TOKENS)
    left.padding_side = "left"
    config = transformers.XLNetConfig(
        vocab_size=len(left), d_model=DIM, n_layer=1, n_head=2, d_inner=64, num_labels=1, pad_token_id=1, initializer_range=0.3
    )
    torch.manual_seed(0)
    network = transformers.XLNetForSequenceClassification(config).eval()
    encoded = left(TEXTS[:4], return_attention_mask=False)
    passes = Padded(network, left, "cpu", 10**6)
    with torch.inference_mode():
        together = passes.logits(encoded, np.arange(4)).numpy()
        alone = [float(passes.logits(encoded, np.array([place]))[0]) for place in range(4)]
    np.testing.assert_allclose(together, alone, atol=1e-4)


def test_chunks_are_as_one_text_after_the_other(
    encoder_block: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of encoder and reranker, with texts that come twice."""
    texts = [f"{'tides and harbours ' * (number % 7)}{number % 11}" for number in range(15)]
    encoder = Encoder(EncoderSettings(**encoder_block))
    reranker = CrossEncoder(RerankSettings(kind="cross_encoder", model=str(make_reranker(tmp_path, TEXTS)), max_length=64))
    found = []
    for chunk in (1024, 2):
        monkeypatch.setattr("retrievers.encoder.CHUNK", chunk)
        monkeypatch.setattr("retrievers.rerankers.cross_encoder.CHUNK", chunk)
        found.append((encoder.encode([SearchText(text) for text in texts]), reranker.score(texts[::-1], texts)))
    for whole, parts in zip(*found, strict=True):
        np.testing.assert_allclose(parts, whole, atol=1e-4)
        assert len(np.unique(whole.round(3), axis=0)) > 3
