"""The plan as a table for the terminal."""

from collections.abc import Iterable, Mapping
from typing import Any

from rich.table import Table
from rich.text import Text

from jobs.counts import QUANTITIES
from jobs.log.rejections import rejected_words
from jobs.log.sets.names import left_out_words
from jobs.plan.amounts import Amount, amount_text
from jobs.run.draft import head_words
from jobs.terminal.formats import clock, money, queries
from jobs.terminal.live_display import facts

Rows = Iterable[tuple[str, str | Text]]


def plan_table(planned: dict[str, Any]) -> Table:
    """Returns the plan of one job as a table for the terminal."""
    finished, ablation = planned["state"] == "finished", planned.get("ablation")
    rows = [*_log_rows(planned), *(() if finished else _missing_rows(planned))]
    if not finished and planned.get("unpriced"):
        rows.append(("cost", planned["unpriced"]))
    if not finished or (ablation is not None and ablation["missing"] is not None):
        rows += [*_worker_rows(planned), *_ablation_rows(planned)]
    return facts([*rows, ("folder", planned["folder"])], planned["run_id"])


def _log_rows(planned: dict[str, Any]) -> Rows:
    log, shards, left = planned["log"], planned["shards"], planned["left"]
    files = f"{log['files']:,} file{'s' * (log['files'] != 1)}"
    rows = f"{log['rows']:,} row{'s' * (log['rows'] != 1)} in {files}"
    yield "log", ", ".join(filter(None, [rows, rejected_words(log)])) + left_out_words(log)
    distinct = f"{planned['queries']:,} distinct in {shards['all']:,} shard{'s' * (shards['all'] != 1)}"
    if (head := planned.get("head")) and head["queries"]:
        distinct += f"; {head_words(head['queries'], head['shards'])}"
    yield "queries", distinct
    state = f"{left['queries']:,} queries left" if planned["state"] == "begun" else planned["state"]
    yield "state", f"{shards['committed']:,} of {shards['all']:,} shards committed: {state}"


def _worker_rows(planned: dict[str, Any]) -> Rows:
    yield "workers", planned["there"]
    for name, pool in planned["pools"].items():
        workers = f"{pool['workers']} to {pool['most']}" if pool["most"] else f"{pool['workers']}"
        gpus = f", {pool['gpus']:g} GPU" if pool["gpus"] else ""
        yield f"  {name}", f"{workers} worker{'s' * (workers != '1')} of {pool['cpus']:g} CPU{gpus}"


def _ablation_rows(planned: dict[str, Any]) -> Rows:
    if (ablation := planned.get("ablation")) is None:
        return
    yield "ablate", f"{ablation['arms']:,} arms over the same queries, each thing that they share done once"
    for kind in QUANTITIES:
        naive, executed = ablation["naive"][kind], ablation["executed"][kind]
        if naive:
            name = kind.replace("_", " ")
            times = f"{naive / executed:.1f} times less" if executed < naive else f"the {name} that arms share are known later"
            yield f"  {name}", f"up to {executed:,} in place of {naive:,}: {times}"
    yield "  folder", ablation["folder"]
    yield from _missing_rows(planned, "ablation")


def _missing_rows(planned: dict[str, Any], what: str = "run") -> Rows:
    job = planned if what == "run" else planned[what]
    missing, tries = job["missing"], job["left"]["tries"]
    if missing is None:
        return
    looked = f"of the {queries(missing['queries'])} that are left"
    if missing["looked"] < missing["queries"]:
        looked += f", by {missing['looked']:,} of them"
    if tries:
        looked += f"; up to {tries} more of each request whose answer does not serve (rewrite.retries) are apart"
    yield "missing", looked
    for name, kind in missing["kinds"].items():
        if kind["number"]["high"] or kind["reused"]:
            yield f"  {name.replace('_', ' ')}", Text("; ".join(_parts(kind)))
    if sample := missing.get("sample"):
        usd = "" if sample["usd"] is None else f", {money(sample['usd'])}"
        yield "  sample", Text(f"{queries(sample['queries'])} were paid for{usd}, and are kept: {sample['folder']}")
    if missing["usd"] is not None:
        apart = f", without {' and '.join(missing['unpriced'])}" if missing["unpriced"] else ""
        yield "  total", Text(amount_text(Amount(**missing["usd"]), money) + apart)
    if (warning := over_budget(planned, what)) is not None:
        yield "warning", Text(warning, style="yellow")


def _parts(kind: Mapping[str, Any]) -> Iterable[str]:
    stored = f", {'about ' if kind['about'] else ''}{kind['reused']:,} from the store" if kind["reused"] else ""
    yield amount_text(Amount(**kind["number"])) + stored
    for name, what in (("prompt_tokens", "prompt tokens"), ("completion_tokens", "completion tokens")):
        if (tokens := kind.get(name)) is not None and tokens["high"]:
            yield f"{amount_text(Amount(**tokens))} {what}"
    if kind["seconds"] is not None and kind["seconds"]["expected"]:
        yield f"about {clock(kind['seconds']['expected'])} of workers' time"
    if kind["usd"] is not None and kind["usd"]["high"]:
        yield amount_text(Amount(**kind["usd"]), money) + ("" if kind["seconds"] else ", the time of workers apart")
    if kind["note"]:
        yield kind["note"]


def over_budget(planned: dict[str, Any], what: str = "run") -> str | None:
    """Returns a warning if what is spent and missing may cost more than `limits.max_cost_usd`; None otherwise.

    An ablation has the limit for itself.
    """
    job, most = planned if what == "run" else planned[what], planned["max_cost_usd"]
    missing, spent = job["missing"] or {}, job["spent_usd"] or 0.0
    if most is None or missing.get("usd") is None:
        return None
    usd = Amount(**missing["usd"])
    if spent + usd.high <= most:
        return None
    before = f"{money(spent)} are spent, " if spent else ""
    expected = f"{amount_text(usd, money)}{' more' if spent else ''} are expected"
    expected += ", retries apart" if job["left"]["tries"] else ""
    when = "will" if spent + usd.low > most else "may"
    return f"the {what} {when} stop before its end: {before}{expected}, limits.max_cost_usd is {money(most)}"
