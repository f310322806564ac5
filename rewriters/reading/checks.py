"""Cleaning and validation of the values that a reader found."""

import re
import zlib
from functools import lru_cache

from rewriters.lengths import any_of, length
from rewriters.normalise import normalise
from rewriters.reading.answer import label_key
from rewriters.reading.lines import opens_with
from rewriters.reading.words import pattern, word_lists
from rewriters.reading.words.languages import SURE_TITLE, is_foreign, language_of, language_scripts, new_words, scripts
from rewriters.reading.words.refusals import is_refusal
from rewriters.reading.words.romanisation import is_romanised
from rewriters.reading.words.talk import ends_as_sentence
from rewriters.reasons import Reason
from rewriters.strategy import Strategy, Words

_TAIL_CHARS = 4000  # the end suffices: a loop runs to the token limit; the search takes 100 steps per character
_MAX_UNIT_CHARS, _MIN_REPEATS = 100, 5  # a unit of up to 100 characters, at least five times in a row
_MIN_BYTES = 30  # shorter repetitions are words ("hahahaha"), numbers (1000000) and rules (-----)
_MIN_SHARE = 0.4  # of the text: the chorus of a song in a passage is no loop
# Loops with a counter ("item 1, item 2, ...") have no exact unit, but zlib compresses them to 1/5 and less, and 400 bytes and
# more of ordinary text to 1/1.3 to 1/2.3.
_RATIO_MIN_BYTES, _LOOP_COMPRESSION = 400, 5.0


