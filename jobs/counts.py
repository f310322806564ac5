"""The keys of what a manifest counts: a job's balances, pages and closing table are sums of them.

Some are a name alone, such as `queries` and `failed_queries`. The others have a kind and parts between slashes. An ablation
counts for each arm under the keys that a run of it has, behind `arm/<arm>/`.
"""

from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass

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
    return {"searches": "searches", "web_searches": "searches", "pairs": "pairs"}.get(quantity, "requests")


def cost_stages(quantity: str) -> tuple[str, ...]:
    """Returns the values of `costs.stage` under which a quantity of work is counted."""
    stage = QUANTITIES[quantity]
    return (stage, GATE_STAGE) if quantity == "searches" else (stage,)


@dataclass(frozen=True)
class CountKind:
    """Counts under keys of one kind: its name and a number of parts between slashes; the part at `wide` may hold slashes."""

    name: str
    size: int
    wide: int = 0

    def key(self, *parts: object) -> str:
        """Returns the stored key of these parts."""
        return self._start + "/".join(map(str, parts))

    def parse(self, key: str) -> tuple[str, ...] | None:
        """Returns the parts of a stored key; None: it is of another kind."""
        parts = key.removeprefix(self._start).split("/")
        if not key.startswith(self._start) or len(parts) < self.size or (not self.name and parts[0] not in QUANTITIES):
            return None
        end = self.wide + 1 + len(parts) - self.size
        return (*parts[: self.wide], "/".join(parts[self.wide : end]), *parts[end:])

    def of(self, counts: Mapping[str, int]) -> Iterator[tuple[tuple[str, ...], int]]:
        """Yields the parts of each key of this kind with its count."""
        for key, count in counts.items():
            if (parts := self.parse(key)) is not None:
                yield parts, count

    @property
    def _start(self) -> str:
        return f"{self.name}/" if self.name else ""


ERRORS = CountKind("error", 3, wide=1)
"""Stage, component (that of its row in errors/, or empty), reason: errors and notes."""
ERROR_QUERIES = CountKind("error_queries", 2)
"""Stage, reason: queries with such an error; one answer may fail several strategies."""
READ_TEXTS = CountKind("rung", 2)
"""Strategy, reader (`rewrites.parsed_as`): its texts that were read so."""
FURTHER_TEXTS = CountKind("further_texts", 1)
"""Strategy: its texts beside the first of each query."""
FLAGGED_TEXTS = CountKind("guard", 2)
"""Strategy, flag: texts with this flag of `rewrites.guards`."""
LEFT_OUT_TEXTS = CountKind("left_out", 2)
"""Strategy, guard: texts that the guard left out."""
SELECTED_QUERIES = CountKind("selected", 2)
"""Query type, strategy: queries for which it was selected. Both may hold slashes: the key is looked up, and not parsed."""
STRATEGIES_OF_QUERIES = CountKind("selections", 2)
"""Query type (empty where there is none), number of selected strategies: queries."""
GATE_QUERIES = CountKind("gate", 1)
"""`sure` or `unsure`: queries of which the gate's retriever is, so that they are not rewritten, or is not."""
ROUND_QUERIES = CountKind("round", 1)
"""Number of a further round: queries whose refined query was searched in it."""
GRADED_DOCUMENTS = CountKind("graded", 1)
"""Verdict (relevant, ambiguous, irrelevant, `ungraded`): results."""
WORK = CountKind("", 2, wide=1)
"""Quantity, component as `component@model` (the model of searches is its encoder's, or empty): work that an arm needs.

Requests that it needs an answer of, distinct searches of a block's texts, pairs of query and document that it has scored.
"""
WORK_ALONE = CountKind("alone", 2, wide=1)
"""Quantity, component: of the work of an arm, what no other arm needs; it would not be made without the arm."""
WORK_ELSEWHERE = CountKind("elsewhere", 3, wide=2)
"""Quantity, `made_as`, component: work that an arm needs and that other arms' earlier stages made as this other quantity.

Alone the arm would make it itself. The component is that under which it was paid for.
"""
MADE_WORK = CountKind("made", 2, wide=1)
"""Quantity, component: distinct requests that were made here for any arm, each once for all attempts at it."""


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
