"""Settings of further rounds: refined queries, and the labels of the documents that they are written from."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, model_validator

from cluster.settings import NOT_IDENTITY, Names
from rewriters.steps.settings import DocumentStepSettings, Labelling, LlmStepSettings


class LabelGradeSettings(LlmStepSettings):
    """Grades of an LLM by which documents are labelled; those of `grade` or of the judge, where they are asked for alike."""

    prompt: Annotated[str, NOT_IDENTITY, Names.TEXT] = "three_grades"
    """three_grades (relevant, ambiguous, irrelevant), two_grades (relevant or not), relevance (the judge's, from 0 to 3), or a
    YAML file of the same form, whose text counts for the fingerprint."""
    document_chars: Annotated[int, Field(ge=1)] | None = None
    """The most characters of a document that is graded; null: no limit."""


class RoundLabelSettings(Labelling):
    """How documents are labelled by relevance (High, Medium, Low) for refined queries."""

    by: Literal["rank", "score", "rerank", "llm"] = "rank"
    """rank: by thirds of their ranks; score: by thresholds of the score that they are ranked by; rerank: by thresholds of the
    reranker's own score, whatever `rerank.combine` makes of it; llm: by grades of an LLM (`grades`), a request each: High from
    2 and Medium from 1 on, unless `high` and `medium` say otherwise; a document that could not be graded has no label."""
    grades: LabelGradeSettings | None = None
    """With `by: llm`: how documents are graded, against the query; null: by its defaults."""

    @model_validator(mode="after")
    def _grades_by_an_llm(self) -> RoundLabelSettings:
        if self.grades is not None and self.by != "llm":
            raise ValueError(f"grades are of an LLM, and by is {self.by}; set by: llm, or remove them")
        return self

    @property
    def graded_by(self) -> LabelGradeSettings | None:
        """Returns how documents are graded; None: no LLM does."""
        return (self.grades or LabelGradeSettings()) if self.by == "llm" else None


class IterateSettings(DocumentStepSettings):
    """Further rounds of rewriting and retrieval, for queries whose best score is low (rewrite, retrieve, read)."""

    prompt: Annotated[str, NOT_IDENTITY, Names.TEXT] = "iterate"
    """iterate (a refined query, from what was found), refine (from documents by their grades, which `labels` gives), or a YAML
    file of the same form, whose text counts for the fingerprint."""
    documents: Annotated[int, Field(ge=1)] = 3
    """How many of the first results the LLM is shown."""
    labels: RoundLabelSettings | None = None
    """The label of relevance that stands behind each document; null: none."""
    by: Annotated[str, Field(min_length=1)]
    """Whose best score tells whether a query needs another round: a retriever's, of the original's list, then of those of the
    refined queries; or `rerank`, the best of the reranker's."""
    below: float
    """A query whose best score so far is lower has another round; so does one without any hit."""
    rounds: Annotated[int, Field(ge=1, le=5)] = 1
    """Rounds at most."""
    merge: Literal["best", "fuse"] = "fuse"
    """How candidates of the rounds are merged: by RRF of the rounds' rankings; or best, each with its best fused score, which
    compares rounds that have as many lists, such as with `rewrite.strategies: []`."""
