"""Two runs compared: what they were given, what came out, what it cost, and with judgements how good it is.

Both may be unfinished: what is committed is read, by the manifests.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from cluster import costs
from cluster.prices import Prices
from jobs.chain.pipeline import COSTED
from jobs.job.steps import WEB_SEARCH
from jobs.log.judgements import Judgements
from jobs.measure.answers import GoldAnswers, answer_frame, answering
from jobs.measure.diff.changed_queries import Moves, moves
from jobs.measure.diff.quality import Paired, judged_quality, paired, quality
from jobs.measure.frame import JUDGED_LISTS
from jobs.runs.folder import RunFolder
from jobs.terminal.formats import known, masked
from rewriters.adaptive import REQUEST_NAME as ADAPTIVE
from rewriters.calls import REQUEST_NAME as JOINT
from rewriters.pool import named
from rewriters.strategy import template_hash

TEXTS = ("system", "prompt", "document")
"""Of what a step after retrieval asks: the fields with what an LLM reads (`rewriters.steps.step.LlmStep`)."""


class Change(NamedTuple):
    """A value that differs, by its dotted path; None: there is none."""

    path: str
    a: Any
    b: Any


def changes(a: RunFolder, b: RunFolder) -> dict[str, list[Change]]:
    """Returns the values that differ, by section, in the order of the sections; a section may be empty."""
    of_a, of_b = masked(_given(a)), masked(_given(b))
    changed = {section: _differing(of_a[section], of_b[section]) for section in of_a}
    rules_a, rules_b = (run.rewriter.get("select", {}).get("rules") or {} for run in (a, b))  # of a selection by type
    changed["prompts"] = _by_strategy(of_a["prompts"], of_b["prompts"]) + _differing(rules_a, rules_b, "rules")
    changed["prompts"] += _by_strategy(*({key: _asked(step) for key, step in later_steps(run).items()} for run in (a, b)))
    return changed


def _given(run: RunFolder) -> dict[str, dict[str, Any]]:
    identity = run.record.get("identity", {})
    rewriting, config = identity.get("rewrite", {}), run.config.model_dump()
    config["rewrite"]["strategies"] = [named(entry).name for entry in run.config.rewrite.strategies]
    return {
        # not as run.json has it: a key that is newer than the run is at its default there
        "config": config,
        "prompts": _strategies(run, rewriting.get("rewriter", {})),
        "models": {
            "rewrite": rewriting.get("engine", {}),
            "rewrite.engines": rewriting.get("engines", {}),  # of strategies with their own
            "rerank": identity.get("rerank", {}),
            **{key: one["engine"] for key, one in later_steps(run).items() if "engine" in one},
        },
        "indexes": run.record.get("indexes", {}) | {"order": identity.get("order"), WEB_SEARCH: identity.get("web_search", {})},
        "versions": {
            "tables": identity.get("schema_version"),
            **identity.get("versions", {}),
            **run.record.get("versions", {}),
        },
        "log": {"rows": run.plan.counts, "files": {str(file.get("path")): file for file in run.plan.inputs}},
    }


def _strategies(run: RunFolder, rewriter: Mapping[str, Any]) -> dict[str, Any]:
    """Returns strategy -> its settings and the hashes of the request that asks for it, alone or among others."""
    sent = run.requests
    common = sent.get(JOINT, sent.get(ADAPTIVE, {}))
    strategies = {}
    for strategy in rewriter.get("strategies", ()):
        request = sent.get(strategy["name"], common)
        hashes = {"prompt": request.get("prompt_hash"), "schema": request.get("schema_hash")}
        strategies[strategy["name"]] = {name: value for name, value in strategy.items() if name != "name"} | hashes
    return strategies


def later_steps(run: RunFolder) -> dict[str, dict[str, Any]]:
    """Returns LLM tasks after retrieval as `run.json` has them: key of the config -> its step, engine and decoding.

    With `judge.accuracy` stands what tells the gold answers that it shows, `gold_answers`.
    """
    identity = run.record.get("identity", {})
    steps = {key: dict(one) for key, one in identity.items() if isinstance(one, Mapping) and "step" in one}
    steps |= {f"judge.{kind}": dict(one) for kind, one in identity.get("judge", {}).items()}
    if (gold := identity.get("gold_answers")) is not None:
        steps.setdefault("judge.accuracy", {})["gold_answers"] = gold
    return steps


def _asked(request: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the request of a step apart from its engine, with a hash in place of its texts."""
    step = request.get("step", {})
    texts = {name: step[name] for name in TEXTS if name in step}
    prompt = {"prompt": template_hash(json.dumps(texts, sort_keys=True, ensure_ascii=False))} if texts else {}
    settings = {name: value for name, value in step.items() if name not in TEXTS}
    return settings | prompt | {name: value for name, value in request.items() if name not in ("step", "engine")}


