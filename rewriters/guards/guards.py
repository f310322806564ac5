"""Applies the guards to the texts of a query.

Each text gets flags, in `RewriteResult.guards`; `rewriters.reasons.FLAGS` says what each means. Two it brings with it, from the
reading of its answer (`cut`, `other_script`). `drift` is added where vectors are (`jobs/chain/drift.py`). A text that people
wrote is not checked. Order: bans, parts of the query, vocabulary, near-duplicates.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from rewriters.guards.files import GuardFile
from rewriters.guards.mask import Mask
from rewriters.guards.near_duplicates import compared, near_duplicates
from rewriters.guards.overrides import Override, load_overrides
from rewriters.guards.preserve import Part, lost, parts, repaired
from rewriters.guards.vocabulary import load_vocabulary
from rewriters.lengths import length
from rewriters.normalise import normalise
from rewriters.query import Query
from rewriters.results import Guarded, RewriteResult
from rewriters.selection import Choice
from rewriters.settings import GuardSettings
from rewriters.strategy import Strategy, searched_as_one

GUARDS_VERSION = 3
"""Raised when a guard that changes texts gives others for the same settings."""
OVERRIDE, REPAIRED = "override", "repaired"
_COUNTED_AT_END = {"repeated", "rare_words"}  # over a whole job
NEAR_DUPLICATE, NO_VOCABULARY, NOT_PRESERVED, OVERRIDDEN = "near_duplicate", "no_vocabulary", "not_preserved", "overridden"


@dataclass(frozen=True)
class GuardRules:
    """The settings with their files; a value that workers are given."""

    settings: GuardSettings = field(default_factory=GuardSettings)
    vocabulary: GuardFile | None = None
    overrides: GuardFile | None = None


class Overridden(NamedTuple):
    """The overrides of a query.

    Attributes:
        texts: Strategy -> the texts that replace the LLM's.
        pinned: Strategies that are used even where they are not selected.
        never: Strategies that are not used.
        banned: Normal forms of texts that are not searched.
    """

    texts: Mapping[str, list[str]] = {}
    pinned: frozenset[str] = frozenset()
    never: frozenset[str] = frozenset()
    banned: frozenset[str] = frozenset()

    def settles(self, strategy: str, *, selected: bool = True) -> bool:
        """Returns whether no LLM is needed for a strategy; `selected`: whether it is known to be."""
        return strategy in self.never or strategy in (self.texts if selected else self.pinned)


_NOTHING = Overridden()


class Guards:
    """The guards of a pool."""

    def __init__(self, rules: GuardRules, pool: Sequence[Strategy], known: Sequence[str]) -> None:
        """Reads the files; `known` are the strategies that overrides may name beside the pool's.

        Raises:
            RewriterError: A file cannot be read, or is wrong.
        """
        self._rules, self._settings = rules, rules.settings
        self._strategies = {strategy.name: strategy for strategy in pool}
        self._vocabulary = load_vocabulary(rules.vocabulary) if rules.vocabulary else None
        texts = tuple(sorted((strategy.name, strategy.n) for strategy in pool))
        names = tuple(sorted({*self._strategies, *known}))
        self._overrides = load_overrides(rules.overrides, texts, names) if rules.overrides else None

    def identity(self) -> dict[str, Any]:
        """Returns the settings that decide texts or flags beyond their defaults; empty if none does."""
        rules, settings = self._rules, self._settings
        elsewhere = {"vocabulary", "overrides", *_COUNTED_AT_END}
        found: dict[str, Any] = settings.model_dump(mode="json", exclude_defaults=True, exclude=elsewhere)
        if settings.preserve != "count":
            found["preserved_by"] = sorted(name for name, one in self._strategies.items() if one.preserve is True)
        if rules.vocabulary is not None and settings.vocabulary is not None:
            found["vocabulary"] = {"content": rules.vocabulary.content, "action": settings.vocabulary.action}
        if rules.overrides is not None:
            found["overrides"] = rules.overrides.content
        return found | {"version": GUARDS_VERSION} if found else {}

    def masked(self, query: Query) -> tuple[Query, Mask]:
        """Returns the query as prompts show it, and what stands behind its placeholders."""
        mask = Mask(self._settings.mask)
        if not self._settings.mask:
            return query, mask
        context = None if query.context is None else mask(query.context)
        values = {name: None if value is None else mask(value) for name, value in sorted(query.values.items())}
        return query._replace(text=mask(query.text), context=context, values=values), mask

    def overridden(self, query: Query) -> Overridden:
        """Returns the overrides of a query; none of one with earlier turns."""
        rows = self._overrides.of(query.text) if self._overrides is not None and query.context is None else []
        return (
            _overridden([row for row in rows if row.status == "banned" or row.strategy in self._strategies])
            if rows
            else _NOTHING
        )

    def chosen(self, choice: Choice, said: Overridden) -> Choice:
        """Returns the choice with the pinned strategies, in the order of the pool."""
        if said.pinned <= set(choice.texts):
            return choice
        texts = {name: choice.texts.get(name) for name in self._strategies if name in choice.texts or name in said.pinned}
        return choice._replace(texts=texts)

    def checked(
        self, query: Query, said: Overridden, rewrites: Sequence[RewriteResult]
    ) -> tuple[list[RewriteResult], list[Guarded]]:
        """Returns the texts that are searched, with flags, in order, and what was left out."""
        wanted = parts(query.text) if any(self._strategies[one.strategy].preserve for one in rewrites) else []
        kept: list[RewriteResult] = []
        left: list[tuple[RewriteResult, str]] = []
        for one in rewrites:
            flagged, reason = (one, None) if OVERRIDE in one.guards else self._alone(one, said, wanted)
            if reason is None:
                kept.append(flagged)
            else:
                left.append((flagged, reason))
        kept, duplicates = self._without_duplicates(query.text, kept)
        left += [(one, NEAR_DUPLICATE) for one in duplicates]
        return kept, _counted(query.text, kept, left, searched_as_one(self._strategies.values()))

    def _alone(self, one: RewriteResult, said: Overridden, wanted: list[Part]) -> tuple[RewriteResult, str | None]:
        """Returns a text with the flags that it gets by itself, and why it is not searched, if it is not."""
        if normalise(one.text) in said.banned:
            return one, OVERRIDDEN
        flags, settings = set(one.guards), self._settings
        strategy = self._strategies[one.strategy]
        missing = lost(one.text, wanted) if strategy.preserve else []
        if missing:
            flags |= {part.flag for part in missing}
            text = repaired(one.text, missing, strategy.list_separator)
            repairs = settings.preserve == "repair" and strategy.preserve is True
            if repairs and len(text) <= strategy.max_chars and not lost(text, wanted):
                one, missing = replace(one, text=text), []
                flags.add(REPAIRED)
        flags |= _out_of_guide(one, strategy)
        unknown = self._vocabulary is not None and one.search_as == "query" and not self._vocabulary.has_term(one.text)
        if unknown:
            flags.add(NO_VOCABULARY)
        reason = None
        if missing and settings.preserve == "drop" and strategy.preserve is True:
            reason = NOT_PRESERVED
        elif unknown and settings.vocabulary is not None and settings.vocabulary.action == "drop":
            reason = NO_VOCABULARY
        return replace(one, guards=tuple(sorted(flags))), reason

    def _without_duplicates(
        self, query: str, rewrites: Sequence[RewriteResult]
    ) -> tuple[list[RewriteResult], list[RewriteResult]]:
        """Returns the texts to search and those to leave out: near-duplicates of earlier ones, or of a person's."""
        first = [compared(query, "query")] + [compared(one.text, one.search_as) for one in rewrites if OVERRIDE in one.guards]
        kept: list[RewriteResult] = []
        left: list[RewriteResult] = []
        for one in rewrites:
            mine = compared(one.text, one.search_as)
            if OVERRIDE not in one.guards and any(near_duplicates(mine, other) for other in first):
                flagged = replace(one, guards=tuple(sorted({*one.guards, NEAR_DUPLICATE})))
                (left if self._settings.near_duplicates == "drop" else kept).append(flagged)
            else:
                kept.append(one)
                first.append(mine)
        return kept, left


