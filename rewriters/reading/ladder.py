"""The parse ladder: finds the rewrite of each strategy in an answer, or the reason why there is none.

Four readers, in this order: JSON, labelled lines, numbered lines, repair. The values of the reader that finds the most
strategies count, those of the earlier one at a tie; values of two readers are never mixed, so that no text is read in two
formats. Each strategy ends with a rewrite or one reason. Nothing is raised, whatever the text.
"""

import re
from collections.abc import Callable, Sequence
from typing import NamedTuple

from rewriters.reading.answer import Found, LlmAnswer, Value, label_key
from rewriters.reading.checks import clean, invalid_reason, is_repetitive, is_respelled
from rewriters.reading.json_object import is_error, read_json, whole
from rewriters.reading.labels import read_labelled, read_numbered
from rewriters.reading.markup import final_box, is_page
from rewriters.reading.repair import repair
from rewriters.reading.texts import read_texts
from rewriters.reading.thoughts import strip_thinking, without_next_turns
from rewriters.reading.words.languages import is_foreign
from rewriters.reading.words.refusals import is_refusal
from rewriters.reading.words.sentences import whole_sentences
from rewriters.reading.words.talk import is_thought
from rewriters.reasons import CUT, OTHER_SCRIPT, Reason
from rewriters.strategy import Strategy

PARSE_VERSION = 5  # incremented when an answer would be parsed differently; part of a run's fingerprint
_MOST_OPENING = 500  # characters that tell whether an answer begins with thoughts
_MAX_CHARS = 200_000  # of an answer; the rest is ignored. 100 times the length of four rewrites

READERS: dict[str, Callable[[LlmAnswer], Found]] = {
    "json": read_json, "labelled": read_labelled, "numbered": read_numbered, "salvage": repair
}  # fmt: skip
"""The readers by their names in the tables, in the order in which they are tried."""


class Parsed(NamedTuple):
    """A rewrite."""

    text: str  # the rewrite, on one line
    parsed_as: str  # the reader that found it: json, labelled, numbered, lines, marked or salvage; code: that has made it
    flags: tuple[str, ...] = ()  # what was found of it (`reasons.py`)
    position: int = 1  # among the texts of its strategy


def parse(answer: LlmAnswer) -> dict[str, Parsed | Reason]:
    """Returns the rewrite of each requested strategy, or the reason why there is none, by name."""
    texts, parsed_as = _read_best(answer)
    outcomes: dict[str, Parsed | Reason] = {}
    for strategy in answer.requested:  # the first valid value, or the reason against the first value
        checked = [_checked(value, parsed_as, strategy, answer) for value in texts.get(strategy.name, ())]
        unread = checked[0] if checked else _missing_reason(texts, answer)
        outcomes[strategy.name] = next((one for one in checked if isinstance(one, Parsed)), unread)
    return outcomes


def parse_all(answer: LlmAnswer) -> dict[str, list[Parsed | Reason]]:
    """Returns all values of the strategies that an answer names in labelled lines or a JSON object, each read or not."""
    read = [(READERS[parsed_as](answer), parsed_as) for parsed_as in ("json", "labelled")]
    texts, parsed_as = max(read, key=lambda one: len(one[0]))
    return {
        strategy.name: [_checked(value, parsed_as, strategy, answer) for value in texts[strategy.name]]
        for strategy in answer.requested
        if strategy.name in texts
    }


def parse_texts(answer: LlmAnswer) -> list[Parsed | Reason]:
    """Returns the texts of one strategy whose answer has several, each read or not; or one reason, if none is found.

    The answer has lines, a JSON array or a JSON object, as `Strategy.output` says, or parts between marks or separators.
    """
    (strategy,) = answer.requested
    values, parsed_as = read_texts(answer, strategy)
    checked: list[Parsed | Reason] = [
        _checked(value, parsed_as, strategy, answer) if is_long_enough else "empty"
        for value in values
        if (is_long_enough := len(value.text or "") >= strategy.min_chars) or strategy.output == "object"  # keeps its place
    ]
    return checked or [_missing_reason({}, answer)]


def prepared(
    text: str, query: str, requested: Sequence[Strategy], known: Sequence[Strategy], instructions: str, truncated: bool
) -> LlmAnswer:
    """Returns an answer as the readers want it: without reasoning and further turns, with single spaces.

    The arguments are the fields of `LlmAnswer`; `known` are the other strategies whose labels may occur.
    """
    truncated = truncated or len(text) > _MAX_CHARS
    text = text[:_MAX_CHARS].replace("\r\n", "\n").replace("\r", "\n").replace("\0", "")
    if is_error(text) or is_page(text, query):
        text = ""
    else:
        text = strip_thinking(text, query)
        answer = without_next_turns(text, query, instructions)
        truncated = truncated and answer == text  # what the limit cut is no answer
        text = answer
    inside = whole(text.strip(), '"')  # a JSON object within quotation marks
    text = final_box(inside if isinstance(inside, str) and set(inside) & {"{", "[", "\n"} else text, query)
    if ">" not in query:
        text = re.sub(r"(?m)^ {0,3}> ?", "", text)  # a Markdown quotation
    # Some models repeat white space until the token limit; in much of it the readers' patterns would take quadratic time.
    text = re.sub(r"(?: ?\n){3,}", "\n\n", re.sub(r"[^\S\n]+", " ", text))
    labels = {label_key(word) for strategy in requested for word in strategy.names}
    others = (one for one in known if labels.isdisjoint(map(label_key, one.names)))
    return LlmAnswer(text, tuple(requested), tuple(dict.fromkeys([*requested, *others])), query, instructions, truncated)


def _read_best(answer: LlmAnswer) -> tuple[Found, str]:
    best: Found = {}
    parsed_as, most = "", -1
    for name, reader in READERS.items():
        if name == "numbered" and most > 0:
            continue  # an earlier reader found labelled values, whose order need not be that of the prompt
        texts = reader(answer)
        count = sum(any(value.text for value in values) for values in texts.values())
        if count > most and texts:
            best, parsed_as, most = texts, name, count
        if most == len(answer.requested):
            break
    return best, parsed_as


def _checked(value: Value, parsed_as: str, strategy: Strategy, answer: LlmAnswer) -> Parsed | Reason:
    text = clean(value.text or "", strategy, answer.query, quoted=parsed_as != "json")
    flags: tuple[str, ...] = ()
    if answer.truncated and not value.complete:
        if is_repetitive(text or answer.text) and not is_repetitive(answer.query):
            return "repetition"
        text = whole_sentences(text) if strategy.is_passage else ""
        if not text:
            return "truncated"
        flags = (CUT,)
    if value.text is None or is_thought(text, answer.query):
        return "unparsable"
    if reason := invalid_reason(text, strategy, answer.query, answer.instructions):
        return reason
    respelled = not strategy.any_language and is_foreign(answer.query, text) and is_respelled(answer.query, text)
    return Parsed(text, parsed_as, (*flags, OTHER_SCRIPT) if respelled else flags)


def _missing_reason(texts: Found, answer: LlmAnswer) -> Reason:
    if not answer.text.strip():
        return "cut_reasoning" if answer.truncated else "empty"
    if not texts and is_repetitive(answer.text) and not is_repetitive(answer.query):
        return "repetition"
    if answer.truncated:
        return "cut_reasoning" if is_thought(answer.text.lstrip()[:_MOST_OPENING], answer.query) else "truncated"
    if texts:
        return "missing"
    return "refusal" if is_refusal(answer.text, answer.query) else "unparsable"
