"""How many searches a query may need, and how much work arms save by sharing it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from cluster.costs import Totals
from jobs.chain.arms.compile import Compiled
from jobs.chain.arms.requests import asked_at_most, most_requests
from jobs.config.config import Config
from jobs.counts import QUANTITIES, cost_quantity, cost_stages
from jobs.job.steps import WEB_SEARCH
from jobs.run.planning.requests import most_of_stage
from jobs.run.spending import tries_per_request
from jobs.runs.folder import RunFolder
from jobs.runs.sums import arm_needs
from jobs.tables import ITERATE, ORIGINAL


def searches_of_query(config: Config, retriever: str, texts: Mapping[str, int]) -> int:
    """Returns the most searches of a query by a retriever; `texts`: strategy -> its lists of a query and retriever, at most."""
    routed = [strategy for strategy in texts if retriever in config.retrieve.route(strategy)]
    refined = rounds_of_query(config) if retriever in config.retrieve.route(ITERATE) else 0  # each by itself
    return refined + _before_rounds(config, retriever, texts, routed)


def _before_rounds(config: Config, retriever: str, texts: Mapping[str, int], routed: Sequence[str]) -> int:
    """Returns the most searches of a query by a retriever before further rounds; `routed`: strategies that it searches."""
    if not config.retrieve.retrievers[retriever].together:
        return sum(texts[strategy] for strategy in routed)
    # where its texts as one have no hit, the original is searched by itself
    return min(len(routed), 2 if ORIGINAL in routed and retriever in config.joining else 1)


def rounds_of_query(config: Config) -> int:
    """Returns the most further rounds of a query."""
    return 0 if config.iterate is None else config.iterate.rounds


def graded_in_round(config: Config) -> int:
    """Returns how many documents an LLM grades for a refined query, at most."""
    step = config.iterate
    return 0 if step is None or step.labels is None or step.labels.graded_by is None else step.documents


def pairs_of_query(config: Config) -> int:
    """Returns the most pairs of a query that the reranker scores: candidates may all be new in each round."""
    return 0 if config.rerank.kind == "none" else config.fuse.keep * (1 + rounds_of_query(config))


def step_work(config: Config) -> dict[str, int]:
    """Returns quantity -> the most of it that a query needs after retrieval, of what the config alone tells."""
    rounds = rounds_of_query(config)
    return {
        "pairs": pairs_of_query(config), "rounds": rounds, "round_grades": rounds * graded_in_round(config),
        "web_searches": int(config.web is not None), "answers": int(config.answer is not None),
    }  # fmt: skip


def arms_left(compiled: Compiled, queries: int) -> dict[str, int]:
    """Returns what queries need at most, in all arms together, of what `plan` does not look up."""
    configs = [arm.config for arm in compiled.arms if not arm.members]
    works = [step_work(config) for config in configs]
    of_query = {kind: sum(work[kind] for work in works) for kind in ("rounds", "web_searches")}
    tries = max((tries_per_request(one.rewriting) for one in compiled.work.readings), default=0)
    return {"queries": queries, "tries": tries} | {kind: queries * most for kind, most in of_query.items()}


def all_searches(config: Config, texts: Mapping[str, int]) -> dict[str, int]:
    """Returns `searches_of_query` of all retrievers, by the names they are counted under: a hybrid's are counted apart."""
    return {
        counted: searches_of_query(config, name, texts)
        for name, settings in config.retrieve.retrievers.items()
        for counted in settings.search_names(name)
    }


def searches_of_web(config: Config) -> dict[str, int]:
    """Returns the most searches of a query of the web where results do not suffice (`web`), by `component@model`."""
    named = {} if config.web is None else config.web.search.search_names(WEB_SEARCH)
    return {f"{of}@{model or ''}": 1 for of, model in named.items()}


@dataclass(frozen=True)
class Saving:
    """Requests, searches and pairs: of all arms, each alone, and of the ablation.

    `executed` has each distinct one once; `reused` of them were taken from the store.
    """

    naive: Mapping[str, int]
    executed: Mapping[str, int]
    reused: Mapping[str, int]

    def values(self) -> dict[str, Any]:
        """Returns it as JSON-able values."""
        return {"naive": dict(self.naive), "executed": dict(self.executed), "reused": dict(self.reused)}


def saved(run: RunFolder) -> Saving:
    """Returns what the committed shards of an ablation saved."""
    naive = dict.fromkeys(QUANTITIES, 0)
    arms = [arm["name"] for arm in run.record["ablation"]["arms"]]
    for needs in arm_needs(run.counts, arms).values():
        for need in needs.whole:
            naive[need.quantity] += need.amount
    return Saving(naive, *executed_work(run.spent))


