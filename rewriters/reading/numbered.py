"""The third reader: as many numbered lines as requested strategies, in the order of the prompt."""

from __future__ import annotations

import re

from rewriters.reading.answer import Found, LlmAnswer
from rewriters.reading.lines import has_text, leading_value
from rewriters.reading.words.talk import ends_as_sentence

PARSED_AS = "numbered"

# "1. x", "(1) x", "1) x", "1、x", "**1.** x", and "1.x" where x is no Latin letter or digit: "3.11 release" and "3.x"
# are not numbered.
_NUMBERED = re.compile(
    r"\s{0,12}(?:[-*•] )?[*_]{0,2}\(?(?P<count>\d{1,2})"
    r"(?:[.):][*_]{0,2}(?=\s|[^\x00-\u024f])|[、．）：][*_]{0,2})\s?(?P<value>\S.*)"
)
# "Keywords: x" on every line: unknown labels, whose order need not be that of the prompt.
_UNKNOWN_LABEL = re.compile(r"[*_`]{0,3}[^\W\d_][\w-]*(?: [\w-]+){0,3}[*_`]{0,3} ?(?::\s|：)")


def read(answer: LlmAnswer) -> Found:
    """Returns the numbered lines if they count from 1 to the number of strategies; fewer only if the answer was cut."""
    lines = answer.text.split("\n")
    starts: list[tuple[int, re.Match[str]]] = []
    for at, line in enumerate(lines):
        numbered = _NUMBERED.match(line)
        if numbered and int(numbered["count"]) != len(starts) + 1:
            return {}
        if numbered:
            starts.append((at, numbered))
    expected = len(answer.requested)
    if not starts or len(starts) > expected or (len(starts) < expected and not answer.truncated):
        return {}
    if len(starts) > 1 and all(_UNKNOWN_LABEL.match(numbered["value"]) for _, numbered in starts):
        return {}
    if expected == 1:
        at, numbered = starts[0]
        is_heading = answer.requested[0].search_as == "passage" and not ends_as_sentence(numbered["value"])
        follows_text = any(has_text(line) and not line.strip().endswith((":", "：")) for line in lines[:at])
        if is_heading or follows_text or re.match(rf"\W*{numbered['count']}\W", answer.query):  # it is a number of the query
            return {}
    found: Found = {}
    ends = [at for at, _ in starts[1:]] + [len(lines)]
    for (at, numbered), end, strategy in zip(starts, ends, answer.requested, strict=False):
        value_lines = [numbered["value"], *lines[at + 1 : end]]
        found[strategy.name] = [leading_value(value_lines, strategy, answer.query, ended=end < len(lines))]
    return found
