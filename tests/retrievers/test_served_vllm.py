"""vLLM's own server with small real weights: the same vectors and scores as with the weights opened here."""

import contextlib
import os
import socket
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest

from cluster.errors import RetrieverError
from retrievers.encoder import open_encoder
from retrievers.local.build import build_local_index
from retrievers.models import resolve_model
from retrievers.reranker import open_reranker, reranker_identity
from retrievers.retriever import SearchText, open_retriever
from retrievers.settings import EncoderSettings, OpenaiEncoderSettings, RerankSettings
from tests.support.retrievers.blocks import index_fields, typed
from tests.support.retrievers.passages import PASSAGES
from tests.support.waits import until

pytestmark = pytest.mark.slow
STARTS = 600  # s: some 50 s on a quiet machine
QUERIES = ["why does sour dough rise slowly", "what makes the tides", "light of a lamp at sea"]
TEXTS = [". ".join(filter(None, passage)) or "nothing" for passage in PASSAGES.values()]


def answers(port: int) -> bool:
    with contextlib.suppress(OSError), urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=5):
        return True
    return False


@contextlib.contextmanager
def serving(model: str) -> Iterator[str]:
    """The base_url of a server with a pooling model, called tiny."""
    pytest.importorskip("vllm")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    environment = {"VLLM_CPU_KVCACHE_SPACE": "1", "VLLM_NO_USAGE_STATS": "1", "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}
    server = subprocess.Popen(
        [
            sys.executable, "-m", "vllm.entrypoints.openai.api_server", "--model", model, "--served-model-name", "tiny",
            "--runner", "pooling", "--enforce-eager", "--dtype", "float32", "--host", "127.0.0.1", "--port", str(port),
        ],
        env=os.environ | environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    try:
        until(lambda: server.poll() is not None or answers(port), STARTS)
        assert server.poll() is None, "the server has ended"
        yield f"http://127.0.0.1:{port}/v1"
    finally:
        processes = [psutil.Process(server.pid), *psutil.Process(server.pid).children(recursive=True)]
        server.terminate()
        _, alive = psutil.wait_procs(processes, timeout=30)
        for process in alive:
            process.kill()


@pytest.fixture(scope="module")
def encoder(encoder_block: dict[str, Any]) -> Iterator[dict[str, Any]]:
    with serving(str(resolve_model(encoder_block["model"]))) as address:
        yield {"kind": "openai", "model": "tiny", "base_url": address, "batch": 4}


def test_vectors_and_lists_are_those_of_the_weights_here(
    encoder: dict[str, Any], encoder_block: dict[str, Any], corpus: Path, both_index: Path, tmp_path: Path
) -> None:
    here, served = open_encoder(EncoderSettings(**encoder_block)), open_encoder(OpenaiEncoderSettings(**encoder))
    texts = [SearchText(text) for text in [*TEXTS, *QUERIES, "", " ", "sea " * 2000, "東京タワー"]]
    np.testing.assert_allclose(served.encode(texts), here.encode(texts), atol=1e-3)
    build_local_index(tmp_path / "index", corpus, index_fields(None, encoder))
    searches = [SearchText(query) for query in QUERIES]
    lists = [
        open_retriever("dense", typed({"kind": "local", "index": str(path), "encoder": block})).search(searches, 5)
        for path, block in ((tmp_path / "index", encoder), (both_index, encoder_block))
    ]
    assert lists[0].doc_ids.to_pylist() == lists[1].doc_ids.to_pylist()
    np.testing.assert_allclose(lists[0].scores, lists[1].scores, atol=1e-3)
    with pytest.raises(RetrieverError, match=r"it gives no vectors: HTTP 400: .*dimensions"):
        open_encoder(OpenaiEncoderSettings(**(encoder | {"dimensions": 100})))


def test_scores_and_order_are_those_of_the_weights_here(cross_encoder: str) -> None:
    here = open_reranker(RerankSettings(model=cross_encoder))
    assert here is not None
    queries, texts = [query for query in QUERIES for _ in TEXTS], TEXTS * len(QUERIES)
    expected = here.score(queries, texts)
    with serving(cross_encoder) as address:
        settings = RerankSettings(kind="server", model="tiny", base_url=address, batch=5)
        served = open_reranker(settings)
        assert served is not None
        found = served.score(queries, texts)
        long = served.score([QUERIES[0], "sea " * 2000], ["sea " * 2000, TEXTS[0]])
        with pytest.raises(RetrieverError, match=r"it gives no vectors: HTTP 404"):
            open_encoder(OpenaiEncoderSettings(kind="openai", model="tiny", base_url=address))
        identity = reranker_identity(settings)
    np.testing.assert_allclose(found, expected, atol=2e-3)
    for begin in range(0, len(found), len(TEXTS)):
        part = slice(begin, begin + len(TEXTS))
        assert np.argsort(-found[part], kind="stable").tolist() == np.argsort(-expected[part], kind="stable").tolist()
    assert np.isfinite(long).all()
    assert identity == {"kind": "server", "model": "tiny", "raw_scores": True, "max_length": 512}
