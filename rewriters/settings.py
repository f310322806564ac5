"""Settings of rewriting that are common to all engines, as frozen models; those of the engines: `engines/settings.py`."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field

FROZEN = ConfigDict(extra="forbid", frozen=True, validate_default=True, use_attribute_docstrings=True)

NOT_IDENTITY = Field(json_schema_extra={"identity": False})
"""Marks a field that is no part of a run's fingerprint (`jobs/keys.py`)."""


class DecodingSettings(BaseModel):
    """How an engine samples; part of a completion's identity."""

    model_config = FROZEN

    temperature: Annotated[float, Field(ge=0)] = 0.0
    """0: always the likeliest token."""
    top_p: Annotated[float, Field(gt=0, le=1)] = 1.0
    """Share of probability that is sampled from."""
    max_tokens: Annotated[int, Field(gt=0)] = 512
    """Of an answer; a longer one is cut, which `errors/` says."""
    seed: int = 0
    """Of the sampling."""
    stop: list[str] = []
    """Texts that end an answer; they are not part of it."""
    chat_template_kwargs: dict[str, Any] = {"enable_thinking": False}
    """What a model's chat template is given beside the messages."""
