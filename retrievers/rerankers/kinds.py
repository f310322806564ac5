"""The kinds of rerankers: those of this project, which have one model of settings, and plug-ins."""

from __future__ import annotations

from typing import Annotated, Any, Union

from pydantic import BaseModel, Discriminator, GetJsonSchemaHandler, Tag, TypeAdapter
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import core_schema

from cluster.errors import RetrieverError
from cluster.settings import Kinds
from retrievers.rerankers.settings import RerankerSettings
from retrievers.settings import RerankSettings

_DEFAULT = str(RerankSettings.model_fields["kind"].default)
_HOUSE = ("cross_encoder", "bi_encoder", "server", "none")


class _Rerankers(Kinds):
    """Kinds of which several have one class; one that is not said is the default."""

    def _any(self) -> TypeAdapter[Any]:
        if self._made is None:
            tagged = [Annotated[RerankSettings, Tag(kind)] for kind in _HOUSE]
            union: Any = Annotated[Union[tuple(tagged)], Discriminator(_kind)]  # noqa: UP007 - of a list
            self._made = list(_HOUSE), TypeAdapter(union)
        return self._made[1]

    def _house(self) -> dict[str, type[BaseModel]]:
        return dict.fromkeys(_HOUSE, RerankSettings)

    def __get_pydantic_json_schema__(self, schema: core_schema.CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        """Describes the settings of this project."""
        return handler(TypeAdapter(RerankSettings).core_schema)


def _kind(value: Any) -> str:
    kind = value.get("kind", _DEFAULT) if isinstance(value, dict) else getattr(value, "kind", _DEFAULT)
    return str(kind)


RERANKERS = _Rerankers(
    dict.fromkeys(_HOUSE, "retrievers.settings:RerankSettings"), group="dmqr.rerankers", refusal=RetrieverError
)
"""The kinds of rerankers."""
AnyRerankerSettings = Annotated[RerankerSettings, RERANKERS]
