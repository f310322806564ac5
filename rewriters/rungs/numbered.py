"""Third rung: as many numbered lines as strategies were asked for, in their order."""

from __future__ import annotations

import re

from rewriters.rungs import Answer, Found
from rewriters.rungs.lines import block, is_fence

PARSED_AS = "numbered"

# "1. x", "(1) x", "1) x", "1、x", "**1.** x", and "1.x" where x is no Latin letter or digit: "3.11 release" and "3.x"
# are no numbers.
_NUMBERED = re.compile(
    r"\s{0,12}(?:[-*•] )?[*_]{0,2}\(?(?P<count>\d{1,2})"
    r"(?:[.):][*_]{0,2}(?=\s|[^\x00-\u024f])|[、．）：][*_]{0,2})\s?(?P<value>\S.*)"
)
# "Keywords: x": with one on every line these are labels that we do not know, and their order need not be ours.
_FOREIGN_LABEL = re.compile(r"[*_`]{0,3}[^\W\d_][\w-]*(?: [\w-]+){0,3}[*_`]{0,3} ?(?::\s|：)")


def read(answer: Answer) -> Found:
    """The numbered lines, if they count from 1 to the number of strategies, neither fewer (unless the answer was cut)
    nor more."""
    lines = answer.text.split("\n")
    starts: list[tuple[int, re.Match[str]]] = []
    for at, line in enumerate(lines):
        numbered = _NUMBERED.match(line)
        if numbered and int(numbered["count"]) != len(starts) + 1:
            return {}
        if numbered:
            starts.append((at, numbered))
    asked = len(answer.wanted)
    if not starts or len(starts) > asked or (len(starts) < asked and not answer.truncated) or _foreign(starts):
        return {}
    if asked == 1 and not _only_one(lines, starts[0], answer):
        return {}
    found: Found = {}
    ends = [at for at, _ in starts[1:]] + [len(lines)]
    for (at, numbered), end, strategy in zip(starts, ends, answer.wanted, strict=False):
        rest = [numbered["value"], *lines[at + 1 : end]]
        found[strategy.name] = [block(rest, strategy, answer.query, ended=end < len(lines))]
    return found


def _foreign(starts: list[tuple[int, re.Match[str]]]) -> bool:
    return len(starts) > 1 and all(_FOREIGN_LABEL.match(numbered["value"]) for _, numbered in starts)


def _only_one(lines: list[str], start: tuple[int, re.Match[str]], answer: Answer) -> bool:
    """Whether a single number is numbering: not if the query opens with it, nor if other lines stand before it."""
    at, numbered = start
    if re.match(rf"\W*{numbered['count']}\W", answer.query):
        return False
    before = [line.strip() for line in lines[:at] if line.strip() and not is_fence(line)]
    return all(line.endswith((":", "：")) for line in before)
