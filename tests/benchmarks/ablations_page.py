"""Writes the tables of docs/ablations-measured.md by one config, and the prints in measured/ that they are taken from.

    DMQR_SHARED=FOLDER python tests/benchmarks/ablations_page.py [--work FOLDER] [--runs methods,typos]

pages/ablations-measured.yaml says what is run and how the tables are laid out; each run is `dmqr ablate` over the sets, as
ablations.py does it. Of runs that are not named with --runs the print in measured/ counts as it is: tables are made of the
prints alone, so page and prints cannot differ.
"""

from __future__ import annotations

import argparse
import io
import os
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

import yaml
from ablations import HERE, Tables, ablated, set_folder
from page_tables import DOCS, put_tables
from recorded_sets import DATA
from results import table

LAYOUT = HERE / "pages" / "ablations-measured.yaml"
PAGE = DOCS / "ablations-measured.md"
MEASURED = HERE / "measured"


def layout() -> dict[str, Any]:
    """Returns what is run, and the tables."""
    found: dict[str, Any] = yaml.safe_load(LAYOUT.read_text(encoding="utf-8"))
    return found


def put_print(config: str, name: str, run: dict[str, Any], work: Path) -> None:
    """Runs the ablations of a run's sets, and writes what they print."""
    sets = run.get("sets", list(DATA))
    settings = [os.path.expandvars(one) for one in run.get("set", ())]
    settings += [f"evaluate.baseline={run['baseline']}"] if "baseline" in run else []
    with redirect_stdout(io.StringIO()) as said:
        found = {one: ablated(set_folder(one, work), config, settings) for one in sets}
        tables = Tables(found, work)
        tables.means()
        tables.differences()
        tables.over_all(())
    (MEASURED / f"{name}.md").write_text(said.getvalue(), encoding="utf-8")


def printed(name: str) -> dict[str, dict[str, str]]:
    """Returns arm -> column -> what a print has there.

    Columns are `SET MEASURE` (the mean with its mark), and `MEASURE` (over the sets: the mean, in brackets its difference).
    """
    text = (MEASURED / f"{name}.md").read_text(encoding="utf-8")
    found: dict[str, dict[str, str]] = {}
    for head in ("means", "all sets"):
        rows = [row.strip("| ").split(" | ") for row in text.partition(f"| {head} |")[2].split("\n\n")[0].splitlines()]
        for arm, *cells in rows[2:]:
            found.setdefault(arm.split(" = ")[0], {}).update(zip(rows[0], cells, strict=False))  # the last may be empty
    return found


def made(of: dict[str, Any]) -> str:
    """Returns a table as Markdown."""
    prints = {one["run"]: printed(one["run"]) for one in of["columns"].values()}

    def cell(arm: str, run: str, measure: str, **one: str) -> str:
        if "set" in one:
            return prints[run][arm][f"{one['set']} {measure}"]
        mean, _, difference = prints[run][arm][measure].partition(" (")
        return f"{-float(difference.rstrip(')')):+.4f}" if of.get("lost") else mean

    rows = [[words, *(cell(arm, **one) for one in of["columns"].values())] for words, arm in of["rows"].items()]
    return table([of["head"], *of["columns"]], rows)


def tables() -> dict[str, str]:
    """Returns the tables of the page, by name."""
    found = layout()
    return {name: made(of) for name, of in found["tables"].items()}


def main() -> None:
    """Runs, prints, and writes the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--work", type=Path, default=Path("/tmp/dmqr-ablations"))
    parser.add_argument("--runs", default=",".join(layout()["runs"]), help="'' makes the tables of the prints that are there")
    options = parser.parse_args()
    runs = layout()["runs"]
    for name in filter(None, options.runs.split(",")):
        put_print(layout()["config"], name, runs[name], options.work)
    put_tables(PAGE, tables())


if __name__ == "__main__":
    main()
