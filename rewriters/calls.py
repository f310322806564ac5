"""The requests that are made for every query: one for all joint strategies, and one for each other.

As in DMQR-RAG, the joint request asks for all rewrites, names the methods and shows one worked example: the model can then make
the rewrites differ, and the prompt is paid for once. The answer is one JSON object with a key per strategy. A prompt of the
user replaces the default prompt; the schema is the same.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

from cluster.errors import RewriterError, nearest
from rewriters.engines import object_schema
from rewriters.files import Read, prompt, read_file, read_local
from rewriters.pool import OF_THE_QUERY, with_context
from rewriters.settings import SelectionOfStrategies
from rewriters.strategy import ANY_PLACEHOLDER, CONTEXT, EXAMPLE_QUERY, PLACEHOLDER, Strategy, render, template_hash, variables

REQUEST_NAME = "dmqr"

JOINT_PROMPT = prompt("joint")
"""The default prompt.

`{methods}`: a line per strategy, with name, label and definition. `{example_query}`, `{example}`: a query and the reply to
it. `{language}`: that rewrites are written in. `{query}`: the query to rewrite.
"""


def load_joint_prompt(path: str | None, context: bool, read: Read = read_local) -> str:
    """Returns the joint prompt of a file; None: ours. Where `context`, queries have earlier turns.

    Raises:
        RewriterError: The file cannot be read, has an unknown variable, or does not have `{query}` exactly once, at its end.
    """
    if path is None:
        return JOINT_PROMPT
    prompt = read_file("prompt", path, path, read, "name a text file in UTF-8").rstrip()
    known = [f"{{{name}}}" for name in ("query", CONTEXT, *_values([], None))]
    for placeholder in ANY_PLACEHOLDER.findall(prompt):
        if placeholder not in known:
            raise RewriterError("prompt", f"{path}: unknown variable {placeholder!r}{nearest(placeholder, known)}")
    if prompt.count(PLACEHOLDER) != 1 or not prompt.endswith(PLACEHOLDER):
        rule = f"must have {PLACEHOLDER} once, as its last word, so that the text before it can be cached"
        raise RewriterError("prompt", f"{path}: {rule}; put it there")
    if not context and CONTEXT in variables(prompt):
        what = "has {context}, and log.context_column is not set; set it, or remove the variable"
        raise RewriterError("prompt", f"{path}: {what}")
    return prompt


def joint_template(
    strategies: Sequence[Strategy], prompt: str = JOINT_PROMPT, language: str | None = None, context: bool = False
) -> str:
    """Returns the joint prompt of strategies, in its order; `{query}` and `{context}` are left to `render`.

    The other arguments are those of `rewriters.rewriter.Rewriting`.
    """
    template = render(prompt, _values(strategies, language))
    return with_context(template) if context else template


def _values(strategies: Sequence[Strategy], language: str | None) -> dict[str, str]:
    """Returns the values of all variables of a joint prompt except `query` and `context`."""
    return {
        "methods": "\n".join(f"- {strategy.base} ({strategy.label}): {strategy.definition}." for strategy in strategies),
        "example_query": EXAMPLE_QUERY,
        "example": json.dumps({strategy.base: strategy.example for strategy in strategies}, ensure_ascii=False),
        "language": language or OF_THE_QUERY,
    }


def joint_schema(strategies: Sequence[Strategy]) -> dict[str, object]:
    """Returns the JSON schema of the joint answer: one string per strategy, all required, no other keys.

    `maxLength` is `max_chars` + 1. It is part of what the answer is known by and is not sent (`Request.sent_schema`); the
    reader tells a text that is too long.
    """
    return object_schema({s.base: {"type": "string", "maxLength": s.max_chars + 1} for s in strategies})


@dataclass(frozen=True)
class Call:
    """A request made for every query."""

    kind: Literal["joint", "adaptive", "own"]  # joint: one object for all strategies; adaptive: the LLM chooses; own: of one
    name: str  # of its requests
    recorded_as: str  # of its completions in a recording
    template: str
    strategies: tuple[Strategy, ...]  # in the order in which the prompt names them
    decoding: Mapping[str, Any]  # passed to the engine
    schema: dict[str, Any] | None = None  # the JSON schema of the answer, or None for plain text
    samples: int = 1
    engine: str = ""  # the strategy whose own engine answers; "": the common one
    as_text: bool = False  # whether the model goes on with the prompt, in place of answering it as a message
    marks: tuple[str, ...] = ()  # texts that stay in the answer though they be special tokens

    @cached_property
    def prompt_hash(self) -> str:
        return template_hash(self.template)

    @cached_property
    def variables(self) -> set[str]:
        """The columns of the log that the template shows."""
        return variables(self.template) - {"query", CONTEXT}


def in_prompt_order(pool: Sequence[Strategy]) -> tuple[Strategy, ...]:
    """Returns strategies in the order in which prompts name them, whatever that of the config."""
    return tuple(sorted(pool, key=lambda strategy: (strategy.order, strategy.name)))


def asked_engines(pool: Sequence[Strategy], select: SelectionOfStrategies) -> list[str]:
    """Returns the engines that answer requests, as `Request.engine` has them: "" of the common one, which then comes first.

    Where all strategies have engines of their own, nothing may be left for the common one.
    """
    if not pool or select.in_request:
        return [""] if pool else []
    common = select.typed_by == "llm" or any(one.engine is None for one in pool)
    return [""] * common + [one.name for one in pool if one.engine is not None]


def joint_strategies(strategies: Sequence[Strategy]) -> tuple[Strategy, ...]:
    """Returns the strategies that one joint request asks for, in prompt order: of several with one file only the first."""
    joint: tuple[Strategy, ...] = ()
    for strategy in strategies:
        if strategy.is_joint and strategy.base not in {one.base for one in joint}:
            joint += (strategy,)
    return joint


def joint_call(strategies: tuple[Strategy, ...], decoding: Mapping[str, Any], template: str) -> Call:
    """Returns the request of several strategies."""
    return Call("joint", REQUEST_NAME, REQUEST_NAME, template, strategies, decoding, joint_schema(strategies))


def own_call(s: Strategy, decoding: Mapping[str, Any]) -> Call:
    """Returns the request of one strategy. Raises RewriterError if it samples several answers at temperature 0."""
    own, samples = {**decoding, **s.decoding}, s.n if s.output == "text" else 1
    if samples > 1 and own.get("temperature", 0) == 0:
        line = f"strategy {s.name!r}: its {s.n} samples at temperature 0 are all the same; raise temperature, or n: 1"
        raise RewriterError("strategy", line)
    # Of the outputs only an object has a schema: OpenAI's own server refuses one whose root is an array.
    keys = s.keys if s.output == "object" and s.marks is None else ()
    schema = object_schema({key: {"type": "string", "maxLength": s.max_chars + 1} for key in keys})
    # Beside its marks, texts that end its answer stay in it up to there.
    marks = () if s.marks is None else tuple(dict.fromkeys((*s.marks.all, *own.get("stop", ()))))
    return Call(
        "own", s.name, s.base, s.prompt, (s,), own, schema if keys else None, samples,
        s.name if s.engine is not None else "", s.prompt_as == "text", marks,
    )  # fmt: skip
