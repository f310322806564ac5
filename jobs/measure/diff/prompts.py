"""The lines in which the prompts of two runs differ, from what was sent; `run.json` has only their hashes."""

from __future__ import annotations

import difflib
from itertools import islice

import pyarrow.parquet as pq

from jobs.measure.judged_rows import database
from jobs.runs.folder import RunFolder
from rewriters.strategy import PLACEHOLDER, template_hash

FILES = 16  # of completions that are read for a prompt of each request


def prompt_lines(a: RunFolder, b: RunFolder) -> dict[str, list[str]]:
    """Returns request -> the lines that only one of its prompts has, "-" before those of A, "+" before those of B.

    A request whose prompts are equal, or of which a run stored no answer, is left out.
    """
    of_a, of_b = a.requests, b.requests
    changed = [name for name in of_a if name in of_b and of_a[name]["prompt_hash"] != of_b[name]["prompt_hash"]]
    templates = [_templates(run, {name: of[name]["prompt_hash"] for name in changed}) for run, of in ((a, of_a), (b, of_b))]
    found = {}
    for name in changed:
        if all(name in of for of in templates):
            before, after = (of[name].splitlines() for of in templates)
            lines = difflib.unified_diff(before, after, lineterm="", n=0)
            found[name] = [line for line in islice(lines, 2, None) if not line.startswith("@@")]
    return found


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
            "SELECT query FROM read_parquet(?) WHERE query_id = ?", [run.tables["queries"], query_id]
        ).fetchone()
    return "" if row is None else str(row[0])
