"""Settings of rewriting that are common to all engines, as frozen models.

Those of the engines are in `engines/settings.py`.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

FROZEN = ConfigDict(extra="forbid", frozen=True, validate_default=True, use_attribute_docstrings=True)

NOT_IDENTITY = Field(json_schema_extra={"identity": False})
"""Marks a field that is no part of a run's fingerprint (`jobs/job/keys.py`)."""

DRIFT = 0.15
"""Default of `guards.drift`; measured in docs/strategies.md."""


def identity_fields(part: BaseModel) -> dict[str, Any]:
    """Returns the identity fields of a section of the config that differ from their defaults, as plain values.

    A field whose `left_out` is an earlier default is left out with that value, too.
    """
    found: dict[str, Any] = {}
    for name, field in type(part).model_fields.items():
        value = getattr(part, name)
        extra = field.json_schema_extra
        counts = not isinstance(extra, dict) or extra.get("identity", True)
        if not counts or (not field.is_required() and value == field.get_default(call_default_factory=True)):
            continue
        if isinstance(extra, dict) and "left_out" in extra and value == extra["left_out"]:
            continue
        plain = _plain(value)
        if plain != {}:  # empty: a section without identity fields that differ from their defaults
            found[name] = plain
    return found


def _plain(value: Any) -> Any:
    if isinstance(value, BaseModel):
        return identity_fields(value)
    if isinstance(value, dict):
        return {key: _plain(one) for key, one in value.items()}
    return [_plain(one) for one in value] if isinstance(value, list | tuple) else value


class DecodingSettings(BaseModel):
    """How an engine samples; part of a completion's identity."""

    model_config = FROZEN

    temperature: Annotated[float, Field(ge=0)] = 0.0
    """0: always the likeliest token."""
    top_p: Annotated[float, Field(gt=0, le=1)] = 1.0
    """Share of probability that is sampled from."""
    max_tokens: Annotated[int, Field(gt=0)] = 512
    """Of an answer; a longer one is cut, which `errors/` says."""
    seed: int = 0
    """Of the sampling."""
    stop: list[str] = []
    """Texts that end an answer; they are not part of it."""
    chat_template_kwargs: dict[str, Any] = {"enable_thinking": False}
    """What a model's chat template is given beside the messages."""


class SelectAll(BaseModel):
    """Every strategy rewrites every query."""

    model_config = FROZEN

    kind: Literal["all"]
    """This selection."""


class SelectNever(BaseModel):
    """No query is rewritten; the original alone is searched."""

    model_config = FROZEN

    kind: Literal["never"]
    """This selection."""


class SelectAdaptive(BaseModel):
    """The LLM chooses strategies by their descriptions and writes the rewrites, in one request (DMQR-RAG)."""

    model_config = FROZEN

    kind: Literal["adaptive"]
    """This selection."""
    demonstrations: Annotated[str | None, NOT_IDENTITY] = None
    """A YAML file of worked examples, in place of ours; its text counts for the fingerprint."""
    least: Literal[0, 1] = 0
    """Strategies that the LLM is to choose at least: 1 as in DMQR-RAG, which chooses one to four; 0: none where none helps."""


class SelectClassified(BaseModel):
    """Strategies by the type of the query."""

    model_config = FROZEN

    kind: Literal["classified"]
    """This selection."""
    rules: Annotated[str, NOT_IDENTITY] = "english"
    """The path of a YAML file with the types and their strategies, or the name of ours; its text counts for the fingerprint."""
    by: Literal["rules", "llm"] = "rules"
    """rules: the file's patterns tell the type. llm: `rewrite.engine` does, by one request before the others."""


class SelectRandom(BaseModel):
    """Some strategies by chance, the same for a query in every run: a baseline."""

    model_config = FROZEN

    kind: Literal["random_k"]
    """This selection."""
    k: Annotated[int, Field(ge=1)] = 2
    """Number of strategies."""
    seed: int = 0
    """Of the choice."""


class SelectColumn(BaseModel):
    """The log says which strategies rewrite a query."""

    model_config = FROZEN

    kind: Literal["column"]
    """This selection."""
    column: Annotated[str, Field(min_length=1)]
    """Of the log; cells: a strategy, several between commas, a number of texts, or `none`. Empty: all."""


class SelectQpp(BaseModel):
    """Every strategy rewrites every query; of the original and these texts one is searched, by predicted performance."""

    model_config = FROZEN

    kind: Literal["qpp"]
    """This selection."""
    predictor: Literal["avg_idf", "max_idf"] = "avg_idf"
    """Of the text's terms in the first local BM25 index: the mean of their idf, or the highest."""


SelectSettings = Annotated[
    SelectAll | SelectNever | SelectAdaptive | SelectClassified | SelectRandom | SelectColumn | SelectQpp,
    Field(discriminator="kind"),
]


class VocabularySettings(BaseModel):
    """A controlled vocabulary, of which rewrites should have a term."""

    model_config = FROZEN

    path: Annotated[str, NOT_IDENTITY]
    """A text file with a term per line, here or on S3; its content counts for the fingerprint."""
    action: Literal["count", "drop"] = "count"
    """What becomes of a rewrite without any term: it is flagged, or not searched."""


class GuardSettings(BaseModel):
    """Guards around the LLM; each only counts unless it is told to do more."""

    model_config = FROZEN

    preserve: Literal["count", "drop", "repair"] = "count"
    """What becomes of a rewrite that has lost a number, a name or a quoted phrase of the query, in strategies that should keep
    them: it is flagged, not searched, or gets what is missing at its end."""
    near_duplicates: Literal["count", "drop"] = "count"
    """What becomes of a text that says nearly the same as an earlier one of its query: it is flagged, or not searched."""
    drift: Annotated[float, Field(ge=-1, le=1)] | None = DRIFT
    """A text that is searched as a query, and whose vector has a smaller cosine with the original's, is flagged: only with a
    dense retriever and `fuse.redundancy: cosine`. null: none is."""
    repeated: Annotated[int | None, Field(ge=2), NOT_IDENTITY] = 20
    """Texts that as many distinct queries of a night have from one strategy are counted; null: none are. One query of several
    tenants or after several turns is one here."""
    rare_words: Annotated[float, Field(ge=0, le=1), NOT_IDENTITY] = 0.001
    """A word is rare if at most this share of a night's distinct queries, as in `repeated`, have it. Queries with a rare word
    that none of their texts has are counted; 0: none are."""
    vocabulary: VocabularySettings | None = None
    """A controlled vocabulary, for rewrites that are searched as queries."""
    mask: list[Literal["mail", "phone", "card"]] = []
    """Personal data that placeholders replace in whatever is sent; they are put back in the rewrites."""
    overrides: Annotated[str | None, NOT_IDENTITY] = None
    """A Parquet, CSV or JSONL file of approved, pinned and banned rewrites, here or on S3; its content counts for the
    fingerprint."""
