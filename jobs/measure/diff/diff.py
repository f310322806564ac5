"""Two runs compared: what they were given, what came out, what it cost, and with judgements how good it is.

Both may be unfinished: what is committed is read, by the manifests.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from cluster import costs
from cluster.costs import Prices
from jobs.chain.pipeline import COSTED
from jobs.log.judgements import Judgements
from jobs.measure.answers import GoldAnswers, answering
from jobs.measure.diff.changed_queries import Moves, moves
from jobs.measure.diff.changes import Change, changes
from jobs.measure.diff.quality import Paired, answer_quality, judged_quality, quality
from jobs.measure.frame import JUDGED_LISTS
from jobs.runs.folder import RunFolder
from jobs.terminal.formats import known


class Cost(NamedTuple):
    """What 1,000 queries of each run cost: one quantity of one stage, or of all."""

    stage: str
    """`total` for all stages."""
    quantity: str
    """usd, seconds, device_seconds, driver_seconds, or one of `cluster.costs.QUANTITIES` and `STORAGE_REQUESTS`."""
    a: float
    b: float


class Diff(NamedTuple):
    """A comparison of two runs."""

    a: RunFolder
    b: RunFolder
    changes: dict[str, list[Change]]
    moves: Moves
    costs: list[Cost]
    quality: Paired | None
    """None without judgements."""
    answers: Paired | None = None
    """By F1 and exact match; None without gold answers, or if not both runs answer."""
    judged: Sequence[Paired] = ()
    """By what judges say of results and answers, in each kind that both runs have."""
    unlike: Sequence[str] = ()
    """What both runs have and cannot be compared; a sentence each."""

    @property
    def notes(self) -> list[str]:
        """Returns what cannot be compared: what only one of the runs has, or what differs in kind; a sentence each."""
        answers = [bool(answering(run)) for run in (self.a, self.b)]
        notes = [f"answers: only {_only(answers)} has any (answer), so they are not compared"] if any(answers) else []
        notes = notes if answers[0] != answers[1] else []
        kinds = [set() if run.config.judge is None else set(run.config.judge.kinds) for run in (self.a, self.b)]
        for kind in sorted(kinds[0] ^ kinds[1]):
            side = _only([kind in of for of in kinds])
            notes.append(f"judgements: only {side} has any of {kind} (judge.{kind}), so they are not compared")
        return [*notes, *self.unlike]

    @property
    def texts(self) -> tuple[float, float]:
        """Returns the mean number of rewrites of a query in A and in B, over the committed queries of each."""
        a, b = (run.counts["rewrites"] / (run.counts["queries"] or 1) for run in (self.a, self.b))
        return a, b


def diff(
    a: RunFolder,
    b: RunFolder,
    judgements: Judgements | None,
    prices: Prices | None,
    count: int,
    measures: Sequence[str] | None = None,
    gold: GoldAnswers | None = None,
) -> Diff:
    """Returns the comparison of two runs.

    Args:
        a: one run.
        b: the other; differences are of B - A.
        judgements: for the quality; None: not compared.
        prices: for costs in USD, of both runs; None: quantities only.
        count: the most queries in each list of queries.
        measures: names that ir_measures knows; None: those of the config of B.
        gold: gold answers, for the quality of answers; None: not compared.

    Raises:
        ConfigError: a measure cannot be computed, or files of the runs cannot be read.
    """
    paired = None if judgements is None else quality(a, b, judgements, count, measures)
    both = gold is not None and answering(a) and answering(b)
    answers = answer_quality(a, b, gold, count) if gold is not None and both else None
    judged, unlike = judged_quality(a, b, count)
    given = changes(a, b), moves(a, b, count)
    return Diff(a, b, *given, _costs(a, b, prices), paired, answers, judged, unlike)


def _only(has: Sequence[bool]) -> str:
    return "A" if has[0] else "B"


def diff_values(found: Diff) -> dict[str, Any]:
    """Returns the comparison as JSON-able values; unknown ones are None."""
    moved = found.moves
    per_query = dict(zip("ab", found.texts, strict=True))
    documents = {name: getattr(moved, name) for name in ("depth", "others", "first", "overlap")}
    judged = {one.kind: one.values() for one in found.judged}
    values = {
        **{name: {"run": run.storage.root, "state": run.state} for name, run in (("a", found.a), ("b", found.b))},
        "changes": found.changes,
        "queries": {name: getattr(moved, name) for name in ("only_a", "only_b", "both")},
        "rewrites": {**moved.rewrites._asdict(), "per_query": per_query, "strategies": moved.strategies},
        "documents": {**moved.documents._asdict(), **documents},
        "moved": moved.listed,
        "costs_per_1000_queries": found.costs,
        "quality": found.quality and found.quality.values(),
        "answers": found.answers and found.answers.values(),
        "judged_results": judged.pop(JUDGED_LISTS, None),
        "judged_answers": judged,
        "notes": found.notes,
    }
    return dict(known(values))


def _costs(a: RunFolder, b: RunFolder, prices: Prices | None) -> list[Cost]:
    """Returns what 1,000 queries cost, in total and by stage; quantities that are 0 in both are left out."""
    stages = dict.fromkeys(name for name in (*COSTED, *a.spent, *b.spent) if name in a.spent or name in b.spent)
    found = []
    for stage in ("total", *stages):
        sides = [_per_thousand(run, None if stage == "total" else stage, prices) for run in (a, b)]
        names = ("usd", "seconds", "device_seconds", "driver_seconds", *costs.QUANTITIES, *costs.STORAGE_REQUESTS)
        lines = (Cost(stage, name, *(side.get(name, 0.0) for side in sides)) for name in names)
        found += [one for one in lines if one.a or one.b]
    return found


def _per_thousand(run: RunFolder, stage: str | None, prices: Prices | None) -> dict[str, float]:
    stages = [stage] if stage is not None else list(run.spent)
    sums = costs.stage_sums(run.spent, *stages) if stages else {}
    if prices is not None:
        billed = run.bill(prices)
        sums = sums | {"usd": billed.usd if stage is None else billed.of_stages(stages)}
    queries = run.counts["queries"]
    return {name: 1000 * value / queries for name, value in sums.items()} if queries else {}
