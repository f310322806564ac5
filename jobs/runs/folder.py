"""A run's folder: its name, which folders of an output are runs, and a run as `evaluate` and `report` read it.

The name is `<name>-<label>-<fingerprint>`, or `<name>-<fingerprint>` for a run without label. The label is the config's, else
the log's date. It is no part of the fingerprint: one config under two labels is two runs.
"""

import json
import re
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from hashlib import sha256
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from cluster.costs import Totals, added
from cluster.errors import ConfigError
from cluster.prices import Prices
from cluster.run.shards import SUCCESS, Plan, committed_tables, manifests, read_plan
from cluster.storage import Storage, open_storage, remote
from cluster.storage.prefetch import prefetch
from jobs.config.config import Config
from jobs.runs.bill import Bill, bill
from jobs.runs.starts import Start, driver_spent, known_starts, node_time
from jobs.runs.tally import Committed, Tally, covered_words, kept

REPORT = "report.html"
CONCURRENT_FETCHES = 16  # of records
SAMPLE = "-sample"  # ends the names of runs that `plan --sample` paid for; their log is in `<name>-sample/` until they end
_SAMPLE_LOG = re.compile(r"log-[0-9a-f]{12}(-[0-9]+)?\.parquet")
_FOLDER = re.compile(r"(?P<name>.+)-[0-9a-f]{12}")


def find_runs(output: Storage, name: str | None = None) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yields the folder and the record (`run.json`) of each run below an output, sorted by folder.

    The record is {} where a run has none yet, or one that cannot be parsed. What a folder's name leaves open (`a-b` may be a
    name, or the name `a` and the label `b`) the record decides.
    """
    named = ((folder, _FOLDER.fullmatch(folder)) for folder in output.folders())
    folders = [folder for folder, match in named if match and (name is None or f"{match['name']}-".startswith(f"{name}-"))]
    fetched = prefetch(lambda folder: output.get(f"{folder}/run.json"), folders, CONCURRENT_FETCHES)
    for folder, data in zip(folders, fetched, strict=True):
        record = dict[str, Any]()
        with suppress(ValueError):
            record = _object(data)
        config = record.get("config", {})
        if (name is None and record) or (name is not None and config.get("name", name) == name):
            yield folder, record


def sample_log(output: Storage, name: str, data: bytes) -> str:
    """Stores the log `data` of a sample; returns its key, that of an unfinished run of the same queries, or a new one."""
    start = f"{name}/log-{sha256(data).hexdigest()[:12]}-"
    known = [entry.key for entry in output.list(name) if entry.key.startswith(start)]
    key = known[-1] if known else f"{start}{int(1000 * time.time())}.parquet"
    output.put_if_absent(key, data)  # a log that was written anew would be another one
    return key


def sample_logs(output: Storage) -> Iterator[str]:
    """Yields the keys of the logs of samples that lie below an output: of those that were stopped or killed."""
    for folder in output.folders():
        if folder.endswith(SAMPLE):
            yield from (entry.key for entry in output.list(folder) if _SAMPLE_LOG.fullmatch(entry.name))


def _object(data: bytes | None) -> dict[str, Any]:
    """Returns a JSON object, {} where there is none; raises ValueError if it is damaged."""
    values = json.loads(data or b"{}")
    if not isinstance(values, dict):
        raise ValueError("no JSON object")
    return values


@dataclass(frozen=True)
class RunFolder:
    """The committed part of a run, at the time of opening."""

    storage: Storage
    record: dict[str, Any]  # `run.json`: resolved config, identity, versions, starts, node time
    plan: Plan
    manifests: list[Committed]  # in order of shard
    tally: Tally  # of these
    finished: bool

    @cached_property
    def config(self) -> Config:
        return Config.model_validate(self.record["config"])

    @property
    def rewriter(self) -> dict[str, Any]:
        """Returns the identity of what made the requests and read the answers; empty in a run without rewrites."""
        return self.record.get("identity", {}).get("rewrite", {}).get("rewriter", {})

    @property
    def strategies(self) -> list[dict[str, Any]]:
        """Returns the strategies (of `full`) as recorded: name, prompt and what else counts for their run's fingerprint."""
        return list(self.record.get("ablation", self.rewriter).get("strategies", ()))

    @cached_property
    def tables(self) -> dict[str, list[str]]:
        """Returns table -> URLs or paths of its committed files."""
        files = committed_tables(self.plan, (one.files for one in self.manifests))
        return {table: [self.storage.url(file.key) for file in named] for table, named in files.items()}

    @cached_property
    def counts(self) -> Counter[str]:
        return Counter(self.tally.counts)

    @cached_property
    def spent(self) -> Totals:
        """Returns the costs of the committed shards, and of the drivers."""
        return added((self.tally.spent, driver_spent(self.starts)))

    @cached_property
    def starts(self) -> list[Start]:
        """Returns the starts of the run; of one that is running or was killed what is known."""
        return known_starts(self.record, self.storage)

    def bill(self, prices: Prices) -> Bill:
        times = self.record.get("node_time") if self.finished else None
        return bill(prices, self.starts, times or node_time(self.starts, self.tally.by_start), self.spent)

    @cached_property
    def requests(self) -> dict[str, dict[str, Any]]:
        """Returns request -> `prompt_hash` and `schema_hash`; none in a run without rewrites."""
        return {one["name"]: one for one in self.rewriter.get("requests", ())}

    @property
    def arms(self) -> list[dict[str, Any]]:
        """Returns the records of an ablation's arms; a run has none."""
        return list(self.record.get("ablation", {}).get("arms", ()))

    @property
    def is_ablation(self) -> bool:
        """Returns True if it is an ablation's, which has results of several arms."""
        return "ablation" in self.record

    @property
    def state(self) -> str:
        """Returns 'finished', or the status and the number of committed shards."""
        if self.finished:
            return "finished"
        progress = f"{len(self.manifests):,} of {len(self.plan.shards):,} shards are committed"
        return f"{self.record['status']}: {progress}{covered_words(self.plan, self.counts)}"


