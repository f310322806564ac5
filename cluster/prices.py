"""Prices: of time, nodes, searches, requests to S3, and tokens by the provider's tiers. Money is computed when it is shown."""

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, Self

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from cluster.cause import yaml_problem
from cluster.costs import TOKENS, StorageRequest, Totals, tokens_of
from cluster.errors import ClusterError

Price = Annotated[float, Field(ge=0)]


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

    def usd_of(self, tokens: Mapping[str, float]) -> float:
        """Returns the USD of quantities named as `TOKENS`."""
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
        rest = {name: sums.get(name, 0) - sum(part.get(name, 0) for part in parts.values()) for name in TOKENS}
        return self.usd_of(rest) + sum(self.tiers[name].usd_of(part) for name, part in parts.items())


NodeKind = Literal["cpu", "gpu"]


class Prices(BaseModel):
    """Prices in USD, from `prices.yaml`, which has the source of each number."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    cpu_worker_hour: Price = 0.0
    """A worker without an accelerator, for one hour of work."""
    device_hour: Price = 0.0
    """One accelerator for one hour."""
    tokens: dict[str, ModelPrices] = {}
    """Model -> price of a million tokens of each kind, and of those of other tiers of the provider."""
    node_hour: Price | dict[NodeKind, Price] | None = None
    """A node of the cluster for one hour, busy or not; `gpu`: one with an accelerator. In place of the prices of workers."""
    driver_hour: Price = 0.0
    """The driver, for one hour."""
    searches: dict[str, Price] = {}
    """Retriever, or provider of web searches -> price of a million searches."""
    storage_requests: dict[StorageRequest, Price] = {}
    """Kind of request to S3 -> price of a thousand."""

    @model_validator(mode="after")
    def _time_is_billed_once(self) -> Self:
        doubled = [name for name in ("cpu_worker_hour", "device_hour", "driver_hour") if getattr(self, name)]
        if self.node_hour is not None and doubled:
            raise ValueError(f"node_hour bills all time; remove {', '.join(doubled)}, or node_hour")
        return self

    def node_usd(self, node_seconds: Mapping[str, float]) -> dict[str, float]:
        """Returns the price of nodes in USD by their kind (`cpu`, `gpu`), from seconds x nodes."""
        usd = self.node_hour or 0.0
        hour: Mapping[Any, float] = usd if isinstance(usd, dict) else dict.fromkeys(node_seconds, usd)
        return {kind: seconds / 3600 * hour.get(kind, 0.0) for kind, seconds in node_seconds.items()}

    def usd(self, costs: Totals) -> float:
        """Returns the price of `costs` in USD without nodes, which `jobs.runs.bill` has in the whole bill."""
        return sum(self._component(key, sums) for components in costs.values() for key, sums in components.items())

    def _component(self, key: str, sums: Mapping[str, float]) -> float:
        component, _, model = key.partition("@")
        hours = sums.get("seconds", 0) / 3600
        device_hours = sums.get("device_seconds", 0) / 3600
        time = device_hours * self.device_hour if device_hours else hours * self.cpu_worker_hour
        usd = time + sums.get("driver_seconds", 0) / 3600 * self.driver_hour
        usd += sums.get("searches", 0) * self.searches.get(component, self.searches.get(model, 0.0)) / 1e6
        usd += sum(sums.get(kind, 0) * price for kind, price in self.storage_requests.items()) / 1e3
        return usd + (self.tokens[model].usd(sums) if model in self.tokens else 0.0)


def prices_version(path: Path) -> dict[str, str]:
    """Returns name and SHA-256 of a file of prices."""
    return {"name": path.name, "sha256": hashlib.sha256(path.read_bytes()).hexdigest()}


def load_prices(path: Path) -> Prices | None:
    """Reads `prices.yaml`; returns None if there is no such file, and raises ClusterError if it is invalid."""
    if not path.exists():
        return None
    try:
        return Prices.model_validate(yaml.safe_load(path.read_text()) or {})
    except yaml.YAMLError as error:
        raise ClusterError("prices", f"{path}: not YAML: {yaml_problem(error)}; correct it there") from error
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"])) or "the file"
        problem = f"{first['msg']}, found {first['input']!r} (known keys: {', '.join(Prices.model_fields)})"
        raise ClusterError("prices", f"{path}: {where}: {problem}") from error
