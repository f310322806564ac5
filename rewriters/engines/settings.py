"""Settings of an engine: one frozen model per kind, told apart by `kind`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any, ClassVar, Literal
from urllib.parse import urlsplit

from pydantic import BeforeValidator, ConfigDict, Field, JsonValue, TypeAdapter

from cluster.errors import RewriterError
from cluster.settings import NOT_IDENTITY, Kinds, Names, Settings

Locate = Callable[[str, str, str | None], tuple[str, str]]
"""Key of the config, weights, and revision -> folder or hub name of the weights, and their identity."""
_JSON = TypeAdapter(dict[str, JsonValue], config=ConfigDict(allow_inf_nan=False))
VLLM_MEMORY = 0.92  # of each accelerator: default of gpu_memory_utilization in vLLM 0.32


class EngineSettings(Settings):
    """Of an engine: what other packages ask of any kind. Where a kind says nothing else, it is as here."""

    opener: ClassVar[str]  # `module:Class` of the engine, which takes the settings; `:Class`: of the module of the settings
    is_recorded: ClassVar[bool] = False  # True if its answers are there already: they cost nothing, and a request has one
    at_server: ClassVar[bool] = False  # True if a server answers, so that one worker is enough, and tokens have a price
    package: ClassVar[str | None] = None  # packages that must be installed where it computes
    goes_on: ClassVar[bool] = True  # True if it goes on with a text that is no message
    kind: str
    """Of the engine; of a plug-in an entry point, or `module:Class`."""

    @property
    def gpus(self) -> int:
        """Accelerators that one engine spans."""
        return 0

    @property
    def memory(self) -> float:
        """Share of the memory of each of them that it takes; 0: not known."""
        return 0.0

    @property
    def in_flight(self) -> int | None:
        """Requests that an engine works on at a time, at most; None: it needs no time for them."""
        return getattr(self, "max_in_flight", None)

    @property
    def counted_by(self) -> str:
        """The model whose tokenizer counts tokens."""
        return str(getattr(self, "weights", None) or getattr(self, "model", ""))

    @property
    def shown(self) -> str:
        """Its name for people: the model, or the kind where it has none."""
        return getattr(self, "model", None) or self.kind

    @property
    def asked_tier(self) -> str | None:
        """The tier of the provider's prices that is asked for; None: its standard one."""
        return None

    def longest_answer(self, max_tokens: int) -> int:
        """Returns the most tokens of an answer for which `max_tokens` are asked."""
        return max_tokens

    def located(self, locate: Locate) -> tuple[EngineSettings, dict[str, str]]:
        """Returns the settings with the places of weights that it loads, and what identifies these."""
        return self, {}


class VllmSettings(EngineSettings):
    """vLLM inside the workers."""

    opener: ClassVar[str] = "rewriters.engines.vllm.engine:VllmEngine"
    package: ClassVar[str | None] = "vllm"
    kind: Literal["vllm"]
    model: Annotated[str, NOT_IDENTITY, Names.MODEL]
    """Folder, hub name or `package:NAME`."""
    revision: Annotated[str, NOT_IDENTITY] = "main"
    """Branch, tag or commit of a hub's model, resolved to a commit when the run begins."""
    lora: Annotated[str | None, NOT_IDENTITY, Names.MODEL] = None
    """LoRA adapter: folder, hub name or NAME@REVISION."""
    reasoning_parser: Annotated[str | None, NOT_IDENTITY] = None
    """vLLM's parser of reasoning, such as deepseek_r1; null: by the model's type where that is certain."""
    timeout_seconds: Annotated[float, Field(gt=0), NOT_IDENTITY] = 600
    """Timeout of a request."""
    args: Annotated[dict[str, Any], NOT_IDENTITY] = {}
    """Further engine arguments of vLLM, such as max_model_len, tensor_parallel_size, quantization."""

    @property
    def gpus(self) -> int:
        return int(self.args.get("tensor_parallel_size", 1)) * int(self.args.get("pipeline_parallel_size", 1))

    @property
    def memory(self) -> float:
        """Share of each GPU's memory that vLLM takes when it starts."""
        return 0.0 if "kv_cache_memory_bytes" in self.args else float(self.args.get("gpu_memory_utilization", VLLM_MEMORY))

    @property
    def shown(self) -> str:
        lora = getattr(self, "lora_name", None) or self.lora
        return f"{self.model}+{lora}" if lora else self.model

    @property
    def in_flight(self) -> int:
        """Requests of a batch; without `max_num_seqs` as many as vLLM takes on the largest GPUs (256 on others: more wait)."""
        return int(self.args.get("max_num_seqs", 1024))

    def located(self, locate: Locate) -> tuple[LocatedVllmSettings, dict[str, str]]:
        values, identity = self.model_dump(), dict[str, str]()
        values["weights"], identity["weights"] = locate("model", self.model, self.revision)
        commit = identity["weights"].removeprefix("commit:")
        values["commit"] = commit if commit != identity["weights"] else None
        if self.lora:
            values["lora"], identity["lora_weights"] = locate("lora", self.lora, None)
            values["lora_name"] = self.lora
        return LocatedVllmSettings(**values), identity


