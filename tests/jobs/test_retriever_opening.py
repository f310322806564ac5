"""From the config's words about a retriever to what workers open it with."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from jobs.config import Config
from jobs.load import load_config
from jobs.part import ConfigError
from jobs.retriever_config import Elastic, Local
from jobs.retriever_opening import opened

Values = dict[str, Any]


def test_every_worker_has_its_share_and_the_concrete_index() -> None:
    retriever = Elastic(kind="elastic", index="docs", max_in_flight=9)
    settings = opened(retriever, {"index": "docs-0a1b"}, 4)
    assert (settings["index"], settings["in_flight"]) == ("docs-0a1b", 2)
    assert opened(retriever, {}, 1)["in_flight"] == 9
    with pytest.raises(ConfigError, match="10 workers cannot share 9 requests in flight; take fewer workers, or raise"):
        opened(retriever, {}, 10)


def test_a_local_index_is_opened_as_the_config_has_it() -> None:
    retriever = Local(kind="local", index="idx")
    assert opened(retriever, {"index": "other"}, 4) == retriever.model_dump()


def test_defaults_of_elastic(values: Values) -> None:
    values["retrieve"]["retrievers"] = {
        "bm25": {"kind": "elastic", "index": "docs"},
        "dense": {"kind": "elastic", "index": "docs", "encoder": {"model": "m"}, "vector": {"type": "flat"}},
    }
    retrievers = Config.model_validate(values).retrieve.retrievers
    assert isinstance(retrievers["bm25"], Elastic)
    assert (retrievers["bm25"].analyzer, retrievers["bm25"].url_env) == ("english", "ELASTICSEARCH_URL")
    assert retrievers["dense"].analyzer is None


@pytest.mark.parametrize(
    ("block", "words"),
    [
        (
            {"kind": "elastik", "index": "d"},
            "retrieve.retrievers.x.kind: no kind 'elastik'; did you mean 'elastic'? (known: local",
        ),
        ({"index": "d"}, "retrieve.retrievers.x.kind: is missing (known: local, elastic)"),
        ({"kind": "elastic"}, "retrieve.retrievers.x.index: is missing; add it"),
        (
            {"kind": "elastic", "index": "d", "url": "http://h"},
            "retrieve.retrievers.x.url: unknown key; did you mean 'url_env'?",
        ),
        (
            {"kind": "elastic", "index": "d", "api_key_env": "K", "user_env": "U", "password_env": "P"},
            "retrieve.retrievers.x: has api",
        ),
        (
            {"kind": "elastic", "index": "d", "user_env": "U"},
            "retrieve.retrievers.x: user_env and password_env belong together",
        ),
        ({"kind": "elastic", "index": "d", "oversample": 3}, "retrieve.retrievers.x: oversample is of dense search"),
        (
            {"kind": "elastic", "index": "d", "analyzer": "english", "encoder": {"model": "m"}},
            "retrieve.retrievers.x: has analyzer",
        ),
        (
            {"kind": "elastic", "index": "d", "encoder": {"modl": "m"}},
            "retrieve.retrievers.x.encoder.modl: unknown key; did you",
        ),
        (
            {"kind": "elastic", "index": "d", "query": {"max_terms": 0}},
            "retrieve.retrievers.x.query.max_terms: input should be great",
        ),
    ],
)
def test_refused_by_name(config_file: Callable[[Any], str], values: Values, block: Values, words: str) -> None:
    values["retrieve"]["retrievers"]["x"] = block
    with pytest.raises(ConfigError) as refusal:
        load_config(config_file(values))
    assert words in str(refusal.value)


def test_more_hits_than_elasticsearch_gives_are_refused(config_file: Callable[[Any], str], values: Values) -> None:
    values["retrieve"] = {"retrievers": {"x": {"kind": "elastic", "index": "d"}}, "depth": 10_001}
    with pytest.raises(ConfigError, match="retrieve: depth 10001 is more than the 10,000 hits that Elasticsearch gives"):
        load_config(config_file(values))
