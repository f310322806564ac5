"""From a completion to the result of a step, or the reason why there is none. An answer that cannot be read is no result."""

import re
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple, TypeVar

from rewriters.engines import Completion
from rewriters.normalise import normalise
from rewriters.reading.json_object import decode
from rewriters.reading.thoughts import strip_thinking
from rewriters.steps.step import LlmStep

READING_VERSION = 1  # raised when an answer would be read differently; part of a run's fingerprint
MESSAGES = {
    "empty": "the LLM gave no text",
    "truncated": "the token limit cut the answer before it could be read; raise decoding.max_tokens",
    "unparsable": "the answer does not have the form that the prompt asks for",
    "refusal": "the model refuses",
    "content_filter": "a filter of the server cut the answer, or refused the prompt",
    "too_long": "the answer is longer than max_chars of its prompt's file",
}
_JSON_STARTS = 50  # braces that are tried as the beginning of an object
Value = TypeVar("Value")


class StepResult(NamedTuple):
    """Values read from one completion."""

    text: str | None  # the answer without reasoning; None: there is none
    grade: int | None = None  # of output `grade`
    fields: Mapping[str, str] = MappingProxyType({})  # of output `object`: key -> text
    grades: Mapping[str, int] = MappingProxyType({})  # of output `grades`: key -> grade
    cut: bool = False  # whether the token limit cut the text
    reason: str | None = None  # why there is no result; None: there is one
    message: str | None = None  # the reason in words


def read_step(step: LlmStep, completion: Completion, query: str) -> StepResult:
    """Returns the result of a step. Raises nothing, whatever the text."""
    if completion.error_reason is not None or completion.text is None:
        reason = completion.error_reason or "empty"
        return StepResult(None, reason=reason, message=completion.error_message or MESSAGES["empty"])
    if completion.finish_reason in ("refusal", "content_filter"):
        return _failed(str(completion.finish_reason))
    text, cut = strip_thinking(completion.text, query).strip(), completion.finish_reason == "length"
    if not text:
        return _failed("truncated" if cut else "empty")
    if step.output == "text":
        return _failed("too_long") if len(text) > step.max_chars else StepResult(text, cut=cut)
    return _read(step, text) or _failed("truncated" if cut else "unparsable")


def _read(step: LlmStep, text: str) -> StepResult | None:
    """Returns the values of an answer in a form; None: it has not the form."""
    if step.output == "grade":
        grade = _grade(step, text)
        return None if grade is None else StepResult(text, grade)
    if step.output == "grades":
        known = {normalise(name): grade for name, grade in step.grades.items()}

        def named(value: Any) -> int | None:
            """Returns the grade that a value is: a number, or a text that names one; None: it is none."""
            if isinstance(value, bool) or not isinstance(value, int | float | str):
                return None
            return known.get(f"{value:g}" if isinstance(value, int | float) else normalise(value))

        graded = _object(step, text, named)
        return None if graded is None else StepResult(text, grades=graded)
    fields = _object(step, text, lambda value: value.strip() or None if isinstance(value, str) else None)
    if fields is None:
        return None
    return _failed("too_long") if any(len(one) > step.max_chars for one in fields.values()) else StepResult(text, fields=fields)


def _failed(reason: str) -> StepResult:
    return StepResult(None, reason=reason, message=MESSAGES[reason])


def _grade(step: LlmStep, text: str) -> int | None:
    """Returns the grade that an answer names: the whole answer, or its last line, alone or behind a label; None: it names none.

    A text with several grades names none, unless its last line names one: a digit somewhere in a sentence is no grade.
    """
    grades = {normalise(name): grade for name, grade in step.grades.items()}
    for line in (text, text.splitlines()[-1]):
        plain = normalise(re.sub(r"[*_`#\"'()\[\]{}]", " ", line)).strip(" .:;,")
        if plain in grades:
            return grades[plain]
        labelled = re.fullmatch(r"[\w ]{1,40}[:=]\s*(?P<grade>[\w ]{1,40})", plain)
        if labelled and labelled["grade"].strip() in grades:
            return grades[labelled["grade"].strip()]
    return None


def _object(step: LlmStep, text: str, read: Callable[[Any], Value | None]) -> dict[str, Value] | None:
    """Returns the values of the last JSON object of an answer that has all keys of the step; None: there is none.

    `read` returns what a value says; None: it says nothing, so the object has not its key.
    """
    fields: dict[str, Value] | None = None
    for at in [place.start() for place in re.finditer(r"\{", text)][:_JSON_STARTS]:
        if (decoded := decode(text, at)) is None:
            continue
        values = {key: known for key, value in decoded[0] if (known := read(value)) is not None}
        if all(key in values for key in step.keys if key not in step.optional):
            fields = {key: values[key] for key in step.keys if key in values}
    return fields
