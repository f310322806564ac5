"""The settings `evaluate` and `report` of the config: how results are measured, and what the report shows."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from cluster.settings import Names, Settings
from jobs.log.judgements import Key


class EvaluateSettings(Settings):
    """How the results are measured."""

    qrels: Annotated[str | None, Names.TEXT] = None
    """Judgements: `key`, doc_id, relevance in tab-separated columns, or TREC's four."""
    key: Key = "log_id"
    """What their first column holds: log_id (of one log), query_id or query (of every log that has the query)."""
    answers: Annotated[str | None, Names.TEXT] = None
    """Gold answers: `key`, answer in tab-separated columns; the report counts the pseudo-answers that have one."""
    measures: Annotated[list[str], Field(min_length=1)] = ["nDCG@10", "R@10", "P@5", "Success@5", "RR@10"]
    """What `run`, `report`, `evaluate`, `diff` and `ablate` measure by, the first one before all (`tune` by it alone): any
    measures that ir_measures knows."""
    baseline: str = "original"
    """The arm that `ablate` compares the others with."""
    min_effect: Annotated[float, Field(gt=0)] = 0.01
    """Smallest difference of a measure that matters; within it, arms are called equivalent."""
    slices: list[str] = []
    """What `ablate` measures arms by, part by part: query_type, frequency, difficulty, words, language, or a log's column."""


class ReportSettings(Settings):
    """Content of the HTML report."""

    texts: bool = True
    """false: the report holds no query, rewrite, prompt, answer or document, only ids, names and numbers."""
    samples: Annotated[int, Field(ge=0)] = 100
    """Number of queries shown with their rewrites, requests and hits."""
