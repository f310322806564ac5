"""The last reader: incomplete or malformed JSON, and plain text in answers to requests for one strategy.

Only unambiguous values are read: closed strings, and plain text that is nothing but the rewrite.
"""

import re
from functools import lru_cache

from rewriters.lengths import length
from rewriters.normalise import normalise
from rewriters.reading.answer import Found, LlmAnswer, Value, label_key
from rewriters.reading.json_object import decode, value, whole
from rewriters.reading.lines import has_text, leading_value, list_items, opens_with, paragraph
from rewriters.reading.markup import ROW, code_lines, elements, has_tags, without_wrapper
from rewriters.reading.words import talk
from rewriters.reading.words.refusals import without_questions
from rewriters.reading.words.sentences import sentences
from rewriters.strategy import Strategy

_COMMENTS = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)
_MOST_BEHIND = 500  # characters that are looked at behind a string
_MAX_KEYS = 200  # each may cost a pass over the text, and an answer needs a handful


def repair(answer: LlmAnswer) -> Found:
    """Returns the closed strings of malformed JSON; without any, and for one requested strategy, the plain text."""
    texts = _half_json(answer)
    if texts or len(answer.requested) != 1:
        return texts
    return read_plain(answer, answer.requested[0])


@lru_cache(maxsize=256)
def _key_pattern(known: tuple[Strategy, ...]) -> re.Pattern[str]:
    keys = {word for strategy in known for word in strategy.names}
    spellings = (r"[\W_]{0,3}".join(re.findall(r"[^\W_]+", word)) for word in keys)
    alternatives = "|".join(sorted(spellings, key=len, reverse=True))
    quoted = rf"""(?<!\\)(["'])(?P<key>{alternatives})\1"""
    return re.compile(
        rf"""(?:{quoted}|(?<=[{{,\n ])(?P<bare>{alternatives}))\s{{0,9}}:\s{{0,9}}(?=["'\[{{]|null)""", re.IGNORECASE
    )


def _half_json(answer: LlmAnswer) -> Found:
    text, pattern = answer.text, _key_pattern(answer.known)
    texts: Found = {}
    at = pattern.search(text)
    for _ in range(_MAX_KEYS):
        if at is None:
            break
        strategy = answer.strategy(at["key"] or at["bare"])
        decoded = decode(text, at.end())
        if decoded and not _is_closed(text[decoded[1] :], answer.truncated):
            decoded = None
        following = pattern.search(text, decoded[1] if decoded else at.end())
        if strategy and decoded:
            texts.setdefault(strategy.name, []).insert(0, value(decoded[0], strategy))
        elif strategy:
            segment = text[at.end() : following.start() if following else None]
            cut = _open(segment) if answer.truncated and following is None and strategy.is_passage else None
            texts.setdefault(strategy.name, []).insert(0, cut or _unescaped(segment, ended=following is not None))
        at = following
    return texts


