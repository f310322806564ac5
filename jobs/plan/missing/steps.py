"""What LLMs are to be asked about the first results: further rounds, grades, answers, judgements."""

from __future__ import annotations

from jobs.chain.arms.shared_work import SharedWork
from jobs.plan.missing.amounts import Amount, exactly, of_others
from jobs.plan.missing.answers import cost_of
from jobs.plan.missing.kinds import Kind, Scale, add_cost
from jobs.plan.missing.reasons import StoredQueries
from jobs.plan.missing.survey import Surveyed
from jobs.run.planning.requests import asked_steps

_IN_TURN = ("grade", "judge")  # stages in which an answer decides what else is asked


def steps(work: SharedWork, looked: Surveyed, stored: StoredQueries) -> dict[str, Kind]:
    """Returns what is missing of each kind; a query of whose results something is missing may need none or all."""
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
        kind = found[step.kind] = Kind(reused=looked.seen.reused[step.stage], note=looked.blind or looked.unscored)
        # of several tasks, what is not known yet is taken for requests of the one that is missing most often
        task = max(step.tasks, key=lambda one: looked.seen.requests[step.stage, one.engine.key, one.step.name])
        by, name = task.engine, task.step.name
        component = step.stage, f"{name}@{by.settings.shown}"
        kind.parts[component] = number
        add_cost(kind, component, cost_of(number, by.settings, by.space, name, looked.seen.asked[by.key, name], stored))
    return found
