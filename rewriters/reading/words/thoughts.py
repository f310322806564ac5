"""Thoughts of a model about its task, without marks around them: by how they begin, in some fifteen languages.

What the query itself begins with is never taken for a thought.
"""

from __future__ import annotations

from rewriters.reading.lines import opens_with
from rewriters.reading.words import pattern
from rewriters.reading.words.talk import ends_as_sentence, given_in

_THOUGHT = pattern("thought")
_USER = pattern("user")
_FIRST_PERSON = pattern("thinks_aloud")
_WORKING = pattern("working")


def is_working(line: str) -> bool:
    """Returns whether a line begins a derivation, behind which the answer may have a label."""
    return _WORKING.match(line) is not None


def is_thought(text: str, query: str) -> bool:
    """Returns whether a line or paragraph is the model's reasoning about its task; the query does not begin so itself."""
    found = _THOUGHT.match(text)
    if found is None or _THOUGHT.match(query) or opens_with(query, text[:40]):
        return False
    subject = _USER.search(found.group())  # a page about users may begin so, too
    return subject is None or subject.group().casefold() not in query.casefold() or given_in(text[:150])


def is_more_thought(text: str, query: str) -> bool:
    """Returns whether a paragraph behind a thought is one, too."""
    return is_thought(text, query) or _FIRST_PERSON.search(text) is not None or (given_in(text) and ends_as_sentence(text))
