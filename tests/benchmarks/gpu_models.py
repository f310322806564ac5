"""Reranker and encoder on a GPU, beside FlagEmbedding, sentence-transformers, a bare loop and the chip itself.

    DMQR_SHARED=FOLDER python tests/benchmarks/gpu_models.py [--rounds 3] [--pairs FILE] [--write-pairs FILE]

The shapes are those of bge-reranker-v2-m3 (XLM-RoBERTa, 24 layers of 1,024) and bge-base-en (BERT, 12 layers of 768) with
random weights, the texts SciFact's recorded queries with their BM25 candidates, in float16. The chip is a product of two
matrices of 8,192 x 8,192 in float16; a model's share of it is by the operations that its texts need, without padding. On a
machine without the data, `--pairs` reads what `--write-pairs` wrote on another one.
"""

import argparse
import json
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from flagembedding_speed import FLAG_MODEL, FLAG_RERANKER, Contestants, encoders, pairs, rerankers
from limits.rounds import interleaved
from recorded_sets import shared
from results import measured_on, table

from retrievers.batches import CHUNK, made_ahead
from retrievers.reranker import open_reranker
from retrievers.settings import RerankSettings

PAIRS, LENGTH = 5000, 512
DEVICE = "cuda:0" if torch.cuda.is_available() else "cpu"
PEERS = "sentence-transformers, batches of 256"
SHAPES: dict[str, dict[str, Any]] = {
    "xlm-roberta": {
        "vocab_size": 250_002, "hidden_size": 1024, "num_hidden_layers": 24, "num_attention_heads": 16, "num_labels": 1,
        "intermediate_size": 4096, "max_position_embeddings": 8194, "type_vocab_size": 1, "pad_token_id": 1,
    },
    "bert": {"pad_token_id": 1},  # its defaults are those of the base model
}  # fmt: skip


