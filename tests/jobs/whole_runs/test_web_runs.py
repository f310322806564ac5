"""Whole jobs whose searches of the web fail, are cut or answered in part; what they find is frozen (configs/web.yaml)."""

from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from cluster.errors import Stopped
from tests.support.jobs.in_process_runs import prepared_job, record, run_in_process
from tests.support.jobs.nights import log
from tests.support.jobs.whole_runs import rows
from tests.support.retrievers.web_server import WebServer

pytestmark = pytest.mark.usefixtures("short_pauses")
QUERIES = {
    "why does bread rise": "bread yeast gas",
    "lamp of a lighthouse": "lighthouse light",
    "moon and tides": "spring tide sea",
    "yeast of beer": "beer yeast",
    "faint galaxies": "telescopes galaxies",
    "zzz": "qqq",
}
TEXTS = [*QUERIES, *QUERIES.values()]


@pytest.fixture(params=["tavily"])
def server(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[WebServer]:
    monkeypatch.setenv("WEB_KEY", "a-secret")
    with WebServer(request.param, key=None if request.param == "searxng" else "a-secret") as fake:
        yield fake


@pytest.fixture
def path(small_job: Callable[..., str], bm25: dict[str, Any], server: WebServer) -> str:
    searched = {"bm25": bm25, "web": server.block(patience_minutes=0.02)}
    path = small_job(rewrite={"calls": "separate"}, retrieve={"retrievers": searched})
    log(list(QUERIES))
    record({query: {"general": text} for query, text in QUERIES.items()})
    return path


def done(path: str, *settings: str) -> Path:
    return run_in_process(prepared_job(path, *settings))


@pytest.mark.slow
@pytest.mark.parametrize(
    "faults", [{"500": "server_error", "html": "bad_answer", "400": "refused"}, {"503": "unavailable"}, {"429": "rate_limited"}]
)
def test_a_search_that_fails_is_an_error_row_and_the_next_run_asks_it_again(
    path: str, server: WebServer, faults: dict[str, str]
) -> None:
    queries = ["yeast of beer", "moon and tides", "lamp of a lighthouse"][: len(faults)]
    for query, fault in zip(queries, faults, strict=True):
        server.fail(QUERIES[query], fault)
    folder = done(path, "label=one", "cluster.shard_size=6")
    errors = [row for row in rows(folder, "errors") if row["reason"] != "no_hits"]
    ids = {row["query"]: row["query_id"] for row in rows(folder, "queries")}
    assert {(row["stage"], row["component"]) for row in errors} == {("retrieve", "web")}
    assert sorted((row["query_id"], row["reason"], row["raw"]) for row in errors) == sorted(
        (ids[query], reason, QUERIES[query]) for query, reason in zip(queries, faults.values(), strict=True)
    )
    for query in queries:
        lists = [row for row in rows(folder, "runs") if row["query_id"] == ids[query] and row["strategy"] == "general"]
        assert {row["retriever"] for row in lists} == {"bm25"}
        assert any(row["query_id"] == ids[query] for row in rows(folder, "results"))
        server.fail(QUERIES[query], "500", 0)
    spent = [row for row in rows(folder, "costs") if row["component"] == "web"]
    assert {(row["model"], row["provider"], row["stage"]) for row in spent} == {("tavily", "127.0.0.1", "retrieve")}
    server.texts.clear()
    again = done(path, "label=two", "cluster.shard_size=6")
    assert sorted(server.texts) == sorted(QUERIES[query] for query in queries)
    assert len(rows(again, "errors")) == len(rows(folder, "errors")) - len(errors)


def test_the_error_rate_counts_failed_searches_and_a_wrong_key_ends_the_run(path: str, server: WebServer) -> None:
    for text in TEXTS:
        server.fail(text, "400")
    with pytest.raises(Stopped, match="queries have errors"):
        done(path, "limits.error_rate=0.1", "label=one")
    server.key = "another"
    with pytest.raises(Stopped, match=r"web: tavily at .* refuses the key in WEB_KEY"):
        done(path, "label=two")


def test_texts_that_are_too_long_are_cut_and_noted(path: str, server: WebServer) -> None:
    words = " ".join(f"word{number}" for number in range(80))
    log([f"{query} {words}" for query in QUERIES])
    folder = done(path, "limits.error_rate=0", "rewrite.strategies=[]")
    notes = [row for row in rows(folder, "errors") if row["reason"] == "text_cut"]
    assert len(notes) == len(QUERIES) == len(server.texts)
    assert {row["component"] for row in notes} == {"web"}
    assert 390 <= max(map(len, server.texts)) <= 400
    assert {row["raw"] for row in notes} == set(server.texts)
    assert {row["searched"] for row in rows(folder, "web")} <= set(server.texts)


@pytest.mark.parametrize("server", ["searxng"], indirect=True)
def test_partial_lists_are_noted_and_asked_again_by_the_next_run(path: str, server: WebServer) -> None:
    server.silent = [["google", "Suspended: CAPTCHA"], ["bing", "timeout"]]
    folder = done(path, "limits.error_rate=1")
    notes = [row for row in rows(folder, "errors") if row["reason"] == "partial_list"]
    assert {row["message"] for row in notes} == {
        "the list is partial, as these did not answer: google Suspended: CAPTCHA, bing timeout"
    }
    assert {row["raw"] for row in notes} == set(TEXTS) - {"zzz", "qqq"}  # those find nothing, so that they have failed
    first = len(server.texts)
    server.silent = []
    again = done(path, "limits.error_rate=1", "label=again")
    assert Counter(server.texts[first:]) == Counter(TEXTS)
    assert not [row for row in rows(again, "errors") if row["reason"] == "partial_list"]
    done(path, "limits.error_rate=1", "label=stored")
    assert len(server.texts) == first + len(TEXTS)
