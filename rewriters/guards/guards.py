"""Applies the guards to the texts of a query.

Each text gets flags (`rewriters.reasons.FLAGS`), in `RewriteResult.guards`. Two it brings with it, from the reading of its
answer (`cut`, `other_script`). `drift` is added where vectors are (`jobs/chain/drift.py`).

Two texts are near-duplicates if the Jaccard index of their sets of words is 0.9 or more and they differ in no word
with a digit. Case, punctuation and repetition do not count; nothing is stemmed. The order of the words they share counts, since
"from London to Paris" is not "from Paris to London" to an encoder, unless one of them is a list with commas. A text that is
searched as a passage and one that is searched as a query are near-duplicates only if all their words are equal in order.
"""

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from rewriters.guards.mask import Mask
from rewriters.guards.preserve import Part, lost, parts, repaired, split_words
from rewriters.lengths import length
from rewriters.query import Query
from rewriters.results import Guarded, RewriteResult
from rewriters.settings import GuardSettings
from rewriters.strategy import Strategy

LEAST = 0.9  # of the Jaccard index
_SEPARATOR = re.compile(r"[,;،、，；]")


class Compared(NamedTuple):
    """A text in the form that is compared."""

    search_as: str
    tokens: tuple[str, ...]
    known: frozenset[str]
    listed: bool


def compared(text: str, search_as: str) -> Compared:
    """Returns a text in the form that is compared; one without words by its characters."""
    tokens = tuple(split_words(text)) or tuple(text.split())
    return Compared(search_as, tokens, frozenset(tokens), _SEPARATOR.search(text) is not None)


def near_duplicates(first: Compared, other: Compared) -> bool:
    """Returns True if two texts of one query are near-duplicates; symmetric."""
    if first.search_as != other.search_as:
        return first.tokens == other.tokens
    if not (first.listed or other.listed) and _order(first, other.known) != _order(other, first.known):
        return False
    if first.known == other.known:
        return True
    differing = first.known ^ other.known
    union = len(first.known | other.known)
    if union - len(differing) < LEAST * union:
        return False
    return not any(any(map(str.isdigit, word)) for word in differing)


def _order(text: Compared, shared: frozenset[str]) -> list[str]:
    """Returns the words that another text has, too, by where each stands first."""
    return [word for word in dict.fromkeys(text.tokens) if word in shared]


GUARDS_VERSION = 3  # raised when a guard that changes texts gives others for the same settings
REPAIRED = "repaired"
NEAR_DUPLICATE, NOT_PRESERVED = "near_duplicate", "not_preserved"


class Guards:
    """The guards of a pool."""

    def __init__(self, settings: GuardSettings, pool: Sequence[Strategy]) -> None:
        self._settings = settings
        self._strategies = {strategy.name: strategy for strategy in pool}

    def identity(self) -> dict[str, Any]:
        """Returns the settings that decide texts or flags beyond their defaults; empty if none does."""
        settings = self._settings
        fields: dict[str, Any] = settings.model_dump(mode="json", exclude_defaults=True)
        if settings.preserve != "count":
            fields["preserved_by"] = sorted(name for name, one in self._strategies.items() if one.preserve is True)
        return fields | {"version": GUARDS_VERSION} if fields else {}

    def masked(self, query: Query) -> tuple[Query, Mask]:
        """Returns the query as prompts show it, and what stands behind its placeholders."""
        mask = Mask(self._settings.mask)
        context = None if query.context is None else mask(query.context)
        values = {name: None if value is None else mask(value) for name, value in sorted(query.values.items())}
        return query._replace(text=mask(query.text), context=context, values=values), mask

    def checked(self, query: Query, rewrites: Sequence[RewriteResult]) -> tuple[list[RewriteResult], list[Guarded]]:
        """Returns the texts that are searched, with flags, in order, and what was left out."""
        wanted = parts(query.text) if any(self._strategies[one.strategy].preserve for one in rewrites) else []
        earlier = [compared(query.text, "query")]
        kept: list[RewriteResult] = []
        left: Counter[tuple[str, str]] = Counter()  # strategy, guard -> texts
        for rewrite in rewrites:
            flagged, reason = self._alone(rewrite, wanted)
            if reason is None:
                tokens = compared(flagged.text, flagged.search_as)
                if not any(near_duplicates(tokens, other) for other in earlier):
                    earlier.append(tokens)
                else:
                    flagged = replace(flagged, guards=tuple(sorted({*flagged.guards, NEAR_DUPLICATE})))
                    reason = NEAR_DUPLICATE if self._settings.near_duplicates == "drop" else None
            if reason is None:
                kept.append(flagged)
            else:
                left[flagged.strategy, reason] += 1
        # The first reason of a strategy is the one that it is told.
        ordered = sorted(left.items(), key=lambda row: row[0][1] == NEAR_DUPLICATE)
        return kept, [Guarded(strategy, guard, texts) for (strategy, guard), texts in ordered]

    def _alone(self, rewrite: RewriteResult, wanted: list[Part]) -> tuple[RewriteResult, str | None]:
        """Returns a text with the flags that it gets by itself, and why it is not searched, if it is not."""
        flags, settings = set(rewrite.guards), self._settings
        strategy = self._strategies[rewrite.strategy]
        missing = lost(rewrite.text, wanted) if strategy.preserve else []
        if missing:
            flags |= {part.flag for part in missing}
            text = repaired(rewrite.text, missing, strategy.list_separator)
            repairs = settings.preserve == "repair" and strategy.preserve is True
            if repairs and len(text) <= strategy.max_chars and not lost(text, wanted):
                rewrite, missing = replace(rewrite, text=text), []
                flags.add(REPAIRED)
        if strategy.words.guide and rewrite.parsed_as != "original":
            count, most = length(rewrite.text), strategy.words.most
            flags |= {"too_short"} if count < strategy.words.least else {"too_long"} if count > (most or count) else set()
        is_dropped = missing and settings.preserve == "drop" and strategy.preserve is True
        return replace(rewrite, guards=tuple(sorted(flags))), NOT_PRESERVED if is_dropped else None
