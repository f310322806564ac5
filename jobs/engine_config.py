"""What a config may say of an engine: one model per kind, told apart by `kind`."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field

from jobs.part import Part


class Vllm(Part):
    """vLLM inside the workers, one engine each."""

    kind: Literal["vllm"]
    model: str
    """Folder, hub name or `package:NAME`."""
    revision: str = "main"
    """Of a hub's model: branch, tag or commit; it is resolved to a commit when the run begins."""
    lora: str | None = None
    """A LoRA adapter of the model: folder, hub name or NAME@REVISION."""
    timeout_seconds: Annotated[float, Field(gt=0)] = 600
    """For one request, from its sending on."""
    args: dict[str, Any] = {}
    """More of vLLM's engine arguments, such as max_model_len, tensor_parallel_size, quantization."""

    @property
    def gpus(self) -> int:
        """Accelerators that one engine spans."""
        return int(self.args.get("tensor_parallel_size", 1)) * int(self.args.get("pipeline_parallel_size", 1))


class Openai(Part):
    """A server with OpenAI's Chat Completions, such as `vllm serve`."""

    kind: Literal["openai"]
    model: str
    base_url: str
    """Up to and with /v1."""
    api_key_env: str | None = None
    """Name of the environment variable that holds the key; null: the server wants none."""
    max_in_flight: Annotated[int, Field(gt=0)] = 256
    """Requests of one worker at a time, at most; how many there are is found out."""
    timeout_seconds: Annotated[float, Field(gt=0)] = 60
    attempts: Annotated[int, Field(gt=0)] = 5
    """Of a request that times out or is answered badly."""
    patience_minutes: Annotated[float, Field(gt=0)] = 10
    """How long a request waits for a server that is overloaded or away."""
    tokenizer: str | None = None
    """Counts the tokens where the server does not: folder, hub name or `package:NAME`; null: the model's own, if it is here."""
    args: dict[str, Any] = {}
    """More keys of the request's body."""


class Recorded(Part):
    """Completions from a file."""

    kind: Literal["recorded"]
    path: str
    """JSON lines of recorded completions."""


Engine = Annotated[Vllm | Openai | Recorded, Field(discriminator="kind")]
