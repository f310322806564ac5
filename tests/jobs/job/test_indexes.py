"""Indexes, corpora and recordings on S3: what is found is what a folder gives, and nothing is copied that need not be."""

import io
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from cluster.errors import ClusterError, RetrieverError, RewriterError
from cluster.run.lease import Lease
from cluster.storage import Storage, copies, open_storage
from cluster.storage.s3 import S3Storage
from jobs.config.config import Config
from jobs.index import index
from jobs.job import engine, retrievers
from jobs.job.retrievers import open_documents, open_retriever, retriever_identity
from jobs.terminal.live_display import LiveDisplay
from retrievers import retriever as local
from retrievers.local import build as local_build
from retrievers.retriever import SearchText
from rewriters.engines.settings import RecordedSettings
from tests.support.cluster.s3_proxy import Proxy, proxied
from tests.support.cluster.s3_server import S3Server
from tests.support.retrievers.blocks import typed

Block = dict[str, Any]
SEARCHES = [SearchText("the light of the lamp"), SearchText("bread and yeast"), SearchText("moon")]


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv(copies.FOLDER, str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def store(s3: S3Server) -> Storage:
    return open_storage(s3.fresh("index"))


@pytest.fixture
def proxy(s3: S3Server, monkeypatch: pytest.MonkeyPatch) -> Iterator[Proxy]:
    with proxied(s3) as (proxy, address):
        monkeypatch.setenv("AWS_ENDPOINT_URL_S3", address)
        yield proxy


def build(store: Storage, values: dict[str, Any], corpus: str, **more: Block) -> str:
    """The verb `index` with BM25 on `store`; what it says was done, before what it says of the corpus's language."""
    blocks = {"bm25": {"kind": "local", "index": store.root}, **more}
    config = Config.model_validate(values | {"retrieve": {"retrievers": blocks}})
    (said,) = index.index(config, [corpus], LiveDisplay(io.StringIO()))
    return str(said["done"]).partition("; analyzer ")[0]


def data_folders(store: Storage) -> set[str]:
    return {entry.key.partition("/")[0] for entry in store.list() if entry.key.startswith("data-")}


def block(store: Storage) -> Block:
    return {"kind": "local", "index": store.root, "analyzer": "english", "encoder": None}


@pytest.mark.slow
def test_an_index_finds_what_one_in_a_folder_finds(
    store: Storage, values: dict[str, Any], corpus: Path, bm25: Block, passages: dict[str, str], cache: Path
) -> None:
    store.upload(corpus, "../corpus.parquet".removeprefix("../"))
    there = open_storage(store.root + "-built")
    assert build(there, values, store.url("corpus.parquet")) == "built"
    assert not [path for path in cache.rglob("*") if path.is_file() and path.suffix != ".lock"], "built here, and left here"
    identity = local.retriever_identity("bm25", typed(bm25))
    assert retriever_identity("bm25", typed(block(there))) == identity
    assert retrievers.retriever_facts("bm25", typed(block(there)), {}) == local.retriever_facts("bm25", typed(bm25), {})
    mine = open_retriever("bm25", typed(block(there)), expect_identity=identity).search(SEARCHES, 5)
    theirs = local.open_retriever("bm25", typed(bm25)).search(SEARCHES, 5)
    assert (mine.doc_ids.to_pylist(), mine.scores.tolist()) == (theirs.doc_ids.to_pylist(), theirs.scores.tolist())
    assert open_documents("bm25", typed(block(there))).texts(list(passages)) == list(passages.values())


@pytest.mark.slow
def test_the_same_again_is_nothing_to_do_and_fetches_nothing(
    store: Storage, values: dict[str, Any], corpus: Path, proxy: Proxy
) -> None:
    assert build(store, values, str(corpus)) == "built"
    first = {entry.key: entry.etag for entry in store.list() if not entry.key.startswith("lease/")}
    proxy.requests.clear()
    assert build(store, values, str(corpus)) == "exists already, nothing to do"
    assert not [path for method, path in proxy.requests if method == "GET" and "/data-" in path]
    assert {entry.key: entry.etag for entry in store.list() if not entry.key.startswith("lease/")} == first


@pytest.mark.slow
def test_another_analyzer_replaces_the_index_and_its_files(store: Storage, values: dict[str, Any], corpus: Path) -> None:
    build(store, values, str(corpus))
    old = retriever_identity("bm25", typed(block(store)))
    assert build(store, values, str(corpus), bm25=block(store) | {"analyzer": "unicode"}) == "built"
    folders = data_folders(store)
    assert len(folders) == 2, "copies of the index before may be under way"
    build(store, values, str(corpus))
    assert data_folders(store) == folders
    store.put("data-0123/of-a-killed-build", b"x")
    assert build(store, values, str(corpus), bm25=block(store) | {"analyzer": "unicode"}) == "built"
    assert data_folders(store) == folders
    with pytest.raises(RetrieverError, match=rf"index {store.root} was built with analyzer 'unicode'"):
        retriever_identity("bm25", typed(block(store)))
    with pytest.raises(RetrieverError, match=rf"index {store.root} was built with analyzer|was replaced since"):
        open_retriever("bm25", typed(block(store)), expect_identity=old)


@pytest.mark.slow
def test_what_is_checked_before_a_run_reads_no_data(
    store: Storage, values: dict[str, Any], corpus: Path, proxy: Proxy, cache: Path
) -> None:
    build(store, values, str(corpus))
    proxy.requests.clear()
    retriever_identity("bm25", typed(block(store)))
    assert not [path for _, path in proxy.requests if "/data-" in path.partition("?")[0]]
    with pytest.raises(RetrieverError, match="is not on this machine"):
        open_documents("bm25", typed(block(store)), cached_only=True)
    open_retriever("bm25", typed(block(store)))
    assert len(open_documents("bm25", typed(block(store)), cached_only=True).texts(["d01"])) == 1


@pytest.mark.slow
def test_no_index_a_damaged_one_and_a_folder_of_something_else(store: Storage, values: dict[str, Any], corpus: Path) -> None:
    with pytest.raises(RetrieverError, match=rf"index {store.root}: there is no index; build it with: dmqr index"):
        retriever_identity("bm25", typed(block(store)))
    store.put("photos/me.jpg", b"x")
    with pytest.raises(RetrieverError, match=r"is not empty and not an index \(it has photos/me.jpg\); give another folder"):
        build(store, values, str(corpus))
    store.delete("photos/me.jpg")
    build(store, values, str(corpus))
    (documents,) = [entry.key for entry in store.list() if entry.key.endswith("/documents.arrow")]
    store.put(documents, b"short")
    with pytest.raises(RetrieverError, match=r"is damaged: documents\.arrow has 5 bytes, built with"):
        retriever_identity("bm25", typed(block(store)))
    assert build(store, values, str(corpus)) == "built", "a damaged index is mended"
    store.put("index.json", b"{")
    with pytest.raises(RetrieverError, match=r"index.json cannot be read \(JSONDecodeError\); build it again"):
        retriever_identity("bm25", typed(block(store)))


def test_a_builder_that_was_taken_over_removes_nothing(
    store: Storage, values: dict[str, Any], corpus: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for key in ("data-0123/left", ".probe-0123"):  # the second is what a check of the store may leave
        store.put(key, b"x")
    put = index._put

    def and_taken_over(*arguments: Any) -> set[str]:
        folders = put(*arguments)
        monkeypatch.setattr(Lease, "lost", lambda _: True)
        return folders

    monkeypatch.setattr(index, "_put", and_taken_over)
    assert build(store, values, str(corpus)) == "built"
    assert store.get("data-0123/left") == b"x"


@pytest.mark.parametrize("folder", ["/dev/null", "/proc/x"])
def test_a_folder_for_copies_that_cannot_be_used_is_named(
    store: Storage, values: dict[str, Any], corpus: Path, folder: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(copies.FOLDER, folder)
    with pytest.raises(ClusterError, match=rf"^{folder}/\w+: cannot hold copies: .*; set DMQR_CACHE to another"):
        build(store, values, str(corpus))


def test_a_full_disk_is_this_machines(
    store: Storage, values: dict[str, Any], corpus: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(local_build, "read_corpus", full)
    with pytest.raises(RetrieverError, match=rf"^index {cache}/.*: cannot be written: No space left on device; free space"):
        build(store, values, str(corpus))


@pytest.mark.slow
def test_two_builders_are_kept_apart(store: Storage, values: dict[str, Any], corpus: Path) -> None:
    lease = Lease.acquire(store)
    try:
        with pytest.raises(RetrieverError, match=rf"index {store.root}: is being built by another process \(.*process \d+ on "):
            build(store, values, str(corpus))
    finally:
        lease.release()
    assert build(store, values, str(corpus)) == "built"


def test_a_recording_on_s3_is_copied_once_and_named_by_its_address(store: Storage, tmp_path: Path, proxy: Proxy) -> None:
    line = b'{"query": "sea", "completions": {"dmqr": "a"}}\n'
    store.put("recorded.jsonl", line)
    (tmp_path / "recorded.jsonl").write_bytes(line)
    settings, identity = engine.resolve(RecordedSettings(kind="recorded", path=store.url("recorded.jsonl")))
    assert identity == engine.resolve(RecordedSettings(kind="recorded", path=str(tmp_path / "recorded.jsonl")))[1]
    assert settings.path == store.url("recorded.jsonl"), "a worker on another machine makes its own copy"
    engine.open_worker_engine(settings).close()
    assert len([1 for method, path in proxy.requests if method == "GET" and path.endswith("/recorded.jsonl")]) == 1
    with pytest.raises(RewriterError, match=rf"recorded completions {store.root}/none.jsonl: there is no such object"):
        engine.resolve(RecordedSettings(kind="recorded", path=store.url("none.jsonl")))
    store.put("recorded.jsonl", line + b"{\n")
    with pytest.raises(RewriterError, match=rf"recorded completions {store.root}/recorded.jsonl, line 2: is not JSON"):
        engine.resolve(RecordedSettings(kind="recorded", path=store.url("recorded.jsonl")))


def test_an_index_that_is_replaced_while_it_is_copied_each_time(monkeypatch: pytest.MonkeyPatch) -> None:
    def gone(*_: object, **__: object) -> None:
        raise FileNotFoundError(2, "no such object")

    monkeypatch.setattr(retrievers, "stored_index", lambda storage: ({"data": "data-1"}, b"{}"))
    monkeypatch.setattr(S3Storage, "list", lambda self, prefix="": iter([]))
    monkeypatch.setattr(retrievers, "copied", gone)
    with pytest.raises(RetrieverError, match="keeps being replaced; wait for the end of its build"):
        open_documents("bm25", typed({"kind": "local", "index": "s3://bucket/index"}))


def test_a_builder_that_was_taken_over_publishes_nothing(tmp_path: Path) -> None:
    lease: Any = SimpleNamespace(lost=lambda: True)
    with pytest.raises(RetrieverError, match="another process has begun to build it meanwhile; wait for it"):
        index._put(S3Storage("s3://bucket/index"), tmp_path, lease, lambda *_: None)
