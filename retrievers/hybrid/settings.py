"""Settings of retrievers of `kind: hybrid`, and the retrievers with an index of their own that any settings stand for."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Annotated, Any, Literal

from pydantic import BaseModel, Field, model_validator

from retrievers.elastic.settings import ElasticSettings
from retrievers.local.settings import LocalSettings
from retrievers.settings import FROZEN, AnyEncoderSettings, FuseSettings

IndexSettings = Annotated[LocalSettings | ElasticSettings, Field(discriminator="kind")]
"""The settings of a retriever that searches an index of its own."""
Indexed = LocalSettings | ElasticSettings


class HybridSettings(BaseModel):
    """Several retrievers that act as one: their lists of a text are fused into one list."""

    model_config = FROZEN

    kind: Literal["hybrid"]
    """This kind."""
    of: Annotated[dict[str, IndexSettings], Field(min_length=2)]
    """A name chosen by you -> the settings of a retriever, as in `retrieve.retrievers`. The texts of documents are those of the
    first; with a dense one the hybrid counts as dense."""
    method: Literal["rrf", "minmax"] = "rrf"
    """The formula, as of `fuse.method`."""
    k: Annotated[float, Field(gt=0, allow_inf_nan=False)] = 60
    """Of rrf: 1 / (k + rank)."""
    depth: Annotated[int, Field(gt=0)] = 100
    """How much of each of its lists takes part; the list that they become is cut at `retrieve.depth`."""
    together: bool = False
    """All texts of a query are searched as one: docs/strategies.md."""
    score_floor: Annotated[float, Field(allow_inf_nan=False)] | None = None
    """Hits of its lists with a lower score take no part in fusion; null: all do."""

    @model_validator(mode="before")
    @classmethod
    def _flat(cls, values: Any) -> Any:
        for name, one in (values.get("of") or {}).items() if isinstance(values, dict) else ():
            if isinstance(one, dict) and one.get("kind") == "hybrid":
                raise ValueError(f"of.{name}: a hybrid is not made of hybrids; name local and elastic retrievers")
        return values

    @model_validator(mode="after")
    def _together_as_a_whole(self) -> HybridSettings:
        for name, one in self.of.items():
            if one.together:
                raise ValueError(f"of.{name}.together: texts are searched together by the whole hybrid; set its own together")
            if one.score_floor is not None:
                raise ValueError(f"of.{name}.score_floor: a floor is of the hybrid's whole list; set its own score_floor")
        return self

    @property
    def encoder(self) -> AnyEncoderSettings | None:
        """Returns the encoder of the first dense retriever; None: none is dense."""
        return next((one.encoder for one in self.of.values() if one.encoder is not None), None)

    @property
    def fusion(self) -> FuseSettings:
        """Returns how its lists of a text are fused."""
        return FuseSettings(method=self.method, k=self.k, depth=self.depth, redundancy="none")


def part_name(name: str, part: str) -> str:
    """Returns the key below ``retrieve.retrievers`` of one of a hybrid's retrievers."""
    return f"{name}.of.{part}"


def indexed(name: str, settings: Indexed | HybridSettings) -> dict[str, Indexed]:
    """Returns the retrievers with an index of their own that a retriever searches: itself, or those that it is made of.

    Args:
        name: The retriever's key below ``retrieve.retrievers``.
        settings: Its settings.

    Returns:
        Key below ``retrieve.retrievers`` -> settings; the first has the texts of documents.
    """
    if isinstance(settings, HybridSettings):
        return {part_name(name, part): one for part, one in settings.of.items()}
    return {name: settings}


def all_indexed(retrievers: Mapping[str, Indexed | HybridSettings]) -> dict[str, Indexed]:
    """Returns the retrievers with an index of their own of a whole ``retrieve.retrievers``; see `indexed`."""
    return {key: one for name, settings in retrievers.items() for key, one in indexed(name, settings).items()}


def with_indexed(
    name: str, settings: Indexed | HybridSettings, change: Callable[[str, Indexed], Indexed]
) -> Indexed | HybridSettings:
    """Returns settings in which ``change`` has replaced each of `indexed`, by key and settings."""
    if isinstance(settings, HybridSettings):
        of = {part: change(part_name(name, part), one) for part, one in settings.of.items()}
        return settings.model_copy(update={"of": of})
    return change(name, settings)


def indexed_identities(indexes: Mapping[str, Mapping[str, Any]]) -> dict[str, Mapping[str, Any]]:
    """Returns the identities of `all_indexed`, by the same keys.

    Args:
        indexes: Retriever -> its identity.
    """
    found: dict[str, Mapping[str, Any]] = {}
    for name, identity in indexes.items():
        found |= {part_name(name, part): one for part, one in identity["of"].items()} if "of" in identity else {name: identity}
    return found


def search_names(name: str, settings: Indexed | HybridSettings) -> dict[str, str | None]:
    """Returns the names under which the searches of a retriever are counted, each with the model of its encoder.

    A hybrid searches a text once with each of its retrievers: ``hybrid/bm25`` and ``hybrid/dense``.
    """
    if isinstance(settings, HybridSettings):
        return {f"{name}/{part}": one.encoder.model if one.encoder else None for part, one in settings.of.items()}
    return {name: settings.encoder.model if settings.encoder else None}
