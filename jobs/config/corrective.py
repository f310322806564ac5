"""The section `web` of the config: searches of the web for queries whose results do not answer them."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field

from cluster.settings import NOT_IDENTITY, Names
from retrievers.kinds import WebOnly
from rewriters.steps.settings import LlmStepSettings


def _of_the_web(value: Any) -> Any:
    return {"kind": "web"} | value if isinstance(value, dict) else value


class WebSearchSettings(LlmStepSettings):
    """A search of the web where the graded results do not suffice (corrective RAG, Yan et al. 2024, arXiv 2401.15884)."""

    prompt: Annotated[str, NOT_IDENTITY, Names.TEXT] = "web_query"
    """web_query, or a YAML file of the same form, whose text counts for the fingerprint."""
    search: Annotated[WebOnly, BeforeValidator(_of_the_web)]
    """The search engine, with the keys of a retriever of kind web."""
    when: Literal["any", "none"] = "none"
    """none: where no graded document is relevant, as in the paper; any: where one is not relevant, or none was found."""
    documents: Annotated[int, Field(ge=1)] = 3
    """Hits that are put behind the documents which are kept, at most."""
    language: Annotated[str, Field(min_length=1)] | None = None
    """That the web is asked in, in words such as English; null: the query's."""
