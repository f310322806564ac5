"""The rewriting step: requests the answers that several arms share, and parses them."""

from collections.abc import Callable, Collection, Mapping, Sequence
from functools import cache

from jobs.chain.arms.requests import SAMPLES_APART, RequestNames, as_made
from jobs.chain.arms.shared_work import SharedWork
from jobs.chain.block import Ask, LlmBlock, Step
from jobs.chain.journal import Key
from rewriters.classifier import REQUEST_NAME
from rewriters.engines import Completion, Request
from rewriters.guards.mask import Mask
from rewriters.query import Query
from rewriters.results import RewriteFailure, Rewritten
from rewriters.rewriter import Rewriter
from rewriters.selection import Choice, Gated

_NO_MASK = Mask(())  # the rewriter puts back what it masks


class Reader:
    """A reading, by its index, with what chooses, asks and reads, and with its arms and their strategies.

    `names`: name and hash of the prompt of its requests -> their names in costs and errors.
    """

    def __init__(self, number: int, names: Mapping[tuple[str, str], RequestNames], work: SharedWork) -> None:
        self.number, self.called, self.reading = number, names, work.readings[number]
        self.arms = [(one.arm, one.strategies) for one in work.answers if work.searches[one.search].reading == number]
        self._chooser, self._rewriter = Rewriter(self.reading.rewriting), Rewriter(self.reading.asked)
        self._users = cache(lambda texts: self._needs(dict(texts)))

    def rewrite(self, block: LlmBlock, key: Callable[[Request], Key], gated: Sequence[Gated | None]) -> Step[list[Rewritten]]:
        """Asks for the rewrites of each query, and once more where an answer does not serve, and reads them.

        Args:
            block: The queries.
            key: Returns the key of an answer.
            gated: What the gate says of each query; None: there is none.
        """

        def asked(row: int, request: Request, arms: Collection[str] | None) -> Ask:
            return Ask(row, request, key(request), self.called[request.name, request.prompt_hash].cost, _NO_MASK, arms=arms)

        reading, sure = self.reading, [one is not None and one.sure for one in gated]
        open_queries = [(row, query) for row, query in enumerate(block.queries) if not sure[row]]
        questions = [(row, request) for row, query in open_queries if (request := self._chooser.question(query)) is not None]
        asks = [asked(row, as_made(reading, request), None) for row, request in questions]
        types = {ask.row: reply.completion for ask, reply in zip(asks, (yield asks), strict=True)}
        choices = [self._choice(query, types.get(row), gated[row]) for row, query in enumerate(block.queries)]
        answered: list[list[tuple[Request, Completion]]] = [[] for _ in block.queries]
        due = [
            (row, as_made(reading, request))
            for row, query in enumerate(block.queries)
            for request in self._rewriter.requests(query, choices[row])
        ]
        while due:
            asks = []
            for row, request in due:
                users = self._users(tuple(choices[row].texts.items()))
                asks.append(asked(row, request, users.get((request.name, request.sample % SAMPLES_APART), ())))
            for ask, reply in zip(asks, (yield asks), strict=True):
                answered[ask.row].append((ask.request, reply.completion))
            due = [
                (row, request)
                for row, query in enumerate(block.queries)
                for request in self._rewriter.again(query, answered[row], choices[row])
            ]
        read = []
        for row, query in enumerate(block.queries):
            written = self._rewriter.read(query, answered[row], choices[row])
            notes = _choice_notes(types.get(row), choices[row])
            read.append(written._replace(failures=notes + written.failures))
        return read

    def _choice(self, query: Query, answer: Completion | None, gated: Gated | None) -> Choice:
        """Returns the strategies of a query, for which the LLM may have said of which type it is, and the gate no."""
        if gated is not None and gated.sure:
            return self._chooser.nothing(query, gated.reason)
        choice = self._chooser.choose(query, answer)
        return choice if gated is None else choice._replace(reason=choice.reason or gated.reason)

    def _needs(self, texts: Mapping[str, int | None]) -> dict[tuple[str, int], frozenset[str]]:
        """Returns the arms that need an answer where these texts are chosen, by name and sample of the request."""
        needs: dict[tuple[str, int], set[str]] = {}
        for arm, strategies in self.arms:
            own = Choice({name: most for name, most in texts.items() if name in strategies})
            for name, samples in self._rewriter.samples(own).items():
                for sample in range(samples):
                    needs.setdefault((name, sample), set()).add(arm)
        return {request: frozenset(arms) for request, arms in needs.items()}


def _choice_notes(answer: Completion | None, choice: Choice) -> list[RewriteFailure]:
    """Returns the notes on a choice: the LLM's answer names no type, or the query's cell in the log no strategy of the pool."""
    notes = []
    if answer is not None and (answer.text is None or not choice.answered):
        message = f"the LLM's answer names no type; the rules say {choice.query_type}"
        notes.append(RewriteFailure(REQUEST_NAME, "not_classified", message, answer.text, answer.attempts))
    if choice.note:
        notes.append(RewriteFailure("select", "wrong_cell", choice.note, None, 0))
    return notes