def _by_strategy(a: Mapping[str, Any], b: Mapping[str, Any]) -> list[Change]:
    """Returns the differences of each strategy; one line for a strategy of one run, and none for a schema beside its prompt."""
    changes = [Change(name, "asked for", None) for name in a if name not in b]
    changes += [Change(name, None, "asked for") for name in b if name not in a]
    settings = _differing({name: a[name] for name in a if name in b}, {name: b[name] for name in a if name in b})
    paths = {change.path for change in settings}
    return changes + [change for change in settings if f"{change.path.removesuffix('.schema')}.prompt" not in paths]


def _differing(a: Any, b: Any, path: str = "") -> list[Change]:
    """Returns the paths whose values differ; where only one side has a mapping, each of its values is one."""
    (maps_a, rest_a), (maps_b, rest_b) = (({}, side) if not isinstance(side, Mapping) else (side, None) for side in (a, b))
    changes = [Change(path, rest_a, rest_b)] if rest_a != rest_b else []
    for name in dict.fromkeys([*maps_a, *maps_b]):
        changes += _differing(maps_a.get(name), maps_b.get(name), f"{path}.{name}".removeprefix("."))
    return changes


class Cost(NamedTuple):
    """The cost of 1,000 queries of each run: one quantity of one stage, or of all."""

    stage: str  # `total` for all stages
    quantity: str  # usd, seconds, device_seconds, driver_seconds, or one of `cluster.costs.QUANTITIES` and `STORAGE_REQUESTS`
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
    answers: Paired | None = None  # by F1 and exact match; None without gold answers, or if not both runs answer
    judged: Sequence[Paired] = ()  # by what judges say of results and answers, in each kind that both runs have
    unlike: Sequence[str] = ()  # what both runs have and cannot be compared; a sentence each

    @property
    def notes(self) -> list[str]:
        """Returns the parts that cannot be compared: of one run alone, or of different kinds; a sentence each."""
        answers = [bool(answering(run)) for run in (self.a, self.b)]
        only = "A" if answers[0] else "B"
        notes = [f"answers: only {only} has any (answer), so they are not compared"] if answers[0] != answers[1] else []
        kinds = [set() if run.config.judge is None else set(run.config.judge.kinds) for run in (self.a, self.b)]
        for kind in sorted(kinds[0] ^ kinds[1]):
            only = "A" if kind in kinds[0] else "B"
            notes.append(f"judgements: only {only} has any of {kind} (judge.{kind}), so they are not compared")
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

    Differences are of B - A, measures by default those of the config of B; `count`: the most queries in each list of queries.
    """
    lists = None if judgements is None else quality(a, b, judgements, count, measures)
    both = answering(a) and answering(b)
    answers = paired(answer_frame(a, gold), answer_frame(b, gold), a, b, count) if gold is not None and both else None
    judged, unlike = judged_quality(a, b, count)
    given = changes(a, b), moves(a, b, count)
    return Diff(a, b, *given, _costs(a, b, prices), lists, answers, judged, unlike)


def diff_values(difference: Diff) -> dict[str, Any]:
    """Returns the comparison as JSON-able values; unknown ones are None."""
    moved = difference.moves
    per_query = dict(zip("ab", difference.texts, strict=True))
    documents = {name: getattr(moved, name) for name in ("depth", "overlap")}
    judged = {one.frame.kind: one.values() for one in difference.judged}
    values = {
        **{name: {"run": run.storage.root, "state": run.state} for name, run in (("a", difference.a), ("b", difference.b))},
        "changes": difference.changes,
        "queries": {name: getattr(moved, name) for name in ("only_a", "only_b", "both")},
        "rewrites": {**moved.rewrites._asdict(), "per_query": per_query, "strategies": moved.strategies},
        "documents": {**moved.documents._asdict(), **documents},
        "moved": moved.listed,
        "costs_per_1000_queries": difference.costs,
        "quality": difference.quality and difference.quality.values(),
        "answers": difference.answers and difference.answers.values(),
        "judged_results": judged.pop(JUDGED_LISTS, None),
        "judged_answers": judged,
        "notes": difference.notes,
    }
    return dict(known(values))


def _costs(a: RunFolder, b: RunFolder, prices: Prices | None) -> list[Cost]:
    """Returns the cost of 1,000 queries, in total and by stage; quantities that are 0 in both are left out."""
    names = ("usd", "seconds", "device_seconds", "driver_seconds", *costs.QUANTITIES, *costs.STORAGE_REQUESTS)
    stages = dict.fromkeys(name for name in (*COSTED, *a.spent, *b.spent) if name in a.spent or name in b.spent)
    lines = []
    for stage in ("total", *stages):
        sides = [_per_thousand(run, None if stage == "total" else stage, prices) for run in (a, b)]
        lines += [Cost(stage, name, *(side.get(name, 0.0) for side in sides)) for name in names]
    return [line for line in lines if line.a or line.b]


def _per_thousand(run: RunFolder, stage: str | None, prices: Prices | None) -> dict[str, float]:
    stages = [stage] if stage is not None else list(run.spent)
    sums = costs.stage_sums(run.spent, *stages) if stages else {}
    if prices is not None:
        billed = run.bill(prices)
        sums = sums | {"usd": billed.usd if stage is None else billed.of_stages(stages)}
    queries = run.counts["queries"]
    return {name: 1000 * value / queries for name, value in sums.items()} if queries else {}
