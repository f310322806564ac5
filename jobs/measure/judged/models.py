"""The models that have judged."""

from __future__ import annotations

from jobs.measure.judged_rows import database
from jobs.runs.folder import RunFolder


def judge_models(run: RunFolder) -> list[str]:
    """Returns the models that have judged, sorted; by the judgements where an earlier stage has paid for them."""
    found = {component.partition("@")[2] for component in run.spent.get("judge", {})} - {""}
    files = run.tables.get("judgements")
    if not found and files:
        with database(run) as connection:
            rows = connection.execute("SELECT DISTINCT model FROM rows_of(?)", [list(files)]).fetchall()
        found = {model for (model,) in rows if model}
    return sorted(found)
