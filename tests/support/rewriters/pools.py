"""Rewriters of pools, in one line."""

from pathlib import Path
from typing import Any

import yaml

from rewriters.engines import Completion, Request
from rewriters.pool import Entry, load, load_pool
from rewriters.query import Query
from rewriters.results import Rewritten
from rewriters.rewriter import Rewriter, Rewriting
from rewriters.strategy import Strategy

FOUR = ["general", "keyword", "pseudo_answer", "core_content"]
DECODING = {"temperature": 0.0, "max_tokens": 512}


def rewriter(entries: list[Entry], calls: str = "joint", decoding: dict[str, Any] = DECODING, **more: Any) -> Rewriter:
    return Rewriter(Rewriting(load_pool(entries), calls, decoding, **more))


def said(text: str | None, **more: Any) -> Completion:
    return Completion(text, "stop", "a-model", **more)


def cut(text: str) -> Completion:
    return Completion(text, "length", "a-model")


def asked(one: Rewriter, text: str, **more: Any) -> tuple[Query, list[Request]]:
    query = Query("id1", text, **more)
    return query, one.requests(query)


def answered(one: Rewriter, text: str, *answers: str | Completion) -> Rewritten:
    """Returns what comes of the answers to a query's requests, in their order."""
    query, requests = asked(one, text)
    completions = [said(answer) if isinstance(answer, str) else answer for answer in answers]
    return one.read(query, list(zip(requests, completions, strict=True)))


def texts_of(strategy: Strategy, answer: str | Completion, query: str) -> list[tuple[int, str, str]] | str:
    """Returns position, text and parsed_as of each text of an answer; or the reason why there is none."""
    found = answered(Rewriter(Rewriting((strategy,))), query, answer)
    return [(one.position, one.text, one.parsed_as) for one in found.rewrites] or found.failures[0].reason


def a_file(**fields: Any) -> Strategy:
    """A strategy of a file of the user, sub_query.yaml, whose prompt and names are there."""
    good = {"label": "Sub-Query Rewriting", "prompt": "Ask.\n\nQuery: {query}"}
    return load("./sub_query.yaml", read=lambda _: yaml.safe_dump(good | fields))


PRESETS = Path(__file__).parents[3] / "configs" / "strategies"


def _variant(file: str, **parameters: Any) -> Entry:
    return {str(PRESETS / f"{file}.yaml"): parameters} if parameters else str(PRESETS / f"{file}.yaml")


TRAINED: dict[str, Entry] = {
    "rrr": _variant("rrr"),
    "rq_rag": _variant("rq_rag"),
    "rq_rag_decompose": _variant("rq_rag", action="[S_Decomposed_Query]", name="of_a_kind"),
    "rq_rag_chooses": _variant("rq_rag", action="", name="of_a_kind"),
    "qmd": _variant("qmd"),
    "qmd_passage": _variant("qmd", passage=True, name="qmd_passage"),
    "deep_retrieval": _variant("deep_retrieval"),
}
