"""Rewriters of pools, in one line."""

from __future__ import annotations

from typing import Any

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
    """What comes of the answers to a query's requests, in their order."""
    query, requests = asked(one, text)
    completions = [said(answer) if isinstance(answer, str) else answer for answer in answers]
    return one.read(query, list(zip(requests, completions, strict=True)))


def a_file(**fields: Any) -> Strategy:
    """A strategy of a file of the user, sub_query.yaml, whose prompt and names are there."""
    import yaml

    good = {"label": "Sub-Query Rewriting", "prompt": "Ask.\n\nQuery: {query}"}
    return load("./sub_query.yaml", read=lambda _: yaml.safe_dump(good | fields))
