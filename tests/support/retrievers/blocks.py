"""Settings from blocks as a config has them."""

from collections.abc import Mapping
from typing import Any

from pydantic import TypeAdapter

from retrievers.kinds import AnyRetrieverSettings, RetrieverSettings
from retrievers.local.build import IndexFields
from retrievers.settings import AnyEncoderSettings

_ENCODER: TypeAdapter[AnyEncoderSettings] = TypeAdapter(AnyEncoderSettings)
_RETRIEVER: TypeAdapter[RetrieverSettings] = TypeAdapter(AnyRetrieverSettings)


def typed(block: Mapping[str, Any] | RetrieverSettings) -> RetrieverSettings:
    """A block of `retrieve.retrievers`."""
    return _RETRIEVER.validate_python(block)


def index_fields(analyzer: str | None = None, encoder: Mapping[str, Any] | None = None) -> IndexFields:
    """Returns the fields that a local index is to hold."""
    return IndexFields(analyzer, None if encoder is None else _ENCODER.validate_python(encoder))
