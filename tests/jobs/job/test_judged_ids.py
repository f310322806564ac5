"""Judged pages of the web in collections; judged documents of indexes: tests/jobs/whole_runs/test_collections.py."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from cluster.errors import ConfigError
from jobs.config.config import Config
from jobs.config.load import load_config
from jobs.job.indexes import index_identities
from jobs.job.judged_ids import qualified_judgements
from jobs.log.judgements import Judgements
from retrievers.web.hits import document_id

PAGE = str(document_id("https://example.org/tides"))
WEB = {"kind": "web", "provider": "searxng", "base_url": "http://127.0.0.1:1"}
Make = Callable[..., Config]


@pytest.fixture
def config(values: dict[str, Any], config_file: Callable[[Any], str], bm25: dict[str, Any]) -> Make:
    """Makes the config of a collection that is an index, and of others that search the web."""

    def made(*of_the_web: str, mixed: bool = False, **more: Any) -> Config:
        searched = {"law": ["law"], **{name: [f"at_{name}"] for name in of_the_web}}
        searched = {"law": [one for of in searched.values() for one in of]} if mixed else searched
        values["retrieve"] = {
            "retrievers": {"law": bm25} | {f"at_{name}": WEB for name in of_the_web},
            "collections": {name: {"retrievers": of} for name, of in searched.items()},
        }
        return load_config(config_file(values | {"rerank": {"kind": "none"}} | more))

    return made


def qualified(config: Config, *doc_ids: str) -> list[str]:
    judgements = Judgements("q.tsv", {"tides": dict.fromkeys(doc_ids, 1)}, "query")
    return list(qualified_judgements(judgements, config, index_identities(config)).grades["tides"])


def test_a_page_is_of_the_collection_that_searches_the_web(config: Make) -> None:
    assert qualified(config("net"), PAGE, "d01", f"net:{PAGE}x") == [f"net:{PAGE}", "law:d01", f"net:{PAGE}x"]


def test_a_page_is_of_a_collection_with_an_index_or_of_that_name_too(config: Make) -> None:
    assert qualified(config("web"), PAGE, f"web:{PAGE}") == [f"web:{PAGE}"]
    assert qualified(config("net", mixed=True), PAGE, "d01") == [f"law:{PAGE}", "law:d01"]


def test_a_page_is_found_by_correction_where_that_asks_the_web(config: Make) -> None:
    assert qualified(config("net", answer={"documents": 6}, grade={}, web={"search": WEB}), PAGE, "d01") == [PAGE, "law:d01"]


def test_without_a_collection_of_the_web_a_page_stays_as_it_is(config: Make) -> None:
    assert qualified(config(), PAGE) == [PAGE]


def test_a_page_that_two_collections_may_find_is_refused(config: Make) -> None:
    with pytest.raises(ConfigError, match=f"'{PAGE}' is a document of net and another of news; write net:{PAGE} or news:"):
        qualified(config("net", "news"), PAGE)