def _out_of_guide(one: RewriteResult, strategy: Strategy) -> set[str]:
    """Returns the flags of a text whose length the strategy's `words` only guide."""
    if not strategy.words.guide or one.parsed_as == "original":
        return set()
    count, most = length(one.text), strategy.words.most
    return {"too_short"} if count < strategy.words.least else {"too_long"} if most is not None and count > most else set()


def _overridden(rows: Sequence[Override]) -> Overridden:
    texts: dict[str, list[str]] = {}
    for row in rows:
        if row.status != "banned":
            texts.setdefault(row.strategy, []).append(" ".join(row.text.split()))
    return Overridden(
        texts,
        frozenset(row.strategy for row in rows if row.status == "pinned"),
        frozenset(row.strategy for row in rows if row.status == "banned" and not row.text.strip()),
        frozenset(normalise(row.text) for row in rows if row.status == "banned" and row.text.strip()),
    )


def _counted(
    query: str, kept: Sequence[RewriteResult], left: Sequence[tuple[RewriteResult, str]], as_one: Collection[str]
) -> list[Guarded]:
    """Counts the texts that were left out, by strategy and guard; `as_one`: the strategies whose texts make one search."""
    searched = {(query, "query"), *((one.text, one.search_as) for one in kept if one.strategy not in as_one)}
    joined = {one.strategy for one in kept if one.strategy in as_one}
    last = {one.strategy: one for one, _ in left}  # the search of texts that are searched as one is gone with this one
    found: dict[tuple[str, str], Guarded] = {}
    for one, reason in left:
        if one.strategy in as_one:
            new = one is last[one.strategy] and one.strategy not in joined
        else:
            new = (one.text, one.search_as) not in searched
            searched.add((one.text, one.search_as))
        before = found.get((one.strategy, reason), Guarded(one.strategy, reason))
        found[one.strategy, reason] = before._replace(texts=before.texts + 1, unsearched=before.unsearched + new)
    return list(found.values())
