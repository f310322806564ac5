"""Whole runs as processes of their own: started, watched, and what they leave looked at."""

import json
import subprocess
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

import psutil
import pyarrow.parquet as pq
import pytest

from cluster.storage import Storage

ROOT = Path(__file__).parents[3]
SAMPLE = ROOT / "configs" / "sample"
SAME = ("queries", "query_map", "rewrites", "runs", "scores", "results")  # tables whose rows depend on the config alone
Row = dict[str, Any]
PATIENCE = 1800  # s: such a run takes 20-70 s, three times as long beside three busy processes on two cores


def flags(place: Path, **values: object) -> list[str]:
    """`--set` for each of `values` (`a.b` as key), for a Ray, and for the sample's index, which lies in `place`."""
    given: dict[str, object] = {f"retrieve.retrievers.{name}.index": place / "index" for name in ("bm25", "dense")}
    given |= {"cluster.address": "local"} | values
    return [word for key, value in given.items() for word in ("--set", f"{key}={value}")]


def start(arguments: list[str]) -> subprocess.Popen[str]:
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    return subprocess.Popen(arguments, cwd=ROOT, **pipes)  # type: ignore[call-overload,no-any-return]


class Done(NamedTuple):
    """A process that has ended, and the folder it named last."""

    code: int
    out: str
    err: str

    @property
    def folder(self) -> Path:
        assert self.code == 0, self.err
        return Path(self.out.splitlines()[-1])


def finish(process: subprocess.Popen[str]) -> Done:
    try:
        out, err = process.communicate(timeout=PATIENCE)
    except subprocess.TimeoutExpired:
        _give_up(process, "not ended")
    return Done(process.returncode, out, err)


def wait_until(process: subprocess.Popen[str], so: Callable[[], object]) -> None:
    """Wait until that is so, which is to be before the run has ended."""
    end = time.monotonic() + PATIENCE
    while not so():
        assert process.poll() is None, finish(process).err
        if time.monotonic() > end:
            _give_up(process, "not so")
        time.sleep(0.01)


def _give_up(process: subprocess.Popen[str], what: str) -> NoReturn:
    process.kill()
    pytest.fail(f"{what} after {PATIENCE} s; the run said:\n{process.communicate()[1]}")


def rows(folder: Path, table: str) -> list[Row]:
    """A table as a plain folder read finds it."""
    found: list[Row] = []
    for path in sorted((folder / table).iterdir()):
        found += pq.read_table(path).to_pylist()
    return found


def rows_of_shard(folder: Path, number: int) -> list[Row]:
    """The queries of a shard, in order of their ids."""
    _, key, group, _ = json.loads((folder / "shards.json").read_text())["shards"][number]
    found: list[Row] = pq.ParquetFile(folder / key).read_row_group(group).to_pylist()
    return found


def in_order(found: list[Row]) -> list[str]:
    return sorted(map(repr, found))


def check_same_rows(folder: Path, calm: Path) -> None:
    for table in (*written(calm), "errors"):
        assert in_order(rows(folder, table)) == in_order(rows(calm, table)), table


def written(folder: Path) -> list[str]:
    """The tables that a run of its config has, of `SAME`."""
    named = json.loads((folder / "_SUCCESS.json").read_text())["tables"]
    return [table for table in SAME if table in named]


def sample_shards(size: int) -> int:
    """The number of shards of the sample: 26 of its 176 queries hold half of the traffic, and come in shards of their own."""
    return -(-26 // size) - (-150 // size)


def check_files(folder: Path, shards: int) -> None:
    """`_SUCCESS.json` names every data file, nothing else lies beside them, and every shard has its manifest."""
    named = json.loads((folder / "_SUCCESS.json").read_text())["tables"]
    for table in (*written(folder), "costs", "errors"):
        assert sorted(path.relative_to(folder).as_posix() for path in (folder / table).iterdir()) == sorted(named[table])
    assert sorted(path.name for path in (folder / "commits").iterdir()) == [f"{n:06d}.json" for n in range(shards)]


def fetched(storage: Storage, to: Path) -> Path:
    """A run's folder on a store, copied here."""
    for entry in storage.list():
        path = to / entry.key
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(storage.get(entry.key) or b"")
    return to


def committed(output: Path) -> int:
    return len(list(output.glob("*/commits/0*.json")))


def below(process: subprocess.Popen[str], title: str) -> list[psutil.Process]:
    """Every process below it that calls itself so, or so and more."""
    found = []
    try:
        for one in psutil.Process(process.pid).children(recursive=True):
            with suppress(psutil.NoSuchProcess):
                if " ".join(one.cmdline()).startswith(title):
                    found.append(one)
    except psutil.NoSuchProcess:  # it has ended itself
        return []
    return found


def wait_for_commits(process: subprocess.Popen[str], output: Path, more_than: int) -> int:
    """Wait until the run has committed more shards than that, and say how many: not all, if it is to be disturbed."""
    wait_until(process, lambda: committed(output) > more_than)
    return committed(output)
