"""Settings of retrievers of `kind: local`."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, Field, model_validator

from retrievers.settings import FROZEN, NOT_IDENTITY, AnyEncoderSettings, bm25_or_dense


class LocalSettings(BaseModel):
    """An index in a folder: BM25 (`analyzer`) or, with `encoder`, exact dense search."""

    model_config = FROZEN

    kind: Literal["local"]
    """This kind."""
    index: Annotated[str, Field(min_length=1), NOT_IDENTITY]
    """Its folder, here or on S3."""
    analyzer: Literal["english", "unicode"] | None = None
    """Of BM25: stop words and stemming of English, or neither; english where nothing is said."""
    encoder: AnyEncoderSettings | None = None
    """Of dense search."""
    together: bool = False
    """All texts of a query are searched as one: docs/strategies.md."""
    score_floor: Annotated[float, Field(allow_inf_nan=False)] | None = None
    """Hits of its lists with a lower score take no part in fusion; null: all do."""

    @model_validator(mode="before")
    @classmethod
    def _bm25_or_dense(cls, values: Any) -> Any:
        return bm25_or_dense(values, ("analyzer",), ())