def open_run(path: str) -> RunFolder:
    """Opens a run by its folder (the last line of `run`), or by `<output>/<name>`, whose `latest.json` names one.

    Raises ConfigError if there is no run, or it is damaged.
    """
    try:
        storage = _latest_run(open_storage(path))
        finished = storage.stat(SUCCESS) is not None  # before the record: one that is read later says so, too
        values, plan = stored_json(storage, "run.json"), read_plan(storage)
    except NotADirectoryError as error:
        raise ConfigError("run-missing", f"{path}: is a file; give a run's folder, the last line that `run` prints") from error
    if not values and storage.stat("run.json") is None:
        raise ConfigError(
            "run-missing",
            f"{storage.root}: there is no run (no run.json); give a run's folder, the last line that `run` prints, or "
            "<output>/<name> for its newest finished one",
        )
    if plan is None:
        raise ConfigError(
            "run-missing",
            f"{storage.root}: the run was stopped before its log was read, nothing is committed yet; run it again",
        )
    run = RunFolder(storage, values, plan, *kept(manifests(storage)), finished)
    try:
        _ = run.config, values["run_id"], values["status"]
    except (KeyError, ValidationError) as error:
        why = f"{error.errors()[0]['loc']}: {error.errors()[0]['msg']}" if isinstance(error, ValidationError) else f"no {error}"
        raise ConfigError(
            "run-damaged",
            f"{storage.url('run.json')}: was changed, or written by another version of dmqr ({why}); give one of this version",
        ) from error
    return run


def is_run(path: str) -> bool:
    """Returns True if a run lies in a folder, or `latest.json` names one."""
    if not remote(path) and not Path(path).is_dir():
        return False
    storage = open_storage(path)
    return any(storage.get(name) is not None for name in ("run.json", "latest.json"))


def _latest_run(storage: Storage) -> Storage:
    """Returns the run that `latest.json` names, which lies beside this folder (outputs may be moved); or `storage`."""
    named = stored_json(storage, "latest.json")
    if not named:
        return storage
    run = open_storage(f"{storage.root.rpartition('/')[0]}/{named.get('run_id')}")
    if run.get("run.json") is None:
        what = f"names {run.root}, which holds no run; give the run's folder itself"
        raise ConfigError("run-missing", f"{storage.url('latest.json')}: {what}")
    return run


def stored_json(storage: Storage, key: str) -> dict[str, Any]:
    """Returns an object of a run's folder, {} where there is none; raises ConfigError if it is damaged."""
    try:
        return _object(storage.get(key))
    except ValueError as error:
        raise ConfigError("run-damaged", f"{storage.url(key)}: is damaged ({error}); restore it") from error
