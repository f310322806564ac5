"""Indexes are told apart by server and filter, too, not by their names alone."""

from __future__ import annotations

from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

import pytest

from cluster.errors import ConfigError
from jobs.chain.arms.opened import OpenedBy
from jobs.config.retrieve import RetrieveSettings
from jobs.job import indexes
from jobs.job import indexes as changing
from jobs.job.indexes import check_documents, read_states
from jobs.job.searched import searched_indexes
from jobs.log.judgements import Judgements
from jobs.measure import unknown
from tests.support.retrievers.blocks import typed

PUBLIC = {"term": {"public": True}}
HERE = typed({"kind": "elastic", "index": "docs"})
THERE = typed({"kind": "elastic", "index": "docs", "url_env": "OTHER_URL"})
INDEX = {"kind": "elastic", "index": "docs-1", "corpus": "sha256:one"}
BOTH = {"here": HERE, "there": THERE}


def test_states_of_two_servers_are_two(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(changing, "retriever_facts", lambda name, settings, identity: {"state": {"documents": len(name)}})
    found = read_states(searched_indexes(BOTH, {"here": INDEX, "there": INDEX}))
    assert found == {"docs-1": {"documents": 4}, "docs-1 of OTHER_URL": {"documents": 5}}


@pytest.mark.parametrize("other", [(THERE, INDEX), (HERE, INDEX | {"filter": PUBLIC})])
def test_judged_documents_are_looked_up_in_each(other: tuple[Any, Mapping[str, Any]], monkeypatch: pytest.MonkeyPatch) -> None:
    class Store:
        entry = INDEX

        def __init__(self, name: str) -> None:
            self.name = name

        def known(self, doc_ids: list[str]) -> list[bool]:
            return [doc_id.startswith(self.name) for doc_id in doc_ids]

    monkeypatch.setattr(unknown, "open_documents", lambda name, settings, cached_only: Store(name))
    settings, index = other
    retrieve = RetrieveSettings(retrievers={"here": HERE, "there": settings})
    run: Any = SimpleNamespace(config=SimpleNamespace(retrieve=retrieve), record={"indexes": {"here": INDEX, "there": index}})
    assert unknown.unknown_documents(run, Judgements("", {"q": {"here-1": 1, "there-1": 1}}, "query")) is None
    found = unknown.unknown_documents(run, Judgements("", {"q": {"here-1": 1, "nowhere": 1}}, "query"))
    assert found is not None
    assert (found.unknown, "'nowhere'" in found.note) == (1, True)


def test_texts_that_are_read_with_a_filter_are_an_arms_own() -> None:
    whole, public = (OpenedBy("r", HERE, INDEX | more, 10) for more in ({}, {"filter": PUBLIC}))
    assert whole.texts != public.texts  # an arm without the filter finds documents that it leaves out
    assert whole.texts == OpenedBy("other", THERE, INDEX | {"index": "copy"}, 5).texts


def test_texts_behind_a_filter_that_another_retriever_passes_by_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """The reranker would meet a document that has no text, in the middle of the night."""
    monkeypatch.setattr(indexes, "open_documents", lambda *_: None)
    public = INDEX | {"filter": PUBLIC}
    config: Any = SimpleNamespace(retrieve=RetrieveSettings(retrievers=BOTH))
    check_documents(config, {"here": public, "there": public})
    check_documents(config, {"here": INDEX, "there": public})  # the first one has all
    with pytest.raises(ConfigError, match=r"retrievers\.here: texts are taken from it, .* put there first") as refused:
        check_documents(config, {"here": public, "there": INDEX})
    assert refused.value.code == "index-other"
