"""Encoding and reranking beside a bare length-sorted forward pass, and beside FlagEmbedding's own calls."""

import torch
from flagembedding_speed import BARE, RERANKER, Contestants, encoders, pairs, rerankers
from recorded_sets import shared

from limits.rounds import GOAL, Row, interleaved

DTYPE, DEVICE = "float32", "cpu"


def measure(quick: bool) -> list[Row]:
    """Returns the rows of encoding passages and queries, and of reranking pairs."""
    queries, passages = pairs(shared(), 12 if quick else 64)
    texts = list(dict.fromkeys([*passages, *queries]))
    where = f"{DTYPE}, {torch.get_num_threads()} threads"
    measured: list[tuple[str, str, int, Contestants]] = [
        (f"encoding, {where}", "texts", len(texts), encoders(texts, DTYPE, DEVICE)),
        (
            f"reranking, {where}",
            "pairs",
            len(passages),
            rerankers(str(shared() / RERANKER), queries, passages, DTYPE, DEVICE),
        ),
    ]
    rows = []
    for what, unit, amount, each in measured:
        spent = interleaved(each, 1 if quick else 3)
        others = [name for name in each if name != "ours"]
        rows += [
            Row(what, name, amount, unit, spent["ours"], spent[name], GOAL if name == BARE else 1.0)
            for name in sorted(others, key=lambda one: one != BARE)
        ]
    return rows
