"""Search engines of the web at the wire: what is sent to each provider, how answers are read, what is retried and given up."""

import json
import string
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cluster.errors import RetrieverError
from retrievers.retriever import JoinedText, SearchText, open_documents, retriever_identity
from retrievers.served import server as served
from retrievers.served.server import TextRefused
from retrievers.web.hits import WebPage, cut, document_id, hits_of, normalised_url
from retrievers.web.retriever import FailedSearch, Web, WebAnswer
from retrievers.web.settings import WebSettings
from tests.support.cluster.clock import Clock
from tests.support.retrievers.web_server import PAGES, WebServer
from tests.support.wire import Said

PROVIDERS = ["searxng", "tavily", "brave"]
pytestmark = pytest.mark.usefixtures("short_pauses")


@pytest.fixture(autouse=True)
def key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WEB_KEY", "a-secret")


@pytest.fixture(params=PROVIDERS)
def server(request: pytest.FixtureRequest) -> Iterator[WebServer]:
    with WebServer(request.param, key=None if request.param == "searxng" else "a-secret") as fake:
        yield fake


def settings(**block: Any) -> WebSettings:
    return WebSettings.model_validate({"kind": "web"} | block)


def web(server: WebServer, **more: Any) -> Web:
    return Web("retrieve.retrievers.web", settings(**server.block(**more)))


def answers(opened: Web, *texts: str) -> dict[str, WebAnswer]:
    return dict(opened.find(list(texts)))


def failure(opened: Web, text: str = "bread") -> FailedSearch:
    found = answers(opened, text)[text]
    assert isinstance(found, FailedSearch)
    return found


def test_every_provider_is_asked_in_its_own_words_and_found_pages_are_hits(server: WebServer) -> None:
    found = answers(web(server, results=3), "yeast of bread")["yeast of bread"]
    assert not isinstance(found, FailedSearch)
    wanted = server.found("yeast of bread", 3)
    assert [(hit.url, hit.title, hit.text) for hit in found] == wanted
    assert [hit.doc_id for hit in found] == [document_id(url) for url, _, _ in wanted]
    ((path, body, headers),) = server.requests
    if server.form == "searxng":
        assert (path, body) == ("GET /search", {"q": "yeast of bread", "format": "json"})
        assert [hit.score for hit in found] == [4 / rank for rank in range(1, len(found) + 1)]
    elif server.form == "tavily":
        assert (path, body) == ("POST /search", {"query": "yeast of bread", "max_results": 3})
        assert headers["Authorization"] == "Bearer a-secret"
        assert [hit.score for hit in found] == [round(0.99 - rank / 100, 4) for rank in range(1, len(found) + 1)]
    else:
        assert (path, body) == ("GET /res/v1/web/search", {"q": "yeast of bread", "count": "3", "text_decorations": "false"})
        assert headers["X-Subscription-Token"] == "a-secret"
        assert "Authorization" not in headers
        assert [hit.score for hit in found] == [1 / rank for rank in range(1, len(found) + 1)]


@pytest.mark.parametrize(
    ("form", "more", "sent"),
    [
        ("searxng", {"args": {"language": "de-AT", "time_range": "week"}}, {"language": "de-AT", "time_range": "week"}),
        ("searxng", {"args": {"engines": ["a", "b"], "safesearch": 1}}, {"engines": "a,b", "safesearch": "1"}),
        ("tavily", {"args": {"search_depth": "advanced"}}, {"search_depth": "advanced"}),
        ("brave", {"args": {"extra_snippets": True}}, {"extra_snippets": "true"}),
    ],
)  # fmt: skip
def test_settings_are_sent_by_the_providers_names(form: str, more: dict[str, Any], sent: dict[str, Any]) -> None:
    with WebServer(form) as server:
        answers(web(server, **more), "tide")
        body = server.requests[0][1]
        assert sent.items() <= body.items()
        assert len(body) == len(sent) + {"searxng": 2, "tavily": 2, "brave": 3}[form]


def test_what_tavily_and_brave_have_of_a_page_is_its_text(monkeypatch: pytest.MonkeyPatch) -> None:
    with WebServer("brave") as server:
        page = {"url": "https://a.example", "title": "A &amp; B", "description": "<strong>Bread</strong> isn&#x27;t",
                "extra_snippets": ["more  of", "it"]}  # fmt: skip
        server.always = Said(200, json.dumps({"type": "search", "web": {"results": [page]}}).encode())
        (hit,) = answers(web(server), "x")["x"]
        assert (hit.title, hit.text) == ("A & B", "Bread isn't more of it")
    with WebServer("tavily") as server:
        page = {"url": "https://a.example", "title": "A", "content": "short", "raw_content": "the whole\npage", "score": 0.5}
        server.always = Said(200, json.dumps({"results": [page]}).encode())
        (hit,) = answers(web(server), "x")["x"]
        assert (hit.text, hit.score) == ("the whole page", 0.5)


