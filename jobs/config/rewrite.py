"""The section `rewrite` of the config."""

from typing import Annotated, Any, Literal, Self

from pydantic import BeforeValidator, Field, model_validator

from cluster.settings import NOT_IDENTITY, Names, Settings
from rewriters.engines.settings import AnyEngineSettings
from rewriters.pool import named
from rewriters.settings import DecodingSettings, GateSettings, GuardSettings, SelectAll, SelectNever, SelectSettings


def _kind(value: Any) -> Any:
    return {"kind": value} if isinstance(value, str) else value


def _named(value: Any) -> Any:
    named(value)
    return value


class RewriteSettings(Settings):
    """Rewriting by an LLM."""

    engine: AnyEngineSettings | None = None
    """LLM engine; required unless `strategies` is empty."""
    decoding: DecodingSettings = DecodingSettings()
    """Sampling parameters."""
    strategies: Annotated[list[Annotated[Any, BeforeValidator(_named)]], NOT_IDENTITY, Names.STRATEGIES] = [
        "general",
        "keyword",
        "pseudo_answer",
        "core_content",
    ]
    """Names, paths of YAML files, or either with parameters: `{rag_fusion: {n: 2}}`. []: the original only."""
    select: Annotated[SelectSettings, BeforeValidator(_kind)] = SelectAll(kind="all")
    """Choice of strategies per query: all, adaptive, classified, random_k, column or never."""
    gate: GateSettings | None = None
    """Skips rewriting of queries that a retriever is sure of; null: all are rewritten."""
    calls: Literal["joint", "separate"] = "joint"
    """joint: one request for all strategies that can share it; separate: one request each."""
    language: Annotated[str, Field(min_length=1)] | None = None
    """Language of the rewrites, such as German; null: the query's."""
    joint_prompt: Annotated[str | None, NOT_IDENTITY, Names.TEXT] = None
    """Text file that replaces the built-in joint prompt; its content counts for the fingerprint."""
    retries: Annotated[int, Field(ge=0, le=3)] = 0
    """Extra tries where an answer cannot be read, refuses or was truncated, with another seed and temperature or more
    tokens."""
    guards: GuardSettings = GuardSettings()
    """Checks and masks around the LLM."""

    @model_validator(mode="after")
    def _engine_where_needed(self) -> Self:
        if self.planned and self.engine is None:
            raise ValueError("engine is missing; name one, or set strategies: [] to search with the original only")
        if self.joint_prompt is not None and self.calls != "joint":
            raise ValueError("joint_prompt: no joint prompt is sent with calls: separate; remove it, or set calls: joint")
        entries = [named(entry) for entry in self.strategies]
        names = [entry.name for entry in entries]
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice or "original" in names:
            why = "is not a strategy (the original is always retrieved); remove it"
            if twice:
                sources = list(dict.fromkeys(entry.source for entry in entries if entry.name == twice[0]))
                why = (
                    "is listed twice; list it once"
                    if len(sources) == 1
                    else f"is listed twice ({', '.join(sources)}); give one of them another `name`"
                )
            raise ValueError(f"strategies: {(twice or ['original'])[0]!r} {why}")
        return self

    def names(self) -> dict[str, Names]:
        """Returns the files and servers that its own fields name, strategies apart."""
        return {name: what for name, what in super().names().items() if what is not Names.STRATEGIES}

    @property
    def planned(self) -> list[str]:
        """Returns the names of the strategies that the run makes rewrites with."""
        return [] if isinstance(self.select, SelectNever) else [named(entry).name for entry in self.strategies]

    @property
    def chooses(self) -> bool:
        """Returns True if `select` chooses for queries the strategies that rewrite them."""
        return bool(self.planned) and self.select.kind != "all"

    @property
    def gated(self) -> GateSettings | None:
        """Returns the gate if queries would be rewritten without it, else None."""
        return self.gate if self.planned else None

    @property
    def selects(self) -> bool:
        """Returns True if queries differ in the strategies that rewrite them, by `select` or by the gate."""
        return self.chooses or self.gated is not None