class LocatedVllmSettings(VllmSettings):
    """The settings that workers are given: places of weights, under the names that the config has."""

    commit: str | None = None
    """Of a hub's model, takes the place of `revision`."""
    weights: str
    """Folder or hub name."""
    lora_name: str | None = None
    """The adapter as the config names it; `lora` is its folder."""
    devices: tuple[int, ...] | None = None
    """Accelerators that it computes on, counted among those of its worker; null: the first ones."""


class ServerEngineSettings(EngineSettings):
    """A model at a server."""

    at_server: ClassVar[bool] = True
    model: Annotated[str, Field(min_length=1)]
    """Name as the server lists it."""
    base_url: Annotated[str, NOT_IDENTITY]
    """Address, up to and with /v1."""
    api_key_env: Annotated[str | None, NOT_IDENTITY] = None
    """Environment variable with the key; null: none is needed."""
    max_in_flight: Annotated[int, Field(gt=0), NOT_IDENTITY] = 256
    """Largest number of concurrent requests of a worker; AIMD finds how many the server takes."""
    timeout_seconds: Annotated[float, Field(ge=0.001), NOT_IDENTITY] = 60
    """Timeout of one attempt of a request."""
    patience_minutes: Annotated[float, Field(gt=0), NOT_IDENTITY] = 10
    """Minutes for which a request waits for a server that is overloaded or away."""
    args: Annotated[dict[str, Any], BeforeValidator(_JSON.validate_python)] = {}
    """Further keys of the request's body."""

    @property
    def provider(self) -> str | None:
        """Returns the host of the server, with its port where the URL names one; without user and password."""
        return urlsplit(self.base_url).netloc.rpartition("@")[2] or None

    def longest_answer(self, max_tokens: int) -> int:
        """Returns the larger limit of those that are sent: `args` stand in place of what is asked."""
        sent = {"max_tokens": max_tokens} | self.args
        limits = [sent[name] for name in ("max_tokens", "max_completion_tokens") if isinstance(sent.get(name), int)]
        return max(limits, default=max_tokens)


class OpenaiSettings(ServerEngineSettings):
    """Server with OpenAI's Chat Completions, such as `vllm serve` or Ollama."""

    opener: ClassVar[str] = "rewriters.engines.openai.engine:OpenaiEngine"
    kind: Literal["openai"]

    @property
    def asked_tier(self) -> str | None:
        tier = self.args.get("service_tier")
        return tier if isinstance(tier, str) and tier not in ("auto", "default") else None


class AnthropicSettings(ServerEngineSettings):
    """Anthropic's Messages API, with prompt caching; `args: {thinking: ...}` lets a model think."""

    opener: ClassVar[str] = "rewriters.engines.anthropic:AnthropicEngine"
    goes_on: ClassVar[bool] = False
    kind: Literal["anthropic"]
    base_url: Annotated[str, NOT_IDENTITY] = "https://api.anthropic.com/v1"
    """Address, up to and with /v1."""
    api_key_env: Annotated[str | None, NOT_IDENTITY] = "ANTHROPIC_API_KEY"
    """Environment variable with the key."""

    def longest_answer(self, max_tokens: int) -> int:
        """Returns the limit that is sent, which counts what a model thinks, too."""
        return super().longest_answer(max_tokens + (self.args.get("thinking") or {}).get("budget_tokens", 0))


class RecordedSettings(EngineSettings):
    """Completions from a file."""

    opener: ClassVar[str] = "rewriters.engines.recorded:RecordedEngine"
    is_recorded: ClassVar[bool] = True
    kind: Literal["recorded"]
    path: Annotated[str, NOT_IDENTITY, Names.FILE]
    """JSON lines of recorded completions."""


ENGINES = Kinds(
    {
        "vllm": "rewriters.engines.settings:VllmSettings",
        "openai": "rewriters.engines.settings:OpenaiSettings",
        "anthropic": "rewriters.engines.settings:AnthropicSettings",
        "recorded": "rewriters.engines.settings:RecordedSettings",
    },
    group="dmqr.engines",
    refusal=RewriterError,
)
"""The kinds of engines."""
AnyEngineSettings = Annotated[EngineSettings, ENGINES]
