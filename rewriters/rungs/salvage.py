"""Last rung: what can still be read with certainty. Half JSON, as far as its strings were closed; and plain text,
where one strategy was asked for and the whole answer is its rewrite."""

from __future__ import annotations

import re
from functools import lru_cache

from rewriters.rungs import Answer, Found, Value, key, known_keys
from rewriters.rungs.json_object import decode, value
from rewriters.rungs.lines import block, bullets, is_chatter, is_fence, opens_with
from rewriters.strategy import Strategy

PARSED_AS = "salvage"
_KEYS = 200  # keys that are looked at: each may cost a pass over the text, and an answer needs a handful


def read(answer: Answer) -> Found:
    """The closed strings of half JSON; without any, and for one strategy, the plain text."""
    found = _half_json(answer)
    if found or len(answer.wanted) != 1:
        return found
    return _plain(answer, answer.wanted[0])


@lru_cache(maxsize=256)
def _key_pattern(known: tuple[Strategy, ...]) -> re.Pattern[str]:
    words = {word for strategy in known for word in (strategy.name, strategy.label)}
    spellings = (r"[\W_]{0,3}".join(re.findall(r"[^\W_]+", word)) for word in words)
    either = "|".join(sorted(spellings, key=len, reverse=True))
    return re.compile(rf"""(?<!\\)(["'])(?P<key>{either})\1\s{{0,9}}:\s{{0,9}}""", re.IGNORECASE)


def _half_json(answer: Answer) -> Found:
    text, keys, pattern = answer.text, known_keys(answer.known), _key_pattern(answer.known)
    wanted = {strategy.name: strategy for strategy in answer.wanted}
    found: Found = {}
    at = pattern.search(text)
    for _ in range(_KEYS):
        if at is None:
            break
        strategy = wanted.get(keys.get(key(at["key"]), ""))
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
    """Whether JSON goes on in `after`, what follows a string. A quotation mark that a model forgot to escape looks
    like the end of its string, but other text follows it; where the answer was cut right behind one, that cannot be
    told."""
    after = after.lstrip()
    if not after:
        return not truncated
    return after[0] in "}]" or (after[0] == "," and after[1:].lstrip()[:1] in ("", '"', "'", "}", "]"))


def _unescaped(segment: str, ended: bool) -> Value:
    """A value with quotation marks inside that are not escaped, or in single ones, as a Python dict has them: all
    between the first and the last, if the next key (`ended`) or a closing brace proves that it is the last."""
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
# A model that thinks aloud without tags: the rewrite, if there is one, stands somewhere below.
_THINKING_ALOUD = re.compile(
    r"\s*(?:okay|ok|alright|hmm|well|so|first|right|let['’]?s|let me)\b[, ].{0,80}\b"
    r"(?:user|query|question|rewrite|i need|think|see)\b"
    r"|\s*(?:the user|we need to|we have to|i need to|let me|the query (?:is|asks)|to rewrite)\b",
    re.IGNORECASE,
)


def _plain(answer: Answer, strategy: Strategy) -> Found:
    """The whole answer as one rewrite, without what introduces it: the first paragraph of a passage; of a query its
    one line, or its list of bullets, which nothing but chatter may follow."""
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
    if strategy.kind == "query" and after and not is_chatter(after[0], answer.query):
        return {}
    return {strategy.name: [block(["", *lines], strategy, answer.query, ended=False)]}
