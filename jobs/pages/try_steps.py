"""What `try` shows of the steps that LLMs do after retrieval: further rounds, grades, the answer, and what a judge says."""

from __future__ import annotations

from rich.table import Table
from rich.text import Text

from jobs.terminal.formats import one_line, printable
from jobs.try_one.trial import Trial
from rewriters.steps.settings import HIGHEST_GRADES

_JUDGED = {
    f"results, 0 to {HIGHEST_GRADES['relevance']}": "relevance", "answer, 1 is right": "accuracy",
    f"answer, 0 to {HIGHEST_GRADES['criteria']}": "criteria",
}  # fmt: skip


def rounds_table(trial: Trial) -> Table:
    """Returns the rounds that a query had."""
    table = _grid()
    for one in trial.row["rounds"]:
        best = "no hit" if one["best"] is None else f"best score {one['best']:.4g}"
        words = f" ({best} before; {one['new']} new result{'s' * (one['new'] != 1)})"
        table.add_row(f"{one['round']}", Text.assemble(one_line(one["text"]), (words, "dim")))
        if labelled := [of for of in one["documents"] or () if of["label"]]:
            told = ", ".join(f"{one_line(of['doc_id'])} ({of['label']} relevance)" for of in labelled)
            table.add_row("", Text(f"written from {told}", style="dim"))
    if not trial.row["rounds"]:
        table.add_row("", Text("none: the best score is not below, or the refined query is none (see below)", style="dim"))
    return table


def grades_table(trial: Trial) -> Table:
    """Returns the question, the grade of each document with what is kept of it, and what the web was asked and found."""
    table, correction = _grid(), trial.row["correction"]
    if correction and correction["question"] is not None:
        table.add_row("question", Text(one_line(correction["question"])))
    for one in trial.row["grades"]:
        grade = "" if one["grade"] is None else f" {one['grade']:.4g}"
        words = Text.assemble(one_line(one["doc_id"]), (grade, "dim"))
        if one["strips"] is not None:
            words.append(f" refined to: {one_line(one['strips'])}" if one["strips"] else " refined to nothing", style="dim")
        table.add_row(one["verdict"] or "ungraded", words)
    if correction and correction["web_query"] is not None:
        found = "away" if correction["hits"] is None else f"{correction['hits']} hit{'s' * (correction['hits'] != 1)}"
        table.add_row("web", Text.assemble(one_line(correction["web_query"]), (f" ({found})", "dim")))
        for page in correction["pages"] or ():
            table.add_row("", Text.assemble(one_line(page["title"] or ""), (f" {one_line(page['url'] or '')}", "dim")))
    return table


def answer_text(trial: Trial) -> str:
    """Returns the answer; a dash without one."""
    answer = trial.row["answer"]
    return "-" if answer is None else printable(answer["text"])


def answer_table(trial: Trial) -> Table:
    """Returns the answer, and the documents that it was made from, with those that it cites marked."""
    table, answer = _grid(), trial.row["answer"]
    if answer is None:
        return table
    table.add_row("", Text(printable(answer["text"])))
    for number, one in enumerate(answer["documents"], start=1):
        label = f", {one['label']} relevance" if one["label"] else ""
        cited = ", cited" if one["doc_id"] in answer["cited"] else ""
        table.add_row(Text(f"[{number}]", style="dim"), Text(f"{one_line(one['doc_id'])}{label}{cited}", style="dim"))
    if answer["left_out"]:
        table.add_row("", Text(f"no room for {answer['left_out']:,} more (answer.context_tokens)", style="dim"))
    return table


def judged_table(trial: Trial) -> Table:
    """Returns the judge's grades of results and of the answer; of what was asked several times the others behind the first."""
    table, grades = _grid(), dict[tuple[str | None, str], list[int]]()
    for one in sorted(trial.row["judgements"], key=lambda one: one["sample"]):
        grades.setdefault((one["doc_id"], one["kind"]), []).append(one["grade"])
    for title, of_kind in _JUDGED.items():
        words = [
            f"{one_line(doc_id or kind.rpartition('/')[2])} {first}" + (f" (again {', '.join(map(str, more))})" if more else "")
            for (doc_id, kind), (first, *more) in grades.items()
            if kind.partition("/")[0] == of_kind
        ]
        if words:
            table.add_row(Text(title, style="dim"), Text(", ".join(words)))
    return table


def _grid() -> Table:
    """Returns a table without lines, of a narrow and a wide column."""
    table = Table(box=None, show_header=False, show_edge=False, padding=(0, 2, 0, 0), expand=True)
    table.add_column(no_wrap=True)
    table.add_column(ratio=1, overflow="fold")
    return table
