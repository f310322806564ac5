"""The runs below an output with date or label, state, queries, quality and cost, for the verb `runs`."""

from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

from cluster.errors import ClusterError, ConfigError
from cluster.prices import Prices, load_prices
from cluster.run.shards import SUCCESS
from cluster.storage import Storage, open_storage
from cluster.storage.prefetch import prefetch
from jobs.measure.evaluate import stored_evaluation
from jobs.runs.bill import Bill, bill
from jobs.runs.folder import CONCURRENT_FETCHES, find_runs, open_run
from jobs.runs.retry import RETRY
from jobs.runs.status import read_status

PricesOf = Callable[[Mapping[str, Any]], Prices | None]  # of a run's record


ListedRun = dict[str, Any]
"""One row of a list of runs: `date` of its log, `began` in ISO 8601 and UTC, `queries` in committed shards and
`failed` ones, `usd` (None: there are no prices), `evaluation` as its report shows it, of a `retry` which run and why, and the
number of `arms` (0: it is a run)."""


def leading(run: ListedRun) -> str | None:
    """Returns the first measure of a run; None: not measured."""
    return next(iter((run["evaluation"] or {}).get("measures", {})), None)


def measured(run: ListedRun, source: str, measure: str | None = None) -> float | None:
    """Returns the mean of a measure (`leading`), `source` the results or the original alone; None: not measured."""
    return (run["evaluation"] or {}).get("measures", {}).get(measure or leading(run), {}).get(source)


def measured_answers(run: ListedRun) -> dict[str, float]:
    """Returns the means of its answers: F1 and EM, and the first measure of each kind in which they are judged."""
    means, evaluation = {}, run["evaluation"] or {}
    for kind, figures in {"": evaluation.get("answers", {}), **evaluation.get("judged_answers", {})}.items():
        for name in list(figures.get("measures", {}))[: 1 if kind else None]:
            if (mean := figures["measures"][name]["answers"]) is not None:
                means[name] = mean
    return means


def find_output(path: str) -> tuple[Storage, str | None]:
    """Returns an output and the name of the runs that are meant, None for all: of `<output>`, or of `<output>/<name>`."""
    here = open_storage(path)
    above, _, name = here.root.rpartition("/")
    if next(find_runs(here), None) is None and next(find_runs(open_storage(above), name), None) is not None:
        return open_storage(above), name
    return here, None


def prices_of(given: str | None, config_file: str | None) -> PricesOf:
    """Returns a function that finds a run's prices: the given file, else one beside the given or recorded config.

    Raises:
        ConfigError: there is no given file.
    """
    if given and not Path(given).exists():
        raise ConfigError("argument", f"prices {given}: no such file; give one like configs/prices.yaml")

    @cache
    def beside(config: str) -> Prices | None:
        return load_prices(Path(given or Path(config).with_name("prices.yaml")))

    return lambda record: beside(config_file or record.get("config_file") or "none")


def list_runs(output: Storage, name: str | None, prices: PricesOf) -> list[ListedRun]:
    """Returns the runs of a name, or of all names, below an output, by the date of the log, else of their first start."""
    started = [(folder, record) for folder, record in find_runs(output, name) if record.get("starts")]
    listed = prefetch(lambda pair: _listed(output, *pair, prices), started, CONCURRENT_FETCHES)
    return sorted(listed, key=lambda run: (run["date"] or run["began"][:10], run["began"]))


def _listed(output: Storage, folder: str, record: dict[str, Any], prices: PricesOf) -> ListedRun:
    priced = prices(record)
    state, counts, billed = _progress(output, folder, record, priced)
    evaluation = stored_evaluation(output, folder, finished=state == "finished")
    config = record.get("config", {})
    if arms := record.get("ablation", {}).get("arms", ()):
        state = f"{state}, {len(arms)} arms"
    return {
        "run_id": folder,
        "folder": output.url(folder),
        "name": config.get("name", folder.rpartition("-")[0]),
        "label": config.get("label"),
        "date": config.get("log", {}).get("date"),
        "began": record["starts"][0]["began"],
        "state": state,
        "queries": counts.get("queries", 0),
        "failed": counts.get("failed_queries", 0),
        "usd": None if billed is None else billed.usd,
        "evaluation": evaluation,
        "retry": record.get(RETRY),
        "arms": len(arms),
    }


def _progress(
    output: Storage, folder: str, record: dict[str, Any], prices: Prices | None
) -> tuple[str, Mapping[str, int], Bill | None]:
    """Returns state, counts and bill; those of a finished run from its record, since it may have thousands of commits."""
    finished = output.stat(f"{folder}/{SUCCESS}") is not None
    counted = record.get("counts", {}).get("committed")
    if finished and counted and "costs" in record:
        times = record.get("node_time") or []
        return "finished", counted, None if prices is None else bill(prices, record["starts"], times, record["costs"])
    path = output.url(folder)
    state = "finished" if finished else str(record.get("status"))
    with suppress(ClusterError):
        status = None if finished else read_status(path)
        state = state if status is None else status.state
    try:
        run = open_run(path)
        return state, run.counts, None if prices is None else run.bill(prices)
    except (ConfigError, ClusterError):  # nothing is committed yet
        return state, {}, None