def main() -> None:
    """Prints the section."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--pairs", type=Path, help="of --write-pairs")
    parser.add_argument("--write-pairs", type=Path)
    parser.add_argument("--most", type=int, default=PAIRS, help="pairs")
    options = parser.parse_args()
    read = json.loads(options.pairs.read_text(encoding="utf-8")) if options.pairs else pairs(shared(), PAIRS)
    if options.write_pairs:
        options.write_pairs.write_text(json.dumps(read), encoding="utf-8")
        return
    queries, passages = (one[: options.most] for one in read)
    chip = chip_rate()
    device = torch.cuda.get_device_name() if DEVICE != "cpu" else "a CPU"
    print(measured_on(["torch", "transformers", "FlagEmbedding", "sentence-transformers"]))
    print(f"{device}: {chip / 1e12:.0f} TFLOP/s of a matrix product.\n", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        scorer, encoder = made(Path(folder), "xlm-roberta", passages), made(Path(folder), "bert", passages)
        rows = measured("pairs", len(queries), reranking(scorer, queries, passages), options.rounds)
        rows += tokenising(scorer, queries, passages)
        texts = list(dict.fromkeys([*passages, *queries]))
        rows += measured("texts", len(texts), encoding(encoder, texts), options.rounds)
        work = {"pairs": operations(scorer, queries, passages), "texts": operations(encoder, texts)}
    print(table(["what", "seconds", "a second", "of the chip"], (of_chip(*row, work, chip) for row in rows)))


def chip_rate() -> float:
    """Operations a second of a matrix product in half precision."""
    size, times = (8192, 20) if DEVICE != "cpu" else (512, 2)
    left, right = (torch.randn(size, size, device=DEVICE, dtype=torch.float16) for _ in range(2))
    rounds = interleaved({"chip": lambda: finished([left @ right for _ in range(times)])}, 3)
    return 2 * size**3 * times / rounds["chip"].seconds


def finished(made: Any) -> Any:
    """Waits for the device."""
    if DEVICE != "cpu":
        torch.cuda.synchronize()
    return made


def made(folder: Path, kind: str, passages: Sequence[str]) -> str:
    """A model of the shape with random weights, large enough to tell texts apart, and a tokenizer made of the passages."""
    import tokenizers
    import transformers
    from tokenizers import decoders, models, pre_tokenizers, processors, trainers

    tokenizer = tokenizers.Tokenizer(models.Unigram())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Metaspace()])
    tokenizer.decoder = decoders.Metaspace()
    special = ["<s>", "<pad>", "</s>", "<unk>"]
    trainer = trainers.UnigramTrainer(vocab_size=30_000, special_tokens=special, unk_token="<unk>", show_progress=False)
    tokenizer.train_from_iterator(passages, trainer)
    tokenizer.post_processor = processors.TemplateProcessing(
        single="<s> $A </s>", pair="<s> $A </s> </s> $B </s>", special_tokens=[("<s>", 0), ("</s>", 2)]
    )
    transformers.PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, cls_token="<s>", sep_token="</s>", pad_token="<pad>", unk_token="<unk>",
        model_max_length=LENGTH, model_input_names=["input_ids", "attention_mask"],
    ).save_pretrained(folder / kind)  # fmt: skip
    config = transformers.AutoConfig.for_model(kind, **SHAPES[kind])
    loader = transformers.AutoModelForSequenceClassification if "num_labels" in SHAPES[kind] else transformers.AutoModel
    torch.manual_seed(0)
    with torch.device(DEVICE):
        network = loader.from_config(config)
    with torch.no_grad():
        for name, weight in network.named_parameters():
            if weight.ndim == 2 and "embeddings" not in name:
                weight.mul_(30.0 if weight.shape[0] == 1 else 1.5)
    network.half().save_pretrained(folder / kind)
    return str(folder / kind)


def reranking(model: str, queries: list[str], passages: list[str]) -> Contestants:
    """All that score pairs."""
    from sentence_transformers import CrossEncoder

    peer = CrossEncoder(
        model, device=DEVICE, max_length=LENGTH, model_kwargs={"dtype": "float16"}, activation_fn=torch.nn.Identity()
    )
    both = list(zip(queries, passages, strict=True))
    return rerankers(model, queries, passages, "float16", DEVICE) | {
        PEERS: lambda: np.asarray(peer.predict(both, batch_size=256, show_progress_bar=False))
    }


def encoding(model: str, texts: list[str]) -> Contestants:
    """All that make vectors."""
    from sentence_transformers import SentenceTransformer, models

    body = models.Transformer(model, max_seq_length=LENGTH, model_kwargs={"dtype": torch.float16})
    peer = SentenceTransformer(modules=[body, models.Pooling(768, "cls")], device=DEVICE)
    return encoders(texts, "float16", DEVICE, model=model, pooling="cls") | {
        PEERS: lambda: peer.encode(texts, batch_size=256, normalize_embeddings=True, show_progress_bar=False)
    }


def measured(unit: str, amount: int, each: Contestants, rounds: int) -> list[tuple[str, str, int, float]]:
    """(who, unit, amount, seconds) of each; says by how much results differ."""
    results = {name: run() for name, run in each.items()}
    for name in each.keys() - {"ours", FLAG_MODEL, FLAG_RERANKER}:
        apart = float(np.abs(results["ours"] - results[name]).max())
        print(f"{unit}: at most {apart:.3f} from {name}, where results have a deviation of {results['ours'].std():.3f}")
    print(flush=True)
    return [(name, unit, amount, one.seconds) for name, one in interleaved(each, rounds).items()]


def tokenising(model: str, queries: list[str], passages: list[str]) -> list[tuple[str, str, int, float]]:
    """Times our tokenising alone."""
    ours: Any = open_reranker(RerankSettings(**{"kind": "cross_encoder", "model": model, "max_length": LENGTH}), device=DEVICE)
    both = list(zip(queries, passages, strict=True))
    chunks = [both[begin : begin + CHUNK] for begin in range(0, len(both), CHUNK)]
    alone = interleaved({"ours": lambda: list(made_ahead(ours._encoded, chunks))}, 1)["ours"]
    return [("ours, tokenising alone", "pairs", len(both), alone.seconds)]


def operations(model: str, texts: Sequence[str], pairs_with: Sequence[str] | None = None) -> float:
    """Those of the network's matrix products for these texts, or pairs of texts."""
    import transformers

    config = transformers.AutoConfig.from_pretrained(model)
    tokenizer = transformers.AutoTokenizer.from_pretrained(model)
    ids = tokenizer(list(texts), pairs_with and list(pairs_with), truncation=True, max_length=LENGTH)["input_ids"]
    tokens = np.array([len(one) for one in ids], dtype=np.float64)
    wide, inner = config.hidden_size, config.intermediate_size
    a_layer = 2 * (4 * wide**2 + 2 * wide * inner) * tokens + 4 * tokens**2 * wide
    return float(config.num_hidden_layers * a_layer.sum())


def of_chip(name: str, unit: str, amount: int, seconds: float, work: dict[str, float], chip: float) -> list[str]:
    """One line of the table."""
    share = "" if "tokenising" in name else f"{work[unit] / chip / seconds:.2f}"
    return [f"{amount:,} {unit}: {name}", f"{seconds:.2f}", f"{amount / seconds:,.0f}", share]


if __name__ == "__main__":
    sys.exit(main())