def test_nothing_found_by_engines_that_did_not_answer_is_no_answer() -> None:
    with WebServer("searxng") as server:
        silent = {"query": "x", "results": [], "unresponsive_engines": [["google", "CAPTCHA"]]}
        server.always = Said(200, json.dumps(silent).encode())
        found = failure(web(server))
        assert found.reason == "bad_answer"
        assert "none of its engines answered" in found.message
        assert len(server.texts) == 2


@pytest.mark.parametrize(
    ("fault", "reason", "sends"),
    [("500", "server_error", 2), ("html", "bad_answer", 2), ("half", "bad_answer", 2), ("huge", "bad_answer", 2),
     ("other", "bad_answer", 2), ("400", "refused", 1), ("hang", "timeout", 2)],
)  # fmt: skip
def test_a_search_that_fails_is_given_up_and_the_others_are_answered(
    server: WebServer, fault: str, reason: str, sends: int
) -> None:
    server.fail("bread", fault)
    opened = web(server, timeout_seconds=0.5 if fault == "hang" else 30)
    found = answers(opened, "bread", "tide", "beer")
    assert isinstance(found["bread"], FailedSearch)
    assert found["bread"].reason == reason
    assert server.texts.count("bread") == sends
    assert all(not isinstance(found[text], FailedSearch) for text in ("tide", "beer"))
    assert "a-secret" not in found["bread"].message


def test_a_search_is_sent_again_when_the_server_was_busy_or_fell_over(server: WebServer) -> None:
    server.fail("bread", "429", 2)
    server.fail("tide", "500", 1)
    server.fail("beer", "503", 1)
    sent: list[str] = []
    found = dict(web(server).find(["bread", "tide", "beer"], sent.append))
    assert all(not isinstance(one, FailedSearch) for one in found.values())
    assert sorted(sent) == sorted(server.texts) == ["beer"] * 2 + ["bread"] * 3 + ["tide"] * 2


def test_the_wait_that_is_asked_for_is_kept(server: WebServer) -> None:
    server.fail("bread", Said(429, b"", {"Retry-After": "0.6"}), 1)
    answers(web(server), "bread")
    assert server.times[1] - server.times[0] >= 0.6


def test_a_limit_of_brave_that_is_used_up_says_when_it_begins_anew() -> None:
    with WebServer("brave") as server:
        used_up = {"X-RateLimit-Limit": "1, 2000", "X-RateLimit-Remaining": "0, 1500", "X-RateLimit-Reset": "0.5, 900000"}
        server.fail("bread", Said(429, b"", used_up), 1)
        answers(web(server), "bread")
        assert server.times[1] - server.times[0] >= 0.5
        of_the_month = used_up | {"X-RateLimit-Remaining": "0, 0"}
        server.fail("tide", Said(429, b"", of_the_month))
        found = failure(web(server), "tide")
        assert found.reason == "rate_limited"
        assert server.texts.count("tide") == 1


def test_a_server_that_is_away_for_the_patience_fails_searches_and_ends_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock()
    monkeypatch.setattr(served, "time", clock)
    monkeypatch.setattr(served, "pause", clock.pause)
    with WebServer("searxng") as server:
        block = server.block(patience_minutes=0.01)
    opened = Web("retrieve.retrievers.web", settings(**block))
    began = clock.now
    found = answers(opened, "bread", "tide")
    assert {one.reason for one in found.values() if isinstance(one, FailedSearch)} == {"unavailable"}
    assert len(found) == 2
    assert clock.now - began >= 0.6
    began = clock.now
    failure(opened, "beer")
    assert clock.now == began  # it does not wait once more


def test_a_key_that_is_refused_ends_the_search_of_all(monkeypatch: pytest.MonkeyPatch) -> None:
    with WebServer("tavily", key="another") as server:
        with pytest.raises(
            RetrieverError, match=r"web: tavily at .* refuses the key in WEB_KEY \(HTTP 401: invalid key\)"
        ) as refused:
            answers(web(server, max_in_flight=1), "bread", "tide")
        assert (refused.value.code, len(server.texts)) == ("server-access", 1)
        monkeypatch.delenv("WEB_KEY")
        with pytest.raises(RetrieverError, match="WEB_KEY"):
            retriever_identity("web", settings(**server.block()))


def test_what_is_answered_before_all_end_is_not_lost() -> None:
    with WebServer("tavily", key="a-secret") as server:
        server.fail("tide", Said(401, b'{"detail": "no more"}'))
        coming = web(server, max_in_flight=1).find(["bread", "tide", "beer"])
        assert next(coming)[0] == "bread"
        with pytest.raises(RetrieverError, match="no more"):
            next(coming)


