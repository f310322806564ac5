"""Searches of the web by a worker that is asked for a shard twice."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from cluster.storage import open_storage
from jobs.chain.journal import OF_THE_WEB, JournalKeeper, ShardJournal
from jobs.chain.store.files import Space, StoreFiles
from jobs.chain.web.searches import WebSearches
from retrievers.retriever import SearchText
from retrievers.web.hits import WebHit
from retrievers.web.retriever import FailedSearch, PartialAnswer, WebAnswer
from tests.support.jobs.in_process_runs import finished, prepared_job, rows
from tests.support.retrievers.web_server import WebServer
from tests.support.rewriters.fake_server import FakeServer


class Web:
    """A search engine of which a part does not answer, and no part for one text."""

    name, space, host = "web", "asked of it", "none"

    def sent(self, search: SearchText) -> str:
        return search.text

    def find(self, texts: list[str], sending: Callable[[str], object]) -> Iterator[tuple[str, WebAnswer]]:
        for text in texts:
            sending(text)
            hits = PartialAnswer((WebHit("web:1", "url", "title", "text", 1.0),))
            hits.silent = "google"
            yield text, hits if text == "tides" else FailedSearch("server_error", "it fell over")


def test_partial_lists_and_failed_searches_are_asked_again_and_counted_as_lost(tmp_path: Path) -> None:
    web: Any = Web()
    files = StoreFiles(str(tmp_path / "store"), {Space("web", web.space): []})
    wanted = {SearchText("tides"): ["a" * 32], SearchText("moon"): ["b" * 32]}
    storage = open_storage(str(tmp_path / "run"))
    for lost in (0, 2):
        keeper = JournalKeeper(storage, kind=OF_THE_WEB)
        journal = ShardJournal(storage, 0, OF_THE_WEB, keeper)
        searches = WebSearches(web, web, files, journal, "retrieve")
        searches(wanted)
        searches.save()
        journal.merge()
        keeper.close()
        silent = [one.silent for one in map(searches.answer, wanted) if isinstance(one, PartialAnswer)]
        assert (silent, searches.sends.total(), searches.lost) == (["google"], 2, lost)
    assert not list(tmp_path.glob("store/**/*.parquet"))


def test_a_failed_search_of_an_original_that_stands_in_is_noted(small_job: Callable[..., str]) -> None:
    with WebServer("searxng", pages={}) as web:
        web.fail("moon and tides", "400")
        run = finished(prepared_job(small_job(), f"retrieve.retrievers.web={json.dumps(web.block(together=True))}"))
    assert "refused" in {row["reason"] for row in rows(run, "errors")}


def test_a_failed_search_is_charged_once_where_a_round_asks_it_again(
    small_job: Callable[..., str], values: dict[str, Any], bm25: dict[str, Any]
) -> None:
    rewrite = "about moon and tides"
    with FakeServer(["m"], text=lambda _: json.dumps({"query": rewrite})) as llm, WebServer("searxng", pages={}) as web:
        web.fail(rewrite, "500")
        engine = {"kind": "openai", "model": "m", "base_url": llm.address}
        values["iterate"] = {"by": "bm25", "below": 1e9, "documents": 2, "engine": engine}
        retrievers = {"bm25": bm25, "web": web.block(patience_minutes=0.001)}
        run = finished(prepared_job(small_job(), "store=null", f"retrieve.retrievers={json.dumps(retrievers)}"))
    spent = [one for one in rows(run, "costs") if one["component"] == "web"]
    assert sum(one["requests"] for one in spent) == len(web.texts) > len(set(web.texts))
    assert not [one for one in spent if one["error"] == "lost"]
