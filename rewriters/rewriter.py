"""Builds the requests of a query and reads the rewrites from their completions.

The caller sends the requests to an engine: `Rewriter.requests` -> `Engine.complete` -> `Rewriter.read`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from cluster.errors import RewriterError, nearest
from rewriters.engines import Completion, Request
from rewriters.joint import JOINT_PROMPT, REQUEST_NAME, joint_schema, joint_template
from rewriters.reading.answer import label_key
from rewriters.reading.ladder import PARSE_VERSION, Unread, parse
from rewriters.reasons import MESSAGES
from rewriters.strategy import SHIPPED_PROMPTS, Strategy, load_strategy, render, template_hash

CALLS = ("joint", "separate")


@dataclass(frozen=True)
class RewriteResult:
    """One rewrite of one query.

    Attributes:
        strategy: Name of the strategy.
        position: From 1, within the strategy.
        text: The rewrite, on one line.
        weight: Of its ranked lists in fusion, by its strategy.
        search_as: "query" or "passage".
        model: As the engine names it.
        prompt_hash: Of the prompt template, 16 hex digits.
        parsed_as: The reader that found it: json, labelled, numbered or salvage.
        selected_reason: Why the strategy was selected for this query; None without selection.
        position_weight: Of its ranked lists in fusion, by its position; multiplies the weight.
    """

    strategy: str
    position: int
    text: str
    weight: float
    search_as: str
    model: str
    prompt_hash: str
    parsed_as: str
    selected_reason: str | None = None
    position_weight: float = 1.0


@dataclass(frozen=True)
class RewriteFailure:
    """A strategy without a rewrite for one query.

    Attributes:
        strategy: Name of the strategy.
        reason: One of `reasons.py`, or a reason of the engine.
        message: The reason as a sentence.
        raw: The whole completion; None if there was none.
        attempts: How often the request was sent.
    """

    strategy: str
    reason: str
    message: str
    raw: str | None
    attempts: int


@dataclass(frozen=True)
class _Plan:
    """A request made for every query; `strategies` stand in the order in which its prompt names them."""

    name: str
    template: str
    prompt_hash: str
    strategies: tuple[Strategy, ...]
    schema: dict[str, Any] | None


class Rewriter:
    """Builds requests and reads completions for a fixed set of strategies.

    The order of the strategies in the config does not matter: requests name them in the order of `Strategy.order`, so
    that the same set gives the same prompts.
    """

    def __init__(
        self, strategies: Sequence[str], calls: str, decoding: Mapping[str, Any], joint_prompt: str | None = None
    ) -> None:
        """Loads the strategies.

        Args:
            strategies: Their names; may be empty (then only the original query is searched).
            calls: "joint": one request for all strategies, and one of its own for each with `joint=False`; "separate":
                one request per strategy.
            decoding: Passed to the engine.
            joint_prompt: Replaces the default joint prompt; `check_joint_prompt` accepts it.

        Raises:
            RewriterError: A strategy is unknown or repeated, two strategies share a label, or `calls` is unknown.
        """
        if calls not in CALLS:
            raise RewriterError("config-value", f"unknown value of rewrite.calls {calls!r}{nearest(calls, CALLS)}")
        loaded = [load_strategy(name) for name in strategies]
        self.strategies: tuple[Strategy, ...] = tuple(sorted(loaded, key=lambda s: (s.order, s.name)))
        self._check_labels()
        self._calls = calls
        self._decoding = dict(decoding)
        self._plans = self._plan(joint_prompt or JOINT_PROMPT)

    def requests(self, query_id: str, query: str) -> list[Request]:
        """Returns the requests for one query; empty without strategies."""
        return [
            Request(query_id, query, plan.name, render(plan.template, query), plan.prompt_hash, plan.schema, self._decoding)
            for plan in self._plans
        ]

    def unsent_prompts(self) -> list[str]:
        """Returns the strategies whose prompt somebody wrote or edited, and which no request sends, being joint."""
        joint = [s for plan in self._plans for s in plan.strategies if plan.name == REQUEST_NAME]
        return [s.name for s in joint if template_hash(s.prompt) != SHIPPED_PROMPTS.get(s.name)]

    def read(self, answered: Sequence[tuple[Request, Completion]]) -> tuple[list[RewriteResult], list[RewriteFailure]]:
        """Returns the rewrites and the failures of one query: one or the other for each strategy.

        Raises nothing, whatever the model wrote.

        Args:
            answered: The requests with their completions, in any order; the strategies of a request that is not among
                them fail as `missing`.
        """
        by_name = {request.name: (request, completion) for request, completion in answered}
        outcomes: dict[str, RewriteResult | RewriteFailure] = {}
        for plan in self._plans:
            read = self._read_one(plan, *by_name[plan.name]) if plan.name in by_name else _unanswered(plan)
            outcomes.update({outcome.strategy: outcome for outcome in read})
        ordered = [outcomes[strategy.name] for strategy in self.strategies]
        return (
            [outcome for outcome in ordered if isinstance(outcome, RewriteResult)],
            [outcome for outcome in ordered if isinstance(outcome, RewriteFailure)],
        )

    def identity(self) -> dict[str, Any]:
        """Returns what determines the rewrites apart from the engine, as JSON values; independent of the config's order."""
        return {
            "calls": self._calls,
            "decoding": self._decoding,
            "parser": PARSE_VERSION,
            "strategies": [
                {field: getattr(s, field) for field in ("name", "search_as", "weight", "max_chars", "list_separator")}
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
                raise RewriterError("strategy", f"strategy {strategy.name!r} is listed twice; list it once")
            for word in strategy.names:
                owner = owners.setdefault(label_key(word), strategy.name)
                if owner != strategy.name:
                    raise RewriterError(
                        "strategy", f"strategies {owner!r} and {strategy.name!r} both answer to {word!r}; change one"
                    )

    def _plan(self, joint_prompt: str) -> list[_Plan]:
        joint_strategies = tuple(s for s in self.strategies if s.joint and self._calls == "joint")
        separate = [s for s in self.strategies if s not in joint_strategies]
        plans = [_Plan(s.name, s.prompt, template_hash(s.prompt), (s,), None) for s in separate]
        if joint_strategies:
            template = joint_template(joint_strategies, joint_prompt)
            plans.insert(
                0, _Plan(REQUEST_NAME, template, template_hash(template), joint_strategies, joint_schema(joint_strategies))
            )
        return plans

    def _read_one(self, plan: _Plan, request: Request, completion: Completion) -> list[RewriteResult | RewriteFailure]:
        raw = None if completion.text is None else completion.text.encode("utf-8", "replace").decode("utf-8")
        if completion.error_reason is not None or completion.text is None:
            reason = completion.error_reason or "empty"
            message = completion.error_message or "the engine gave no text"
            return [RewriteFailure(s.name, reason, message, raw, completion.attempts) for s in plan.strategies]
        parsed = parse(
            completion.text,
            request.query,
            requested=plan.strategies,
            known=self.strategies,
            instructions=plan.template,
            truncated=completion.finish_reason == "length",
        )
        return [
            RewriteFailure(name, one.reason, MESSAGES[one.reason], raw, completion.attempts)
            if isinstance(one, Unread)
            else RewriteResult(name, 1, one.text, s.weight, s.search_as, completion.model, request.prompt_hash, one.parsed_as)
            for (name, one), s in zip(parsed.items(), plan.strategies, strict=True)
        ]


def _unanswered(plan: _Plan) -> list[RewriteResult | RewriteFailure]:
    message = f"no completion came for request {plan.name!r}"
    return [RewriteFailure(strategy.name, "missing", message, None, 0) for strategy in plan.strategies]


def _schema_hash(schema: dict[str, Any] | None) -> str | None:
    return None if schema is None else template_hash(json.dumps(schema, sort_keys=True))
