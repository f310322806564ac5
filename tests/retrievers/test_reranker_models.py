"""Rerankers as they were made: scores are those of transformers' own classes, with the template of the model's card."""

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cluster.errors import RetrieverError
from retrievers.reranker import open_reranker, reranker_identity
from retrievers.settings import RerankSettings
from tests.support.params import rest_slow
from tests.support.retrievers.tiny_encoders import COMMON, NETWORKS
from tests.support.retrievers.tiny_reranker import make_tokenizer

PASSAGES = [
    "Sour dough rises slowly because wild yeast is in no hurry.",
    "The moon pulls the sea twice a day, and harbours fill.",
    "",
    "A mirror gathers the light of faint galaxies. " * 30,  # longer than the model takes
]
QUERIES = ["why does sour dough rise", "tides"]
PAIRS = [(query, passage) for query in QUERIES for passage in PASSAGES]
# As on the card of Qwen/Qwen3-Reranker-0.6B
BEFORE = (
    "<|im_start|>system\nJudge whether the Document meets the requirements based on the Query and the Instruct provided. Note "
    'that the answer can only be "yes" or "no".<|im_end|>\n<|im_start|>user\n'
)
AFTER = "<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n"
TASK = "Given a web search query, retrieve relevant passages that answer the query"
ENCODERS = ["bert", "xlm-roberta", "roberta", "mpnet", "distilbert", "electra", "albert", "deberta-v2", "modernbert"]
LENGTH = 400


