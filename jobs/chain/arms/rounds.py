"""The work of a further round: the lists of refined queries, and the candidates that they give, by the stages of the chain.

A refined query is a text of the strategy `iterate`, its position is the round. Its lists are fused as those of the arm are,
without the original's, which are there already. What is scored is known when a round is merged.
"""

from __future__ import annotations

from dataclasses import replace

from jobs.chain.arms.shared_work import Answer, Reading, SharedWork
from jobs.tables import ITERATE, ORIGINAL
from retrievers.settings import FuseSettings
from rewriters.rewriter import Rewriting


def round_work(work: SharedWork) -> SharedWork:
    """Returns the work of one round of the arms that have further rounds; its answers are in the order of theirs.

    Each arm has a reading of its own, named as the arm.
    """
    readings, searches, answers = [], [], list[Answer]()
    for place, (number, of) in enumerate(work.generating("iteration")):
        answer = work.answers[number]
        search = work.searches[answer.search]
        readings.append(Reading(answer.arm, Rewriting(()), Rewriting(()), engines={"": of.engine}))
        routes = {ORIGINAL: list[str](), ITERATE: list(search.route(ITERATE))}
        searches.append(replace(search, reading=place, together=frozenset(), joined=None, routes=routes, fuse=FuseSettings()))
        fuse = answer.fuse.model_copy(update={"weights": {ORIGINAL: 0.0}, "redundancy": "none"})
        own = frozenset({ITERATE})
        answers.append(
            replace(answer, search=place, strategies=own, fuse=fuse, reranker=None, generation=None, correction=None)
        )
    return replace(work, corrections=(), readings=tuple(readings), searches=tuple(searches), answers=tuple(answers))
