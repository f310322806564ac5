"""What a job was answered by tiers of a provider's prices, and what that has saved."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from cluster.costs import Prices, Totals
from cluster.token_prices import by_tier, without_tiers
from jobs.counts import TierAnswers, counts_of
from jobs.terminal.formats import money


@dataclass(frozen=True)
class AnswersOfTier:
    """The answers of LLMs by one tier."""

    tier: str
    why: dict[str, int]
    """Why they were of this tier (`jobs.counts.TierAnswers`) -> how many, the most frequent first."""

    @property
    def answers(self) -> int:
        """Returns their number."""
        return sum(self.why.values())

    @property
    def words(self) -> str:
        """Returns the tier with its answers, and why they fell back to it."""
        fell = ", ".join(f"{why} {n:,}" for why, n in self.why.items() if why != TierAnswers.SERVED)
        return f"{self.tier} {self.answers:,}" + (f" ({fell})" if fell else "")


def answers_by_tier(counts: Mapping[str, int]) -> list[AnswersOfTier]:
    """Returns the answers by tier, most first; none where no tier was asked for or reported beside the standard one."""
    found: dict[str, dict[str, int]] = {}
    for of, n in counts_of(counts, TierAnswers):
        why = found.setdefault(of.tier, {})
        why[of.why] = why.get(of.why, 0) + n
    sorted_whys = {tier: dict(sorted(why.items(), key=lambda item: (-item[1], item[0]))) for tier, why in found.items()}
    return sorted((AnswersOfTier(*of) for of in sorted_whys.items()), key=lambda one: (-one.answers, one.tier))


REASONS = {
    TierAnswers.SERVED: "it was asked for, or chosen by the provider",
    "refused": "flex had no capacity",
    "timeout": "flex took longer than flex.timeout_seconds",
    "deadline": "flex.deadline_minutes were over",
    "text": "prompts that are no messages have no tiers",
    "unfit": "flex did not take the request",
    "unnamed": "flex was asked, and the answer names no tier",
    "other": "flex was asked, and another tier answered",
}
"""Why an answer is of its tier -> in words; `rewriters/engines/openai/flex.py`."""


@dataclass(frozen=True)
class TierSection:
    """What a report says of tiers."""

    answers: list[AnswersOfTier]
    saved: float | None
    """USD that the same tokens would cost more at the standard tier; None: without prices."""
    reasons: Mapping[str, str]


def tier_section(counts: Mapping[str, int], prices: Prices | None, spent: Totals) -> TierSection:
    """Returns what a report says of tiers."""
    return TierSection(answers_by_tier(counts), None if prices is None else saved_usd(prices, spent), REASONS)


def tier_words(counts: Mapping[str, int], prices: Prices | None, spent: Totals) -> str:
    """Returns the answers by tier, and what that saved, on one line; "" where there is nothing to say."""
    words = ", ".join(one.words for one in answers_by_tier(counts))
    usd = None if prices is None else saved_usd(prices, spent)
    return words + (f": {money(abs(usd))} {'less' if usd > 0 else 'more'} than at the standard tier" if words and usd else "")


def saved_usd(prices: Prices, spent: Totals) -> float:
    """Returns how many USD more the same tokens would cost at the standard tier; negative: less."""
    return prices.usd(at_tiers(spent, None)) - prices.usd(spent)


def at_tiers(spent: Totals, tiers: Mapping[tuple[str, str], str | None] | None) -> Totals:
    """Returns costs as if the tiers of `tiers` had answered: stage and model -> tier, None: the standard one.

    What is not in it stays as it is; `tiers` of None: the standard tier has answered all.
    """
    found: Totals = {}
    for stage, components in spent.items():
        for key, sums in components.items():
            of = stage, key.partition("@")[2]
            billed = sums
            if tiers is None or of in tiers:
                plain = without_tiers(sums)
                billed = plain | by_tier(plain, None if tiers is None else tiers[of])
            found.setdefault(stage, {})[key] = billed
    return found
