"""One spelling for one query: the form under which the log is deduplicated and completions are found again."""

from __future__ import annotations

import unicodedata


def normalise(query: str) -> str:
    """The form of `query` by which it is compared: Unicode NFKC, casefold, white space collapsed and trimmed.

    Idempotent; upper and lower case and any white space count as the same. Nothing else is touched: accents, marks,
    joiners and punctuation stay. Takes any string, lone surrogates included, and raises nothing.
    """
    if query.isascii():  # as 97 to 100 % of a web log's queries are: NFKC changes nothing, and casefold is lower
        return " ".join(query.lower().split())
    # Casefold can leave what NFKC then composes ("ß" with an acute becomes "ss" with one, then "sś"), so both run until
    # nothing changes: the second round is the last for every letter with any combining mark (Unicode 14).
    folded = unicodedata.normalize("NFKC", query).casefold()
    while (again := unicodedata.normalize("NFKC", folded).casefold()) != folded:
        folded = again
    return " ".join(folded.split())
