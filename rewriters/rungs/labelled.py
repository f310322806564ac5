"""Second rung: a line per strategy, "Keyword Rewriting: ...", as DMQR-RAG has it, however a model decorates it."""

from __future__ import annotations

import re
from functools import lru_cache

from rewriters.rungs import Answer, Found, key, known_keys
from rewriters.rungs.lines import block, opens_with
from rewriters.strategy import Strategy

PARSED_AS = "labelled"

_DECORATED = r"(?:[\s>#+•·‣▪●|-]|\*(?=\s)){0,12}(?:\(?\d{1,2}[.):、．]\)? ?)?[\[【(#]?(?P<bold>[*_`]{0,3})[\[【]?"


@lru_cache(maxsize=256)
def _patterns(known: tuple[Strategy, ...]) -> tuple[re.Pattern[str], re.Pattern[str], re.Pattern[str]]:
    """A labelled line, a label alone on its line, and the place before a label in the middle of a line."""
    words = {word for strategy in known for word in (strategy.name, strategy.label)}
    full = {word for word in words if len(_parts(word)) > 1}
    label = rf"(?P<label>{_any(words)})"
    after = r" ?[\]】)]?[*_`]{0,3}(?: ?\([^()]{0,60}\))?[*_`]{0,3}[\]】]? ?"
    line = re.compile(rf"{_DECORATED}{label}{after}[:：] ?(?P<value>.*)", re.IGNORECASE)
    alone = re.compile(rf"{_DECORATED}{label}{after}", re.IGNORECASE)
    inside = re.compile(rf"(?<=\S)[;,|/]{{0,2}} (?=[*_`]{{0,3}}(?:{_any(full)}){after}[:：])", re.IGNORECASE)
    return line, alone, inside


def _parts(word: str) -> list[str]:
    return [part for part in re.split(r"[\W_]+", word) if part]


def _any(words: set[str]) -> str:
    """A pattern for any of the words, with spaces, hyphens and underscores between their parts all the same."""
    patterns = [r"[ _-]{0,3}".join(map(re.escape, _parts(word))) for word in words]
    return "|".join(sorted(patterns, key=len, reverse=True)) or r"(?!)"


def read(answer: Answer) -> Found:
    """The value after each label, its first one preferred: what follows an answer explains it."""
    line_pattern, alone, inside = _patterns(answer.known)
    keys = known_keys(answer.known)
    lines: list[str] = []
    for line in answer.text.split("\n"):
        labelled = line_pattern.match(line)
        at = labelled.start("value") if labelled else 0
        lines += (line[:at] + inside.sub("\n", line[at:])).split("\n")
    starts: list[tuple[int, str | None, str]] = []  # the line, the strategy's name, what stands after the label
    for at, line in enumerate(lines):
        labelled = line_pattern.match(line)
        if labelled:
            if not (at == 0 and len(answer.wanted) == 1 and opens_with(answer.query, line[: labelled.start("value")])):
                starts.append((at, keys.get(key(labelled["label"])), _unbold(labelled)))
        elif at + 1 < len(lines) and (heading := alone.fullmatch(line.rstrip())) and _is_heading(heading):
            starts.append((at, keys.get(key(heading["label"])), ""))
    found: Found = {}
    wanted = {strategy.name: strategy for strategy in answer.wanted}
    ends = [at for at, _, _ in starts[1:]] + [len(lines)]
    for (at, name, first), end in zip(starts, ends, strict=False):
        if name in wanted:
            value = block([first, *lines[at + 1 : end]], wanted[name], answer.query, ended=end < len(lines))
            found.setdefault(name, []).append(value)
    return found


def _is_heading(line: re.Match[str]) -> bool:
    """Whether a label alone on its line stands for what follows: a bare "keyword" may as well be a rewrite."""
    return len(_parts(line["label"])) > 1 or bool(line["bold"]) or line.group().lstrip().startswith("#")


def _unbold(labelled: re.Match[str]) -> str:
    """The value without the closing half of an emphasis that was opened before the label."""
    text, bold = labelled["value"].strip(), labelled["bold"]
    if not bold or bold in labelled.string[labelled.end("label") : labelled.start("value")]:
        return text
    return text.removeprefix(bold).strip() if text.startswith(bold) else text.removesuffix(bold).strip()
