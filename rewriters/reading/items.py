"""Items of a list: their texts without lead-ins, explanations and emphasis."""

from __future__ import annotations

import re
from typing import NamedTuple

from rewriters.lengths import length
from rewriters.normalise import normalise
from rewriters.reading.lines import is_chatter
from rewriters.reading.markup import without_emphasis
from rewriters.reading.words.talk import is_rule
from rewriters.reading.words.thoughts import is_thought

# "**Documents:** x", "**Documents** - x", "Documents: x".
_LEAD_IN = re.compile(
    r"(?P<bold>\*\*|__)(?P<lead>[^*_\n]{1,120}?)(?P<inside>\s?[:：])?(?P=bold)\s?(?P<mark>[:：]|[-–—](?=\s))?\s?(?P<rest>.*)"
)
_PLAIN_LEAD_IN = re.compile(r"(?P<lead>[^\W\d_][^:：\n.?!\"“]{0,40}?)\s?(?::\s|：)\s{0,2}(?P<rest>\S.*)")
_QUOTED = re.compile(
    r"(?:\"(?P<a>[^\"]{3,})\"|“(?P<b>[^”]{3,})”|「(?P<c>[^」]{3,})」|«(?P<d>[^»]{3,})»)\s?(?:[-–—:：(（]\s?\S|$)"
)
_MOST_LEAD_WORDS, _MOST_COMMON_LEAD = 4, 7  # words; of leads that all begin alike ("From a ...'s perspective: ")
# "x - *looks at a side*", "x? (Answer: y)"
_ASIDE = re.compile(r"\s[-–—]?\s?\(?\*[^*\n]{3,120}\*\)?$|(?<=[?？])\s?[(（][^():：]{1,20}[:：][^()]{1,120}[)）]$")


class MarkedLine(NamedTuple):
    """A line with a mark."""

    at: int  # its number in the answer
    text: str  # behind the mark
    indented: bool  # spaces before the mark
    number: int | None = None  # the number, where it is one in digits
    kind: str = "bullet"  # of the mark: number ("1."), named ("Query 1:"), sign ("①", "a)") or bullet


def tidied(items: list[MarkedLine], query: str) -> list[tuple[int, str]]:
    """Returns texts without lead-ins and explanations."""
    kept = [
        one
        for one in items
        if one.text and not is_chatter(one.text, query) and not is_thought(one.text, query) and not is_rule(one.text)
    ]
    plain = [_PLAIN_LEAD_IN.match(one.text) for one in kept]
    leads = [found["lead"] for found in plain if found is not None]
    alike = len({lead.split()[0].casefold() for lead in leads}) == 1 and len(leads) > 2
    most = _MOST_COMMON_LEAD if alike else _MOST_LEAD_WORDS
    all_led = len(leads) == len(kept) > 1 and all(_is_lead(lead, query, most) for lead in leads)
    found = []
    for one, lead in zip(kept, plain, strict=True):
        text = lead["rest"] if all_led and lead is not None else _without_lead_in(one.text, query)
        quoted = _QUOTED.match(text)
        if quoted and text[:1] not in query:
            text = next(filter(None, quoted.groups()))
        text = _ASIDE.sub("", without_emphasis(text).strip()) or text
        found.append((one.at, text.replace("**", "").strip() if text.count("**") == 1 else text))
    return found


def _is_lead(lead: str, query: str, most: int) -> bool:
    """Returns whether words before a colon are said about what follows: few, and none of them the query's."""
    words = {word for word in normalise(lead).split() if len(word) > 2 or not word.isascii()} or {normalise(lead)}
    return length(lead) <= most and not words & set(normalise(query).split()) and normalise(lead) not in normalise(query)


def _without_lead_in(text: str, query: str) -> str:
    """Returns a text without a bold lead-in; the bold words themselves where what follows explains them."""
    found = _LEAD_IN.match(text)
    if found is None or not found["rest"].strip():
        return text
    if not (found["mark"] or found["inside"]):
        return text
    lead, rest = found["lead"].strip(), found["rest"].strip()
    known = set(normalise(query).split())
    shared = [len(set(normalise(part).split()) & known) for part in (lead, rest)]
    if length(lead) > 2 and (shared[0] > shared[1] or (shared[0] == shared[1] and length(lead) > _MOST_LEAD_WORDS)):
        return lead
    return rest
