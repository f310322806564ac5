"""Where a value ends in an answer made of lines: what the labelled, numbered and plain-text rungs share."""

from __future__ import annotations

import re

from rewriters.normalise import normalise
from rewriters.rungs import Value
from rewriters.strategy import Strategy

# What a line opens with when it is talk about the answer and not part of it.
_CHATTER = re.compile(
    r"""[\s>*_\#`(-]{0,12}(?:
        (?:reasons?|reasoning|rationale|explanations?|justification|notes?|why|n\.?b\.?|p\.?s\.?)[*_`]{0,3}\ ?[:：]
      | (?:理由|原因|说明|說明|解释|注|備考|注意|이유|설명|причина|примечание|begründung|hinweis|raison|nota)\ ?[:：]
      | let\ me\ know | i\ hope\ (?:this|that|these) | hope\ (?:this|that|it|these)\b | feel\ free\ to
      | (?:do|would)\ you\ (?:want|like)\ me\ to
      | if\ you\ (?:need|want|would\ like|have\ any) | (?:these|those|the\ above)\ (?:rewrites?|rewritings?|queries)\b
      | this\ (?:rewrite|rewriting|version|rewritten\ query)\b
      | i(?:['’]ve|\ have)?\ (?:kept|removed|rewrote|rewritten|chose|chosen|focused)\b
    )
    | \s*(?:-{3,}|={3,}|_{3,}|\*{3,})\s*$
    """,
    re.IGNORECASE | re.VERBOSE,
)
_FENCE = re.compile(r"\s*(?:`{3,}|~{3,})\s*[\w+-]*\s*")
_BULLET = re.compile(r"\s*[-*•·‣▪●+]\s+(\S.*)")
# "Note that", "Core content:": up to four words and a colon. In a passage, a line that opens so starts something else.
_SHORT_LABEL = re.compile(r"[\s>*_#`\-•]{0,12}[^\W\d_][\w-]{0,40}(?: [\w-]{1,40}){0,3} ?[*_`]{0,3} ?(?::\s|：|:$)")


def is_fence(line: str) -> bool:
    """Whether a line opens or closes a fenced block."""
    return bool(_FENCE.fullmatch(line))


def opens_with(query: str, noise: str) -> bool:
    """Whether the query itself opens with these words: then an answer may too, and they are no noise."""
    opening = normalise(noise)
    return bool(opening) and normalise(query).startswith(opening)


def is_chatter(line: str, query: str) -> bool:
    """Whether a line is talk about the answer."""
    found = _CHATTER.match(line)
    return found is not None and not opens_with(query, found.group())


def block(rest: list[str], strategy: Strategy, query: str, ended: bool) -> Value:
    """The value that `rest` opens with: the lines from its label or number (what stood after that on its line comes
    first) up to the next one, or to the end of the answer. `ended`: a next one followed, so that nothing here can
    have been cut.

    A query is one line, or a list of bullets where the strategy joins lists. A passage goes on until a line is empty,
    is chatter, or has a label of its own. The last line of an answer proves no end, as a cut line may still have
    become any other.
    """
    last = len(rest) if ended else len(rest) - 1  # an end at a line before this one is sure
    start = next((at for at, line in enumerate(rest) if line.strip() and not is_fence(line)), len(rest))
    if start == len(rest):
        return Value("", complete=ended)
    if start and is_chatter(rest[start], query):
        return Value("", complete=start < last)
    listed = bullets(rest[start:]) if start else []
    if listed:
        complete = start + len(listed) < last or ended
        if len(listed) == 1:
            return Value(listed[0], complete)
        return Value(None if strategy.list_separator is None else strategy.list_separator.join(listed), complete)
    end = start + 1
    if strategy.kind == "query":
        return Value(rest[start].strip(), complete=end <= last)
    while end < len(rest) and not _ends_passage(rest[end], query):
        end += 1
    return Value(" ".join(line.strip() for line in rest[start:end]), complete=end < last or ended)


def _ends_passage(line: str, query: str) -> bool:
    return not line.strip() or is_fence(line) or is_chatter(line, query) or _SHORT_LABEL.match(line) is not None


def bullets(rest: list[str]) -> list[str]:
    """The items of the bullet list that `rest` opens with; empty if it opens with none."""
    found = []
    for line in rest:
        bullet = _BULLET.match(line)
        if bullet is None:
            break
        found.append(bullet.group(1).strip())
    return found
