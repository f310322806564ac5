"""Settings of retrievers that are made of others, and of `kind: hybrid`."""

from collections.abc import Callable, Mapping
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import Field, model_validator

from retrievers.fusion import FUSION_VERSION
from retrievers.kinds import IndexSettings, RetrieverSettings, part_name
from retrievers.settings import AnyEncoderSettings, FuseSettings


class PartsSettings(RetrieverSettings):
    """Several retrievers that act as one, with one list per text."""

    opener: ClassVar[str] = "retrievers.hybrid.retriever"
    may_be_part: ClassVar[bool] = False
    of: Annotated[dict[str, IndexSettings], Field(min_length=1)]
    """A name chosen by you -> the settings of a retriever, as in `retrieve.retrievers`."""

    @model_validator(mode="after")
    def _searched_as_a_whole(self) -> Self:
        for name, part in self.of.items():
            for key, set_here in (("together", part.together), ("score_floor", part.score_floor is not None)):
                if set_here:
                    own = f"set the {self.kind}'s own" if key in type(self).model_fields else "remove it"
                    raise ValueError(f"of.{name}.{key}: applies to the whole list of a {self.kind}; {own}")
        return self

    @property
    def encoder(self) -> AnyEncoderSettings | None:
        return next((one.encoder for one in self.of.values() if one.encoder is not None), None)

    def fusion(self, depth: int) -> FuseSettings:
        raise NotImplementedError

    def at(self, identity: Mapping[str, Any]) -> Self:
        parts = identity.get("of", {})
        return self.model_copy(update={"of": {part: one.at(parts.get(part, {})) for part, one in self.of.items()}})

    def indexed(self, name: str) -> dict[str, RetrieverSettings]:
        return {part_name(name, part): one for part, one in self.of.items()}

    def with_indexed(self, name: str, change: Callable[[str, RetrieverSettings], RetrieverSettings]) -> Self:
        return self.model_copy(update={"of": {part: change(part_name(name, part), one) for part, one in self.of.items()}})

    def identity_of(self, name: str, indexes: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
        """Returns its identity; with a dense retriever it has the first one's `encoder`."""
        parts = {part: dict(indexes[part_name(name, part)]) for part in self.of}
        encoder = next((one["encoder"] for one in parts.values() if one.get("encoder")), None)
        fusion = {"version": FUSION_VERSION} | self.model_dump(include={"method", "k", "depth", "merge"})
        identity = {"kind": self.kind, "of": parts, "order": list(parts), "fusion": fusion}
        return identity | ({"encoder": encoder} if encoder else {})

    def facts_of(
        self, name: str, parts: Mapping[str, Mapping[str, Any]], facts: Mapping[str, Mapping[str, Any]]
    ) -> dict[str, Any]:
        keys = {part: part_name(name, part) for part in self.of}
        return {"of": {part: {**parts[key], **facts[key]} for part, key in keys.items()}}

    def search_names(self, name: str) -> dict[str, str | None]:
        """Returns a name for each of its retrievers, `hybrid/bm25` and `hybrid/dense`: it searches a text once with each."""
        return {f"{name}/{part}": one.encoder.model if one.encoder else None for part, one in self.of.items()}


class HybridSettings(PartsSettings):
    """Several retrievers whose lists of a text are fused into one."""

    kind: Literal["hybrid"]
    of: Annotated[dict[str, IndexSettings], Field(min_length=2)]
    """A name of your choice -> settings of a retriever. Documents' texts come from the first."""
    method: Literal["rrf", "minmax"] = "rrf"
    """Formula, as in `fuse.method`."""
    k: Annotated[float, Field(gt=0, allow_inf_nan=False)] = 60
    """Constant of rrf: 1 / (k + rank)."""
    depth: Annotated[int, Field(gt=0)] = 100
    """Hits of each inner list that take part."""
    together: bool = False
    """Searches all texts of a query as one."""
    score_floor: Annotated[float, Field(allow_inf_nan=False)] | None = None
    """Smallest score of a hit that takes part in fusion; null: any."""

    def fusion(self, depth: int) -> FuseSettings:
        return FuseSettings(method=self.method, k=self.k, depth=self.depth, keep=depth, redundancy="none")

    @property
    def own_depth(self) -> int:
        return self.depth
