"""Builds the requests of a query and reads the rewrites from their completions.

The caller sends the requests to an engine: `Rewriter.question` (only where the LLM classifies) -> `choose` -> `requests` ->
`Engine.complete` -> `read`.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from cluster.errors import RewriterError
from rewriters import adaptive, classifier, settings
from rewriters.calls import JOINT_PROMPT, Call, in_prompt_order, joint_call, joint_strategies, joint_template, own_call
from rewriters.engines import Completion, Request
from rewriters.guards.guards import Guards
from rewriters.guards.mask import Mask, unmasked
from rewriters.query import Query
from rewriters.reading.answers import Answers, read_call
from rewriters.reading.ladder import PARSE_VERSION
from rewriters.reasons import MASKED
from rewriters.results import RewriteResult, Rewritten
from rewriters.retries import FIRST_TRY, RETRIES_VERSION, Pair, Read, again, failures_of, notes_on_sends, settled
from rewriters.selection import Choice, all_of, by_chance, by_column
from rewriters.strategy import CONTEXT, Strategy, render, shared_prefix, template_hash, told_hash, variables


@dataclass(frozen=True)
class Rewriting:
    """The parts of a rewriter; a value that workers are given."""

    pool: tuple[Strategy, ...]  # the strategies; may be empty (then only the original query is searched)
    calls: str = "joint"  # "joint": one request for all joint strategies, one for each other; "separate": one each
    decoding: Mapping[str, Any] = field(default_factory=dict)  # passed to the engine
    joint_prompt: str = JOINT_PROMPT  # of `load_joint_prompt`
    language: str | None = None  # that rewrites are written in; None: the query's
    context: bool = False  # whether queries have earlier turns
    select: settings.SelectSettings = field(default_factory=lambda: settings.SelectAll(kind="all"))  # `rewrite.select`
    rules: classifier.Rules | None = None  # of a selection by type
    demonstrations: tuple[adaptive.Demonstration, ...] = ()  # of adaptive selection
    guards: settings.GuardSettings = field(default_factory=settings.GuardSettings)  # what is masked, checked and left out
    retries: int = 0  # tries of a request, after the first, whose answer does not serve (`retries.py`)
    answer_once: frozenset[str] = frozenset()  # values of `Request.engine` of recordings, whose answers are not tried again

    @property
    def selects(self) -> bool:
        """Returns True if queries differ in the strategies that rewrite them."""
        return bool(self.pool) and self.select.kind != "all"

    @property
    def cuts(self) -> dict[str, tuple[int | None, float | None]]:
        """Returns strategy -> its depth and score floor, of the strategies that have one."""
        return {s.name: (s.depth, s.score_floor) for s in self.pool if (s.depth, s.score_floor) != (None, None)}

    @property
    def columns(self) -> tuple[str, ...]:
        """Returns the columns of the log that prompts or the selection use, sorted."""
        shown = {name for strategy in self.pool for name in variables(strategy.prompt)} - {"query", CONTEXT}
        return tuple(sorted(shown | ({self.select.column} if isinstance(self.select, settings.SelectColumn) else set())))


class Rewriter:
    """Builds requests and reads completions for a pool of strategies.

    The order of the strategies in the config does not matter to requests: they name them in the order of `Strategy.order`,
    so that the same set gives the same prompts.
    """

    def __init__(self, rewriting: Rewriting) -> None:
        """Builds the templates. Raises RewriterError if the selection does not fit the pool."""
        self._of = rewriting
        self.strategies = in_prompt_order(rewriting.pool)
        self._rules = rewriting.rules if rewriting.pool else None
        if rewriting.pool and isinstance(rewriting.select, settings.SelectRandom) and rewriting.select.k > len(rewriting.pool):
            line = f"rewrite.select.k is {rewriting.select.k}, and there are {len(rewriting.pool)} strategies; lower it"
            raise RewriterError("config-value", line)
        if self._rules is not None:
            for name in self._rules.strategies:
                self._rules.choice(name, rewriting.pool)  # raises for a strategy that the pool has not
        self._asks_type = rewriting.select.typed_by == "llm"
        self._calls = self._planned()
        self._prompt_hashes = {strategy.name: call.prompt_hash for call in self._calls for strategy in call.strategies}
        self._guards = Guards(rewriting.guards, self.strategies)

    def question(self, query: Query) -> Request | None:
        """Returns the request whose answer `choose` needs; None if it needs none."""
        if not self._asks_type or self._rules is None:
            return None
        template = self._rules.prompt()
        decoding = {**self._of.decoding, "temperature": 0.0}
        shown, mask = self._guards.masked(query)
        return Request(
            query.query_id, query.text, classifier.REQUEST_NAME, render(template, {"query": shown.text}),
            template_hash(template), None, decoding, variables=told_hash({}, mask.counts),
        )  # fmt: skip

    def choose(self, query: Query, answer: Completion | None = None) -> Choice:
        """Returns the strategies that rewrite a query; all of the pool with adaptive selection.

        `answer` is that to the question, if there was one; the rules decide where it names no type.
        """
        select, pool = self._of.select, self._of.pool
        if pool and isinstance(select, settings.SelectRandom):
            return by_chance(pool, select.k, select.seed, query)
        if pool and isinstance(select, settings.SelectColumn):
            return by_column(pool, select.column, query)
        if self._rules is None:
            return all_of(pool)
        named = None if answer is None or answer.text is None else self._rules.read(answer.text)
        return self._rules.choice(named or self._rules.type_of(query.text), pool)._replace(answered=named is not None)

    def nothing(self, query: Query, reason: str) -> Choice:
        """Returns the choice for a query that is not rewritten: no strategy."""
        query_type = None if self._asks_type else self.choose(query).query_type
        return Choice({}, query_type, reason)

    def requests(self, query: Query, choice: Choice | None = None) -> list[Request]:
        """Returns the requests for one query; empty without strategies.

        `choice` are the strategies that rewrite it; None: what `choose` says without an answer.
        """
        choice = self.choose(query) if choice is None else choice
        shown, mask = self._guards.masked(query)
        return [
            self._request(call, query, shown, mask, sample)
            for call in self._asked(choice)
            for sample in range(_samples(call, choice))
        ]

    def again(self, query: Query, answered: Sequence[Pair], choice: Choice | None = None) -> list[Request]:
        """Returns the requests of one query that are to be made once more, as their answers do not serve.

        `answered` are all its requests so far, those of this method included, with their completions; `choice` is that of
        `requests`.
        """
        choice = self.choose(query) if choice is None else choice
        recorded = {call.name for call in self._calls if call.engine in self._of.answer_once}
        return again(answered, self._reader(query, choice), self._of.retries, recorded)

    def samples(self, choice: Choice) -> dict[str, int]:
        """Returns the requests whose answers have texts of the chosen strategies, and how many answers each needs."""
        return {call.name: _samples(call, choice) for call in self._asked(choice)}

    def unsent_prompts(self) -> list[str]:
        """Returns the strategies whose prompt the user wrote, and which no request sends, being joint or adaptive."""
        sent = {strategy.name for call in self._calls if call.kind == "own" for strategy in call.strategies}
        return [s.name for s in self.strategies if s.own_file and s.name not in sent]

    def read(self, query: Query, answered: Sequence[Pair], choice: Choice | None = None) -> Rewritten:
        """Returns the rewrites and the failures of one query: one or the other for each chosen strategy.

        Raises nothing, whatever the model wrote. `answered` are the requests with their completions, in any order; the
        strategies of a request that is not among them fail as `missing`. `choice` is that of `requests`.
        """
        choice = self.choose(query) if choice is None else choice
        shown, mask = self._guards.masked(query)
        by_name: dict[str, list[Completion]] = {}
        used = settled(answered, self._reader(query, choice))
        for request, completion in sorted(used, key=lambda one: one[0].sample % FIRST_TRY):
            by_name.setdefault(request.name, []).append(completion)
        outcomes: dict[str, Answers] = {}
        for call in self._asked(choice):
            parsed, choice = read_call(call, by_name.get(call.name, []), shown, choice)
            outcomes |= parsed
        results: list[RewriteResult] = []
        for strategy in self.strategies:
            if strategy.name not in choice.texts:
                outcomes.pop(strategy.name, None)
            elif strategy.name in outcomes:
                results += self._results(strategy, outcomes[strategy.name], choice, mask)
        rewrites, guarded = self._guards.checked(query, results)
        failures = failures_of(self.strategies, outcomes, rewrites, guarded) + notes_on_sends(mask, answered, used)
        return Rewritten(rewrites, failures, choice, tuple(guarded))

    def identity(self) -> dict[str, Any]:
        """Returns the identity of the rewrites apart from the engine, as JSON values; independent of the config's order."""
        select, guards = self._of.select, self._guards.identity()
        selection = {} if select.kind == "all" else select.model_dump(exclude={"rules", "demonstrations", "least"})
        if self._of.rules is not None:
            selection["rules"] = self._of.rules.model_dump(mode="json")
        retries = {"tries": self._of.retries, "version": RETRIES_VERSION} if self._of.retries else {}
        return {
            "calls": self._of.calls,
            "decoding": dict(self._of.decoding),
            "parser": PARSE_VERSION,
            "strategies": [strategy.identity() for strategy in self.strategies],
            "requests": [
                {
                    "name": call.name,
                    "prompt_hash": call.prompt_hash,
                    "schema_hash": call.schema and template_hash(json.dumps(call.schema, sort_keys=True)),
                }
                for call in self._calls
            ],
        } | {name: value for name, value in (("select", selection), ("guards", guards), ("retries", retries)) if value}

    def _planned(self) -> list[Call]:
        """Returns the requests for every query, the joint one first. Raises RewriterError for samples that are all the same."""
        own = self._of
        if not self.strategies:
            return []
        if isinstance(own.select, settings.SelectAdaptive):
            for each in self.strategies:
                if each.engine is not None or each.is_trained:
                    why = "has an engine or form of its own, and adaptive selection asks rewrite.engine once for all strategies"
                    raise RewriterError("selection", f"strategy {each.name!r} {why}; leave it out, or choose another selection")
            template = adaptive.adaptive_template(
                self.strategies, own.demonstrations, own.language, own.context, own.select.least
            )
            return [Call("adaptive", adaptive.REQUEST_NAME, adaptive.REQUEST_NAME, template, self.strategies, own.decoding)]
        joint = joint_strategies(self.strategies) if own.calls == "joint" else ()
        planned = []
        if joint:
            template = joint_template(joint, own.joint_prompt, own.language, own.context)
            planned.append(joint_call(joint, own.decoding, template))
        return planned + [own_call(strategy, own.decoding) for strategy in self.strategies if strategy not in joint]

    def _asked(self, choice: Choice) -> list[Call]:
        return [call for call in self._calls if any(strategy.name in choice.texts for strategy in call.strategies)]

    def _reader(self, query: Query, choice: Choice) -> Read:
        calls, shown = {call.name: call for call in self._asked(choice)}, self._guards.masked(query)[0]
        return lambda pair: read_call(calls[pair[0].name], [pair[1]], shown, choice)[0].values()

    def _request(self, call: Call, query: Query, shown: Query, mask: Mask, sample: int) -> Request:
        """Returns a request; `shown` is the query as the prompt has it."""
        used = {name: shown.values.get(name) or "(unknown)" for name in sorted(call.variables)}
        values = {**used, "query": shown.text, CONTEXT: shown.context or "(none)"}
        decoding = dict(call.decoding) | ({"seed": call.decoding.get("seed", 0) + sample} if sample else {})
        return Request(
            query.query_id, query.text, call.name, render(call.template, values), call.prompt_hash, call.schema, decoding,
            call.recorded_as, sample, call.engine, told_hash(used, mask.counts), shared_prefix(call.template, values),
            as_text=call.as_text, marks=call.marks,
        )  # fmt: skip

    def _results(self, strategy: Strategy, answers: Answers, choice: Choice, mask: Mask) -> list[RewriteResult]:
        most, masked = choice.texts.get(strategy.name) or strategy.n, (MASKED,) if mask.values else ()
        model = "" if answers.completion is None else answers.completion.model
        return [
            RewriteResult(
                strategy.name, text.position, unmasked(text.text, mask.values), strategy.weight, strategy.search_as, model,
                self._prompt_hashes[strategy.name], text.parsed_as, choice.reason, strategy.position_weight(text.position),
                (*text.flags, *masked),
            )
            for text in answers.texts[:most]
        ]  # fmt: skip


def _samples(call: Call, choice: Choice) -> int:
    return min(call.samples, choice.texts[call.strategies[0].name] or call.samples) if call.samples > 1 else 1
