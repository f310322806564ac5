"""A night of 100,000 queries of which 90 % are known, over a store of those alone, one of millions, and one that is compacted.

    python tests/benchmarks/store_size.py --store FOLDER --keep       # 10 million rows
    python tests/benchmarks/store_night.py --rows FOLDER [--queries 100000] [--s3]

Four rewrites of a query in one call to a server in this process that answers at once, BM25 on the sample's corpus, nothing
reranked. The known queries are asked by a night before; the rows of FOLDER are then put into the same space. The three nights
end with the same rows. With --s3 runs and store lie on the S3 server that the tests use, and its requests are those that the
run's bill counts.
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
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
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

    def __init__(self, folder: Path, output: str, server: FakeServer, environment: dict[str, str]) -> None:
        self.folder, self.output, self.server = folder, output, server
        self.environment = os.environ | environment | {"PYTHONPATH": str(ROOT), "RAY_AUTH_MODE": "disabled"}

    def command(self, *words: str) -> subprocess.Popen[str]:
        said = {"stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL, "text": True}
        return subprocess.Popen([sys.executable, "-m", "jobs", *words], cwd=self.folder, env=self.environment, **said)  # type: ignore[call-overload,no-any-return]

    def run(self, label: str, log: str) -> tuple[RunFolder, dict[str, Any]]:
        before, began, peak = self.server.sends.total(), time.monotonic(), [0.0, 0.0]
        driver = self.command("run", "config.yaml", "--label", label, "--set", f"log.path={log}.parquet")
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


def add_rows(store: Storage, rows: Path) -> int:
    """Puts the files of another store into the space of the known queries."""
    space = next(entry.key for entry in store.list("v1/completions") if entry.key.endswith(".parquet")).rpartition("/")[0]
    files = sorted(rows.glob("v1/completions/*/*.parquet"))
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda file: store.put(f"{space}/{file.name}", file.read_bytes()), files))
    return len(files)


def nights(night: Night, rows: Path) -> Iterator[dict[str, Any]]:
    store = open_storage(f"{night.output}/store")
    yield night.run("before", "known")[1]
    with put_back(store):
        alone, told = night.run("known-alone", "log")
        yield told
    print(json.dumps({"files_of_millions": add_rows(store, rows)}), flush=True)
    with put_back(store):
        whole, told = night.run("millions", "log")
        yield told
    compacting: dict[str, Any] = {}
    watch = threading.Thread(target=lambda: compacting.update(_compact(night)))
    watch.start()
    meanwhile, told = night.run("compacted-meanwhile", "log")
    watch.join()
    yield told | compacting
    digests = {rows_of(run) for run in (alone, whole, meanwhile)}
    assert len(digests) == 1, digests
    yield night.run("compacted", "log")[1]


def _compact(night: Night) -> dict[str, Any]:
    began = time.monotonic()
    verb = night.command("store", "compact", "config.yaml", "--json")
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

    def all_nights(output: str, environment: dict[str, str]) -> None:
        os.environ.update(environment)
        with FakeServer(text=answer) as server:
            engine = {"kind": "openai", "model": "tiny", "base_url": server.address}
            config = {
                "name": "night", "log": {"path": "log.parquet", "query_column": "query"},
                "rewrite": {"engine": engine, "strategies": list(STRATEGIES)},
                "retrieve": {"retrievers": {"bm25": {"kind": "local", "index": "index"}}, "depth": 10},
                "rerank": {"kind": "none"}, "output": output, "cluster": {"shard_size": SHARD},
            }  # fmt: skip
            (folder / "config.yaml").write_text(yaml.safe_dump(config, sort_keys=False))
            night = Night(folder, output, server, environment)
            assert night.command("index", "config.yaml", "--corpus", str(CORPUS)).wait() == 0
            for told in nights(night, arguments.rows):
                print(json.dumps(told), flush=True)

    try:
        _placed(folder, all_nights, arguments.s3)
    finally:
        shutil.rmtree(folder)


def _placed(folder: Path, all_nights: Callable[[str, dict[str, str]], None], on_s3: bool) -> None:
    if not on_s3:
        return all_nights(str(folder / "runs"), {})
    with running(folder / "s3") as server:
        return all_nights(server.fresh("night"), server.environment)


if __name__ == "__main__":
    main()
