"""The list of runs, in a terminal and as a page."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from jobs.measure.run_list import ListedRun, leading_measure
from jobs.pages.render import Head, Section, Table, count, render
from jobs.terminal.formats import figure, masked, money


def runs_table(runs: Sequence[ListedRun]) -> Table:
    """Returns the runs in the given order with state, queries, quality and cost; below it who judged, where an LLM did."""
    measure = leading_measure(runs)
    of_answers = list(dict.fromkeys(name for run in runs for name in run.of_answers))
    columns = [Head("run"), Head("begun"), Head("state"), Head("queries", count), Head("failed", count)]
    columns += [Head(name, figure) for name in (measure, "original", *of_answers)]
    rows: list[list[Any]] = []
    for run in runs:
        retry = "" if run.retry is None else f"\n  retry of {run.retry['of']}: {', '.join(run.retry['reasons'])}"
        measured = [run.measured("results", measure), run.measured("original", measure)]
        measured += [run.of_answers.get(name) for name in of_answers]
        rows.append(
            [run.run_id + retry, run.began[:16].replace("T", " "), run.state, run.queries, run.failed, *measured, run.usd]
        )
    judges = dict.fromkeys(line for run in runs for line in run.judges)
    return Table([*columns, Head("cost", money)], rows, note="\n".join(judges))


def runs_page(output: str, runs: Sequence[ListedRun]) -> str:
    """Returns the list of the runs below an output as one HTML page."""
    finished = sum(run.state.startswith("finished") for run in runs)
    sentence = f"{finished:,} of {len(runs):,} runs are finished; the newest one stands last."
    return render("List of runs", masked(output), [], "", [Section("runs", "Runs", sentence, [runs_table(runs)])], texts=True)