def test_a_searxng_without_json_and_a_wrong_address_are_told_apart() -> None:
    with WebServer("searxng") as server:
        server.always = Said(403, b"Forbidden")
        with pytest.raises(RetrieverError, match=r"add json to search\.formats in its settings\.yml"):
            answers(web(server), "bread")
        server.always = Said(404, b"")
        with pytest.raises(RetrieverError, match=r"correct base_url, which ends before the path of the search"):
            answers(web(server), "bread")


def test_the_requests_in_flight_are_kept() -> None:
    with WebServer("searxng", seconds=0.05) as server:
        assert len(answers(web(server, max_in_flight=3), *(f"bread {number}" for number in range(12)))) == 12
        assert server.most_in_flight <= 3
        assert web(server).settings.for_worker({server.address: 4}).max_in_flight == 1


def test_the_identity_has_what_decides_the_hits_alone() -> None:
    plain = settings(provider="brave", api_key_env="A")
    assert plain.identity == {"kind": "web", "version": 1, "provider": "brave", "results": 10}
    assert plain.base_url == "https://api.search.brave.com"
    same = {"max_in_flight": 1, "timeout_seconds": 1, "base_url": "http://proxy"}
    assert settings(provider="brave", api_key_env="B", **same).identity == plain.identity
    others = ({"results": 5}, {"args": {"country": "DE"}}, {"args": {"a": 1}})
    assert len({json.dumps(settings(provider="brave", api_key_env="A", **other).identity) for other in others}) == 3


def test_texts_as_one_begin_with_the_original_and_long_ones_are_cut() -> None:
    with WebServer("brave") as server:
        opened = web(server)
        joined = JoinedText(SearchText("the  moon"), (SearchText("tide"), SearchText("sea", "passage")))
        assert opened.sent(joined) == "the moon tide sea"
        assert not opened.is_cut(joined)
        long = SearchText("word " * 60)
        assert opened.sent(long).split() == ["word"] * 50
        assert opened.is_cut(long)
        assert opened.sent(SearchText("x" * 500)) == "x" * 400
        assert opened.sent(SearchText(" \n")) == ""
        assert answers(opened, "") == {"": ()}
        assert server.texts == []


@given(st.text(alphabet=string.ascii_letters + " é", max_size=80), st.integers(1, 40), st.none() | st.integers(1, 8))
def test_a_cut_text_begins_the_whole_and_is_no_longer_than_it_may_be(text: str, characters: int, words: int | None) -> None:
    whole, found = " ".join(text.split()), cut(text, characters, words)
    assert whole.startswith(found)
    assert len(found) <= characters
    assert len(found.split()) <= (words or 99)
    if len(whole) <= characters and (words is None or len(whole.split()) <= words):
        assert found == whole
    elif found:
        assert found == whole[:characters] or whole[len(found)] == " "


@pytest.mark.parametrize(
    "others",
    [
        ["https://A.example/x/", "http://a.example/x", "https://a.example:443/x#part", "https://a.example/x?utm_source=y"],
        ["https://a.example/caf%C3%A9?b=1&a=2", "https://a.example/café?b=1&a=2&gclid=9"],
        ["https://a.example", "https://a.example/"],
    ],
)
def test_one_page_has_one_id_however_its_address_is_written(others: list[str]) -> None:
    assert len({document_id(one) for one in others}) == 1
    assert str(document_id(others[0])).startswith("web:")


def test_different_pages_have_different_ids_and_what_is_no_page_has_none() -> None:
    pages = [*PAGES, "https://a.example/x", "https://a.example/X", "https://a.example:8443/x", "https://a.example/x?q=1"]
    assert len({document_id(one) for one in pages}) == len(pages)
    assert [normalised_url(one) for one in ("", "ftp://a.example", "mailto:x", "http://", "http://[x", "javascript:1")] == [
        None
    ] * 6


def test_hits_are_in_the_order_of_all_lists_and_one_page_counts_once() -> None:
    pages = [
        WebPage("https://a.example", "A", "x", 1.0),
        WebPage("no address", "", "", 9.0),
        WebPage("http://a.example/", "A2", "y", 5.0),
        WebPage("https://b.example", "", "z", 2.0),
    ]
    assert [(hit.url, hit.score) for hit in hits_of(pages, 10)] == [("https://b.example", 2.0), ("https://a.example", 1.0)]
    unscored = [page._replace(score=None) for page in pages]
    assert [(hit.url, hit.score) for hit in hits_of(unscored, 10)] == [("https://a.example", 1.0), ("https://b.example", 0.5)]
    assert len(hits_of(pages, 1)) == 1


def test_a_failed_search_of_the_family_raises_and_texts_are_not_at_the_provider(server: WebServer) -> None:
    server.fail("bread", "400")
    with pytest.raises(TextRefused, match="not allowed"):
        web(server).search([SearchText("tide"), SearchText("bread")], 5)
    documents = open_documents("web", settings(**server.block()))
    assert documents.texts([]) == []
    assert documents.known(["web:1"]) == [False]
    with pytest.raises(RetrieverError, match="read the run's table web/"):
        documents.texts(["web:1"])
