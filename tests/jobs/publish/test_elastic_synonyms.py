"""Synonyms beside the rows in Elasticsearch: a set of the version's name, within the limit of the cluster."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import pytest

from cluster.errors import ConfigError, DmqrError
from jobs.publish.export import DoneExport
from jobs.publish.formats.synonyms import FORMAT
from jobs.runs.folder import open_run
from jobs.verbs.publishing import ExportArguments
from jobs.verbs.publishing import exported as export
from rewriters.normalise import query_id
from tests.support.retrievers.elastic_server import ask
from tests.support.retrievers.proxy import Fault, Proxy

ASKED = ["spring tide", "spring tide", "moon and tides", "lamp", ("lamp", "who kept the lighthouse?")]
LINES = {
    "spring tide": "spring tide => spring tide, bread\\, yeast, rewrite of spring tide",
    "lamp": "lamp => lamp, bread\\, yeast, rewrite of lamp",
    "moon and tides": "moon and tides => moon and tides, bread\\, yeast, rewrite of moon and tides",
}
SET = [{"id": query_id(query), "synonyms": line} for query, line in LINES.items()]
Night = Callable[..., Path]


class SynonymSets(Proxy):
    """An Elasticsearch with synonym sets before one without; `limit` is the cluster's setting, None: it has none."""

    def __init__(self, upstream: str, limit: int | None = None, lost: int = 0) -> None:
        super().__init__(upstream)
        self.sets: dict[str, list[Any]] = {}
        self.limit, self.lost = limit, lost

    def _answer(self, handler: BaseHTTPRequestHandler, body: bytes, kind: str, items: list[bytes], fault: Fault | None) -> None:
        path, name = urlsplit(handler.path).path, unquote(kind)
        answer: Any = None
        if path == "/_cluster/settings":
            answer = {} if self.limit is None else {"defaults": {"synonyms": {"max_synonym_rules": str(self.limit)}}}
        elif path.startswith("/_synonyms/") and handler.command == "PUT":
            rules = json.loads(body)["synonyms_set"]
            self.sets[name] = rules[: len(rules) - self.lost]
            answer = {"result": "created", "reload_analyzers_details": {}}
        elif path.startswith("/_synonyms/"):
            answer = {"count": len(self.sets[name]), "synonyms_set": self.sets[name][:1]}
        super()._answer(handler, body, kind, items, fault if answer is None else Fault("answer", status=200, body=answer))


@pytest.fixture
def night_before(night: Night) -> Path:
    return night("synonyms", ASKED)


@pytest.fixture
def sets(elasticsearch: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[SynonymSets]:
    with SynonymSets(elasticsearch) as found:
        monkeypatch.setenv("ELASTICSEARCH_URL", found.url)
        yield found


def put(run: Path, alias: str, *formats: str, rules: int | None = None) -> DoneExport:
    options = {} if rules is None else {"synonym_rules": rules}
    given = {"to": f"elastic:{alias}", "formats": ["rows", *formats]}
    return export(open_run(str(run)), ExportArguments(given, "one", options=options))


@pytest.mark.slow
def test_the_set_has_the_versions_name_and_the_rules(
    sets: SynonymSets, new_name: Callable[[], str], night_before: Path
) -> None:
    alias = new_name()
    done = put(night_before, alias, "synonyms")
    assert set(sets.sets) == {f"{alias}-one"}
    assert sorted(map(str, sets.sets[f"{alias}-one"])) == sorted(map(str, SET))
    assert sets.sets[f"{alias}-one"][0] == SET[0]  # asked most
    assert done.record.formats["synonyms"]["rules"] == len(SET)
    assert put(night_before, alias, "synonyms").existed
    assert sets.seen[f"{alias}-one"] > 0


@pytest.mark.parametrize(
    ("limit", "most", "refused"), [(None, 10_000, True), (2, 2, True), (3, 3, False), (100_000, 100_000, False)]
)
def test_more_rules_than_the_cluster_takes_are_refused_before_anything_is_written(
    sets: SynonymSets, new_name: Callable[[], str], night_before: Path, monkeypatch: pytest.MonkeyPatch,
    limit: int | None, most: int, refused: bool,
) -> None:  # fmt: skip
    sets.limit, alias = limit, new_name()
    if limit is None:  # of a cluster that says nothing
        monkeypatch.setattr("jobs.publish.elastic.synonyms.OLD_LIMIT", 2)
        most = 2
    if not refused:
        assert put(night_before, alias, "synonyms").record.formats["synonyms"]["rules"] == 3
        return
    with pytest.raises(
        ConfigError, match=rf"^--synonym-rules: http\S+ takes {most:,} rules of a set at most, and there are 3; give"
    ):
        put(night_before, alias, "synonyms")
    assert not sets.sets
    assert ask("GET", f"/{alias}-one")["status"] == 404
    assert put(night_before, alias, "synonyms", rules=2).record.formats["synonyms"]["rules"] == 2


@pytest.mark.slow
def test_a_set_that_lacks_rules_leaves_the_version_incomplete(
    sets: SynonymSets, new_name: Callable[[], str], night_before: Path
) -> None:
    sets.lost, alias = 1, new_name()
    with pytest.raises(ConfigError, match=rf"^synonym set {alias}-one at http\S+: holds 2 rules in place of 3; remove it"):
        put(night_before, alias, "synonyms")
    sets.lost = 0
    assert not put(night_before, alias, "synonyms").existed  # it goes on
    assert len(sets.sets[f"{alias}-one"]) == 3


def test_other_formats_are_for_folders(sets: SynonymSets, new_name: Callable[[], str], night_before: Path) -> None:
    with pytest.raises(
        ConfigError, match=r"^--as rows,querqy: Elasticsearch takes rows, and synonyms beside them; give these, or a"
    ):
        put(night_before, new_name(), "querqy")


def test_a_search_finds_a_rewrite_by_its_query(elasticsearch: str, new_name: Callable[[], str], night_before: Path) -> None:
    """Needs a whole Elasticsearch: that of the shared folder lacks the modules behind synonym sets."""
    alias = new_name()
    try:
        put(night_before, alias, "synonyms")
    except DmqrError as error:
        pytest.skip(f"no synonym sets here: {error.line[:200]}")
    found = ask("GET", f"/_synonyms/{alias}-one")["synonyms_set"]
    assert sorted(map(str, found)) == sorted(map(str, SET))
    assert FORMAT.name == "synonyms"
    rewrites = {"type": "synonym_graph", "synonyms_set": f"{alias}-one", "updateable": True}
    asked = {"tokenizer": "standard", "filter": ["lowercase", "rewrites"]}
    text = {"type": "text", "analyzer": "standard", "search_analyzer": "asked"}
    analysis = {"filter": {"rewrites": rewrites}, "analyzer": {"asked": asked}}
    time.sleep(1)  # the index of sets is refreshed
    ask("PUT", f"/{alias}-docs", {"settings": {"analysis": analysis}, "mappings": {"properties": {"text": text}}})
    for number, words in enumerate(["yeast", "Bread, yeast and more", "a rewrite of lamp", "a lamp"]):
        ask("PUT", f"/{alias}-docs/_doc/{number}", {"text": words})
    ask("POST", f"/{alias}-docs/_refresh")
    for query, expected in (("Lamp", {"1", "2", "3"}), ("spring tide", {"1"}), ("yeast", {"0", "1"})):
        body = {"query": {"match": {"text": {"query": query, "operator": "and"}}}}
        assert {one["_id"] for one in ask("POST", f"/{alias}-docs/_search", body)["hits"]["hits"]} == expected, query
    ask("DELETE", f"/_synonyms/{alias}-one")