def _is_closed(after: str, truncated: bool) -> bool:
    """Returns True if valid JSON follows a string, so that its last quotation mark is its end.

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


_RUN_IN = re.compile(r"\s*\*\*[^*\n]{1,100}(?:\*\*\s?[:：]|[:：]\*\*)\s*")  # a heading on the passage's line
_SPOKEN = re.compile(r"^\s*(?P<who>[QA]) ?[:：]\s", re.MULTILINE)
_MAX_LINES = 400  # of an answer
_MOST_TITLE = 12  # words of a heading without marks
_NAMES = set("rewrite rewrittenquery rewritten query answer passage text output result response final".split())  # noqa: SIM905
_MOST_TERM, _MOST_LONGER = 8, 1.5  # words of a list without commas; times the query's words, of sentences that rewrite it


def read_plain(answer: LlmAnswer, strategy: Strategy) -> Found:
    """Returns the text of an answer that is neither JSON nor labelled; nothing if it is not clear which line it is."""
    text = answer.text
    if has_tags(text, answer.query):
        text = without_wrapper(text)
        wanted = _NAMES | set(map(label_key, strategy.names))
        named = [content for names, content in elements(text) if wanted.intersection(names)]
        if len(named) == 1:
            return {strategy.name: [Value(named[0])]}
    lines = text.split("\n", _MAX_LINES)
    lines = ["" if line[:1] in "[【" and talk.is_label(line, answer.query) else line for line in lines]
    first = next((line.lstrip() for line in lines if has_text(line)), "")
    # "[1] This study ..." goes on as a sentence.
    is_prose = talk.ends_as_sentence(first) and re.match(r"\[[^\[\]{}\"',]{1,40}\]\s+[^\W\d_]", first)
    if not first or (first[:1] in ("{", "[") and not opens_with(answer.query, first[:1]) and not is_prose):
        return {}
    spoken = _SPOKEN.search(text, text.index(first) + len(first)) if first in text else None
    if spoken is not None and spoken["who"] == "A":
        return {}  # what stands before is a question that the model answers itself
    skipped = code_lines(lines)
    at, thought = _start(lines, answer, strategy, skipped)
    if at is None or (thought and answer.truncated):
        return {}
    if strategy.is_passage:
        return _passage(lines, at, answer, strategy, thought, skipped)
    return _line(lines, at, answer, strategy, thought)


def _follows(lines: list[str], at: int, skipped: set[int]) -> int | None:
    """Returns the number of the next line with text from `at` on, fences and code left out; None without one."""
    kept = (n for n in range(at, len(lines)) if n not in skipped and has_text(lines[n]) and not talk.RULE.match(lines[n]))
    return next(kept, None)


def _is_talk(lines: list[str], at: int, answer: LlmAnswer, strategy: Strategy, skipped: set[int]) -> bool:
    line, query = lines[at], answer.query
    after = _follows(lines, at + 1, skipped)
    if after is None:
        return False
    if talk.is_introduction(line, query):
        is_about_code = at + 1 not in skipped and any(n in skipped for n in range(at + 1, after))
        return not (is_about_code and strategy.is_passage and not talk.is_label(line, query))
    if talk.is_label(line, query) or ROW.match(line) or talk.ORIGINAL.match(line):
        return True
    if talk.is_comment(lines[after], query):
        return False  # and so the line before is the text
    return talk.is_heading(line) or talk.repeats_query(line, query)


def _start(lines: list[str], answer: LlmAnswer, strategy: Strategy, skipped: set[int]) -> tuple[int | None, bool]:
    """Returns the number of the first line that may be the text, and whether thoughts stand before it."""
    at, thought = _follows(lines, 0, skipped), False
    if at is not None and (talk.WORKING.match(lines[at]) or talk.is_thought(paragraph(lines, at), answer.query)):
        at = _labelled_answer(lines, at, answer.query) or at
    while at is not None:
        follows = _follows(lines, at + 1, skipped)
        introduces = follows is not None and talk.is_introduction(lines[at], answer.query)
        if not introduces and (talk.is_more_thought if thought else talk.is_thought)(paragraph(lines, at), answer.query):
            thought = True
            while at < len(lines) and lines[at].strip():
                at += 1
            at = _follows(lines, at, skipped)
        elif _is_talk(lines, at, answer, strategy, skipped):
            at = follows
        else:
            return None if follows is None and talk.is_only_talk(lines[at], answer.query) else at, thought
    return None, thought


def _labelled_answer(lines: list[str], at: int, query: str) -> int | None:
    """Returns the number of the last line that gives the text a label ("Answer: ..."), behind a derivation."""
    label_end = None
    for n in range(at + 1, len(lines)):
        label = lines[n].partition(":" if ":" in lines[n] else "：")[0]
        if (talk.is_label(label, query) and talk.without_label(lines[n], query) != lines[n]) or (
            talk.is_label(lines[n], query) and (talk.is_heading(lines[n]) or talk.ends_in_colon(lines[n]))
        ):
            label_end = n
    return label_end


def _line(lines: list[str], at: int, answer: LlmAnswer, strategy: Strategy, thought: bool) -> Found:
    text = talk.without_label(lines[at], answer.query)
    again = normalise(text)  # a small model writes its line again and again
    lines = [*lines[:at], text, *(one for one in lines[at + 1 :] if normalise(talk.without_label(one, answer.query)) != again)]
    if strategy.list_separator is not None:
        together = [line for line in lines[at:] if has_text(line)]
        if len(list_items(together, strategy)) == len(together):
            lines = [*lines[:at], *together]
    listed = list_items(lines[at:], strategy)
    before = next((line for line in reversed(lines[:at]) if line.strip()), "")
    announces = talk.ends_in_colon(before) and talk.given_in(before) and without_questions(before) == before
    if announces and len(listed) > 1 and strategy.list_separator is None:  # of rewrites the first is as good as any
        lines = [*lines[:at], talk.without_label(listed[0], answer.query), *lines[at + len(listed) :]]
    value = leading_value(["", *lines[at:]], strategy, answer.query, ended=False)
    after = _follows(lines, at + (len(listed) if listed and strategy.list_separator is not None else 1), set())
    if after is not None and not _comments(lines, at, after, answer.query):
        return {}
    if thought and not (value.text and not talk.ends_as_sentence(value.text)):
        return {}
    return {} if _answers(value.text or "", strategy, answer.query) else {strategy.name: [value]}


def _answers(text: str, strategy: Strategy, query: str) -> bool:
    """Returns True if a text answers its query: several sentences that are longer than it, or one in place of a list."""
    word_count = length(text)
    if strategy.list_separator is not None and not re.search(r"[,;，、；،]", text):
        return talk.ends_as_sentence(text) and word_count > _MOST_TERM
    return sentences(text) > 1 >= sentences(query) and word_count > _MOST_LONGER * length(query)


def _comments(lines: list[str], at: int, after: int, query: str) -> bool:
    """Returns True if the line `after` comments on the text at `at`; what stands behind a comment is one, too."""
    line, apart = lines[after], after > at + 1
    if talk.is_comment(line, query):
        return True
    if apart and (talk.is_heading(line) or talk.is_introduction(line, query)) and _follows(lines, after + 1, set()) is not None:
        return True
    ends, text_ends = (talk.ends_as_sentence(one) or one.rstrip(' *_"')[-1:] in ("?", "？") for one in (line, lines[at]))
    return apart and ends and not text_ends  # such as the offer to do more


def _passage(lines: list[str], at: int, answer: LlmAnswer, strategy: Strategy, thought: bool, skipped: set[int]) -> Found:
    following = _follows(lines, at + 1, skipped)
    if following is not None and _is_title(lines, at, following):
        at = following
    if thought:
        if (last := _last_clean(lines, at, answer.query)) is None:
            return {}
        at = last
    text = _RUN_IN.sub("", talk.without_label(lines[at], answer.query))
    lines = [*lines[:at], text or lines[at], *lines[at + 1 :]]
    value = leading_value(["", *lines[at:]], strategy, answer.query, ended=False)
    before = next((line for line in reversed(lines[:at]) if line.strip()), "")
    if value.text and list_items(lines[at:], strategy) and talk.ends_in_colon(before) and not talk.given_in(before):
        value = value._replace(text=f"{before.strip()} {value.text}")  # what a list is a list of
    return {strategy.name: [value]}


def _is_title(lines: list[str], at: int, following: int) -> bool:
    """Returns True if a line is a heading without marks: short, no sentence, and a paragraph of sentences behind it."""
    line, after = lines[at].strip(), paragraph(lines, following)
    if talk.ends_as_sentence(line) or line[-1:] in "?？,，;；" or talk.ends_in_colon(line) or not talk.ends_as_sentence(after):
        return False
    apart = following > at + 1
    short = length(line) <= (_MOST_TITLE if apart else _MOST_TITLE // 2) and 2 * len(line) < len(after)
    return short and (apart or not after[:1].islower())


def _last_clean(lines: list[str], at: int, query: str) -> int | None:
    """Returns the number of the first line of the last paragraph behind thoughts, if that is none and ends as a sentence."""
    starts = [n for n in range(at, len(lines)) if has_text(lines[n]) and (n == at or not lines[n - 1].strip())]
    is_talk = (talk.is_comment, talk.is_introduction, lambda line, _: talk.is_heading(line))
    starts = [n for n in starts if not any(one(lines[n], query) for one in is_talk)]
    last = paragraph(lines, starts[-1]) if starts else ""
    return starts[-1] if starts and talk.ends_as_sentence(last) and not talk.is_more_thought(last, query) else None
