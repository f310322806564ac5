"""MultiSearch over the wire: what the server has no room for is sent again, what is missing is never passed over."""

import json
import re
import threading
from collections.abc import Callable
from typing import Any

import pytest

from cluster.errors import RetrieverError
from dmqr.testing import hits_of
from retrievers.elastic import connection as elastic_connection
from retrievers.elastic.connection import Connection
from retrievers.elastic.documents import text_field
from retrievers.elastic.index import ElasticIndex
from retrievers.elastic.query import bm25_query, search_lines
from retrievers.elastic.search import MultiSearch, SearchRefused
from retrievers.elastic.settings import QuerySettings
from retrievers.retriever import JoinedText, Retriever, SearchText, open_documents, open_retriever
from tests.support.retrievers.blocks import typed
from tests.support.retrievers.elastic_server import ask
from tests.support.retrievers.proxy import Fault, Proxy, Request

pytestmark = pytest.mark.usefixtures("short_pauses")
WORDS = ("sea", "lamp", "moon", "bread", "yeast", "mirror", "tides", "wild", "beer", "harbours")
TEXTS = [SearchText(f"{a} {b}") for a in WORDS for b in WORDS]  # 100 searches


@pytest.fixture
def behind(
    elastic_blocks: dict[str, dict[str, Any]], elasticsearch: str, serve: Callable[..., Proxy], monkeypatch: pytest.MonkeyPatch
) -> Callable[..., tuple[Retriever, Proxy]]:
    """Opens a retriever whose server is behind a proxy."""

    def opened(meddle: Callable[[Request], Fault | None], batch: int = 64, **block: Any) -> tuple[Retriever, Proxy]:
        monkeypatch.setattr("retrievers.elastic.retriever.BATCH", batch)
        proxy = serve(meddle, elasticsearch)
        return open_retriever("under_test", typed(elastic_blocks["bm25"] | {"url_env": "PROXY_URL"} | block)), proxy

    return opened


def searches_of(request: Request) -> list[str]:
    return [json.loads(item.split(b"\n")[1])["query"]["match"]["text"]["query"] for item in request.items]


@pytest.fixture(scope="module")
def calm(elastic_blocks: dict[str, dict[str, Any]]) -> list[list[tuple[str, float]]]:
    return hits_of(open_retriever("calm", typed(elastic_blocks["bm25"])).search(TEXTS, 5))


def only_searches(fault: Callable[[Request], Fault | None]) -> Callable[[Request], Fault | None]:
    return lambda request: fault(request) if request.kind == "_msearch" else None


@pytest.mark.slow
def test_items_turned_away_are_sent_again_and_no_others(behind: Any, calm: Any) -> None:
    sent: list[str] = []
    refused: set[str] = set()
    lock = threading.Lock()

    def meddle(request: Request) -> Fault | None:
        with lock:
            texts = searches_of(request)
            sent.extend(texts)
            items = {i for i, text in enumerate(texts) if text.startswith("moon") and text not in refused}
            refused.update(texts[i] for i in items)
            return Fault(items=frozenset(items), status=429) if items else None

    retriever, proxy = behind(only_searches(meddle), batch=16)
    assert hits_of(retriever.search(TEXTS, 5)) == calm
    assert len(refused) == 10
    assert sorted(sent) == sorted([text.text for text in TEXTS] + list(refused))
    assert proxy.most_in_flight <= 8


