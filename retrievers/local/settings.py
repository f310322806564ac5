"""Settings of retrievers of `kind: local`."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field, model_validator

from cluster.settings import NOT_IDENTITY, Names
from retrievers.kinds import RetrieverSettings
from retrievers.settings import AnyEncoderSettings, Bm25Settings, FieldWeights, bm25_or_dense

AnalyzerName = Literal[
    "arabic", "armenian", "basque", "catalan", "czech", "danish", "dutch", "english", "esperanto", "estonian", "finnish",
    "french", "german", "greek", "hindi", "hungarian", "indonesian", "irish", "italian", "lithuanian", "nepali", "norwegian",
    "persian", "polish", "portuguese", "romanian", "russian", "serbian", "sesotho", "spanish", "swedish", "tamil", "turkish",
    "yiddish", "unicode", "cjk", "thai",
]  # fmt: skip


class LocalSettings(RetrieverSettings):
    """An index in a folder: BM25 (`analyzer`) or, with `encoder`, exact dense search."""

    opener: ClassVar[str] = "retrievers.local.index"
    builder: ClassVar[str] = "retrievers.local.build"
    kind: Literal["local"]
    """This kind."""
    index: Annotated[str, Field(min_length=1), NOT_IDENTITY, Names.FILE]
    """Its folder, here or on S3."""
    analyzer: AnalyzerName | None = None
    """Of BM25: stop words and stemming of a language; unicode, also called cjk and thai, has neither. null: what `index` tells
    from the corpus, and the index's own where one is searched."""
    similarity: Bm25Settings | None = None
    """Of BM25; another one is another index."""
    fields: FieldWeights | None = None
    """Of BM25: weights of title and text; others are another index. null: they are searched as one text."""
    encoder: AnyEncoderSettings | None = None
    """Of dense search."""
    together: bool = False
    """All texts of a query are searched as one: docs/strategies.md."""
    score_floor: Annotated[float, Field(allow_inf_nan=False)] | None = None
    """Hits of its lists with a lower score take no part in fusion; null: all do."""

    @model_validator(mode="before")
    @classmethod
    def _bm25_or_dense(cls, values: Any) -> Any:
        return bm25_or_dense(values, ("analyzer", "similarity", "fields"), ())

    @property
    def folder(self) -> str:
        """The folder of its index."""
        return self.index

    @property
    def bm25_constants(self) -> Bm25Settings:
        """The constants of BM25."""
        return self.similarity or Bm25Settings()

    @property
    def field_weights(self) -> FieldWeights:
        """The weights of title and text in BM25."""
        return self.fields or FieldWeights()
