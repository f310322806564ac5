"""Refusals: a subject that cannot, will not or may not, or an apology, where a text begins.

The verb behind it does not matter: no passage and no query begins with what the model cannot do. A query that speaks in the
first person itself ("i can't log in") may be rewritten so; then only what a model says of itself counts. In Japanese and
Korean the refusal ends the sentence, and is told by its humble form.
"""

import re

from rewriters.reading.answer import label_key
from rewriters.reading.words import pattern

_SAYS_A_MODEL = pattern("says_a_model")
_SUBJECT_CANNOT = pattern("subject_cannot")
_ASKS = pattern("asks")
_OF_ITSELF = pattern("of_itself")
_SENTENCES = re.compile(r"[.!?]\s+")
_MOST_BEGINNING = 400  # characters of a text that are looked at
_FIRST_PERSON = pattern("first_person")
_QUERY = re.compile(r"\b(?:quer(?:y|ies)|search|rewrit\w+|rephras\w+)\b", re.IGNORECASE)
_SENTENCE = re.compile(r"[.?!:。？！：]")  # "could you clarify email template" asks nothing
_HELP = pattern("help")
_OPENING = " \t\n\"'“”‘„«「*_#>-"


def is_refusal(text: str, query: str) -> bool:
    """Returns True if a text begins with a refusal that the query does not contain ("sorry, but i can't ... lyrics")."""
    begins = text.lstrip(_OPENING)
    for known in (_SAYS_A_MODEL, _ASKS):
        match = known.match(begins)
        if match is not None and not _is_of(match, query) and (known is _SAYS_A_MODEL or _SENTENCE.search(begins)):
            return True
    match = _SUBJECT_CANNOT.match(begins)
    if match is not None and not _is_of(match, query):
        helps = _HELP.search(re.split(r"[.!?。！？\n]", begins, maxsplit=1)[0])
        if not _FIRST_PERSON.search(query) or (helps and not _HELP.search(query)):
            return True
    return _speaks_of_itself(begins[:_MOST_BEGINNING], query)


def _is_of(match: re.Match[str], query: str) -> bool:
    return label_key(match.group()) in label_key(query)


def _speaks_of_itself(begins: str, query: str) -> bool:
    """Returns True if a model speaks of itself, or asks for a query, behind the first clause of a text."""
    for match in _OF_ITSELF.finditer(begins):
        before = begins[: match.start()]
        is_quoted = before.count('"') % 2 or before.count("“") > before.count("”")
        if not is_quoted and not _FIRST_PERSON.search(query) and label_key(match["says"]) not in label_key(query):
            return True
    if not _QUERY.search(begins):
        return False
    ends = [at.end() for at in _SENTENCES.finditer(begins)]
    return any((asks := _ASKS.match(begins, end)) and _QUERY.search(begins, end) and not _is_of(asks, query) for end in ends)


def without_questions(paragraph: str) -> str:
    """Returns a paragraph without the sentences that ask the asker something."""
    sentences = re.split(r"(?<=[.!?。！？])\s*", paragraph)
    return " ".join(one for one in sentences if not _ASKS.match(one)) if any(map(_ASKS.match, sentences)) else paragraph
