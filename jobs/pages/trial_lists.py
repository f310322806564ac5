"""The lists of a trial: the first hits of each text and retriever."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from jobs.terminal.formats import one_line
from jobs.try_one.trial import TextId, Trial, text_names

SHOWN_IN_LISTS = 3  # hits per list


def lists(trial: Trial) -> RenderableType:
    """Returns what each text found: a line for each, a column for each retriever; with collections a table for each."""
    retrieve = trial.config.retrieve
    if not retrieve.collections:
        return _lists_of(trial, list(retrieve.retrievers))
    parts: list[RenderableType] = []
    results = len(trial.row["hits"])
    for name, count in trial.results_of.items():
        mine = retrieve.collections[name].retrievers
        parts.append(Text.assemble((name, "bold"), (f"  {count} of {results} result{'s' * (results != 1)}", "dim")))
        parts.append(Padding(_lists_of(trial, mine), (0, 0, 0, 2)))
    return Group(*parts)


def _lists_of(trial: Trial, names: Sequence[str]) -> Table:
    table = Table(box=None, show_edge=False, padding=(0, 2, 0, 0), header_style="dim")
    table.add_column("")
    for name in names:
        table.add_column(name, overflow="fold")
    cells: dict[TextId, dict[str, str]] = {}
    for run in (one for one in trial.row["lists"] if one["retriever"] in names):
        ids = [hit["doc_id"] for hit in run["hits"]]
        shown = " ".join(one_line(doc_id) for doc_id in ids[:SHOWN_IN_LISTS])
        words = f"{shown}{' ...' * (len(ids) > SHOWN_IN_LISTS)}  ({len(ids)})" if ids else "nothing"
        cells.setdefault((run["strategy"], run["position"]), {})[run["retriever"]] = words
    names_of = text_names(cells)
    for text, by_name in cells.items():
        table.add_row(names_of[text], *(Text(by_name.get(name, "-")) for name in names))
    return table
