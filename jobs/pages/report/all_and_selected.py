"""All strategies against selected ones (the paper's Figure 3): this run beside one that differs in what is selected alone.

The other is the newest finished run of the same name with `select: all` and no gate, over the same log; both have been measured
by the same judgements, or by one LLM that was asked alike. `dmqr diff` compares any two runs, query by query, with intervals.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from markupsafe import Markup

from cluster.errors import ClusterError, ConfigError
from cluster.storage import open_storage
from jobs.config.rewriting import RewriteSettings
from jobs.measure.evaluate.evaluate import Evaluation, evaluation_values
from jobs.measure.evaluate.stored_evaluation import judged_alike, stored_evaluation
from jobs.measure.measures import title
from jobs.pages.charts import drawing, element
from jobs.runs.folder import RunFolder, find_runs, open_run
from rewriters.settings import SelectAll

COMPARED = ("nDCG@10", "Success@5", "P@5")  # Figure 3 of the paper has Success@5 (its H@5) and P@5
TEXTS = "rewrites per query"
WIDTH, NAMES, VALUES, HEIGHT, GAP = 320.0, 84.0, 62.0, 20.0, 8.0


@dataclass(frozen=True)
class Pair:
    """A measure of both runs."""

    title: str
    difference: float
    """selected - all"""
    svg: Markup


@dataclass(frozen=True)
class Against:
    """The run with all strategies, and what both were measured to have."""

    run_id: str
    pairs: list[Pair]


def against(run: RunFolder, evaluation: Evaluation | None) -> Against | None:
    """Returns the comparison of a run that selects; None where there is no other, or one of the two is not measured."""
    if evaluation is None or evaluation.warning is not None or not run.finished:
        return None
    output, _, mine = run.storage.root.rpartition("/")
    try:
        found = [(record["starts"][0]["began"], folder) for folder, record in find_runs(open_storage(output), run.config.name)
                 if folder != mine and record.get("starts") and _alike(record, run.record)]  # fmt: skip
        for _, folder in sorted(found, reverse=True):
            other = open_run(open_storage(output).url(folder))
            values = stored_evaluation(open_storage(output), folder, finished=other.finished)
            if values is not None and _same_queries(other, run) and _as_judged(values, evaluation):
                return _against(other, values, run, evaluation)
    except (OSError, ClusterError, ConfigError):  # what lies beside a run is no fault of its report
        pass
    return None


def selected_by(rewrite: RewriteSettings) -> str:
    """Returns what says which strategies rewrite a query: `gate` alone, or the config's `rewrite.select.kind`."""
    return rewrite.select.kind if rewrite.chooses else "gate"


def _against(other: RunFolder, values: Mapping[str, Any], run: RunFolder, evaluation: Evaluation) -> Against:
    kind = selected_by(run.config.rewrite)
    pairs = [
        _pair(title(name), values["measures"][name]["results"], evaluation.results[name], kind, 4)
        for name in _compared(values, evaluation)
    ]
    of_all, selected = (one.counts["rewrites"] / one.counts["queries"] for one in (other, run))
    pairs.append(_pair(TEXTS, of_all, selected, kind, 2))
    return Against(other.record["run_id"], pairs)


def _pair(title: str, of_all: float, selected: float, kind: str, places: int) -> Pair:
    """Returns a measure, drawn as two bars from zero."""
    room = (WIDTH - NAMES - VALUES) / (max(of_all, selected) or 1.0)
    parts, said = [], f"{title}:"
    for place, (style, name, value) in enumerate([("all", "all", of_all), ("chosen", kind, selected)]):
        y, words = GAP + place * (HEIGHT + GAP), f"{value:.{places}f}"
        parts += [
            element("text", name, class_="name", x="0", y=y + 14),
            element("rect", class_=style, x=NAMES, y=y, width=room * value, height=HEIGHT),
            element("text", words, class_="value", x=NAMES + room * value + 6, y=y + 14),
        ]
        said += f" {name} {words}"
    return Pair(title, selected - of_all, drawing(WIDTH, 2 * HEIGHT + 3 * GAP, *parts, label=said))


def _alike(all_of_them: Mapping[str, Any], selects: Mapping[str, Any]) -> bool:
    """Returns whether a record is of a run with `select: all` that another would be, too, without its selection."""
    rewrite = all_of_them.get("config", {}).get("rewrite", {})
    select = rewrite.get("select", {"kind": "all"})
    identities = [_without_selection(record.get("identity") or {}) for record in (all_of_them, selects)]
    every = select == SelectAll(kind="all").model_dump() and rewrite.get("gate") is None
    return bool(every and identities[0] and identities[0] == identities[1])


def _without_selection(identity: Mapping[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(json.dumps(identity))
    for name in ("select", "gate"):
        found.get("config", {}).get("rewrite", {}).pop(name, None)
    found.get("versions", {}).pop("gate", None)
    rewriter = found.get("rewrite", {}).get("rewriter", {})
    for name in ("select", "requests"):  # adaptive selection makes one request in place of the others
        rewriter.pop(name, None)
    return found


def _same_queries(a: RunFolder, b: RunFolder) -> bool:
    return a.finished and a.plan.inputs == b.plan.inputs and a.plan.counts == b.plan.counts


def _as_judged(values: Mapping[str, Any], evaluation: Evaluation) -> bool:
    """Returns whether a stored evaluation is by the same judgements, over as many judged keys, and not empty."""
    counts = {name: getattr(evaluation, name) for name in ("judged", "missing", "counted", "queries")}
    alike = judged_alike(values, evaluation_values(evaluation))
    return alike and all(values.get(name) == count for name, count in counts.items()) and bool(_compared(values, evaluation))


def _compared(values: Mapping[str, Any], evaluation: Evaluation) -> list[str]:
    """Returns the measures that both have: those of `COMPARED`, or all where none of these is among them."""
    both = [name for name in evaluation.measures if values["measures"].get(name, {}).get("results") is not None]
    return [name for name in COMPARED if name in both] or both
