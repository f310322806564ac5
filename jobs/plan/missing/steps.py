"""What LLMs are to be asked about the first results: further rounds, grades, answers, judgements."""

from __future__ import annotations

from dataclasses import replace

from jobs.chain.arms.shared_work import SharedWork
from jobs.plan.later_steps import LaterTokens
from jobs.plan.missing.amounts import Amount, exactly, of_others
from jobs.plan.missing.answers import UNKNOWN_OVERHEAD, RequestCost, cost_of
from jobs.plan.missing.kinds import Kind, Scale, add_cost
from jobs.plan.missing.reasons import StoredQueries
from jobs.plan.missing.survey import Surveyed
from jobs.run.planning.requests import AskedStep, asked_steps

_IN_TURN = ("grade", "judge")  # stages in which an answer decides what else is asked


def steps(work: SharedWork, looked: Surveyed, stored: StoredQueries, later: LaterTokens | None) -> dict[str, Kind]:
    """Returns what is missing of each kind; a query of whose results something is missing may need none or all.

    `later`: tokens of a query, at most, by which requests are priced whose prompts and whose like are not known; None: they
    have no price.
    """
    found, scale = {}, Scale(looked)
    for step in asked_steps(work):
        if not step.most:
            continue
        missing = looked.steps[step.stage]
        alike = looked.unfollowed * len(missing) / looked.followed if looked.followed else 0.0
        number = exactly(sum(missing)).plus(of_others(missing, alike, step.most))
        if step.stage in _IN_TURN:
            number = number.plus(Amount(0, 0, sum(step.most - one for one in missing if one)))
        rest = (looked.looked - len(missing) - alike) * step.most
        number = scale.of(number.plus(Amount(0, rest, rest)), step.most)
        kind = found[step.kind] = Kind(note=looked.blind or looked.unscored)
        kind.add_stored(scale, looked.seen.reused[step.stage], len(missing), alike)
        # of several tasks, what is not known yet is taken for requests of the one that is missing most often
        task = max(step.tasks, key=lambda one: looked.seen.requests[step.stage, one.engine.key, one.step.name])
        by, name = task.engine, task.step.name
        component = step.stage, f"{name}@{by.settings.shown}"
        kind.parts[component] = number
        cost = cost_of(number, by.settings, by.space, name, looked.seen.asked[by.key, name], stored)
        if number.high and not cost.prompt_tokens.high and not by.settings.is_recorded:
            kind.unpriced = later is None
            cost = cost if later is None else _at_most(cost, number, later, step)
        add_cost(kind, component, cost)
    return found


def _at_most(cost: RequestCost, number: Amount, later: LaterTokens, step: AskedStep) -> RequestCost:
    """Returns the cost of requests of which only the most tokens are known; another tokenizer may be the model's."""
    prompt, written = (of.get(step.stage, 0) / step.most for of in (later.prompt_tokens, later.completion_tokens))
    return replace(
        cost,
        prompt_tokens=Amount(0, prompt * number.expected, (2 * prompt + UNKNOWN_OVERHEAD) * number.high),
        completion_tokens=Amount(0, written * number.expected, written * number.high),
    )
