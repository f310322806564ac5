"""Prices of the tokens of models behind a paid API, by the provider's tiers.

Quantities of tokens have parts by the tier that answers report: of `prompt_tokens` those of `prompt_tokens@flex` were billed
by the tier flex. Like all quantities they are added, scaled and stored, and money is computed when it is shown.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, TypeVar

from pydantic import BaseModel, ConfigDict, Field

Price = Annotated[float, Field(ge=0)]
Amount = TypeVar("Amount", int, float)
BILLED = ("prompt_tokens", "cached_tokens", "cache_write_tokens", "completion_tokens")
"""The quantities that have parts by tier; the second and third are parts of the first."""
_OF = "@"


class TokenPrices(BaseModel):
    """Prices in USD of a million tokens."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    prompt: Price = 0.0
    """Those that the model reads."""
    cached: Price | None = None
    """Of these, those that the provider reads from its cache; null: as of the prompt."""
    cache_write: Price | None = None
    """Of these, those that the provider writes to its cache; null: as of the prompt."""
    completion: Price = 0.0
    """Those that the model writes."""

    def of(self, tokens: Mapping[str, float]) -> float:
        """Returns the USD of quantities named as `BILLED`."""
        cached, written = tokens.get("cached_tokens", 0), tokens.get("cache_write_tokens", 0)
        usd = (
            (tokens.get("prompt_tokens", 0) - cached - written) * self.prompt
            + cached * (self.prompt if self.cached is None else self.cached)
            + written * (self.prompt if self.cache_write is None else self.cache_write)
            + tokens.get("completion_tokens", 0) * self.completion
        )
        return usd / 1e6


class ModelPrices(TokenPrices):
    """Prices of a model: of the standard tier, and of others."""

    tiers: dict[str, TokenPrices] = {}
    """Name of a tier, as answers report it -> its prices. A tier without prices, or an answer that names none, is standard."""

    def usd(self, sums: Mapping[str, float]) -> float:
        """Returns the USD of quantities, with their parts by tier."""
        parts = {name: tokens_of(sums, name) for name in self.tiers}
        rest = {name: sums.get(name, 0) - sum(part.get(name, 0) for part in parts.values()) for name in BILLED}
        return self.of(rest) + sum(self.tiers[name].of(part) for name, part in parts.items())


def by_tier(sums: Mapping[str, Amount], tier: str | None) -> dict[str, Amount]:
    """Returns the parts of quantities that were all billed by one tier; None: it is not known."""
    return {} if tier is None else {f"{name}{_OF}{tier}": sums[name] for name in BILLED if name in sums}


def without_tiers(sums: Mapping[str, float]) -> dict[str, float]:
    """Returns quantities without their parts by tier."""
    return {name: value for name, value in sums.items() if _OF not in name}


def tokens_of(sums: Mapping[str, float], tier: str) -> dict[str, float]:
    """Returns the quantities that were billed by a tier."""
    end = f"{_OF}{tier}"
    return {name.removesuffix(end): value for name, value in sums.items() if name.endswith(end)}
