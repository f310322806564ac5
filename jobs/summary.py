"""What stands on the screen when the work is done: rows, queries, rewrites by rung, results, cost, quality, place."""

from __future__ import annotations

import io
from collections.abc import Mapping
from functools import partial

from rich.console import Console
from rich.table import Table

from cluster import costs
from cluster.costs import Prices, Totals
from cluster.shards import Plan
from jobs.evaluate import MEASURES, Evaluation, evaluate
from jobs.fuse import fuse_original
from jobs.prepare import Prepared
from jobs.progress import clock

STAGES = ("rewrite", "retrieve", "fuse", "rerank")
RUNGS = ("json", "labelled", "numbered", "salvage")


def closing_text(prepared: Prepared, plan: Plan, counts: Mapping[str, int], spent: Totals, width: int) -> str:
    """Evaluate a finished run, where there are judgements, and put everything into the table."""
    config, evaluation, notes = prepared.config, None, []
    if prepared.judgements is not None:
        runs = partial(fuse_original, settings=config.fuse.model_dump()) if config.retrieve.keep_runs else None
        evaluation = evaluate(prepared.storage, plan, prepared.judgements, runs)
        if runs is None:
            notes.append("original alone: not measured, since retrieve.keep_runs is false")
    if config.used_redundancy != config.fuse.redundancy:
        notes.append("redundancy: overlap in place of cosine, since no retriever is dense")
    return summary(prepared.run_id, plan.counts, counts, spent, prepared.prices, evaluation, notes, width)


def summary(
    run_id: str,
    planned: Mapping[str, int],
    counts: Mapping[str, int],
    spent: Totals,
    prices: Prices | None,
    evaluation: Evaluation | None,
    notes: list[str],
    width: int,
) -> str:
    """The closing table as text.

    Args:
        planned: log_rows, queries, rejected.
        counts: sums over the committed shards.
        notes: lines to stand below.
    """
    table = Table(title=run_id, title_justify="left", show_header=False, box=None, padding=(0, 2, 0, 0))
    table.add_column(style="bold", no_wrap=True)
    table.add_column()
    rejected = f", {planned['rejected']:,} rejected" if planned["rejected"] else ""
    table.add_row("log", f"{planned['log_rows']:,} rows{rejected}")
    table.add_row("queries", f"{planned['queries']:,} distinct")
    table.add_row("rewrites", _rewrites(counts))
    for strategy, words in _by_strategy(counts).items():
        table.add_row(f"  {strategy}", words)
    table.add_row("results", f"{counts.get('results', 0):,} for {counts.get('queries_with_results', 0):,} queries")
    table.add_row("errors", _errors(counts))
    table.add_row("cost", _cost(spent, prices, list(spent)))
    for stage in (name for name in STAGES if name in spent):
        table.add_row(f"  {stage}", _cost(spent, prices, [stage]))
    if evaluation is not None:
        for measure in MEASURES:
            alone = "" if evaluation.original is None else f"  (original alone {evaluation.original[measure]:.4f})"
            table.add_row(measure, f"{evaluation.results[measure]:.4f}{alone}")
        missing = f", {evaluation.missing:,} more are not in the log" if evaluation.missing else ""
        table.add_row("judged", f"{evaluation.judged - evaluation.missing:,} log rows{missing}")
    return "\n".join([render(table, width), *notes])


def render(table: Table, width: int) -> str:
    """A table as plain text of at most `width` columns."""
    text = io.StringIO()
    Console(file=text, width=width, highlight=False, markup=False).print(table)
    return "\n".join(line.rstrip() for line in text.getvalue().splitlines())


def _rewrites(counts: Mapping[str, int]) -> str:
    rungs = {
        rung: sum(n for key, n in counts.items() if key.startswith("rung/") and key.endswith(f"/{rung}")) for rung in RUNGS
    }
    by_rung = ", ".join(f"{rung} {n:,}" for rung, n in rungs.items() if n)
    return f"{counts.get('rewrites', 0):,} of {counts.get('planned', 0):,} planned" + (f" ({by_rung})" if by_rung else "")


def _by_strategy(counts: Mapping[str, int]) -> dict[str, str]:
    found: dict[str, list[str]] = {}
    for key, n in sorted(counts.items()):
        if key.startswith("rung/"):
            _, strategy, rung = key.split("/")
            found.setdefault(strategy, []).append(f"{rung} {n:,}")
    return {strategy: ", ".join(words) for strategy, words in found.items()}


def _errors(counts: Mapping[str, int]) -> str:
    reasons: dict[str, int] = {}
    for key, n in counts.items():
        if key.startswith("error/"):
            reason = key.rsplit("/", 1)[1]
            reasons[reason] = reasons.get(reason, 0) + n
    if not reasons:
        return "none"
    listed = ", ".join(f"{reason} {n:,}" for reason, n in sorted(reasons.items(), key=lambda item: -item[1]))
    return f"{counts.get('failed_queries', 0):,} queries ({listed})"


def _cost(spent: Totals, prices: Prices | None, stages: list[str]) -> str:
    sums: dict[str, float] = {}
    for stage in stages:
        for name, value in costs.stage_sums(spent, stage).items():
            sums[name] = sums.get(name, 0) + value
    parts = [f"{clock(sums.get('seconds', 0))} of work"]
    parts += [f"{int(sums[name]):,} {name.replace('_', ' ')}" for name in costs.QUANTITIES if sums.get(name)]
    if prices is not None:
        parts.insert(0, f"${prices.usd(spent, stages):.4f}")
    return ", ".join(parts)
