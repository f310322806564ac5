"""Indexes that other programs write to while a job searches them: their states are noted, and a change is said."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from jobs.job.opening import retriever_facts
from jobs.terminal.logs import event
from retrievers.hybrid.settings import indexed_identities
from retrievers.settings import RetrieverSettings, all_indexed

States = Mapping[str, Any]
"""Index -> its state; only of those that may change in place."""


class SearchedIndex(NamedTuple):
    """A retriever of a job with an index of its own, and the identity of the index."""

    name: str
    settings: RetrieverSettings
    identity: Mapping[str, Any]

    @property
    def place(self) -> str:
        """Returns the name of its index."""
        return self.settings.place(self.identity)


def searched_indexes(
    retrievers: Mapping[str, RetrieverSettings], indexes: Mapping[str, Mapping[str, Any]]
) -> tuple[SearchedIndex, ...]:
    """Returns the indexes that retrievers search.

    Args:
        retrievers: name -> settings.
        indexes: name -> identity.
    """
    identities = indexed_identities(indexes)
    return tuple(SearchedIndex(name, one, identities[name]) for name, one in all_indexed(retrievers).items())


def read_states(searched: Iterable[SearchedIndex]) -> dict[str, Any]:
    """Returns the states of the indexes now, each read once.

    Raises:
        RetrieverError: an index is gone, or its server is away.
    """
    found: dict[str, Any] = {}
    for one in searched:
        if one.settings.foreign and one.place not in found:
            found[one.place] = retriever_facts(one.name, one.settings.at(one.identity), one.identity).get("state")
    return {place: state for place, state in found.items() if state is not None}


def warn_of(changed: Iterable[str]) -> None:
    """Logs warnings."""
    for words in changed:
        event("warning", words, logging.WARNING)


def noted_changes(starts: Sequence[Mapping[str, Any]]) -> list[str]:
    """Returns the warnings of `changes` that the records of a run's starts give rise to, in their order."""
    said = list[str]()
    for number, start in enumerate(starts):
        before, states = last_states(starts[:number]), start.get("index_states") or {}
        begin = states.get("begin") or {}
        said += changes(before, begin, "the start before")
        said += changes({**before, **begin}, states.get("end") or {}, f"start {start['start']} began")
    return said


def last_states(starts: Iterable[Mapping[str, Any]]) -> States:
    """Returns the states of indexes that the records of a run's starts noted last, by place."""
    found = dict[str, Any]()
    for start in starts:
        for states in (start.get("index_states") or {}).values():
            found |= states
    return found


def changes(before: States, now: States, since: str) -> list[str]:
    """Returns a warning for each index that has another state now.

    Args:
        before: the states that were noted.
        now: the states now; an index that was not looked at has not changed.
        since: when they were noted, for the message.
    """
    return [
        f"index {place}: another program has written to it since {since}, so queries of this job were searched in different "
        "states of it; search an index that is closed to writing, or run again while nobody writes"
        for place, state in before.items()
        if now.get(place, state) != state
    ]
