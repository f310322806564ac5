"""The end of a value in an answer made of lines; shared by the readers of labelled, numbered and plain text."""

import itertools
import re

from rewriters.lengths import length
from rewriters.normalise import normalise
from rewriters.reading.answer import Value
from rewriters.reading.words import pattern
from rewriters.strategy import Strategy

_CHATTER = pattern("chatter")
FENCE = re.compile(r"\s*(?:`{3,}|~{3,})\s*[\w+-]*\s*")  # a line that opens or closes a fenced block
SIGNS = "[–•·・‣▪●○◦■□◆◇►▶➤➜→⇒✓✔✅☑👉🔹🔸]\ufe0f?"  # characters that stand before the items of a list, beside - and * and +
BULLET = re.compile(rf"\s*(?:(?:[-*+]|{SIGNS})\s+|・)(?P<text>\S.*)")
_NUMBER = re.compile(r"\s*[*_]{0,2}\(?(?P<count>\d{1,2})[.):、．）][*_]{0,2}\s{0,3}(?P<text>\S.*)")
_MOST_LINES = 40  # of a paragraph that is looked at
_MOST_ITEM, _MOST_ITEM_WORDS = 60, 16  # of a keyword without a mark; words are characters where a script has no spaces
# "Core content:": up to four words and a colon. Such a line ends a passage.
_SHORT_LABEL = re.compile(r"[\s>*_#`\-•]{0,12}[^\W\d_][\w-]{0,40}(?: [\w-]{1,40}){0,3} ?[*_`]{0,3} ?(?::\s|：|:$)")


def has_text(line: str) -> bool:
    """Returns True if a line has text and is no fence."""
    return bool(line.strip()) and not FENCE.fullmatch(line)


def paragraph(lines: list[str], at: int) -> str:
    """Returns the lines with text from `at` on as one, `_MOST_LINES` at most."""
    end = at
    while end < min(len(lines), at + _MOST_LINES) and has_text(lines[end]):
        end += 1
    return " ".join(line.strip() for line in lines[at:end])


def opens_with(query: str, opening: str) -> bool:
    """Returns True if the query itself begins with these words; an answer may then begin with them, too."""
    prefix = normalise(opening).rstrip(" :：.!*_")
    return bool(prefix) and normalise(query).startswith(prefix)


def is_chatter(line: str, query: str) -> bool:
    """Returns True if a line comments on the answer."""
    match = _CHATTER.match(line)
    return match is not None and not opens_with(query, match.group())


def leading_value(lines: list[str], strategy: Strategy, query: str, ended: bool) -> Value:
    """Returns the value of a strategy at the beginning of lines, which go up to the next label or number, or to the end.

    A query is one line, or a list of bullets if the strategy joins lists. A passage ends before a line that is empty, a
    comment or labelled. The last line of an answer never proves that a value is complete: truncation may have cut it. Where
    `ended`, another label or number follows, so nothing here was cut.
    """
    last = len(lines) if ended else len(lines) - 1  # a value that ends before this line is complete
    start = next((at for at, line in enumerate(lines) if has_text(line)), len(lines))
    if start == len(lines):
        return Value("", complete=ended)
    if start and is_chatter(lines[start], query):
        return Value("", complete=start < last)
    listed = list_items(lines[start:], strategy) if start else []
    if listed:
        complete = start + len(listed) < last or ended
        if len(listed) == 1:
            return Value(listed[0], complete)
        separator = "; " if strategy.is_passage else strategy.list_separator
        return Value(None if separator is None else separator.join(listed), complete)
    end = start + 1
    if not strategy.is_passage:
        return Value(lines[start].strip(), complete=end <= last)
    while end < len(lines) and has_text(lines[end]) and not (is_chatter(lines[end], query) or _SHORT_LABEL.match(lines[end])):
        end += 1
    return Value(
        " ".join(line.strip() for line in lines[start:end]),
        complete=end < last or ended or bool("".join(lines[end : end + 1]).strip()),
    )


def list_items(lines: list[str], strategy: Strategy) -> list[str]:
    """Returns the items of the list at the beginning of some lines, one per line; empty if they begin with none.

    Items have bullets, or numbers from 1; those of a strategy that joins lists may stand bare, if they are short.
    """
    bullets = [found["text"].strip() for found in itertools.takewhile(bool, map(BULLET.match, lines)) if found]
    if bullets:
        return bullets
    matches = enumerate(map(_NUMBER.match, lines), 1)
    counted = itertools.takewhile(lambda match: match[1] and int(match[1]["count"]) == match[0], matches)
    numbered = [found["text"].strip() for _, found in counted if found]
    if len(numbered) > 1:  # the number of one alone may be its own
        return numbered
    return _bare(lines) if strategy.list_separator is not None else []


def _bare(lines: list[str]) -> list[str]:
    bare = []
    for line in lines:
        item = line.strip().rstrip(",;，、；")
        if not item or FENCE.fullmatch(line):
            break
        if len(item) > _MOST_ITEM or length(item) > _MOST_ITEM_WORDS or re.search(r"[,;，、；:：.。!?！？]", item):
            return []
        bare.append(item)
    return bare if len(bare) > 1 else []
