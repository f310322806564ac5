"""An alias with a filter keeps it; and the state of an index that changes in place, or whose synonym sets do."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cluster.errors import RetrieverError
from dmqr.testing import hits_of
from retrievers.corpora.builds import BuildInputs
from retrievers.elastic.build import build_elastic_index, elastic_indexes
from retrievers.elastic.connection import Connection
from retrievers.elastic.index import ElasticIndex, index_state
from retrievers.elastic.query import knn_query
from retrievers.elastic.settings import ElasticSettings
from retrievers.retriever import SearchText, open_documents, open_retriever, retriever_facts, retriever_identity
from tests.support.retrievers.blocks import typed
from tests.support.retrievers.elastic_server import ask
from tests.support.retrievers.proxy import Fault, Proxy, Request

PUBLIC = {"term": {"public": True}}
VECTORS = {"type": "dense_vector", "dims": 4, "index": True, "similarity": "cosine", "index_options": {"type": "flat"}}
MAPPING = {"properties": {"text": {"type": "text"}, "public": {"type": "boolean"}, "vector": VECTORS}}
Name = Callable[[], str]


def put(index: str, doc_id: str, text: str, *, public: bool = True) -> None:
    body = {"text": text, "public": public, "vector": [1.0, float(len(text)), 0.5, 0.25]}
    ask("PUT", f"/{index}/_doc/{doc_id}?refresh=true", body)


@pytest.fixture
def foreign(elasticsearch: str, new_name: Name) -> str:
    """An index of another program: two documents are public, one is not."""
    index = new_name()
    ask("PUT", f"/{index}", {"mappings": MAPPING, "settings": {"number_of_replicas": 0, "number_of_shards": 2}})
    put(index, "d1", "the sea at night")
    put(index, "d2", "a secret of the sea", public=False)
    put(index, "d3", "bread")
    return index


def alias_of(index: str, name: str, **how: Any) -> str:
    ask("POST", "/_aliases", {"actions": [{"add": {"index": index, "alias": name} | how}]})
    return name


def found(block: dict[str, Any], identity: dict[str, Any] | None = None) -> dict[str, float]:
    """Score by doc_id of a search."""
    (hits,) = hits_of(open_retriever("r", typed(block), expect_identity=identity).search([SearchText("sea night")], 9))
    return dict(hits)


def test_a_filtered_alias_is_searched_and_read_with_its_filter(foreign: str, new_name: Name) -> None:
    block = {"kind": "elastic", "index": alias_of(foreign, new_name(), filter=PUBLIC)}
    whole = retriever_identity("r", typed(block | {"index": foreign}))
    identity = retriever_identity("r", typed(block))
    assert identity == whole | {"filter": PUBLIC}
    every = found(block | {"index": foreign})
    assert set(every) == {"d1", "d2"}
    assert found(block) == {"d1": pytest.approx(every["d1"])}
    assert retriever_facts("r", typed(block), identity)["documents"] == 2
    late = block | {"index": foreign, "filter": PUBLIC}  # as a worker opens it, which knows the index and no alias
    assert set(found(late, identity)) == {"d1"}
    documents = open_documents("r", typed(late))
    assert documents.texts(["d3", "d1", "d3"]) == ["bread", "the sea at night", "bread"]
    with pytest.raises(RetrieverError, match="no document 'd2'"):
        documents.texts(["d1", "d2"])
    both = block | {"filter": {"match": {"text": "bread"}}}
    assert retriever_identity("r", typed(both))["filter"] == {"bool": {"filter": [PUBLIC, both["filter"]]}}
    assert found(both) == {}


def test_dense_search_takes_the_nearest_of_what_the_filter_leaves(foreign: str) -> None:
    vector = np.array([1.0, 19.0, 0.5, 0.25])  # that of d2, which is hidden
    query = knn_query("vector", vector, 1, None, PUBLIC) | {"query_vector": vector.tolist()}
    hits = ask("POST", f"/{foreign}/_search", {"knn": query, "_source": False})["hits"]["hits"]
    assert [hit["_id"] for hit in hits] == ["d1"]


@pytest.mark.slow
def test_an_alias_that_routes_its_searches_is_refused(foreign: str, new_name: Name) -> None:
    alias = alias_of(foreign, new_name(), routing="7")
    with pytest.raises(RetrieverError, match=f"alias {alias} sends its searches to the shard of a routing value"):
        retriever_identity("r", typed({"kind": "elastic", "index": alias}))


@pytest.mark.slow
def test_an_alias_that_is_moved_to_a_new_index_keeps_its_filter(
    elasticsearch: str, new_name: Name, write_corpus: Callable[..., Path]
) -> None:
    block = typed({"kind": "elastic", "index": new_name()})
    (fields,) = elastic_indexes({"r": block}).values()
    first = build_elastic_index(fields, BuildInputs([write_corpus({"doc_id": ["a", "b"], "text": ["the sea", "the moon"]})]))
    alias_of(first.concrete, block.index, filter={"match": {"text": "sea"}})
    more = write_corpus({"doc_id": ["a", "b", "c"], "text": ["the sea", "a moon", "the moon"]})
    build_elastic_index(fields, BuildInputs([more]))
    identity = retriever_identity("r", block)
    assert identity["index"] != first.concrete
    assert identity["filter"] == {"match": {"text": "sea"}}
    assert retriever_facts("r", block, identity)["documents"] == 1


@pytest.mark.slow
def test_the_state_of_an_index_changes_with_what_a_search_finds_in_it(foreign: str, new_name: Name) -> None:
    block = typed({"kind": "elastic", "index": foreign})
    identity = retriever_identity("r", block)
    seen = []

    def look() -> Any:
        assert retriever_identity("r", block) == identity  # nothing else tells
        seen.append(retriever_facts("r", block, identity)["state"])
        return seen[-1]

    assert look() == look()
    put(foreign, "d1", "the sea by day")
    look()
    put(foreign, "d4", "new")
    look()
    ask("DELETE", f"/{foreign}/_doc/d4?refresh=true")
    look()
    ask("DELETE", f"/{foreign}/_doc/d2?refresh=true")
    look()
    different = {str(one) for one in seen[1:]}
    # after d4 has come and gone its shard holds what it held before, and the state is that one again
    assert len(different) == 4
    assert seen[1] != seen[2] == seen[4] != seen[3] != seen[5]
    ask("PUT", f"/{foreign}/_settings", {"index": {"refresh_interval": "-1"}})  # a busy machine takes longer than its second
    ask("PUT", f"/{foreign}/_doc/d9", {"text": "not refreshed"})
    assert look() == seen[5]  # no search finds it yet
    ask("POST", f"/{foreign}/_refresh")
    assert look() != seen[5]


def test_an_index_that_is_built_here_and_closed_to_writing_has_no_state(elastic_blocks: dict[str, dict[str, Any]]) -> None:
    block = typed(elastic_blocks["bm25"])
    identity = retriever_identity("r", block)
    assert retriever_facts("r", block, identity)["state"] is None
    ask("PUT", f"/{identity['index']}/_settings", {"index": {"blocks.write": False}})
    try:
        assert retriever_facts("r", block, identity)["state"]["documents"] > 0
    finally:
        ask("PUT", f"/{identity['index']}/_settings", {"index": {"blocks.write": True}})


WRITTEN = {"aggregations": {"written": {"count": 3, "max": 2.0, "sum": 3.0}}}
FILTER = {"synonyms_set": "rewrites", "type": "synonym_graph", "updateable": True}


class Sets:
    """Content of the server: rules by the name of their set, and the status of a look at them."""

    def __init__(self) -> None:
        self.rules = {"rewrites": [{"id": "a", "synonyms": "sea => sea, tide"}, {"id": "b", "synonyms": "lamp, light"}]}
        self.status, self.search_status, self.asked, self.most = 200, 200, 0, 10_000


@pytest.fixture
def sets(serve: Callable[..., Proxy]) -> Sets:
    held = Sets()

    def answer(request: Request) -> Fault:
        if request.method == "POST":
            return Fault("answer", status=held.search_status, body=WRITTEN)
        held.asked += 1
        rules = held.rules.get(request.kind)
        if held.status != 200 or rules is None:
            return Fault("answer", status=max(held.status, 404 if rules is None else 0), body={"error": {"type": "x"}})
        return Fault("answer", status=200, body={"count": len(rules), "synonyms_set": rules[: held.most]})

    serve(answer)
    return held


def state(*filters: dict[str, Any]) -> dict[str, Any] | None:
    connection = Connection("r", ElasticSettings(kind="elastic", index="docs", url_env="PROXY_URL"), 1)
    analysis = {"analysis": {"filter": {f"f{place}": one for place, one in enumerate(filters)}}}
    try:
        return index_state(connection, ElasticIndex("docs", "u", {}, analysis, None, {}), None)
    finally:
        connection.close()


def test_a_set_put_again_under_its_name_is_another_state(sets: Sets) -> None:
    before = state(FILTER)
    sets.rules["rewrites"].reverse()
    assert state(FILTER) == before  # the order of rules is none of a set
    sets.rules["rewrites"][0] = {"id": "a", "synonyms": "sea => sea, wave"}
    assert state(FILTER) != before


def test_an_index_without_sets_has_the_state_of_its_documents(sets: Sets) -> None:
    assert state({"type": "stop"}) == state() == {"documents": 3, "last": 2.0, "sum": 3.0}
    assert sets.asked == 0


@pytest.mark.parametrize(
    ("name", "value"),
    [("status", 403), ("rules", {}), ("search_status", 400), ("most", 1)],
    ids=["forbidden", "missing", "refused", "cut"],
)
def test_what_cannot_be_read_is_never_taken_for_unchanged(sets: Sets, name: str, value: Any) -> None:
    setattr(sets, name, value)
    first, second = state(FILTER), state(FILTER)
    assert first is not None
    assert second is not None
    assert first.keys() == second.keys() == {"unknown"}
    assert first != second
