"""Amount of work a query may need, by what it is counted under in costs/, and how much arms save by sharing it."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from jobs.chain.arms.compile import Compiled
from jobs.chain.arms.requests import as_made, called, key_in_reading, most_requests
from jobs.chain.arms.resources import AnsweredBy, OpenedBy
from jobs.chain.arms.shared_work import Answer, SharedWork
from jobs.chain.arms.tasks import LlmTask
from jobs.chain.journal import Key
from jobs.config.config import stage_of
from jobs.counts import GATE_STAGE, QUANTITIES
from jobs.run.money import most_of_task
from jobs.tables import ITERATE, ORIGINAL
from rewriters.engines import Request

Component = tuple[str, str]
"""Stage, and what it counts under: the name of a request, else `component@model`, as costs have them."""

COUNTED = ["stage", "component", "model", "requests", "searches", "pairs", "reused"]
"""The columns of costs that say what was made, and what was taken from the store."""
SEARCHING = (GATE_STAGE, "retrieve", "rerank", "web")  # stages whose costs count searches or pairs, not requests
_KINDS = {stage: kind for kind, stage in QUANTITIES.items()}


def component_of(cost: Mapping[str, Any]) -> tuple[Component, int]:
    """Returns the component of a row of costs, and its number."""
    stage, name = cost["stage"], cost["component"]
    if stage not in SEARCHING:
        return (stage, name), cost["requests"] or 0
    return (stage, f"{name}@{cost['model'] or ''}"), (cost["searches"] or 0) + (cost["pairs"] or 0)


@dataclass
class WorkPart:
    """Need of a query for a component; `task` of a rewriting request is that of an empty query."""

    kind: str  # of `jobs.counts.QUANTITIES`
    most: int = 0
    in_rounds: int = 0
    engine: AnsweredBy | None = None
    task: LlmTask | Request | None = None


Work = dict[Component, WorkPart]


def most_work(work: Work) -> Counter[str]:
    """Returns kind -> what a query needs at most."""
    most = Counter(dict.fromkeys(QUANTITIES, 0))
    for part in work.values():
        most[part.kind] += part.most + part.in_rounds
    return most


def work_of(work: SharedWork) -> Work:
    """Returns the work that a query may need in all arms; requests, searches and pairs that arms share count once."""
    parts: Work = {}

    def add(kind: str, component: Component, most: int, in_rounds: int = 0, **asked: Any) -> None:
        part = parts.setdefault(component, WorkPart(kind, **asked))
        part.most += most
        part.in_rounds += in_rounds

    def add_searches(retriever: OpenedBy, most: int, in_rounds: int = 0, stage: str = "retrieve") -> None:
        for name, model in retriever.search_names.items():  # a hybrid's are counted apart
            add("web_searches" if stage == "web" else "searches", (stage, f"{name}@{model or ''}"), most, in_rounds)

    requests: dict[Key, tuple[str, Request]] = {}
    for reading, names in zip(work.readings, called(work.readings), strict=True):
        for request in most_requests(reading):
            name = names[request.name, request.prompt_hash].cost
            requests.setdefault(key_in_reading(reading, request), (name, as_made(reading, request)))
    engines = {engine.key: engine for reading in work.readings for engine in reading.engines.values()}
    for name, request in requests.values():
        add("requests", ("rewrite", name), 1, engine=engines[request.engine], task=request)
    for key in {reading.gate.retriever for reading in work.readings if reading.gate is not None}:
        add_searches(work.retrievers[key], 1, stage=GATE_STAGE)
    for key, most in _searches(work).items():
        add_searches(work.retrievers[key], most)
    for answer in work.answers:
        search, rounds = work.searches[answer.search], 0
        if "iterate" in answer.tasks:
            rounds = answer.tasks["iterate"].rounds.rounds
            for name in search.route(ITERATE):
                add_searches(work.retrievers[search.retrievers[name]], 0, rounds)
        if answer.reranker is not None:  # how many arms share shows itself later
            reranker, most = work.rerankers[answer.reranker], answer.candidates
            add("pairs", ("rerank", f"{reranker.settings.counted_as}@{reranker.settings.scored_by}"), most, most * rounds)
        if answer.web_search is not None:
            add_searches(answer.web_search, 1, stage="web")
        for section, task in answer.tasks.items():
            stage = stage_of(section)
            add(_KINDS[stage], (stage, task.name), most_of_task(answer, section, task), engine=task.engine, task=task)
    return parts


def _searches(work: SharedWork) -> Counter[str]:
    """Returns the distinct searches of a query at most, by key of the retriever, before further rounds."""
    searches: set[tuple[Any, ...]] = set()
    for number, search in enumerate(work.searches):
        reading, used = work.readings[search.reading], work.strategies(number)
        texts: list[tuple[Any, ...]] = [(ORIGINAL, 0)]
        pool = [one for one in reading.rewriting.pool if one.name in used]
        texts += [(one.name, n, search.reading) for one in pool for n in range(1 if one.as_one else one.n)]
        for name, key in search.retrievers.items():
            routed = [text for text in texts if name in search.route(text[0])]
            if name in search.together and routed:
                searches.add((key, "together", search.reading, search.joined, search.fuse.model_dump_json()))
                routed = [text for text in routed if text[0] == ORIGINAL]  # where its texts as one have no hit
            searches |= {(key, *text) for text in routed}
    return Counter(key for key, *_ in searches)


def _alone(work: SharedWork, answer: Answer) -> SharedWork:
    search = work.searches[answer.search]
    reading = work.readings[search.reading]
    pool = tuple(strategy for strategy in reading.rewriting.pool if strategy.name in answer.strategies)
    rewriting = replace(reading.rewriting, pool=pool)
    return replace(
        work,
        readings=(replace(reading, rewriting=rewriting, asked=rewriting),),
        searches=(replace(search, reading=0),),
        answers=(replace(answer, search=0),),
    )


def planned_saving(compiled: Compiled, queries: int) -> dict[str, dict[str, int]]:
    """Returns the most work of the arms by kind, each alone (`naive`) and together (`executed`), as far as it is known."""
    work, naive = compiled.work, Counter[str]()
    for answer in work.answers:
        naive.update(most_work(work_of(_alone(work, answer))))
    both = {"naive": naive, "executed": most_work(work_of(work))}
    return {name: {kind: number * queries for kind, number in most.items()} for name, most in both.items()}
