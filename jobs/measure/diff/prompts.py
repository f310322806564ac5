"""The lines in which the prompts of two runs differ.

Those of rewrites are read from what was sent, since `run.json` has only their hashes; those of later steps stand there.
"""

from __future__ import annotations

import difflib
from itertools import islice

import pyarrow.parquet as pq

from jobs.measure.diff.changes import TEXTS, later_steps
from jobs.measure.judged_rows import database
from jobs.runs.folder import RunFolder
from rewriters.strategy import PLACEHOLDER, template_hash

FILES = 16  # of completions that are read for a prompt of each request


def prompt_lines(a: RunFolder, b: RunFolder) -> dict[str, list[str]]:
    """Returns request, or key of a later step -> the lines that only one of its prompts has, "-" before A's, "+" before B's.

    A request whose prompts are equal, or of which a run stored no answer, is left out.
    """
    found = _of_rewrites(a, b)
    steps_a, steps_b = later_steps(a), later_steps(b)
    for key in (key for key in steps_a if key in steps_b):
        of_a, of_b = (steps[key].get("step", {}) for steps in (steps_a, steps_b))
        lines = [line for name in TEXTS for line in _changed_lines(str(of_a.get(name, "")), str(of_b.get(name, "")))]
        if lines:
            found[key] = found.get(key, []) + lines  # a strategy may have the name of a step
    return found


def _of_rewrites(a: RunFolder, b: RunFolder) -> dict[str, list[str]]:
    """Returns request -> the lines that differ, of the requests for rewrites."""
    of_a, of_b = a.requests, b.requests
    changed = [name for name in of_a if name in of_b and of_a[name]["prompt_hash"] != of_b[name]["prompt_hash"]]
    templates = [_templates(run, {name: of[name]["prompt_hash"] for name in changed}) for run, of in ((a, of_a), (b, of_b))]
    found = {}
    for name in changed:
        if all(name in of for of in templates):
            found[name] = _changed_lines(*(of[name] for of in templates))
    return found


def _changed_lines(a: str, b: str) -> list[str]:
    lines = difflib.unified_diff(a.splitlines(), b.splitlines(), lineterm="", n=0)
    return [line for line in islice(lines, 2, None) if not line.startswith("@@")]


def _templates(run: RunFolder, wanted: dict[str, str]) -> dict[str, str]:
    """Returns request -> its template: a prompt that was sent, its query taken out; only where the hash agrees."""
    found: dict[str, str] = {}
    if not wanted:
        return found
    stored = (entry.key for entry in run.storage.list("completions") if entry.key.endswith(".parquet"))
    for key in islice(stored, FILES):
        try:
            with run.storage.open(key) as file:
                rows = pq.read_table(file, columns=["query_id", "request", "prompt"]).to_pylist()
        except FileNotFoundError:  # a run that works may replace it
            continue
        for row in {row["request"]: row for row in rows}.values():
            name = row["request"]
            template = row["prompt"].removesuffix(_query(run, row["query_id"])) + PLACEHOLDER
            if name not in found and template_hash(template) == wanted.get(name):
                found[name] = template
        if len(found) == len(wanted):
            break
    return found


def _query(run: RunFolder, query_id: str) -> str:
    with database(run) as connection:
        row = connection.execute(
            "SELECT query FROM rows_of(?) WHERE query_id = ?", [run.tables["queries"], query_id]
        ).fetchone()
    return "" if row is None else str(row[0])