def is_repetitive(text: str) -> bool:
    """Returns True if one repeated unit is 40 % of a text (and 30 bytes), or zlib compresses the text to a fifth."""
    tail = " ".join(text[-_TAIL_CHARS:].split())
    data = tail.encode("utf-8", "replace")
    if len(data) < _MIN_BYTES:
        return False
    longest = max(_MIN_BYTES, _MIN_SHARE * len(data))
    if len(data) < _RATIO_MIN_BYTES and tail.isascii():
        # A loop has a fifth of its length in different substrings at most: the others repeat these (0.1 ms a search).
        repeated = len(tail) - 7 - len({tail[at : at + 8] for at in range(len(tail) - 7)})
        if repeated < 0.8 * longest - 7:
            return False
    compressed = len(zlib.compress(data, 1))
    # A text with a loop of 40 % compresses to 0.6 + 0.4 / 5 of its length and 15 bytes at most; others need no search.
    if compressed < 0.8 * len(data) + 15:
        unit = min(_MAX_UNIT_CHARS, len(tail) // _MIN_REPEATS)  # it needs no spaces, so it works for CJK
        runs = re.finditer(rf"(.{{1,{unit}}}?)\1{{{_MIN_REPEATS - 1},}}", tail, re.DOTALL)
        if any(len(run.group().encode("utf-8", "replace")) >= longest for run in runs):
            return True
    return len(data) >= _RATIO_MIN_BYTES and len(data) / compressed >= _LOOP_COMPRESSION


_QUOTES = {'"': '"', "'": "'", "“": "”", "‘": "’", "«": "»", "„": "“", "「": "」", "『": "』", "`": "`"}
# Control characters, halves of surrogate pairs and byte-order marks; no white space among them.
_CONTROL = re.compile(r"[\x00-\x08\x0e-\x1b\x7f-\x84\x86-\x9f\ud800-\udfff\ufeff\ufffe\uffff]")
_SPECIAL_TOKEN = re.compile(r"<\|[^<>|\n]{1,40}\|>|</?s>|<(?:eos|bos|pad|end_of_turn|start_of_turn)>")

_NOTHING, _PLACEHOLDERS = word_lists()["nothing"], word_lists()["placeholders"]
_PLACEHOLDER = pattern("placeholder")
_DOTS = re.compile(r"[.…<>\[\]{}() _]{2,}")  # "..." where a rewrite should stand
# A rewrite that begins with 24 or more characters of the instructions repeats them; fewer may agree by chance.
_ECHO_CHARS, _ECHO_OPENING = 24, 60
_normalised = lru_cache(maxsize=64)(normalise)  # of prompts


def clean(text: str, strategy: Strategy, query: str, quoted: bool) -> str:
    """Returns a strategy's value as one line without control characters, chat template tokens and its own label.

    Labels, tokens and quotation marks that the query itself has stay. Where `quoted`, the value is plain text, so that
    quotation marks or emphasis around all of it do not belong to it.
    """
    text = _CONTROL.sub("", text)
    if not _SPECIAL_TOKEN.search(query):
        text = _SPECIAL_TOKEN.sub(" ", text)
    text = " ".join(text.split())
    label = re.match(r"[^:：]{1,60}[:：]\s*", text)
    if label and label_key(label.group()) in _labels(strategy) and not opens_with(query, label.group()):
        text = text[label.end() :]
    return _unwrap(text, query.strip()) if quoted else text


@lru_cache(maxsize=256)
def _labels(strategy: Strategy) -> frozenset[str]:
    """Returns the names of a strategy and the first words of its label and name, such as "core" of Core Content Extraction."""
    first = (re.split(r"[\W_]+", name)[0] for name in (strategy.label, strategy.base))
    return frozenset(map(label_key, (*strategy.names, *first)))


def _unwrap(text: str, query: str) -> str:
    for _ in range(3):  # **"x"**
        before = text
        if text.endswith(('",', "',")) and text[:1] == text[-2]:
            text = text[:-1]
        if len(text) > 4 and text.startswith("**") and text.endswith("**") and "**" not in text[2:-2]:
            text = text[2:-2].strip()
        if len(text) > 2 and text[0] == text[-1] == "*" and "*" not in text[1:-1] and "*" not in query:
            text = text[1:-1].strip()
        closing = _QUOTES.get(text[:1])
        if closing and len(text) > 2 and text.endswith(closing) and not {text[0], closing} & set(text[1:-1]):
            quoted_in_query = query[:1] == text[0] and query[-1:] == closing
            text = text if quoted_in_query else text[1:-1].strip()
        if text == before:
            break
    return text


def invalid_reason(text: str, strategy: Strategy, query: str, instructions: str) -> Reason | None:
    """Returns the first reason why a value of `clean` is no valid rewrite, or None; the query itself is always valid.

    `instructions` is the prompt template, to detect answers that repeat it.
    """
    rewrite, normal_query = normalise(text), normalise(query)
    if not rewrite or rewrite == normal_query:
        return None if rewrite else "empty"
    is_nothing = any(map(str.isalnum, normal_query)) and not _DOTS.fullmatch(rewrite)
    if any(map(str.isalnum, rewrite)):
        is_nothing = rewrite in _NOTHING and not _in_words(rewrite, normal_query)
    checks: dict[Reason, bool] = {
        "empty": is_nothing,
        "repetition": is_repetitive(rewrite) and not is_repetitive(normal_query),
        "echo": _is_echo(rewrite, normal_query, strategy, instructions),
        "refusal": is_refusal(text, query),
        "unparsable": strategy.question and ends_as_sentence(text) and not ends_as_sentence(query),
        "wrong_language": not strategy.any_language and is_in_wrong_language(text, query),
    }
    if reason := next((reason for reason, fails in checks.items() if fails), None):
        return reason
    bounds = Words() if strategy.words.guide else strategy.words
    word_count = length(text) if bounds != Words() else 0
    if len(text) > max(strategy.max_chars, len(query)) or word_count > (bounds.most or word_count):
        return "too_long"
    if word_count < bounds.least:
        return "too_short"
    banned = (any_of((phrase,)) for phrase in strategy.banned)
    return "banned" if any(one.search(rewrite) and not one.search(normal_query) for one in banned) else None


def is_in_wrong_language(text: str, query: str) -> bool:
    """Returns True if a rewrite is in another script and does not respell its query, or surely in another language."""
    if is_foreign(query, text):
        return not is_respelled(query, text)
    mine, theirs = language_of(query), language_of(text, SURE_TITLE)  # a text that quotes the query is in neither
    return mine is not None and theirs is not None and mine != theirs


def is_respelled(query: str, text: str) -> bool:
    """Returns True if a rewrite in another script than its query may be the query in the letters of its language."""
    mine, new = language_scripts(query), " ".join(new_words(query, text))
    if mine == {"latin"}:
        return is_romanised(query, text, scripts(text) - mine)
    return "latin" in scripts(new) and is_romanised(new, query, mine, share=1.0)  # a name in its own letters


def _in_words(phrase: str, text: str) -> bool:
    return f" {phrase} " in f" {text} "


def _is_echo(rewrite: str, normal_query: str, strategy: Strategy, instructions: str) -> bool:
    if _DOTS.fullmatch(rewrite) and any(map(str.isalnum, normal_query)):
        return True
    placeholder = rewrite in _PLACEHOLDERS or _PLACEHOLDER.fullmatch(rewrite) or re.fullmatch(r"<[^<>]{1,60}>", rewrite)
    inside = _in_words(rewrite, normal_query) or _in_words(rewrite.strip("<>/ "), normal_query)
    if (placeholder or label_key(rewrite) in map(label_key, strategy.names)) and not inside:
        return True
    normalised_instructions = _normalised(instructions)
    if rewrite == normalise(strategy.example) and rewrite in normalised_instructions:
        return True
    opening = rewrite[:_ECHO_OPENING].rstrip(".")
    if len(opening) < _ECHO_CHARS or opening in normal_query:
        return False
    return opening in normalised_instructions or opening in _normalised(strategy.prompt)