def make(folder: Path, kind: str, network: str) -> str:
    """A tiny model with random weights of that class, in a folder."""
    import torch
    import transformers

    tokenizer = make_tokenizer([*PASSAGES, *QUERIES, BEFORE, AFTER, TASK, "<Instruct>: <Query>: <Document>: yes no"], LENGTH)
    if kind in ("qwen3", "qwen2", "gemma", "mistral"):  # their tokenizers write no special tokens
        tokenizer.backend_tokenizer.post_processor = None
        tokenizer.add_tokens(["yes", "no"])
        tokenizer.padding_side = "left"
    torch.manual_seed(0)
    sizes = {"max_position_embeddings": LENGTH * 8, "vocab_size": len(tokenizer), "num_labels": 1}
    config = transformers.AutoConfig.for_model(kind, **(COMMON | NETWORKS[kind] | sizes))
    getattr(transformers, network).from_config(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return str(folder)


def settings(model: str, **more: Any) -> RerankSettings:
    return RerankSettings(**({"kind": "cross_encoder", "model": model, "max_length": LENGTH} | more))


def scores(model: str, **more: Any) -> np.ndarray:
    opened = open_reranker(settings(model, **more))
    assert opened is not None
    return opened.score(*zip(*PAIRS, strict=True))


def refusal(model: str, **more: Any) -> str:
    said = set()
    for act in (reranker_identity, open_reranker):
        with pytest.raises(RetrieverError) as error:
            act(settings(model, **more))
        said.add(str(error.value))
    (words,) = said
    assert "\n" not in words
    return words


def on_the_card(folder: str, network: str) -> np.ndarray:
    """The log-odds by the card's own steps, one pair at a time: body cut, template around it, last position."""
    import torch
    import transformers

    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    net = getattr(transformers, network).from_pretrained(folder, dtype=torch.float32).eval()
    net.config.pad_token_id = tokenizer.pad_token_id
    before, after = (tokenizer.encode(text, add_special_tokens=False) for text in (BEFORE, AFTER))
    found = []
    for query, passage in PAIRS:
        body = f"<Instruct>: {TASK}\n<Query>: {query}\n<Document>: {passage}"
        ids = tokenizer(body, truncation="longest_first", max_length=LENGTH - len(before) - len(after))["input_ids"]
        with torch.inference_mode():
            logits = net(torch.tensor([before + ids + after])).logits
        if network.endswith("CausalLM"):
            two = logits[0, -1, [tokenizer.convert_tokens_to_ids("no"), tokenizer.convert_tokens_to_ids("yes")]]
            found.append(float(torch.nn.functional.log_softmax(two, dim=0)[1].exp()))
        else:
            found.append(float(logits.view(-1)[0]))
    return np.array(found)


@pytest.mark.parametrize("kind", rest_slow(ENCODERS, ["xlm-roberta"]))
def test_cross_encoders_are_those_of_transformers(tmp_path: Path, kind: str) -> None:
    import torch
    import transformers

    folder = make(tmp_path, kind, "AutoModelForSequenceClassification")
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    net = transformers.AutoModelForSequenceClassification.from_pretrained(folder, dtype=torch.float32).eval()
    expected = []
    for query, passage in PAIRS:
        pair = tokenizer([query], [passage], truncation="only_second", max_length=LENGTH, return_tensors="pt")
        with torch.inference_mode():
            expected.append(float(net(**pair).logits.view(-1)[0]))
    assert np.std(expected) > 0.01
    np.testing.assert_allclose(scores(folder), expected, atol=2e-4)
    assert "architecture" not in reranker_identity(settings(folder))


@pytest.mark.slow
@pytest.mark.parametrize("network", ["AutoModelForCausalLM", "AutoModelForSequenceClassification"])
def test_qwen3_rerankers_have_their_template(tmp_path: Path, network: str) -> None:
    folder = make(tmp_path / "Qwen3-Reranker-tiny", "qwen3", network)
    expected = on_the_card(folder, network)
    found = scores(folder)
    assert np.std(expected) > 1e-3
    if network.endswith("CausalLM"):
        found = 1 / (1 + np.exp(-found))
    np.testing.assert_allclose(found, expected, atol=2e-4)
    identity = reranker_identity(settings(folder))
    assert (identity["architecture"], identity["template"]) == ("qwen3", 1)
    asked = scores(folder, prompt="Given a tide, find what the moon does")
    assert np.abs(asked - scores(folder)).max() > 1e-3


@pytest.mark.parametrize("mark", ["name", "template", "conversion"])
def test_marks_of_a_qwen3_reranker(tmp_path: Path, mark: str) -> None:
    folder = Path(make(tmp_path / "llm", "qwen3", "AutoModelForCausalLM"))
    assert "is a language model (Qwen3ForCausalLM), and its files do not say with what question" in refusal(str(folder))
    if mark == "name":
        folder = Path(shutil.move(folder, tmp_path / "qwen3-reranker-0.6b"))
    elif mark == "template":
        (folder / "chat_template.jinja").write_text("<Instruct>: {{ messages[0] }} <Query>: <Document>: {{ messages[1] }}")
    else:
        config = json.loads((folder / "config.json").read_text())
        (folder / "config.json").write_text(json.dumps(config | {"is_original_qwen3_reranker": True}))
    assert reranker_identity(settings(str(folder)))["architecture"] == "qwen3"


def test_a_long_query_leaves_room_for_its_passage(tmp_path: Path) -> None:
    folder = make(tmp_path / "qwen3-reranker", "qwen3", "AutoModelForCausalLM")
    opened = open_reranker(settings(folder))
    assert opened is not None
    long = "sour dough rises " * 100
    one, other = opened.score([long, long], PASSAGES[:2])
    assert one != other
    with pytest.raises(RetrieverError, match="max_length 16 leaves too little beside the template"):
        open_reranker(settings(folder, max_length=16))


@pytest.mark.parametrize(
    ("kind", "network"),
    [
        ("mistral", "AutoModelForCausalLM"),
        ("qwen2", "AutoModelForSequenceClassification"),
        ("qwen3", "AutoModelForSequenceClassification"),
    ],
)
def test_no_question_is_guessed(tmp_path: Path, kind: str, network: str) -> None:
    assert "name another, or score with a class of your own" in refusal(make(tmp_path / "llm", kind, network))
