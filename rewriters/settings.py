"""Settings of rewriting that are common to all engines, as frozen models. Those of the engines are in `engines/settings.py`."""

from typing import Annotated, Any, ClassVar, Literal

from pydantic import BaseModel, BeforeValidator, Field

from cluster.named_content import deciding_fields
from cluster.plugins import identity_of
from cluster.settings import NOT_IDENTITY, Names, Settings

DRIFT = 0.15  # default of `guards.drift`: with MiniLM it flags 0.8 % of good texts (docs/strategies.md, "Guards")


def identity_fields(part: BaseModel) -> dict[str, Any]:
    """Returns the identity fields of a section of the config that differ from their defaults, as plain values.

    A field whose `left_out` is an earlier default is left out with that value, too. Of a plug-in its class and the version of
    its code stand in place of the name by which the config finds it, the content of files in place of their paths, and a file
    with a key does not count.
    """
    plugin = identity_of(type(part))
    plain = {name: _plain(value) for name, value, is_default in deciding_fields(part) if not is_default}
    # an empty section is one without identity fields that differ from their defaults
    return {name: value for name, value in plain.items() if value != {}} | ({"kind": plugin} if plugin else {})


def _plain(value: Any) -> Any:
    if isinstance(value, BaseModel):
        return identity_fields(value)
    if isinstance(value, dict):
        return {key: _plain(one) for key, one in value.items()}
    return [_plain(one) for one in value] if isinstance(value, list | tuple) else value


class DecodingSettings(Settings):
    """Sampling of an engine; part of a completion's identity."""

    temperature: Annotated[float, Field(ge=0)] = 0.0
    """0: always the likeliest token."""
    top_p: Annotated[float, Field(gt=0, le=1)] = 1.0
    """Share of probability that is sampled from."""
    max_tokens: Annotated[int, Field(gt=0)] = 512
    """Length of an answer; a longer one is truncated, with a row in errors/."""
    seed: int = 0
    """Seed of the sampling."""
    stop: list[str] = []
    """Texts that end an answer."""
    chat_template_kwargs: dict[str, Any] = {"enable_thinking": False}
    """Arguments of the model's chat template."""


def _checked(decoding: Any) -> Any:
    return DecodingSettings.model_validate(decoding).model_dump(exclude_unset=True)


Decoding = Annotated[dict[str, Any], BeforeValidator(_checked)]  # values of `DecodingSettings` that replace others


def is_path(source: str) -> bool:
    """Returns True if a name of strategies or rules is the path of a file of the user with what they are."""
    return "/" in source or source.endswith((".yaml", ".yml"))


class SelectionOfStrategies(Settings):
    """Of which strategies rewrite a query: what other packages ask of any kind."""

    in_request: ClassVar[bool] = False  # True if the LLM chooses in the request in which it rewrites

    @property
    def typed_by(self) -> Literal["rules", "llm"] | None:
        """The classifier of queries, or None."""
        return getattr(self, "by", None)


class SelectAll(SelectionOfStrategies):
    """Every strategy rewrites every query."""

    kind: Literal["all"]


class SelectNever(SelectionOfStrategies):
    """No query is rewritten."""

    kind: Literal["never"]


class SelectAdaptive(SelectionOfStrategies):
    """The LLM chooses strategies and rewrites in one request (DMQR-RAG)."""

    in_request: ClassVar[bool] = True
    kind: Literal["adaptive"]
    demonstrations: Annotated[str | None, NOT_IDENTITY, Names.TEXT] = None
    """YAML file of worked examples; its content counts for the fingerprint."""
    least: Literal[0, 1] = 0
    """Smallest number of strategies: 1 as in DMQR-RAG; 0: none where none helps."""


class SelectClassified(SelectionOfStrategies):
    """Strategies by the type of the query."""

    kind: Literal["classified"]
    rules: Annotated[str, NOT_IDENTITY, Names.TEXT] = "english"
    """YAML file of types and their strategies, or `english`; its content counts for the fingerprint."""
    by: Literal["rules", "llm"] = "rules"
    """rules: patterns decide the type; llm: `rewrite.engine` does, with one more request."""

    def names(self) -> dict[str, Names]:
        """Returns the file of the rules, where they are not ours."""
        return super().names() if is_path(self.rules) else {}


class SelectRandom(SelectionOfStrategies):
    """Random strategies, the same for a query in every run: a baseline."""

    kind: Literal["random_k"]
    k: Annotated[int, Field(ge=1)] = 2
    """Number of strategies."""
    seed: int = 0
    """Seed of the choice."""


class SelectColumn(SelectionOfStrategies):
    """Strategies by a column of the log."""

    kind: Literal["column"]
    column: Annotated[str, Field(min_length=1)]
    """Column with a strategy, several separated by commas, a number of texts, or `none`. Empty: all."""


SelectSettings = Annotated[
    SelectAll | SelectNever | SelectAdaptive | SelectClassified | SelectRandom | SelectColumn, Field(discriminator="kind")
]


class GateSettings(Settings):
    """Skips rewriting of queries that a retriever is sure of."""

    by: Annotated[str, Field(min_length=1)]
    """Retriever whose list of the original decides."""
    below: float
    """Queries with a best score of at least this are not rewritten."""


class GuardSettings(Settings):
    """Checks around the LLM; each only counts unless told otherwise."""

    preserve: Literal["count", "drop", "repair"] = "count"
    """For a rewrite that lost a number, name or quoted phrase of the query: flag it, drop it, or append what is missing."""
    near_duplicates: Literal["count", "drop"] = "count"
    """For a text that repeats an earlier text of its query: flag it, or drop it."""
    drift: Annotated[float, Field(ge=-1, le=1)] | None = DRIFT
    """Cosine with the original below which a text is flagged; needs a dense retriever and `fuse.redundancy: cosine`.
    null: none."""
    mask: list[Literal["mail", "phone", "card"]] = []
    """Personal data that the LLM sees as placeholders; they are put back in the rewrites."""
