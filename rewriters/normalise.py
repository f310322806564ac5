"""The normal form of a query, by which the log is deduplicated and completions are found, and its hash, the `query_id`.

Earlier turns of the conversation are part of a query's identity: the same words after other turns are another query.
"""

import unicodedata
from hashlib import sha256

ID_BYTES = 16  # of a query's id: the first half of a sha256, 32 hex digits
PLAIN = r"[!-@\[-~]+( [!-@\[-~]+)*"
"""A pattern of texts that are their own normal form: ASCII without upper case, words with one space between them.

Most queries of a web log match it, and matching a whole column is faster than calling `normalise` for each value.
"""


def normalise(query: str) -> str:
    """Returns the normal form of a query: Unicode NFKC, casefold, white space collapsed and trimmed.

    Idempotent. Accents, marks, joiners and punctuation stay. Accepts any string, lone surrogates included.
    """
    if query.isascii():  # as 97 to 100 % of a web log's queries are: NFKC changes nothing, and casefold is lower
        return " ".join(query.lower().split())
    # Casefold can leave what NFKC then composes ("ß" with an acute becomes "ss" with one, then "sś"), so both run until
    # nothing changes: the second round is the last for every letter with any combining mark (Unicode 14).
    folded = unicodedata.normalize("NFKC", query).casefold()
    while (again := unicodedata.normalize("NFKC", folded).casefold()) != folded:
        folded = again
    return " ".join(folded.split())


def query_id(query: str, context: str | None = None) -> str:
    """Returns the `query_id` of a query, as in every table and every run: 32 hex digits.

    Args:
        query: The query, in any form.
        context: The earlier turns, in any form, as `log.context_column` has them: turns in a list are joined with line
            breaks, and of a longer text the newest 8,000 characters count. None, or only white space:
            there are none.
    """
    return id_bytes(normalise(query), normalise(context or "")).hex()


def id_bytes(normalised: str, context: str = "") -> bytes:
    """Returns the 16 bytes whose hex form is the `query_id`: the first half of a sha256 in UTF-8.

    Hashed is the query alone, or query, line break, context (the earlier turns; empty: none), all in normal form. A normal
    form has no line break, so no two pairs, and no pair and no query alone, are joined to the same text.
    """
    whole = f"{normalised}\n{context}" if context else normalised
    return sha256(whole.encode()).digest()[:ID_BYTES]
