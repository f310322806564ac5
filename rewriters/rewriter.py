"""A query in, rewrites out: which requests a query needs, and what their completions say for each strategy.

The engine stands between the two, elsewhere: `requests` -> engine -> `read`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rewriters.engines import Completion, Request
from rewriters.errors import RewriterError, unknown_name
from rewriters.joint import REQUEST_NAME, joint_schema, joint_template
from rewriters.parse import PARSER_VERSION, Unread, parse
from rewriters.reasons import MESSAGES
from rewriters.rungs import key
from rewriters.strategy import Strategy, load_strategy, render, template_hash

CALLS = ("joint", "separate")


@dataclass(frozen=True)
class Rewrite:
    """One rewrite of one query. position: from 1, within its strategy. parsed_as: json, labelled, numbered or
    salvage."""

    strategy: str
    position: int
    text: str
    weight: float
    model: str
    prompt_hash: str
    parsed_as: str
    selected_reason: str | None = None


@dataclass(frozen=True)
class RewriteFailure:
    """One strategy without a rewrite. reason: one of `reasons.py`, or the engine's. raw: the whole completion, if one
    came."""

    strategy: str
    reason: str
    message: str
    raw: str | None
    attempts: int


@dataclass(frozen=True)
class _Plan:
    """One request that every query makes, and whom it serves, in the order in which its prompt names them."""

    name: str
    template: str
    prompt_hash: str
    strategies: tuple[Strategy, ...]
    schema: dict[str, Any] | None


class Rewriter:
    """The plan of all rewriting: which strategies, in which calls, decoded how.

    strategies: their names; none is allowed (only the original is searched then). calls: "joint" asks for all in one
    request, but a strategy that does not take part in joint calls still has its own; "separate" makes one request
    each. decoding: handed on to the engine. Their order in the config changes nothing: requests name the strategies
    in an order of their own, so that the same choice gives the same prompts.

    Raises RewriterError for an unknown or repeated strategy, for two that answer to one label, and for unknown calls.
    """

    def __init__(self, strategies: Sequence[str], calls: str, decoding: Mapping[str, Any]) -> None:
        if calls not in CALLS:
            raise unknown_name("value of rewrite.calls", calls, CALLS)
        loaded = [load_strategy(name) for name in strategies]
        self.strategies: tuple[Strategy, ...] = tuple(sorted(loaded, key=lambda s: (s.order, s.name)))
        self._check_labels()
        self._calls = calls
        self._decoding = dict(decoding)
        self._plans = self._plan()

    def requests(self, query_id: str, query: str) -> list[Request]:
        """What to ask an engine for one query: empty without strategies."""
        return [
            Request(query_id, query, plan.name, render(plan.template, query), plan.prompt_hash, plan.schema, self._decoding)
            for plan in self._plans
        ]

    def read(self, answered: Sequence[tuple[Request, Completion]]) -> tuple[list[Rewrite], list[RewriteFailure]]:
        """What one query's completions, in any order, say: every strategy ends as exactly one rewrite or one failure.

        Never raises, whatever a model wrote. A request of the plan that is not among `answered` fails its strategies
        as `missing`.
        """
        by_name = {request.name: (request, completion) for request, completion in answered}
        ends: dict[str, Rewrite | RewriteFailure] = {}
        for plan in self._plans:
            outcome = self._read_one(plan, *by_name[plan.name]) if plan.name in by_name else _unanswered(plan)
            ends.update({end.strategy: end for end in outcome})
        ordered = [ends[strategy.name] for strategy in self.strategies]
        return (
            [end for end in ordered if isinstance(end, Rewrite)],
            [end for end in ordered if isinstance(end, RewriteFailure)],
        )

    def identity(self) -> dict[str, Any]:
        """What decides the rewrites beside the engine, JSON-able: the same for the same strategies in any order."""
        return {
            "calls": self._calls,
            "decoding": self._decoding,
            "parser": PARSER_VERSION,
            "strategies": [
                {field: getattr(s, field) for field in ("name", "kind", "weight", "max_chars", "list_separator")}
                for s in self.strategies
            ],
            "requests": [
                {"name": plan.name, "prompt_hash": plan.prompt_hash, "schema_hash": _schema_hash(plan.schema)}
                for plan in self._plans
            ],
        }

    def _check_labels(self) -> None:
        owners: dict[str, str] = {}
        for strategy in self.strategies:
            if strategy.name in owners.values():
                raise RewriterError(f"strategy {strategy.name!r} is listed twice; list it once")
            for word in (strategy.name, strategy.label):
                owner = owners.setdefault(key(word), strategy.name)
                if owner != strategy.name:
                    raise RewriterError(f"strategies {owner!r} and {strategy.name!r} both answer to {word!r}; change one label")

    def _plan(self) -> list[_Plan]:
        together = tuple(s for s in self.strategies if s.joint and self._calls == "joint")
        alone = [s for s in self.strategies if s not in together]
        plans = [_Plan(s.name, s.prompt, template_hash(s.prompt), (s,), None) for s in alone]
        if together:
            template = joint_template(together)
            plans.insert(0, _Plan(REQUEST_NAME, template, template_hash(template), together, joint_schema(together)))
        return plans

    def _read_one(self, plan: _Plan, request: Request, completion: Completion) -> list[Rewrite | RewriteFailure]:
        raw = None if completion.text is None else completion.text.encode("utf-8", "replace").decode("utf-8")
        if completion.error_reason is not None or completion.text is None:
            reason = completion.error_reason or "empty"
            message = completion.error_message or "the engine gave no text"
            return [RewriteFailure(s.name, reason, message, raw, completion.attempts) for s in plan.strategies]
        outcome = parse(
            completion.text,
            request.query,
            wanted=plan.strategies,
            known=self.strategies,
            instructions=plan.template,
            truncated=completion.finish_reason == "length",
        )
        return [
            RewriteFailure(name, one.reason, MESSAGES[one.reason], raw, completion.attempts)
            if isinstance(one, Unread)
            else Rewrite(name, 1, one.text, weight, completion.model, request.prompt_hash, one.parsed_as)
            for (name, one), weight in zip(outcome.items(), [s.weight for s in plan.strategies], strict=True)
        ]


def _unanswered(plan: _Plan) -> list[Rewrite | RewriteFailure]:
    message = f"no completion came for request {plan.name!r}"
    return [RewriteFailure(strategy.name, "missing", message, None, 0) for strategy in plan.strategies]


def _schema_hash(schema: dict[str, Any] | None) -> str | None:
    return None if schema is None else template_hash(json.dumps(schema, sort_keys=True))
