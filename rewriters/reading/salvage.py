"""The last reader: incomplete or malformed JSON, and plain text in answers to requests for one strategy.

Only unambiguous values are read: closed strings, and plain text that is nothing but the rewrite.
"""

from __future__ import annotations

import re
from functools import lru_cache

from rewriters.reading.answer import Found, LlmAnswer, Value, label_key, names_by_key
from rewriters.reading.json_object import decode, value
from rewriters.reading.lines import bullets, is_chatter, is_fence, leading_value, opens_with
from rewriters.strategy import Strategy

PARSED_AS = "salvage"
_MAX_KEYS = 200  # each may cost a pass over the text, and an answer needs a handful


def read(answer: LlmAnswer) -> Found:
    """Returns the closed strings of malformed JSON; without any, and for one requested strategy, the plain text."""
    found = _half_json(answer)
    if found or len(answer.requested) != 1:
        return found
    return _plain(answer, answer.requested[0])


@lru_cache(maxsize=256)
def _key_pattern(known: tuple[Strategy, ...]) -> re.Pattern[str]:
    words = {word for strategy in known for word in strategy.names}
    spellings = (r"[\W_]{0,3}".join(re.findall(r"[^\W_]+", word)) for word in words)
    alternatives = "|".join(sorted(spellings, key=len, reverse=True))
    return re.compile(rf"""(?<!\\)(["'])(?P<key>{alternatives})\1\s{{0,9}}:\s{{0,9}}""", re.IGNORECASE)


def _half_json(answer: LlmAnswer) -> Found:
    text, keys, pattern = answer.text, names_by_key(answer.known), _key_pattern(answer.known)
    requested = {strategy.name: strategy for strategy in answer.requested}
    found: Found = {}
    at = pattern.search(text)
    for _ in range(_MAX_KEYS):
        if at is None:
            break
        strategy = requested.get(keys.get(label_key(at["key"]), ""))
        decoded = decode(text, at.end())
        if decoded and not _is_closed(text[decoded[1] :], answer.truncated):
            decoded = None
        following = pattern.search(text, decoded[1] if decoded else at.end())
        if strategy and decoded:
            found.setdefault(strategy.name, []).insert(0, value(decoded[0], strategy))
        elif strategy:
            segment = text[at.end() : following.start() if following else None]
            found.setdefault(strategy.name, []).insert(0, _unescaped(segment, ended=following is not None))
        at = following
    return found


def _is_closed(after: str, truncated: bool) -> bool:
    """Returns whether valid JSON follows a string, so that its last quotation mark is its end.

    After a quotation mark that the model did not escape comes other text; at the cut of a truncated answer the two cannot be
    told apart.
    """
    after = after.lstrip()
    if not after:
        return not truncated
    return after[0] in "}]" or (after[0] == "," and after[1:].lstrip()[:1] in ("", '"', "'", "}", "]"))


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


# "Here is the rewritten query:", "Sure! Keywords:" and the like, before the rewrite or on a line of its own.
_REWRITE = r"(?:rewrit|re-?phras|reword|quer|keyword|version|passage|answer|core|paragraph|search)"
_PREAMBLE = re.compile(
    rf"""\ ?(?:[*_`]{{0,3}})(?:
        (?:(?:sure|certainly|of\ course|absolutely|great|okay|ok)(?:\ thing)?\ ?[!,.]\ ?)?
        (?:here(?:['’]s|\ is|\ are)|below\ (?:is|are)|the\ following\ (?:is|are))
            [^:：\n]{{0,80}}\b{_REWRITE}[^:：\n]{{0,80}}[:：]
      | (?:sure|certainly|of\ course|absolutely|okay|ok)(?:\ thing)?\ ?[!.](?=\ |$)
      | (?:the\ |my\ |your\ )?(?:(?:rewritten|rephrased|refined|improved|reworded|cleaned|optimi[sz]ed|new|final|
            extracted|core|pseudo|hypothetical|search)[ -]){{1,3}}
            (?:query|queries|question|keywords?|answer|passage|content|version|rewrite)(?:\ is)?\ ?[:：]
      | (?:output|rewrite|rewriting|keywords?|answer|passage|result|response|reply|query)\ ?[:：]
      | (?:好的|当然|當然)[^:：\n]{{0,30}}[:：] | (?:以下是|这是|這是|改写|改寫|关键词|關鍵詞)[^:：\n]{{0,20}}[:：]
      | (?:hier\ (?:ist|sind)|voici|aquí\ (?:está|tiene|tienes)|ecco|aqui\ está|вот)\ [^:：\n]{{0,80}}[:：]
    )""",
    re.IGNORECASE | re.VERBOSE,
)
# Reasoning without tags: the rewrite, if there is one, is somewhere below.
_THINKING_ALOUD = re.compile(
    r"\s*(?:okay|ok|alright|hmm|well|so|first|right|let['’]?s|let me)\b[, ].{0,80}\b"
    r"(?:user|query|question|rewrite|i need|think|see)\b"
    r"|\s*(?:the user|we need to|we have to|i need to|let me|the query (?:is|asks)|to rewrite)\b",
    re.IGNORECASE,
)


def _plain(answer: LlmAnswer, strategy: Strategy) -> Found:
    """Returns the whole answer, without an introduction, as one rewrite.

    Of a passage the first paragraph; of a query one line or a list of bullets, which only comments may follow.
    """
    lines = answer.text.split("\n")
    while lines and (not lines[0].strip() or is_fence(lines[0])):
        del lines[0]
    if not lines or (lines[0].lstrip()[:1] in ("{", "[") and not opens_with(answer.query, lines[0].lstrip()[:1])):
        return {}
    preamble = _PREAMBLE.match(lines[0])
    if preamble and not opens_with(answer.query, preamble.group()):
        lines[0] = lines[0][preamble.end() :].strip().removeprefix("**").strip()
        while len(lines) > 1 and not lines[0]:
            del lines[0]
    if _THINKING_ALOUD.match(lines[0]) and not _THINKING_ALOUD.match(answer.query):
        return {}
    after = [line for line in lines[len(bullets(lines)) or 1 :] if line.strip() and not is_fence(line)]
    if strategy.search_as == "query" and after and not is_chatter(after[0], answer.query):
        return {}
    return {strategy.name: [leading_value(["", *lines], strategy, answer.query, ended=False)]}
