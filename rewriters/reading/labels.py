"""The second reader: lines with labels, "Keyword Rewriting: ...", the format of DMQR-RAG, with or without Markdown.

Where no line begins with a label, a list may have them in brackets behind its texts: "- green tea, caffeine (keyword)".
"""

import re
from dataclasses import replace
from functools import lru_cache
from itertools import pairwise

from rewriters.normalise import normalise
from rewriters.reading.answer import Found, LlmAnswer, Value, label_key
from rewriters.reading.lines import SIGNS, has_text, is_chatter, leading_value, opens_with
from rewriters.reading.lists import read_listed
from rewriters.reading.markup import elements, has_tags, table, without_emphasis
from rewriters.reading.words.talk import ends_as_sentence
from rewriters.strategy import Strategy

_DECORATED = r"(?:[\s>#+•·‣▪●|-]|\*(?=\s)){0,12}(?:\(?\d{1,2}[.):、．]\)? ?)?[\[【(#]?(?P<bold>[*_`]{0,3})[\[【]?"
_MARK = rf"\s{{0,12}}(?P<mark>[-*+]|{SIGNS}|\(?\d{{1,2}}[.):、．）])?\s{{0,4}}"
_MARKED = re.compile(_MARK)
_NAMED = re.compile(
    rf"{_MARK}(?P<text>\S.*?)[\s*_`]{{0,4}}(?:(?<=\s)[-–—]\s)?"
    r"[(（\[【][\s*_`]{0,4}(?P<label>[^()（）\[\]【】]{1,60})[)）\]】][\s*_`.。]{0,4}"
)


@lru_cache(maxsize=256)
def _patterns(known: tuple[Strategy, ...]) -> tuple[re.Pattern[str], re.Pattern[str], re.Pattern[str]]:
    """Returns patterns of a labelled line, of a label alone on its line, and of the gap before a label within a line."""
    labels = {word for strategy in known for word in strategy.names}
    full = {word for word in labels if len(_words(word)) > 1}
    label = rf"(?P<label>{_alternatives(labels)})"
    after = r" ?[\]】)]?[*_`]{0,3}(?: ?\([^()]{0,60}\))?[*_`]{0,3}[\]】]? ?"
    line = re.compile(
        rf"{_DECORATED}{label}{after}(?:[:：]|(?<= )(?P<dash>[-–—→=]|[-=]>)(?= )|(?<=[\]】])(?= )) ?(?P<value>.*)",
        re.IGNORECASE,
    )
    heading_pattern = re.compile(rf"{_DECORATED}{label}{after}", re.IGNORECASE)
    gap_pattern = re.compile(rf"(?<=\S)[;,|/]{{0,2}} (?=[*_`]{{0,3}}(?:{_alternatives(full)}){after}[:：])", re.IGNORECASE)
    return line, heading_pattern, gap_pattern


def _words(word: str) -> list[str]:
    return [part for part in re.split(r"[\W_]+", word) if part]


def _alternatives(labels: set[str]) -> str:
    """Returns a pattern of any of the names; spaces, hyphens and underscores within a name are equivalent."""
    patterns = [r"[ _-]{0,3}".join(map(re.escape, _words(word))) for word in labels]
    return "|".join(sorted(patterns, key=len, reverse=True)) or r"(?!)"


def read_labelled(answer: LlmAnswer) -> Found:
    """Returns the values after the labels, earlier ones first: explanations come last in answers."""
    line_pattern, heading_pattern, gap_pattern = _patterns(answer.known)
    if marked := _of_markup(answer):
        return marked
    lines: list[str] = []
    for line in answer.text.split("\n"):
        labelled = line_pattern.match(line)
        at = labelled.start("value") if labelled else 0
        lines += (line[:at] + gap_pattern.sub("\n", line[at:])).split("\n")
    found_lines = [line_pattern.match(line) for line in lines]
    dashes = sum(1 for one in found_lines if one and one["dash"])
    starts: list[tuple[int, Strategy | None, str]] = []  # line number, strategy, text after the label
    for at, (line, labelled) in enumerate(zip(lines, found_lines, strict=True)):
        if labelled and (not labelled["dash"] or dashes > 1 or not labelled["label"].islower()):
            if not (at == 0 and len(answer.requested) == 1 and opens_with(answer.query, line[: labelled.start("value")])):
                starts.append((at, answer.strategy(labelled["label"]), _unbold(labelled)))
        elif at + 1 < len(lines) and (heading := heading_pattern.fullmatch(line.rstrip())):
            starts.append((at, answer.strategy(heading["label"]), ""))
    texts: Found = {}
    ends = [at for at, _, _ in starts[1:]] + [len(lines)]
    for (at, strategy, first), end in zip(starts, ends, strict=False):
        if strategy is not None:
            part = replace(
                answer, text="\n".join([first, *lines[at + 1 : end]]), truncated=answer.truncated and end == len(lines)
            )
            if strategy.output != "text" and not first.strip():
                values = read_listed(part, strategy.n)[0]  # of the list below the label
            else:
                values = [leading_value(part.text.split("\n"), strategy, answer.query, ended=end < len(lines))]
            texts.setdefault(strategy.name, []).extend(values)
    return texts or _before_labels(answer)


