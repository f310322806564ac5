"""What a config may say of an engine: one frozen model per kind, told apart by `kind`."""

from __future__ import annotations

from typing import Annotated, Any, Literal
from urllib.parse import urlsplit

from pydantic import BaseModel, Field, model_validator

from rewriters.settings import FROZEN, NOT_IDENTITY


class VllmSettings(BaseModel):
    """vLLM inside the workers, one engine each."""

    model_config = FROZEN

    kind: Literal["vllm"]
    """This engine."""
    model: Annotated[str, NOT_IDENTITY]
    """Folder, hub name or `package:NAME`."""
    revision: Annotated[str, NOT_IDENTITY] = "main"
    """Of a hub's model: branch, tag or commit; it is resolved to a commit when the run begins."""
    lora: Annotated[str | None, NOT_IDENTITY] = None
    """A LoRA adapter of the model: folder, hub name or NAME@REVISION."""
    reasoning_parser: Annotated[str | None, NOT_IDENTITY] = None
    """Of vLLM, such as deepseek_r1: separates reasoning from the answer; null: by the model's type, where that is certain."""
    timeout_seconds: Annotated[float, Field(gt=0), NOT_IDENTITY] = 600
    """For one request, from its sending on."""
    args: Annotated[dict[str, Any], NOT_IDENTITY] = {}
    """More of vLLM's engine arguments, such as max_model_len, tensor_parallel_size, quantization."""

    @property
    def gpus(self) -> int:
        """Accelerators that one engine spans."""
        return int(self.args.get("tensor_parallel_size", 1)) * int(self.args.get("pipeline_parallel_size", 1))


class LocatedVllmSettings(VllmSettings):
    """What workers are given: where the weights are, under the names that the config has."""

    commit: str | None = None
    """Of a hub's model, takes the place of `revision`."""
    weights: str
    """Folder or hub name."""
    lora_name: str | None = None
    """The adapter as the config names it; `lora` is its folder."""
    devices: tuple[int, ...] | None = None
    """Accelerators that it computes on, counted among those of its worker; null: the first ones."""


class OpenaiSettings(BaseModel):
    """A server with OpenAI's Chat Completions, such as `vllm serve`."""

    model_config = FROZEN

    kind: Literal["openai"]
    """This engine."""
    model: str
    """As the server lists it."""
    base_url: Annotated[str, NOT_IDENTITY]
    """Up to and with /v1."""
    api_key_env: Annotated[str | None, NOT_IDENTITY] = None
    """Name of the environment variable that holds the key; null: the server wants none."""
    api_key_file: Annotated[str | None, NOT_IDENTITY] = None
    """A file on every node that holds the key, in place of a variable; read anew when the server refuses the key."""
    max_in_flight: Annotated[int, Field(gt=0), NOT_IDENTITY] = 256
    """Requests of one worker at a time, at most; AIMD finds how many below it."""
    timeout_seconds: Annotated[float, Field(ge=0.001), NOT_IDENTITY] = 60
    """For one attempt of a request."""
    attempts: Annotated[int, Field(gt=0), NOT_IDENTITY] = 5
    """Of a request that times out or is answered badly."""
    patience_minutes: Annotated[float, Field(gt=0), NOT_IDENTITY] = 10
    """How long a request waits for a server that is overloaded or away."""
    tokenizer: Annotated[str | None, NOT_IDENTITY] = None
    """Counts the tokens where the server does not: folder, hub name or `package:NAME`; null: the model's own, if it is here."""
    args: dict[str, Any] = {}
    """More keys of the request's body."""

    @property
    def provider(self) -> str | None:
        """Returns the host of the server, with its port where the URL names one; without user and password."""
        return urlsplit(self.base_url).netloc.rpartition("@")[2] or None

    @model_validator(mode="after")
    def _one_key(self) -> OpenaiSettings:
        if self.api_key_env is not None and self.api_key_file is not None:
            raise ValueError("has api_key_env and api_key_file; give one of them")
        return self


class RecordedSettings(BaseModel):
    """Completions from a file."""

    model_config = FROZEN

    kind: Literal["recorded"]
    """This engine."""
    path: Annotated[str, NOT_IDENTITY]
    """JSON lines of recorded completions, here or on S3."""


EngineSettings = Annotated[VllmSettings | OpenaiSettings | RecordedSettings, Field(discriminator="kind")]
