"""The keys of what a manifest counts: a job's balances, pages and closing table are sums of them.

Some are a name alone, such as `queries` and `failed_queries`. The others have a kind and parts between slashes: a class each,
whose `key` is stored and whose `parse` reads it back. An ablation counts for each arm under the keys that a run of it has,
behind `arm/<arm>/`.
"""

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import astuple, dataclass, fields
from typing import ClassVar, Self, TypeVar

WITHOUT_GOLD = "judged_without_gold"  # queries whose answers were judged right or wrong by the question alone
FAILED_BY_OUTAGES = "failed_by_outages"  # queries that failed, and only since a server was away
# Of work -> value of `costs.stage`.
QUANTITIES = {
    "requests": "rewrite", "searches": "retrieve", "pairs": "rerank", "rounds": "iterate", "grades": "grade",
    "web_searches": "web", "answers": "answer", "judgements": "judge",
}  # fmt: skip
GATE_STAGE = "gate"  # value of `costs.stage` of the searches that are made before rewriting
_ARM = "arm/"


def cost_quantity(quantity: str) -> str:
    """Returns the column of costs/ that counts a quantity of work: each answer, refined query and grade is a request."""
    if quantity == "web_searches":
        return "searches"
    return "requests" if quantity in ("answers", "rounds", "grades", "judgements") else quantity


def cost_stages(quantity: str) -> tuple[str, ...]:
    """Returns the values of `costs.stage` under which a quantity of work is counted."""
    stage = QUANTITIES[quantity]
    return (stage, GATE_STAGE) if quantity == "searches" else (stage,)


@dataclass(frozen=True)
class CountKey:
    """A key with parts; the part at `WIDE` may hold slashes."""

    KIND: ClassVar[str]
    WIDE: ClassVar[int] = 0

    @property
    def key(self) -> str:
        return self._start() + "/".join(map(str, astuple(self)))

    @classmethod
    def parse(cls, key: str) -> Self | None:
        """Returns a stored key by its parts; None: it is of another kind."""
        parts, known = key.removeprefix(cls._start()).split("/"), fields(cls)
        if not key.startswith(cls._start()) or len(parts) < len(known):
            return None
        end = cls.WIDE + 1 + len(parts) - len(known)
        parts[cls.WIDE : end] = ["/".join(parts[cls.WIDE : end])]
        make: Callable[..., Self] = cls
        return make(*(int(part) if field.type is int else part for part, field in zip(parts, known, strict=True)))

    @classmethod
    def _start(cls) -> str:
        return f"{cls.KIND}/" if cls.KIND else ""


@dataclass(frozen=True)
class ErrorCount(CountKey):
    """Errors and notes of a stage; `component` is that of its row in errors/, or empty."""

    KIND, WIDE = "error", 1
    stage: str
    component: str
    reason: str


@dataclass(frozen=True)
class ErrorQueries(CountKey):
    """Queries with such an error: one answer may fail several strategies."""

    KIND = "error_queries"
    stage: str
    reason: str


@dataclass(frozen=True)
class ReadTexts(CountKey):
    """Texts of a strategy by how they were read (`rewrites.parsed_as`)."""

    KIND = "rung"
    strategy: str
    reader: str


@dataclass(frozen=True)
class FurtherTexts(CountKey):
    """Texts of a strategy beside the first of each query."""

    KIND = "further_texts"
    strategy: str


@dataclass(frozen=True)
class FlaggedTexts(CountKey):
    """Texts with a flag of `rewrites.guards`."""

    KIND = "guard"
    strategy: str
    flag: str


@dataclass(frozen=True)
class LeftOutTexts(CountKey):
    """Texts that a guard left out."""

    KIND = "left_out"
    strategy: str
    guard: str


@dataclass(frozen=True)
class Unsearched(CountKey):
    """Searches (one per retriever) that near-duplicates left out would have had.

    None of a text that another text of the query equals, or while other texts of a strategy with `as_one` are searched.
    """

    KIND = "unsearched"
    strategy: str


@dataclass(frozen=True)
class SelectedQueries(CountKey):
    """Queries of a type for which a strategy was selected. Both may hold slashes: it is looked up, and not parsed."""

    KIND = "selected"
    query_type: str
    strategy: str


@dataclass(frozen=True)
class StrategiesOfQueries(CountKey):
    """Queries of a type, which is empty where they have none, by their number of selected strategies."""

    KIND = "selections"
    query_type: str
    number: int


@dataclass(frozen=True)
class GateQueries(CountKey):
    """Queries of which the gate's retriever is `sure`, so that they are not rewritten, or `unsure`."""

    KIND = "gate"
    verdict: str


@dataclass(frozen=True)
class RoundQueries(CountKey):
    """Queries whose refined query was searched in a further round."""

    KIND = "round"
    number: int


@dataclass(frozen=True)
class GradedDocuments(CountKey):
    """Results of a verdict: relevant, ambiguous, irrelevant; or `ungraded`."""

    KIND = "graded"
    verdict: str


@dataclass(frozen=True)
class Work(CountKey):
    """Work that an arm needs, of a component as `component@model`; the model of searches is its encoder's, or empty.

    Requests that it needs an answer of, distinct searches of a block's texts, pairs of query and document that it has scored.
    """

    KIND, WIDE = "", 1
    quantity: str
    component: str

    @classmethod
    def parse(cls, key: str) -> Self | None:
        work = super().parse(key)
        return work if work is not None and work.quantity in QUANTITIES else None


@dataclass(frozen=True)
class WorkAlone(CountKey):
    """Of the work of an arm, what no other arm needs: it would not be made without the arm."""

    KIND, WIDE = "alone", 1
    quantity: str
    component: str


@dataclass(frozen=True)
class WorkElsewhere(CountKey):
    """Work that an arm needs and that other arms' earlier stages have made, as work of the quantity `made_as`.

    Alone the arm would make it itself. `component` is that under which it was paid for.
    """

    KIND, WIDE = "elsewhere", 2
    quantity: str
    made_as: str
    component: str


@dataclass(frozen=True)
class MadeWork(CountKey):
    """Distinct requests that were made here for any arm, each once for all attempts at it."""

    KIND, WIDE = "made", 1
    quantity: str
    component: str


Of = TypeVar("Of", bound=CountKey)


def counts_of(counts: Mapping[str, int], kind: type[Of]) -> Iterator[tuple[Of, int]]:
    """Yields the counts of one kind."""
    for key, count in counts.items():
        if (parsed := kind.parse(key)) is not None:
            yield parsed, count


def arm_key(arm: str, key: str) -> str:
    """Returns the key of what is counted for an arm, from that of a run of it alone."""
    return f"{_ARM}{arm}/{key}"


def by_arm(counts: Mapping[str, int], arms: Collection[str]) -> dict[str, Counter[str]]:
    """Returns the counts of each arm under a run's keys; of two arms whose names a key fits, it is of the longer."""
    counters = {arm: Counter[str]() for arm in arms}
    for key, count in counts.items():
        parts = key.removeprefix(_ARM).split("/") if key.startswith(_ARM) else []
        for end in range(len(parts) - 1, 0, -1):  # a name may hold a slash: weights.general/bm25=0
            if (arm := "/".join(parts[:end])) in counters:
                counters[arm]["/".join(parts[end:])] += count
                break
    return counters
