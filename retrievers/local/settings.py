"""Settings of retrievers of `kind: local`."""

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
    """Index in a folder: BM25 or, with `encoder`, exact dense search."""

    opener: ClassVar[str] = "retrievers.local.index"
    builder: ClassVar[str] = "retrievers.local.build"
    kind: Literal["local"]
    index: Annotated[str, Field(min_length=1), NOT_IDENTITY, Names.FILE]
    """Folder, here or on S3."""
    analyzer: AnalyzerName | None = None
    """Stop words and stemming of a language; unicode (also cjk, thai): neither. null: told from the corpus when the index is
    built."""
    similarity: Bm25Settings | None = None
    """Constants of BM25; other constants are another index."""
    fields: FieldWeights | None = None
    """Weights of title and text in BM25; other weights are another index. null: both are one text."""
    encoder: AnyEncoderSettings | None = None
    """Encoder of dense search."""
    together: bool = False
    """Searches all texts of a query as one."""
    score_floor: Annotated[float, Field(allow_inf_nan=False)] | None = None
    """Smallest score of a hit that takes part in fusion; null: any."""

    @model_validator(mode="before")
    @classmethod
    def _bm25_or_dense(cls, values: Any) -> Any:
        return bm25_or_dense(values, ("analyzer", "similarity", "fields"), ())

    @property
    def folder(self) -> str:
        return self.index

    @property
    def bm25_constants(self) -> Bm25Settings:
        return self.similarity or Bm25Settings()

    @property
    def field_weights(self) -> FieldWeights:
        return self.fields or FieldWeights()
