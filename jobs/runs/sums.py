"""Reads the sums of a job's counts: failures, flags of guards, selected strategies, needs of arms."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from jobs.counts import (
    ERROR_QUERIES,
    ERRORS,
    FLAGGED_TEXTS,
    LEFT_OUT_TEXTS,
    READ_TEXTS,
    SELECTED_QUERIES,
    STRATEGIES_OF_QUERIES,
    WORK,
    WORK_ALONE,
    WORK_ELSEWHERE,
    by_arm,
)
from jobs.tables import NOTES, READER_WORDS, READERS
from rewriters.reasons import FELL_BACK


def by_reason(counts: Mapping[str, int], *, notes: bool = False) -> dict[str, int]:
    """Returns reason -> the queries with such a failure, each once a stage, the most first; `notes`: with notes, too."""
    reasons: Counter[str] = Counter()
    for (_, reason), n in ERROR_QUERIES.of(counts):
        if notes or reason not in NOTES:
            reasons[reason] += n
    return dict(sorted(reasons.items(), key=lambda item: (-item[1], item[0])))


def fallbacks(counts: Mapping[str, int]) -> dict[str, int]:
    """Returns strategy -> the number of queries for which the original stands in for an answer that cannot be used."""
    errors = ERRORS.of(counts)
    return dict(
        sorted((component, n) for (stage, component, reason), n in errors if stage == "rewrite" and reason == FELL_BACK)
    )


def many_fallbacks(counts: Mapping[str, int], limit: float) -> dict[str, str]:
    """Returns strategy -> a sentence where the original stands in for more than `limits.error_rate` of the queries."""
    asked = counts.get("queries", 0)
    return {
        strategy: f"for {n:,} of {asked:,} queries the answer of {strategy} cannot be used and the original is searched in its "
        f"place{': more than half of them' if 2 * n > asked else ''}; errors/ has why (fell_back)"
        for strategy, n in fallbacks(counts).items()
        if n > limit * asked
    }


def readers_by_strategy(counts: Mapping[str, int]) -> dict[str, dict[str, int]]:
    """Returns strategy -> number of its texts by how they were read, the best way first and in the words of a person."""
    readers: dict[str, dict[str, int]] = {}
    for (strategy, reader), count in sorted(READ_TEXTS.of(counts), key=lambda row: (*READERS, row[0][1]).index(row[0][1])):
        readers.setdefault(strategy, {})[READER_WORDS.get(reader, reader)] = count
    return readers


class GuardCount(NamedTuple):
    """The number of texts with one finding of the guards."""

    name: str  # a flag, or the reason for which they were left out
    total: int
    left_out: bool


def found_by_guards(counts: Mapping[str, int]) -> list[GuardCount]:
    """Returns the flags of a run's or an arm's guards, then the texts that they left out, by name."""
    totals: Counter[tuple[bool, str]] = Counter()
    for (_, flag), count in FLAGGED_TEXTS.of(counts):
        totals[False, flag] += count
    for (_, guard), count in LEFT_OUT_TEXTS.of(counts):
        totals[True, guard] += count
    return [GuardCount(name, total, is_left_out) for (is_left_out, name), total in sorted(totals.items())]


def selected(counts: Mapping[str, int], strategies: Sequence[str]) -> tuple[dict[str, int], int]:
    """Returns strategy -> the number of queries for which it was selected, and of how many: 0 in a run without selection."""
    queries = Counter[str]()
    for (query_type, _), n in STRATEGIES_OF_QUERIES.of(counts):
        queries[query_type] += n
    chosen = {name: sum(counts.get(SELECTED_QUERIES.key(kind, name), 0) for kind in queries) for name in strategies}
    return chosen, queries.total()


class Need(NamedTuple):
    """A number of requests, searches or pairs of a component."""

    quantity: str
    component: str  # `component@model`, as in the totals of costs
    amount: int
    made_as: str | None = None  # under which it was paid for, where an earlier stage has made it for other arms


class ArmNeeds(NamedTuple):
    """Needs of an arm."""

    whole: list[Need]
    alone: list[Need]  # what no other arm needs


def arm_needs(counts: Mapping[str, int], arms: Sequence[str]) -> dict[str, ArmNeeds]:
    """Returns the needs of each arm, from the counts of the manifests.

    An ablation without an arm makes (or takes from earlier ones) fewer requests, searches and pairs by just what the arm
    needs alone. Two arms may share what no third needs: what leaving out both saves is more than the sum.
    """
    needs = {}
    for arm, own in by_arm(counts, arms).items():
        executed = [Need(quantity, component, n) for (quantity, component), n in WORK.of(own)]
        executed += [Need(quantity, component, n, made_as) for (quantity, made_as, component), n in WORK_ELSEWHERE.of(own)]
        alone = [Need(quantity, component, n) for (quantity, component), n in WORK_ALONE.of(own)]
        needs[arm] = ArmNeeds(executed, alone)
    return needs
