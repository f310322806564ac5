"""The requests that are made for every query: one for all joint strategies, and one for each other."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

from cluster.errors import RewriterError
from rewriters.engines.schemas import object_schema
from rewriters.joint import REQUEST_NAME, joint_schema, joint_template
from rewriters.settings import SelectionOfStrategies
from rewriters.strategy import CONTEXT, Strategy, template_hash, variables


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
        """Of the template, 16 hex digits."""
        return template_hash(self.template)

    @cached_property
    def variables(self) -> set[str]:
        """The columns of the log that the template shows."""
        return variables(self.template) - {"query", CONTEXT}


def in_prompt_order(pool: Sequence[Strategy]) -> tuple[Strategy, ...]:
    """Returns strategies in the order in which prompts name them, whatever that of the config."""
    return tuple(sorted(pool, key=lambda strategy: (strategy.order, strategy.name)))


def asked_engines(pool: Sequence[Strategy], select: SelectionOfStrategies) -> list[str]:
    """Returns whose engines answer requests, as `Request.engine` has it: "" of the common one, which then comes first.

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
        if strategy.is_joint and strategy.recorded_as not in {one.recorded_as for one in joint}:
            joint += (strategy,)
    return joint


def calls_of(
    strategies: Sequence[Strategy],
    calls: str,
    decoding: Mapping[str, Any],
    joint_prompt: str,
    language: str | None,
    context: bool,
) -> list[Call]:
    """Returns the requests for every query, the joint one first, of strategies in the order of prompts.

    The arguments are those of `rewriters.rewriter.Rewriting`.

    Raises:
        RewriterError: A strategy samples several answers at temperature 0.
    """
    for one in strategies:
        if one.samples > 1 and {**decoding, **one.decoding}.get("temperature", 0) == 0:
            line = f"strategy {one.name!r}: its {one.n} samples at temperature 0 are all the same; raise temperature, or n: 1"
            raise RewriterError("strategy", line)
    joint = joint_strategies(strategies) if calls == "joint" else ()
    found = [_own_call(s, {**decoding, **s.decoding}) for s in strategies if s not in joint]
    if joint:
        template = joint_template(joint, joint_prompt, language, context)
        found.insert(0, Call("joint", REQUEST_NAME, REQUEST_NAME, template, joint, decoding, joint_schema(joint)))
    return found


def _own_call(s: Strategy, decoding: Mapping[str, Any]) -> Call:
    """Returns the request of one strategy alone. Beside its marks, texts that end its answer stay in it up to there."""
    marks = () if s.marks is None else tuple(dict.fromkeys((*s.marks.all, *decoding.get("stop", ()))))
    return Call(
        "own", s.name, s.recorded_as, s.prompt, (s,), decoding, _own_schema(s), s.samples,
        s.name if s.engine is not None else "", s.prompt_as == "text", marks,
    )  # fmt: skip


def _own_schema(strategy: Strategy) -> dict[str, Any] | None:
    """Returns the JSON schema of the answer to a request for an object; None for the other outputs, and between marks.

    A schema whose root is an array is refused by OpenAI's own server. Its lengths are as in the joint schema.
    """
    if strategy.output != "object" or strategy.marks is not None:
        return None
    return object_schema({key: {"type": "string", "maxLength": strategy.max_chars + 1} for key in strategy.keys})