@pytest.mark.parametrize("fault", [401, 429, 500, 502, 503, 504, "html", "lost", "reset", "cut"])
def test_requests_that_come_to_no_answer_are_sent_again(
    behind: Any, calm: Any, fault: int | str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """401: a node that comes up does not know a key that was good until it can read its list of keys."""
    monkeypatch.setenv("KEY", "a-key")
    kind, status = (fault, 200) if isinstance(fault, str) else ("answer", fault)  # html: a proxy's login page
    answer = Fault(kind=kind, status=status, body={"error": {"type": "circuit_breaking_exception"}})
    early = only_searches(lambda request: answer if request.number <= 2 else None)
    retriever, proxy = behind(early, batch=50, api_key_env="KEY")
    assert hits_of(retriever.search(TEXTS, 5)) == calm
    assert proxy.items["_msearch"] >= 125


def test_partial_failures_of_shards_are_no_short_lists(behind: Any, calm: Any) -> None:
    fault = Fault(failed_shards=frozenset({3}))
    retriever, _ = behind(only_searches(lambda request: fault if request.number == 1 else None))
    assert hits_of(retriever.search(TEXTS, 5)) == calm
    fault = Fault(failed_shards=frozenset({0}))
    retriever, _ = behind(only_searches(lambda request: fault), patience_minutes=0.002)
    with pytest.raises(RetrieverError, match=r"a search failed on 1 shards es_rejected_execution_exception") as refusal:
        retriever.search(TEXTS[:5], 5)
    assert "\n" not in str(refusal.value)


def test_after_an_outage_requests_are_as_large_as_before(behind: Any, calm: Any) -> None:
    sizes: list[int] = []

    def meddle(request: Request) -> Fault | None:
        sizes.append(len(request.items))
        return Fault(kind="reset") if len(sizes) <= 3 else None

    retriever, _ = behind(only_searches(meddle), batch=50, max_in_flight=1)
    assert hits_of(retriever.search(TEXTS, 5)) == calm
    assert sizes == [50, 50, 50, 50, 50]


@pytest.mark.slow
def test_requests_grow_again_while_one_call_goes_on(behind: Any) -> None:
    sizes: list[int] = []

    def meddle(request: Request) -> Fault | None:
        sizes.append(len(request.items))
        return Fault(kind="answer", status=429) if len(sizes) <= 6 else None

    retriever, _ = behind(only_searches(meddle), batch=64, max_in_flight=1)
    many = [SearchText(f"{text.text} {number}") for text in TEXTS for number in range(8)]
    assert len(hits_of(retriever.search(many, 5))) == 800
    assert sizes[:7] == [64, 32, 16, 8, 4, 2, 1]
    assert max(sizes[7:]) > 50


def test_a_search_that_is_too_much_for_the_server_is_one_error(behind: Any) -> None:
    def meddle(request: Request) -> Fault | None:
        items = frozenset(i for i, text in enumerate(searches_of(request)) if text == "wild beer")
        return Fault(items=items, error="circuit_breaking_exception") if items else None

    retriever, proxy = behind(only_searches(meddle), batch=4)
    with pytest.raises(SearchRefused, match=r"a search was answered 429 circuit_breaking_exception, 5 times"):
        retriever.search(TEXTS, 5)
    assert proxy.seen["_msearch"] < 60


def test_a_worker_waits_for_the_server_from_the_beginning(
    behind: Any, calm: Any, elastic_blocks: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(elastic_connection, "_OPENING_PATIENCE", 0.05)
    _, proxy = behind(lambda request: None)
    away: list[Request] = []
    proxy.meddle = lambda request: Fault(kind="reset")
    block = elastic_blocks["bm25"] | {"url_env": "PROXY_URL"}
    with pytest.raises(RetrieverError, match="no valid answer from"):
        open_retriever("planning", typed(block))
    proxy.meddle = lambda request: (away.append(request), Fault(kind="reset"))[1] if len(away) < 9 else None
    planned = open_retriever("calm", typed(elastic_blocks["bm25"])).identity()
    assert hits_of(open_retriever("worker", typed(block), expect_identity=planned).search(TEXTS, 5)) == calm


def test_a_search_that_is_refused_is_no_fault_of_the_server(elastic_blocks: Any) -> None:
    connection = Connection("here", typed(elastic_blocks["bm25"]), 2)
    index = next(iter(ask("GET", f"/{elastic_blocks['bm25']['index']}")))
    bad = {"query": {"match": {"text": "sea"}}, "sort": [{"nowhere": "asc"}]}
    lines = [search_lines("", {"query": {"match_all": {}}}, 2, True), b"{}\n" + json.dumps(bad).encode() + b"\n"]
    searches = MultiSearch(connection, index, 2, 10, True)
    assert len(searches.run(lines[:1])[0]) == 2
    with pytest.raises(SearchRefused, match=r"No mapping found for .nowhere. in order to sort on"):
        searches.run(lines)
    gone = MultiSearch(connection, "gone", 2, 10, True)
    with pytest.raises(RetrieverError, match=r"index gone at http.* is gone"):
        gone.run(lines[:1])


def test_equal_texts_are_sent_once_and_blank_ones_never(behind: Any) -> None:
    retriever, proxy = behind(lambda request: None)
    found = hits_of(retriever.search([SearchText("sea"), SearchText("  "), SearchText("sea"), SearchText("")], 3))
    assert found[0] == found[2] != []
    assert found[1] == found[3] == []
    assert proxy.items["_msearch"] == 1


def test_documents_are_asked_for_again_missed_and_gone(behind: Any, elastic_blocks: Any) -> None:
    away = Fault(kind="answer", status=503, body={"error": {"type": "search_phase_execution_exception"}})
    _, proxy = behind(lambda request: away if request.kind == "_search" and request.number <= 3 else None)
    store = open_documents("under_test", typed(elastic_blocks["bm25"] | {"url_env": "PROXY_URL"}))
    assert store.texts(["d04", "Ä1"])[1] == "Umlaute. Brot und Hefe, Mond und Meer."
    assert proxy.seen["_search"] >= 3
    with pytest.raises(RetrieverError, match="no document 'nobody'; build the index again"):
        store.texts(["d04", "nobody"])
    proxy.meddle = lambda request: Fault(kind="answer", status=404, body={"error": {"type": "index_not_found_exception"}})
    with pytest.raises(RetrieverError, match=r"is gone \(index_not_found_exception\)"):
        store.texts(["d04"])


@pytest.mark.parametrize(
    ("block", "source", "name"),
    [
        ({"field": "body"}, {}, "body"),
        ({"field": "body.english"}, {}, "body"),
        ({"field": "part.text"}, {"includes": ["part.*"]}, "part.text"),
        ({"field": "body"}, {"enabled": False}, None),
        ({"field": "body"}, {"excludes": ["bod*"]}, None),
        ({"field": "emb", "encoder": {"model": "m"}}, {}, None),
        ({"field": "nowhere"}, {}, None),
    ],
)
def test_where_the_texts_of_an_index_of_others_lie(block: Any, source: Any, name: str | None) -> None:
    text: dict[str, Any] = {"type": "text"}
    fields = {
        "body": text | {"fields": {"english": text}},
        "part": {"properties": {"text": text}},
        "emb": {"type": "dense_vector"},
    }
    index = ElasticIndex("theirs", "uuid", fields, {}, None, source)
    if name is not None:
        assert text_field("here", typed({"kind": "elastic", "index": "theirs"} | block), index) == name
        return
    with pytest.raises(RetrieverError, match=r"here: index theirs keeps no text in the field '\w+'"):
        text_field("here", typed({"kind": "elastic", "index": "theirs"} | block), index)


# the form of a query


def test_a_long_text_is_searched_by_its_most_telling_words(elastic_blocks: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    text = "the sea and the moon, waves, Fresnel and his lens"
    assert "match" in bm25_query(text, "text", QuerySettings())
    monkeypatch.setattr("retrievers.elastic.query.MAX_TERMS", 2)
    (hits,) = hits_of(open_retriever("under_test", typed(elastic_blocks["bm25"])).search([SearchText(text)], 5))
    assert [doc_id for doc_id, _ in hits] == ["d02"]  # the two words that stand in one document only
    assert bm25_query(text, "text", QuerySettings())["more_like_this"]["max_query_terms"] == 2


LONG = " ".join(f"{word}{number} {word}" for word in WORDS for number in range(150))  # 1,510 different words


def test_long_texts_searched_as_one_do_not_fail(elastic_blocks: Any) -> None:
    retriever = open_retriever("under_test", typed(elastic_blocks["bm25"] | {"together": True}))
    moon, long, empty = SearchText("moon"), SearchText(LONG), SearchText("")
    texts = [
        JoinedText(moon, (long, long)),
        JoinedText(None, (SearchText("東" * 3000), moon)),
        JoinedText(long, (SearchText("moon " * 3000), moon)),
        JoinedText(SearchText(" "), (empty, empty)),
    ]
    *found, nothing = hits_of(retriever.search(texts, 5))
    for hits in found:
        assert {"d06", "d07"} & {doc_id for doc_id, _ in hits}
    assert nothing == []


def test_several_fields_with_boosts(elastic_blocks: Any) -> None:
    def best(**query: Any) -> str:
        found = open_retriever("under_test", typed(elastic_blocks["bm25"] | {"query": query})).search(
            [SearchText("bread waves")], 1
        )
        return str(found.doc_ids[0])

    assert best(fields={"title": 1}) in ("d03", "\U0001f30a")
    assert best(fields={"text": 1, "title": 10}) == "\U0001f30a"
    assert bm25_query("x", "text", QuerySettings(fields={"text": 1, "title": 2.5})) == {
        "multi_match": {"query": "x", "fields": ["text^1", "title^2.5"], "type": "best_fields"}
    }


def test_the_same_text_goes_to_the_same_copy_and_texts_to_several() -> None:
    copies = {json.loads(search_lines(text.text, {}, 1, True).splitlines()[0])["preference"] for text in TEXTS}
    assert 10 < len(copies) <= 16
    assert all(re.fullmatch(r"dmqr-\d+", copy) for copy in copies)


def test_the_last_word_of_a_very_long_text_is_searched(elastic_blocks: Any) -> None:
    """more_like_this reads 5,000 tokens of each text that it is given."""
    words = " ".join(f"filler{number}" for number in range(12_000))
    retriever = open_retriever("long", typed(elastic_blocks["bm25"]))
    ((doc_id, _),) = hits_of(retriever.search([SearchText(f"{words} Fresnel")], 3))[0]
    assert doc_id == "d02"
    assert hits_of(retriever.search([SearchText("sea " * 12_000)], 3)) == hits_of(retriever.search([SearchText("sea")], 3))
