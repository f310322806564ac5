"""A small job that runs in this process, in two shards of three queries: one has no recorded answer, one no hits."""

import io
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from jobs.chain.stages.write import Write
from jobs.config.load import load_config
from jobs.job.prepare import Prepared, prepare
from jobs.run.ablation import prepare_ablation
from jobs.run.job import Job, run_of
from jobs.run.run import run
from jobs.runs.folder import RunFolder, open_run
from jobs.terminal.live_display import LiveDisplay
from tests.support.jobs.whole_runs import rows as stored_rows

QUERIES = ["why does bread rise", "lamp of a lighthouse", "moon and tides", "spring tide", "yeast", "zzz"]
UNANSWERED, WITHOUT_HITS = QUERIES[0], QUERIES[-1]


def job_in_process(
    place: Path, values: dict[str, Any], bm25: dict[str, Any], config_file: Callable[[Any], str], **sections: dict[str, Any]
) -> str:
    """Writes a config with more keys of sections, and its log; returns its path. Its paths are relative to `place`."""
    pq.write_table(pa.table({"query": QUERIES}), place / "log.parquet")
    answers = [{"query": query, "completions": {"dmqr": json.dumps({"general": f"about {query}"})}} for query in QUERIES[1:]]
    (place / "recorded.jsonl").write_text("".join(json.dumps(answer) + "\n" for answer in answers))
    values["rewrite"]["strategies"] = ["general"]
    values["retrieve"] |= {"retrievers": {"bm25": bm25}}
    values |= {"rerank": {"kind": "none"}, "limits": {"error_rate": 1}, "cluster": {"address": "none", "shard_size": 3}}
    return config_file(values | {name: values.get(name, {}) | keys for name, keys in sections.items()})


def record(completions: Mapping[str, Mapping[str, str]], file: str = "recorded.jsonl") -> None:
    """Writes a recording in the current folder: query -> request -> what it was answered."""
    lines = [{"query": query, "completions": of} for query, of in completions.items()]
    Path(file).write_text("".join(json.dumps(line) + "\n" for line in lines))


def prepared_job(path: str, *settings: str) -> Job:
    """The checked run of a config."""
    return run_of(prepare(load_config(path, list(settings)), path))


def run_in_process(job: Prepared | Job) -> Path:
    """Runs a checked run, or an ablation, to its end; returns its folder's path."""
    job = job if isinstance(job, Job) else run_of(job)
    run(job, LiveDisplay(io.StringIO()))
    return Path(job.prepared.storage.root)


def prepared_work(path: str, settings: Sequence[str], ablate: dict[str, Any] | None) -> Any:
    """The checked job of a config, or the ablation of it where `ablate` says which arms."""
    if ablate is None:
        return prepared_job(path, *settings)
    return prepare_ablation(load_config(path, [*settings, f"ablate={json.dumps(ablate)}"]), path)


def one_at_a_time(patch: pytest.MonkeyPatch) -> None:
    """Has a run begin a shard when the one before is committed, so that a run which fails has begun no other."""
    patch.setattr("cluster.run.runner_local.shards_in_flight", lambda *_: 1)


@contextmanager
def full_disk() -> Iterator[list[int]]:
    """Has the second shard that the body writes fail for want of space, and checks that the body ends by it.

    Yields the rows of each shard that came to be written.
    """
    whole, calls = Write.__call__, list[int]()

    def breaks(self: Write, table: pa.Table) -> pa.Table:
        calls.append(table.num_rows)
        if len(calls) == 2:
            raise OSError(28, "No space left on device")
        return whole(self, table)

    with patch.object(Write, "__call__", breaks), pytest.raises(OSError, match="No space left"):
        yield calls


def finished(job: Prepared | Job) -> RunFolder:
    """Runs a job as `run_in_process` does; returns its folder."""
    return open_run(str(run_in_process(job)))


def rows(run: RunFolder, table: str) -> list[dict[str, Any]]:
    """The rows of a table of a finished job."""
    return stored_rows(Path(run.storage.root), table)