def _of_markup(answer: LlmAnswer) -> Found:
    """Returns the texts of XML elements that are named as strategies, or of a Markdown table with their names."""
    pairs: list[tuple[str, str]] = []
    if has_tags(answer.text, answer.query):
        pairs = [(name, content) for names, content in elements(answer.text) for name in names]
    rows = [] if pairs else table(answer.text.split("\n"))
    if rows and sum(label_key(_bare(cell)) in answer.names for cell in rows[0]) >= min(2, len(answer.requested)):
        pairs = list(zip(rows[0], rows[1], strict=False))
    else:
        pairs += [(cell, text) for row in rows for cell, text in pairwise(row)]
    texts: Found = {}
    for cell, text in pairs:
        if text and (strategy := answer.strategy(_bare(cell))) is not None:
            texts.setdefault(strategy.name, []).append(Value(text))
    return texts


def _bare(cell: str) -> str:
    return re.sub(r"\([^()]{0,60}\)$", "", cell.strip())


def _unbold(labelled: re.Match[str]) -> str:
    """Returns the value without the closing marks of an emphasis that begins before the label."""
    text, bold = labelled["value"].strip(), labelled["bold"]
    if text in (">", "|", ">-", "|-"):
        return ""  # YAML: the text begins on the next line
    if not bold or bold in labelled.string[labelled.end("label") : labelled.start("value")]:
        return text
    return text.removeprefix(bold).strip() if text.startswith(bold) else text.removesuffix(bold).strip()


def _before_labels(answer: LlmAnswer) -> Found:
    """Returns the texts before the labels; nothing where it is not clear that they are labels.

    It is not, if a line of the list has none, if one strategy was asked for, whose text may end so, and of a single line that
    stands in no list. A last line that the token limit cut may lack its label.
    """
    if len(answer.requested) < 2:
        return {}
    lines = [line for line in answer.text.split("\n") if line.strip()]
    texts: Found = {}
    listed = False
    for at, line in enumerate(lines):
        label, text = _named(line, answer)
        mark = _MARKED.match(line)
        marked = mark is not None and mark["mark"] is not None and not is_chatter(line, answer.query)
        if label is None and marked and not (answer.truncated and at == len(lines) - 1):
            return {}
        if label is not None and (strategy := answer.strategy(label)) is not None:
            listed = listed or marked
            texts.setdefault(strategy.name, []).append(Value(text))
    return texts if len(texts) > (0 if listed else 1) else {}


def _named(line: str, answer: LlmAnswer) -> tuple[str | None, str]:
    """Returns the label at the end of a line, which the query has not, and the text before it; None if it ends in none."""
    match = _NAMED.fullmatch(line.rstrip())
    if match is None or label_key(match["label"]) not in answer.names:
        return None, ""
    if normalise(match["label"]).strip("*_` ") in normalise(answer.query):
        return None, ""
    return match["label"], without_emphasis(match["text"].strip())


# "1. x", "(1) x", "1) x", "1、x", "**1.** x", and "1.x" where x is no Latin letter or digit: "3.11 release" and "3.x"
# are not numbered.
_NUMBERED = re.compile(
    r"\s{0,12}(?:[-*•] )?[*_]{0,2}\(?(?P<count>\d{1,2})"
    r"(?:[.):][*_]{0,2}(?=\s|[^\x00-\u024f])|[、．）：][*_]{0,2})\s?(?P<value>\S.*)"
)
# "Keywords: x" on every line: unknown labels, whose order need not be that of the prompt.
_UNKNOWN_LABEL = re.compile(r"[*_`]{0,3}[^\W\d_][\w-]*(?: [\w-]+){0,3}[*_`]{0,3} ?(?::\s|：)")


def read_numbered(answer: LlmAnswer) -> Found:
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
    texts: Found = {}
    ends = [at for at, _ in starts[1:]] + [len(lines)]
    for (at, numbered), end, strategy in zip(starts, ends, answer.requested, strict=False):
        value_lines = [numbered["value"], *lines[at + 1 : end]]
        texts[strategy.name] = [leading_value(value_lines, strategy, answer.query, ended=end < len(lines))]
    return texts
