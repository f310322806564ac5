"""The thresholds of arms that are quantiles: what each is a quantile of, and the work in which numbers replace them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Literal

from cluster.errors import ClusterError
from jobs.chain.arms.gates import RewriteGate
from jobs.chain.arms.generations import Generation, iterate_settings
from jobs.chain.arms.opened import digest
from jobs.chain.arms.shared_work import SharedWork
from rewriters.scores.thresholds import Quantile, Threshold


@dataclass(frozen=True)
class SampledThreshold:
    """A threshold that is taken from a sample.

    Attributes:
        where: Key of the config that asks for it.
        by: Name of the retriever.
        retriever: Key of `SharedWork.retrievers`.
        scores: What tells its scores from others: `OpenedBy.scores`.
        of: The value whose quantile it is.
        settings: The quantile and the sample.
    """

    where: str
    by: str
    retriever: str
    scores: str
    of: Literal["best", "lead"]
    settings: Quantile

    @property
    def key(self) -> str:
        """Returns what it is known by in a plan, by its content: two keys of the config may ask for the same.

        A run that goes on with other addresses or limits finds it, and so does the next job over the same index.
        """
        return digest([self.scores, None, self.of, self.settings.model_dump()])


def sampled_thresholds(work: SharedWork) -> dict[str, SampledThreshold]:
    """Returns the thresholds of a job that are taken from a sample, by key."""
    found = [one for of in work.readings if of.gate is not None for one in _of_gate(work, of.gate).values()]
    for number, of in work.generating("iteration"):
        found += [one for one in (_of_rounds(work, number, of),) if one is not None]
    return {one.key: one for one in reversed(found)}


def with_thresholds(work: SharedWork, known: Mapping[str, float]) -> SharedWork:
    """Returns the work with numbers in place of quantiles; `known`: key -> number.

    Raises:
        ClusterError: The plan that has the numbers lacks one.
    """
    answers, generations = list(work.answers), list(work.generations)
    places: dict[int, dict[float, int]] = {}  # of generations: one quantile over several indexes is several numbers
    for number, of in work.generating("iteration"):
        place = work.answers[number].iteration
        if place is None or (one := _of_rounds(work, number, of)) is None:
            continue
        below, of_place = _number(one, known), places.setdefault(place, {})
        if below not in of_place:
            generations += [of] * bool(of_place)
            of_place[below] = len(generations) - 1 if of_place else place
            generations[of_place[below]] = replace(of, settings=of.settings.model_copy(update={"below": below}))
        answers[number] = replace(answers[number], iteration=of_place[below])
    readings = tuple(replace(one, gate=one.gate and _of_numbers(work, one.gate, known)) for one in work.readings)
    return replace(work, readings=readings, answers=tuple(answers), generations=tuple(generations))


def _number(one: SampledThreshold, known: Mapping[str, float]) -> float:
    if one.key not in known:
        raise ClusterError(
            "run-changed",
            f"{one.where}: the plan of this run has no number for its quantile: it was begun by another version of dmqr; start "
            "another run with --label, or remove it",
        )
    return known[one.key]


def _of_numbers(work: SharedWork, gate: RewriteGate, known: Mapping[str, float]) -> RewriteGate:
    found = {key: _number(one, known) for key, one in _of_gate(work, gate).items()}
    return replace(gate, settings=gate.settings.model_copy(update=found)) if found else gate


def _of_gate(work: SharedWork, gate: RewriteGate) -> dict[str, SampledThreshold]:
    """Returns key of its settings -> the threshold that is a quantile."""
    wanted: dict[str, tuple[Literal["best", "lead"], Threshold | None]] = {
        "below": ("best", gate.settings.below), "lead": ("lead", gate.settings.lead),
    }  # fmt: skip
    scores = work.retrievers[gate.retriever].scores
    return {
        key: SampledThreshold(f"rewrite.gate.{key}", gate.settings.by, gate.retriever, scores, of, one)
        for key, (of, one) in wanted.items()
        if isinstance(one, Quantile)
    }


def _of_rounds(work: SharedWork, number: int, of: Generation) -> SampledThreshold | None:
    """Returns the threshold of an arm's further rounds, by the arm's index; None: it is a number."""
    settings, search = iterate_settings(of), work.searches[work.answers[number].search]
    if not isinstance(settings.below, Quantile):
        return None
    retriever = search.retrievers[settings.by]
    scores = work.retrievers[retriever].scores
    return SampledThreshold("iterate.below", settings.by, retriever, scores, "best", settings.below)
