"""The last reader: incomplete or malformed JSON, and plain text in answers to requests for one strategy.

Only unambiguous values are read: closed strings, and plain text that is nothing but the rewrite.
"""

from __future__ import annotations

import re
from functools import lru_cache

from rewriters.reading.answer import Found, LlmAnswer, Value, label_key, names_by_key
from rewriters.reading.json_object import decode, value, whole
from rewriters.reading.plain import read_plain
from rewriters.strategy import Strategy

PARSED_AS = "salvage"
_COMMENTS = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)
_MOST_BEHIND = 500  # characters that are looked at behind a string
_MAX_KEYS = 200  # each may cost a pass over the text, and an answer needs a handful


def read(answer: LlmAnswer) -> Found:
    """Returns the closed strings of malformed JSON; without any, and for one requested strategy, the plain text."""
    found = _half_json(answer)
    if found or len(answer.requested) != 1:
        return found
    return read_plain(answer, answer.requested[0])


@lru_cache(maxsize=256)
def _key_pattern(known: tuple[Strategy, ...]) -> re.Pattern[str]:
    words = {word for strategy in known for word in strategy.names}
    spellings = (r"[\W_]{0,3}".join(re.findall(r"[^\W_]+", word)) for word in words)
    alternatives = "|".join(sorted(spellings, key=len, reverse=True))
    quoted = rf"""(?<!\\)(["'])(?P<key>{alternatives})\1"""
    return re.compile(
        rf"""(?:{quoted}|(?<=[{{,\n ])(?P<bare>{alternatives}))\s{{0,9}}:\s{{0,9}}(?=["'\[{{]|null)""", re.IGNORECASE
    )


def _half_json(answer: LlmAnswer) -> Found:
    text, keys, pattern = answer.text, names_by_key(answer.known), _key_pattern(answer.known)
    requested = {strategy.name: strategy for strategy in answer.requested}
    found: Found = {}
    at = pattern.search(text)
    for _ in range(_MAX_KEYS):
        if at is None:
            break
        strategy = requested.get(keys.get(label_key(at["key"] or at["bare"]), ""))
        decoded = decode(text, at.end())
        if decoded and not _is_closed(text[decoded[1] :], answer.truncated):
            decoded = None
        following = pattern.search(text, decoded[1] if decoded else at.end())
        if strategy and decoded:
            found.setdefault(strategy.name, []).insert(0, value(decoded[0], strategy))
        elif strategy:
            segment = text[at.end() : following.start() if following else None]
            cut = _open(segment) if answer.truncated and following is None and strategy.is_passage else None
            found.setdefault(strategy.name, []).insert(0, cut or _unescaped(segment, ended=following is not None))
        at = following
    return found


def _is_closed(after: str, truncated: bool) -> bool:
    """Returns whether valid JSON follows a string, so that its last quotation mark is its end.

    After a quotation mark that the model did not escape comes other text; at the cut of a truncated answer the two cannot be
    told apart.
    """
    after = _COMMENTS.sub(" ", after[:_MOST_BEHIND]).lstrip()
    if not after:
        return not truncated
    return after[0] in "}]" or (after[0] == "," and after[1:].lstrip()[:1] in ("", '"', "'", "}", "]"))


def _open(segment: str) -> Value | None:
    """Returns a string that was not closed, up to its cut; None if it is closed, or has quotation marks inside."""
    inside = re.sub(r"\\(?:u[0-9a-fA-F]{0,3})?\Z", "", segment[1:])
    text = whole(f'"{inside}"', '"') if segment[:1] == '"' else None
    return Value(text, complete=False) if isinstance(text, str) else None


def _unescaped(segment: str, ended: bool) -> Value:
    """Returns a value with unescaped quotation marks inside, or in single ones, as in a Python dict.

    The value is the text between the first and the last mark; the next key (`ended`) or a closing brace must prove which is
    the last.
    """
    segment = segment.strip(" \n`")
    if not ended and not segment.endswith("}"):
        return Value(None, complete=False)
    segment = segment.removesuffix("}").rstrip(" \n,")
    mark = segment[:1]
    if len(segment) < 2 or mark not in ("'", '"') or segment[-1] != mark or re.search(r"""["'] ?: ?["'\[{]""", segment):
        return Value(None)
    inside = segment[1:-1].replace("\\" + mark, mark)
    decoded = decode('"' + inside.replace('"', '\\"') + '"', 0)
    return Value(decoded[0] if decoded and isinstance(decoded[0], str) else None)
