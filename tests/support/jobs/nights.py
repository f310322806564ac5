"""Nights of one config against counting servers, which share a store."""

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from jobs.run.job import Job
from tests.support.jobs.in_process_runs import prepared_job, run_in_process
from tests.support.jobs.whole_runs import rows
from tests.support.retrievers.fake_models import FakeModels
from tests.support.rewriters.fake_server import FakeServer

QUERIES = ["why does bread rise", "lamp of a lighthouse", "moon and tides", "spring tide", "yeast of beer", "faint galaxies"]
NEW = "harbours at night"


def score(query: str, texts: Sequence[str]) -> list[float]:
    return [float(len(set(query.split()) & set(text.lower().rstrip(".").split()))) - 1.5 for text in texts]


class Nights:
    """Jobs of one config against counting servers."""

    def __init__(self, path: str, llm: FakeServer, reranker: FakeModels) -> None:
        self.path, self._llm, self._reranker = path, llm, reranker
        self._sent, self._scored = 0, 0

    def job(self, label: str, *settings: str) -> Job:
        return prepared_job(self.path, f"label={label}", *settings)

    def run(self, label: str, *settings: str) -> tuple[Path, int, int]:
        """Runs a night; returns its folder, the requests that it sent, and the pairs that it had scored."""
        return self.counted(self.job(label, *settings))

    def counted(self, job: Job) -> tuple[Path, int, int]:
        self.forget()
        folder = run_in_process(job)
        sent, scored = self.paid()
        return folder, sent, scored - 1  # less that of the probe of the server

    def forget(self) -> None:
        """Begins to count: what a probe of the servers asks when a job is checked does not count."""
        self._sent, self._scored = len(self._llm.bodies), len(self._reranker.texts)

    def paid(self) -> tuple[int, int]:
        return len(self._llm.bodies) - self._sent, len(self._reranker.texts) - self._scored


def log(queries: Sequence[str | None]) -> None:
    """Writes the log of a job in the current folder."""
    pq.write_table(pa.table({"query": queries}), "log.parquet")


def results(folder: Path) -> list[Any]:
    return sorted((one["query_id"], one["rank"], one["doc_id"], one["score"]) for one in rows(folder, "results"))


def totals(folder: Path, quantity: str) -> Counter[str]:
    sums: Counter[str] = Counter()
    for one in rows(folder, "costs"):
        sums[one["stage"]] += one[quantity] or 0
    return sums


def kinds(store: Path) -> dict[str, int]:
    return dict(Counter(file.parts[-3] for file in store.glob("v1/*/*/*.parquet")))
