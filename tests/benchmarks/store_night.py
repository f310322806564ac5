"""A night of 100,000 queries of which 90 % are known, over a store of those alone, one of millions, and one that is compacted.

    python tests/benchmarks/store_size.py --store FOLDER --keep       # 10 million rows
    python tests/benchmarks/store_night.py --rows FOLDER [--queries 100000] [--s3]

Four rewrites of a query in one call to a server in this process that answers at once, BM25 on the sample's corpus, nothing
reranked. The known queries are asked by a night before; the rows of FOLDER are then put into the same space. All nights have
the same rows in the end. With --s3 the nights over millions are repeated with runs and store on the S3 server that the tests
use; its requests are those that the run's bill counts.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pyarrow as pa
import pyarrow.parquet as pq
import yaml

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from cluster.costs import STORAGE_COMPONENT  # noqa: E402
from cluster.storage import Storage, open_storage  # noqa: E402
from jobs.runs.folder import RunFolder, open_run  # noqa: E402
from tests.support.cluster.s3_server import running  # noqa: E402
from tests.support.rewriters.fake_server import FakeServer  # noqa: E402

KNOWN, SHARD, STRATEGIES = 0.9, 1_000, ("general", "keyword", "pseudo_answer", "core_content")
CORPUS = ROOT / "configs" / "sample" / "corpus.parquet"


def answer(body: dict[str, Any]) -> str:
    query = body["messages"][-1]["content"].rpartition("Query: ")[2]
    return json.dumps({name: f"{query} {place}" for place, name in enumerate(STRATEGIES)})


def queries(count: int) -> list[str]:
    """Distinct ones, of four words of the corpus."""
    texts = pq.read_table(CORPUS, columns=["text"]).column("text").to_pylist()
    words = sorted({word for text in texts for word in text.lower().split() if word.isalpha()})
    picked = np.random.default_rng(29).integers(0, len(words), (2 * count, 4))
    return list(dict.fromkeys(" ".join(words[place] for place in row) for row in picked))[:count]


class Night:
    """Runs of one config, each in a process of its own."""

    def __init__(self, folder: Path, server: FakeServer) -> None:
        self.folder, self.server = folder, server
        self.environment = os.environ | {"PYTHONPATH": str(ROOT), "RAY_AUTH_MODE": "disabled", "RAY_worker_niceness": "0"}

    def command(self, *words: str) -> subprocess.Popen[str]:
        said = {"stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL, "text": True}
        return subprocess.Popen([sys.executable, "-m", "jobs", *words], cwd=self.folder, env=self.environment, **said)  # type: ignore[call-overload,no-any-return]

    def run(self, label: str, log: str, output: str) -> tuple[RunFolder, dict[str, Any]]:
        before, began, peak = self.server.sends.total(), time.monotonic(), [0.0, 0.0]
        driver = self.command(
            "run", "config.yaml", "--label", label, "--set", f"log.path={log}.parquet", "--set", f"output={output}"
        )
        while driver.poll() is None:
            for place, of in enumerate((_processes(driver.pid, "jobs run"), _processes(driver.pid, "Rewrite"))):
                peak[place] = max([peak[place], *of])
            time.sleep(0.5)
        assert driver.returncode == 0, f"{label}: exit {driver.returncode}"
        assert driver.stdout is not None
        run = open_run(driver.stdout.read().splitlines()[-1])
        traffic = Counter[str]()
        for components in run.spent.values():
            traffic.update(components.get(STORAGE_COMPONENT, {}))
        return run, {
            "night": label, "seconds": round(time.monotonic() - began, 1), "calls": self.server.sends.total() - before,
            "reused": round(sum(one.get("reused", 0) for one in run.spent["rewrite"].values())),
            "driver_mib": round(peak[0]), "rewrite_worker_mib": round(peak[1]),
            "s3": dict(traffic),
        }  # fmt: skip


def _processes(pid: int, words: str) -> Iterator[float]:
    """MiB of a process and those below it whose command has the words."""
    try:
        root = psutil.Process(pid)
        for process in [root, *root.children(recursive=True)]:
            if words in " ".join(process.cmdline()):
                yield process.memory_info().rss / 2**20
    except psutil.Error:
        return


def rows_of(run: RunFolder) -> str:
    """A digest of rewrites and results."""
    digest = hashlib.sha256()
    for table, columns in (
        ("rewrites", ("query_id", "strategy", "text")),
        ("results", ("query_id", "rank", "doc_id", "score")),
    ):
        for file in sorted(run.tables[table]):
            with run.storage.open(file.removeprefix(run.storage.root).lstrip("/")) as source:
                rows = pq.read_table(source, columns=list(columns))
            for row in rows.sort_by([(name, "ascending") for name in columns]).to_pylist():
                digest.update(repr(row).encode())
    return digest.hexdigest()[:16]


@contextmanager
def put_back(store: Storage) -> Iterator[None]:
    """Has what is put meanwhile leave again."""
    before = {entry.key for entry in store.list("v1")}
    yield
    store.delete(*(entry.key for entry in store.list("v1") if entry.key not in before))


def put_files(store: Storage, files: Sequence[Path], space: str) -> None:
    """Puts files of rows into a space."""
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda file: store.put(f"{space}/{file.name}", file.read_bytes()), files))


def files_of(store: Path) -> list[Path]:
    return sorted(store.glob("v1/completions/*/*.parquet"))


def nights(night: Night, rows: Path, s3: str | None) -> Iterator[dict[str, Any]]:
    """The night before, the nights of which all but a tenth is known, and the same on S3."""
    local = night.folder / "runs" / "store"
    yield night.run("before", "known", "runs")[1]
    known = {file.name: file.read_bytes() for file in files_of(local)}
    space = files_of(local)[0].parent.relative_to(local)
    with put_back(open_storage(str(local))):
        run, told = night.run("known-alone", "log", "runs")
        yield told
    alone = rows_of(run)
    put_files(open_storage(str(local)), files_of(rows), str(space))
    yield from over_millions(night, "runs", alone)
    yield night.run("compacted", "log", "runs")[1]
    if s3 is not None:
        store = open_storage(f"{s3}/store")
        for name, data in known.items():
            store.put(f"{space}/{name}", data)
        put_files(store, files_of(rows), str(space))
        yield from over_millions(night, s3, alone)


def over_millions(night: Night, output: str, alone: str) -> Iterator[dict[str, Any]]:
    with put_back(open_storage(str(night.folder / output / "store") if output == "runs" else f"{output}/store")):
        run, told = night.run("millions", "log", output)
        yield told
    assert rows_of(run) == alone
    compacting: dict[str, Any] = {}
    watch = threading.Thread(target=lambda: compacting.update(_compact(night, output)))
    watch.start()
    run, told = night.run("compacted-meanwhile", "log", output)
    watch.join()
    yield told | compacting
    assert rows_of(run) == alone


def _compact(night: Night, output: str) -> dict[str, Any]:
    began = time.monotonic()
    verb = night.command("store", "compact", "config.yaml", "--json", "--set", f"output={output}")
    said = verb.communicate()[0]
    assert verb.returncode == 0, said
    return {"compact_seconds": round(time.monotonic() - began, 1), "compact": json.loads(said)}


def main() -> None:
    """Prints a JSON line for each night."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=Path, required=True)
    parser.add_argument("--queries", type=int, default=100_000)
    parser.add_argument("--s3", action="store_true")
    arguments = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="store-night-"))
    asked = queries(arguments.queries)
    pq.write_table(pa.table({"query": asked}), folder / "log.parquet")
    pq.write_table(pa.table({"query": asked[: round(len(asked) * KNOWN)]}), folder / "known.parquet")

    with ExitStack() as stack:
        stack.callback(shutil.rmtree, folder)
        address = None
        if arguments.s3:
            s3 = stack.enter_context(running(folder / "s3"))
            address = s3.fresh("night")
            os.environ.update(s3.environment)
        server = stack.enter_context(FakeServer(text=answer))
        engine = {"kind": "openai", "model": "tiny", "base_url": server.address}
        config = {
            "name": "night", "log": {"path": "log.parquet", "query_column": "query"},
            "rewrite": {"engine": engine, "strategies": list(STRATEGIES)},
            "retrieve": {"retrievers": {"bm25": {"kind": "local", "index": "index"}}, "depth": 10},
            "rerank": {"kind": "none"}, "output": "runs", "cluster": {"shard_size": SHARD},
        }  # fmt: skip
        (folder / "config.yaml").write_text(yaml.safe_dump(config, sort_keys=False))
        night = Night(folder, server)
        assert night.command("index", "config.yaml", "--corpus", str(CORPUS)).wait() == 0
        for told in nights(night, arguments.rows, address):
            print(json.dumps(told), flush=True)


if __name__ == "__main__":
    main()
