"""The state of an index whose analysis names synonym sets: a set put again under its name is another state."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from retrievers.elastic.connection import Connection
from retrievers.elastic.index import ElasticIndex
from retrievers.elastic.settings import ElasticSettings
from retrievers.elastic.state import index_state
from tests.support.retrievers.proxy import Fault, Proxy, Request

WRITTEN = {"aggregations": {"written": {"count": 3, "max": 2.0, "sum": 3.0}}}
FILTER = {"synonyms_set": "rewrites", "type": "synonym_graph", "updateable": True}


class Sets:
    """What the server holds: rules by the name of their set, and the status of a look at them."""

    def __init__(self) -> None:
        self.rules = {"rewrites": [{"id": "a", "synonyms": "sea => sea, tide"}, {"id": "b", "synonyms": "lamp, light"}]}
        self.status, self.search_status, self.asked, self.most = 200, 200, 0, 10_000


@pytest.fixture
def sets(monkeypatch: pytest.MonkeyPatch) -> Iterator[Sets]:
    held = Sets()

    def answer(request: Request) -> Fault:
        if request.method == "POST":
            return Fault("answer", status=held.search_status, body=WRITTEN)
        held.asked += 1
        rules = held.rules.get(request.kind)
        if held.status != 200 or rules is None:
            return Fault("answer", status=max(held.status, 404 if rules is None else 0), body={"error": {"type": "x"}})
        return Fault("answer", status=200, body={"count": len(rules), "synonyms_set": rules[: held.most]})

    with Proxy("http://127.0.0.1:9", answer) as proxy:
        monkeypatch.setenv("SETS_URL", proxy.url)
        yield held


def state(*filters: dict[str, Any]) -> dict[str, Any] | None:
    connection = Connection("r", ElasticSettings(kind="elastic", index="docs", url_env="SETS_URL"), 1)
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


@pytest.mark.parametrize("fault", ["forbidden", "missing", "refused", "cut"])
def test_what_cannot_be_read_is_never_taken_for_unchanged(sets: Sets, fault: str) -> None:
    if fault == "forbidden":
        sets.status = 403
    elif fault == "missing":
        sets.rules.clear()
    elif fault == "refused":
        sets.search_status = 400
    else:
        sets.most = 1
    first, second = state(FILTER), state(FILTER)
    assert first is not None
    assert second is not None
    assert first.keys() == second.keys() == {"unknown"}
    assert first != second
