"""The second reader: lines with labels, "Keyword Rewriting: ...", the format of DMQR-RAG, with or without Markdown."""

from __future__ import annotations

import re
from functools import lru_cache

from rewriters.reading.answer import Found, LlmAnswer, label_key, names_by_key
from rewriters.reading.lines import leading_value, opens_with
from rewriters.strategy import Strategy

PARSED_AS = "labelled"

_DECORATED = r"(?:[\s>#+•·‣▪●|-]|\*(?=\s)){0,12}(?:\(?\d{1,2}[.):、．]\)? ?)?[\[【(#]?(?P<bold>[*_`]{0,3})[\[【]?"


@lru_cache(maxsize=256)
def _patterns(known: tuple[Strategy, ...]) -> tuple[re.Pattern[str], re.Pattern[str], re.Pattern[str]]:
    """Returns patterns of a labelled line, of a label alone on its line, and of the gap before a label within a line."""
    words = {word for strategy in known for word in strategy.names}
    full = {word for word in words if len(_words(word)) > 1}
    label = rf"(?P<label>{_alternatives(words)})"
    after = r" ?[\]】)]?[*_`]{0,3}(?: ?\([^()]{0,60}\))?[*_`]{0,3}[\]】]? ?"
    line = re.compile(rf"{_DECORATED}{label}{after}[:：] ?(?P<value>.*)", re.IGNORECASE)
    heading_pattern = re.compile(rf"{_DECORATED}{label}{after}", re.IGNORECASE)
    gap_pattern = re.compile(rf"(?<=\S)[;,|/]{{0,2}} (?=[*_`]{{0,3}}(?:{_alternatives(full)}){after}[:：])", re.IGNORECASE)
    return line, heading_pattern, gap_pattern


def _words(word: str) -> list[str]:
    return [part for part in re.split(r"[\W_]+", word) if part]


def _alternatives(words: set[str]) -> str:
    """Returns a pattern of any of the names; spaces, hyphens and underscores within a name are equivalent."""
    patterns = [r"[ _-]{0,3}".join(map(re.escape, _words(word))) for word in words]
    return "|".join(sorted(patterns, key=len, reverse=True)) or r"(?!)"


def read(answer: LlmAnswer) -> Found:
    """Returns the values after the labels, earlier ones first: explanations come last in answers."""
    line_pattern, heading_pattern, gap_pattern = _patterns(answer.known)
    keys = names_by_key(answer.known)
    lines: list[str] = []
    for line in answer.text.split("\n"):
        labelled = line_pattern.match(line)
        at = labelled.start("value") if labelled else 0
        lines += (line[:at] + gap_pattern.sub("\n", line[at:])).split("\n")
    starts: list[tuple[int, str | None, str]] = []  # line number, strategy name, text after the label
    for at, line in enumerate(lines):
        labelled = line_pattern.match(line)
        if labelled:
            if not (at == 0 and len(answer.requested) == 1 and opens_with(answer.query, line[: labelled.start("value")])):
                starts.append((at, keys.get(label_key(labelled["label"])), _unbold(labelled)))
        elif at + 1 < len(lines) and (heading := heading_pattern.fullmatch(line.rstrip())) and _is_heading(heading):
            starts.append((at, keys.get(label_key(heading["label"])), ""))
    found: Found = {}
    requested = {strategy.name: strategy for strategy in answer.requested}
    ends = [at for at, _, _ in starts[1:]] + [len(lines)]
    for (at, name, first), end in zip(starts, ends, strict=False):
        if name in requested:
            value = leading_value([first, *lines[at + 1 : end]], requested[name], answer.query, ended=end < len(lines))
            found.setdefault(name, []).append(value)
    return found


def _is_heading(line: re.Match[str]) -> bool:
    """Returns whether a label alone on its line is a heading; a bare "keyword" may be a rewrite."""
    return len(_words(line["label"])) > 1 or bool(line["bold"]) or line.group().lstrip().startswith("#")


def _unbold(labelled: re.Match[str]) -> str:
    """Returns the value without the closing marks of an emphasis that begins before the label."""
    text, bold = labelled["value"].strip(), labelled["bold"]
    if not bold or bold in labelled.string[labelled.end("label") : labelled.start("value")]:
        return text
    return text.removeprefix(bold).strip() if text.startswith(bold) else text.removesuffix(bold).strip()
