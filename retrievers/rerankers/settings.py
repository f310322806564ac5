"""Settings of all rerankers."""

from collections.abc import Sequence
from typing import Annotated, Any, Literal

from pydantic import BaseModel, Field

from cluster.errors import RetrieverError
from cluster.named_content import deciding_fields
from cluster.plugins import identity_of, is_plugin
from cluster.settings import Kinds, Settings
from retrievers.models import model_identity

_OF_ORDER = {"kind", "keep", "store", "combine"}  # what decides no score


class RerankerSettings(Settings):
    """Settings of the final order of candidates, against the original query, as any reranker has them.

    A class of yours derives it and has `score(queries, passages)`, or `open` where a model is loaded first.
    """

    kind: str
    """The kind of reranker; of a plug-in an entry point, or `module:Class`."""
    keep: Annotated[int, Field(gt=0)] = 10
    """Results per query."""
    combine: Literal["replace", "blend"] = "blend"
    """replace: the reranker's order; blend: 1/(20 + rank) of both orders."""

    @property
    def loads(self) -> bool:
        """Returns True if the workers load a model, for which they may have accelerators."""
        return False

    @property
    def counted_as(self) -> str:
        """Returns the name of its pairs in costs: its kind, or the name of its class."""
        return type(self).__name__ if is_plugin(type(self)) else self.kind

    @property
    def scored_by(self) -> str:
        """Returns the name of what scores: the model, or of a class without one its own."""
        return str(getattr(getattr(self, "encoder", None) or self, "model", type(self).__name__))

    def known_by(self) -> dict[str, Any]:
        """Returns the identity of a plug-in's scores, as JSON values: its code, and the settings of its own."""
        settings = {name: value for name, value in _deciding(self).items() if name not in _OF_ORDER}
        return {"kind": "plugin", **identity_of(type(self)), "settings": settings}

    def check(self) -> None:
        """Raises RetrieverError if no pair can be scored; a job calls it first."""

    def open(self, device: str) -> Any:
        """Returns the scorer, made once in each worker: it has `score` as this class has it."""
        return self

    def score(self, queries: Sequence[str], passages: Sequence[str]) -> Sequence[float]:
        """Returns the score of each pair of a query and a passage; higher is more relevant."""
        raise NotImplementedError(f"{type(self).__name__} has no method score")


def _deciding(settings: BaseModel) -> dict[str, Any]:
    """Returns the values of settings that decide results, inner ones included, as JSON values."""
    dumped, fields = settings.model_dump(mode="json"), dict[str, Any]()
    for name, value, _ in deciding_fields(settings, _weights):
        own = getattr(settings, name)
        fields[name] = _deciding(own) if isinstance(own, BaseModel) else dumped[name] if value == own else value
    return fields


def _weights(name: str) -> str:
    """Returns the identity of the weights of a hub or a package; other names unchanged."""
    try:
        return model_identity(name)
    except RetrieverError:  # whoever loads it says so
        return name


RERANKERS = Kinds(
    dict.fromkeys(("cross_encoder", "bi_encoder", "server", "none"), "retrievers.settings:RerankSettings"),
    group="dmqr.rerankers",
    refusal=RetrieverError,
    default="cross_encoder",
)
"""The kinds of rerankers: those of this project, which have one model of settings, and plug-ins."""
AnyRerankerSettings = Annotated[RerankerSettings, RERANKERS]