def executed_work(spent: Totals) -> tuple[dict[str, int], dict[str, int]]:
    """Returns the requests, searches and pairs that were needed, each distinct one once, and those taken from the store.

    `spent`: costs of the committed shards.
    """
    executed, reused = {}, {}
    for kind in QUANTITIES:
        sums = [one for stage in cost_stages(kind) for one in spent.get(stage, {}).values()]
        reused[kind] = int(sum(one.get("reused", 0) for one in sums))
        executed[kind] = int(sum(one.get(cost_quantity(kind), 0) for one in sums)) + reused[kind]
    return executed, reused


def planned_saving(compiled: Compiled, queries: int) -> Saving:
    """Returns what arms save at most: how many texts are equal, and how many pairs arms share, shows itself later."""
    naive, answered = dict.fromkeys(QUANTITIES, 0), [arm for arm in compiled.arms if not arm.members]
    work = compiled.work
    readings = {answer.arm: work.readings[work.searches[answer.search].reading] for answer in work.answers}
    for arm in answered:
        rewriting = readings[arm.name].rewriting
        pool = tuple(strategy for strategy in rewriting.pool if strategy.name in arm.strategies)
        texts = {ORIGINAL: 1} | {strategy.name: strategy.lists for strategy in pool}
        naive["requests"] += len(most_requests(replace(rewriting, pool=pool)))
        naive["searches"] += sum(all_searches(arm.config, texts).values())
        naive["pairs"] += pairs_of_query(arm.config)
        naive["rounds"] += rounds_of_query(arm.config) * (1 + graded_in_round(arm.config))
        naive["web_searches"] += arm.config.web is not None
        naive["answers"] += arm.config.answer is not None
        naive["judgements"] += most_of_stage(
            replace(work, answers=tuple(one for one in work.answers if one.arm == arm.name)), "judge"
        )
    naive["grades"] = most_of_stage(work, "grade")
    executed = {
        "requests": len({key for reading in work.readings for key in asked_at_most(reading)}),
        "searches": searches_by_name(compiled).total(),
        "pairs": naive["pairs"],
        "rounds": naive["rounds"],
        "grades": naive["grades"],
        "web_searches": naive["web_searches"],
        "answers": naive["answers"],
        "judgements": most_of_stage(work, "judge"),
    }
    all_naive, all_executed = ({kind: count * queries for kind, count in of.items()} for of in (naive, executed))
    return Saving(all_naive, all_executed, dict.fromkeys(QUANTITIES, 0))


def searches_by_name(compiled: Compiled, *, before_rounds: bool = False) -> Counter[str]:
    """Returns the distinct searches of a query at most, by text and retriever, under the names they are counted by.

    `before_rounds`: without those of further rounds, and with those of the original by itself, where texts that are searched as
    one have no hit.
    """
    work = compiled.work
    found: set[tuple[Any, ...]] = set()
    for number, search in enumerate(work.searches):
        reading, used = work.readings[search.reading], work.strategies(number)
        texts: list[tuple[object, ...]] = [(ORIGINAL, 1)]
        texts += [(one.name, n, search.reading) for one in reading.rewriting.pool if one.name in used for n in range(one.lists)]
        for name, key in search.retrievers.items():
            if name in search.together:
                together = search.reading, search.joined, search.fuse.model_dump_json()
                found.add((key, "together", *together))
                found |= {(key, "alone", *together)} if before_rounds and name in search.route(ORIGINAL) else set()
            else:
                found |= {(key, *text) for text in texts if name in search.route(str(text[0]))}
    for number, arm in work.doing("iterate").items() if not before_rounds else ():
        search = work.searches[arm.search]
        rounds = range(arm.tasks["iterate"].rounds.rounds)
        found |= {(search.retrievers[name], ITERATE, number, n) for name in search.route(ITERATE) for n in rounds}
    return Counter(
        f"{counted}@{model or ''}" for key, *_ in found for counted, model in work.retrievers[key].search_names.items()
    )


def ablation_rows(planned: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yields the rows of the table of `plan`."""
    yield "ablate", f"{planned['arms']:,} arms over the same queries, each thing that they share done once"
    for kind in QUANTITIES:
        naive, executed = planned["naive"][kind], planned["executed"][kind]
        if naive:
            words = kind.replace("_", " ")
            times = f"{naive / executed:.1f} times less" if executed < naive else f"the {words} that arms share are known later"
            yield f"  {words}", f"up to {executed:,} in place of {naive:,}: {times}"
    yield "  folder", planned["folder"]
