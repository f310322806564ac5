"""Searches of the web: texts in, hits with their texts out, through what was answered before.

Any stage may search so: the first retrieval with the texts of a query, a later one with a query that it has written.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from cluster.run.stage import heartbeat
from jobs.chain.fill import fill
from jobs.chain.web.answers import WebAnswers
from retrievers.web.retriever import Web, WebAnswer


def search_web(web: Web, answers: WebAnswers, asked: Mapping[str, Sequence[str]]) -> dict[str, WebAnswer]:
    """Returns the hits of each text, best first, or why its search failed.

    Each different text is sent once, and only if no answer is known. What is answered is journaled as it comes; the
    caller calls `answers.save` when the shard's searches are done.

    Args:
        web: The search engine.
        answers: Of the shard and the engine.
        asked: Text as it is sent (`Web.sent`) -> the query_ids that ask it.

    Raises:
        RetrieverError: No search succeeds: the key or the address.
    """
    answers.asked_by(asked)

    def compute(missing: list[str]) -> Iterator[list[tuple[str, WebAnswer]]]:
        for number, found in enumerate(web.find(missing, answers.sent), start=1):
            yield [found]
            heartbeat(number / len(missing))

    texts = list(asked)
    return dict(zip(texts, fill(answers, texts, compute), strict=True))
