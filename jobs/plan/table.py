"""The plan as a table for the terminal."""

from __future__ import annotations

from typing import Any

from rich.table import Table
from rich.text import Text

from cluster.run.pool_sizes import Pool
from jobs.plan.missing.words import missing_rows
from jobs.plan.tiers import tier_words
from jobs.plan.work import ablation_rows, step_rows
from jobs.run.planning.draft import head_words
from jobs.run.planning.thresholds import threshold_words
from jobs.run.pool_calibration import pool_words
from jobs.terminal.formats import clock, money
from jobs.terminal.tables import facts


def plan_table(planned: dict[str, Any]) -> Table:
    """Returns the plan as a table for the terminal."""
    table = facts((), planned["run_id"])
    log, shards, left = planned["log"], planned["shards"], planned["left"]
    files = f"{log['files']:,} file{'s' * (log['files'] != 1)}"
    table.add_row("log", f"{log['rows']:,} rows in {files}, {log['rejected']:,} rejected")
    words = f"{planned['queries']:,} distinct in {shards['all']:,} shard{'s' * (shards['all'] != 1)}"
    if head := planned.get("head"):
        words += f"; {head_words(head['queries'], head['shards'])}"
    table.add_row("queries", words)
    state = f"{left['queries']:,} queries left" if planned["state"] == "begun" else planned["state"]
    table.add_row("state", f"{shards['committed']:,} of {shards['all']:,} shards committed: {state}")
    if planned["state"] == "finished":
        table.add_row("folder", planned["folder"])
        return table
    a_query = left["requests_per_query"]
    bound = "at most " if left.get("requests_vary") else ""
    words = f"up to {left['requests']:,} ({bound}{a_query} a query)" if a_query else "none: the original alone"
    if left.get("requests_expected") is not None:
        said = "select chooses" if planned.get("rewritten_share") is None else "the gate decides"
        words += f"; about {left['requests_expected']:,}, as {said} for some of the queries"
    if tries := left.get("tries"):
        words += f"; each up to {tries} more time{'s' * (tries != 1)} where its answer does not serve (rewrite.retries)"
    table.add_row("requests", words)
    for one in planned.get("thresholds", []):
        table.add_row("threshold", threshold_words(one))
    for name, words in _estimate_rows(planned["expected"]).items():
        table.add_row(name, words)
    if (warning := over_budget(planned)) is not None:
        table.add_row("warning", Text(warning, style="yellow"))
    if planned.get("unpriced"):
        table.add_row("cost", planned["unpriced"])
    table.add_row("searches", f"up to {left['searches']:,} (equal texts of a shard are searched once)")
    for name, one in planned.get("collections", {}).items():
        words = f"{', '.join(one['retrievers'])} for the original and {', '.join(one['strategies']) or 'no rewrite'}"
        table.add_row(f"  {name}", words)
    budget = f", of up to {left['candidates']:,} candidates (rerank.budget)" if left.get("candidates") else ""
    table.add_row("pairs", f"up to {left['pairs']:,} to rerank{budget}" if left["pairs"] else "none to rerank")
    for name, words in step_rows(left):
        table.add_row(name, words)
    for name, words in missing_rows(planned.get("missing"), rounds=bool(planned["left"].get("rounds"))):
        table.add_row(name, Text(words))
    for words in planned.get("encoders", []):
        table.add_row("encoder", Text(words))
    for model, size in planned.get("downloads", {}).items():
        fetched = f"{model}, {size / 1e9:.1f} GB from its hub, on every machine that reranks"
        table.add_row("reranker", f"{fetched}; --set rerank.kind=none does without one")
    table.add_row("workers", planned["there"])
    for name, pool in planned["pools"].items():
        table.add_row(f"  {name}", pool_words(Pool(**pool)))
        if len(opened := planned.get("engines", {}).get(name, [])) > 1:
            table.add_row("", Text(f"each with {len(opened)} engines: {', '.join(opened)}"))
    if planned.get("sized"):
        table.add_row("", planned["sized"])
    if "ablation" in planned:
        for name, words in (*ablation_rows(planned["ablation"]), *missing_rows(planned["ablation"].get("missing"))):
            table.add_row(name, Text(words))
    table.add_row("files", f"up to {left['files']:,} of tables, completions and commits; then _SUCCESS.json, report.html")
    table.add_row("folder", planned["folder"])
    return table


def over_budget(planned: dict[str, Any]) -> str | None:
    """Returns a warning if the estimate is over `limits.max_cost_usd`; None otherwise."""
    most, expected = planned["max_cost_usd"], planned["expected"] or {}
    if most is None or not expected.get("usd") or expected["usd"] <= most:
        return None
    word, bound = ("may", "at most ") if expected["at_most"] else ("will", "")
    usd = f"{bound}{money(expected['usd'])} are expected{_apart(expected)}, limits.max_cost_usd is {money(most)}"
    return f"the run {word} stop before its end: {usd}"


def _apart(expected: dict[str, Any]) -> str:
    tries = ", tries apart" if expected.get("tries_apart") else ""
    return f"{tries}, rounds, grades, answers and judgements apart" if expected.get("without_steps") else tries


def _estimate_rows(expected: dict[str, Any] | None) -> dict[str, str]:
    if expected is None:
        return {}
    words, bound = dict[str, str](), "at most" if expected["at_most"] else "about"
    if expected["prompt_tokens"] or expected["completion_tokens"]:
        cached = f" ({expected['cached_tokens']:,} of them cached)" if expected["cached_tokens"] else ""
        written = f"{bound} {expected['completion_tokens']:,} written"
        words["tokens"] = f"about {expected['prompt_tokens']:,} of prompts{cached}, {written}{_apart(expected)}"
    for stage, of in (expected.get("of_steps") or {}).items():
        words[f"  of {stage}"] = f"about {of['prompt_tokens']:,} of prompts, at most {of['completion_tokens']:,} written"
    if expected["seconds"] is not None:
        away = clock(expected["waited"])
        waited = f"; that run waited {away} for services, which its workers count as work" if expected["waited"] else ""
        words["work"] = f"about {clock(expected['seconds'])} of all workers together{waited}"
    words["wall time"] = _wall(expected)
    if expected["usd"] is not None:
        words["cost"] = f"{bound} {money(expected['usd'])}{_apart(expected)}{tier_words(expected)}"
    return words | {"": expected["basis"]}


def _wall(expected: dict[str, Any]) -> str:
    """Returns how long it takes on the wall, as far as that is known."""
    if expected["wall_seconds"] is None:
        return "not known: no run of this kind has finished"
    pools = f" with its workers ({expected['pools']})" if expected["pools"] else ""
    less = ", less its waiting for services" if expected["waited"] else ""
    return f"about {clock(expected['wall_seconds'])}{pools}, by its queries per second{less}"
