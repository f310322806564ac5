"""Further rounds over a live Elasticsearch: each row against plain searches of the same indexes, and arithmetic by hand."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.support.jobs.corrective_llm import kind_of, prompt_of, verdict_of
from tests.support.jobs.corrective_llm import said as corrective
from tests.support.jobs.in_process_runs import QUERIES, finished, job_in_process, prepared_work, rows
from tests.support.retrievers.elastic_server import ask
from tests.support.retrievers.fake_models import FakeModels
from tests.support.rewriters.fake_server import FakeServer

pytestmark = pytest.mark.slow

DEPTH, KEEP, SHOWN, ROUNDS, K = 6, 4, 3, 3, 60
LABELS = {"relevant": "High", "ambiguous": "Medium", "irrelevant": "Low"}
HIGH, MEDIUM = 1.06, 0.06  # of the reranker's scores
REFINED = {
    QUERIES[0]: "wild yeast makes sourdough rise", QUERIES[1]: "lens of a small lamp", QUERIES[2]: "spring tides full moon",
    QUERIES[3]: "moon pulls the sea", "yeast": "beer cousins", "zzz": "a mirror gathers faint light",
}  # fmt: skip


def refined(query: str, tried: Sequence[str]) -> str:
    """The refined query that the LLM writes: in the third round that of the second, so that rounds end there."""
    return REFINED[query] + (" galaxies of rye" if tried else "")


def said(body: dict[str, Any]) -> str:
    prompt = prompt_of(body)
    if kind_of(prompt) == "grade":
        return corrective(body)
    tried = [] if "Tried before:\n(none)" in prompt else ["one"]
    named = {"reinforce": "", "missing": "", "leave_out": ""} if "Documents that fit" in prompt else {}
    return json.dumps(named | {"query": refined(prompt.rpartition("Query: ")[2], tried)})


def overlap(query: str, texts: Sequence[str]) -> list[float]:
    """The reranker: words in common, and the longer text first."""
    return [sum(word in text.lower() for word in query.split()) + len(text) / 1000 for text in texts]


@pytest.fixture
def server() -> Iterator[FakeServer]:
    with FakeServer(["refiner-8b"], text=said) as one:
        yield one


@pytest.fixture
def reranker() -> Iterator[FakeModels]:
    with FakeModels("tei", score=overlap) as one:
        yield one


@pytest.fixture
def indexes(elasticsearch: str, new_name: Callable[[], str], passages: dict[str, str]) -> dict[str, str]:
    """An index of all passages, and two of one half each."""
    halves = {"all": passages, "law": dict(list(passages.items())[::2]), "med": dict(list(passages.items())[1::2])}
    names = {}
    for half, texts in halves.items():
        names[half] = new_name()
        mapping = {"properties": {"text": {"type": "text"}}}
        ask("PUT", f"/{names[half]}", {"mappings": mapping, "settings": {"number_of_replicas": 0, "number_of_shards": 1}})
        for doc_id, text in texts.items():
            ask("PUT", f"/{names[half]}/_doc/{doc_id}?refresh=true", {"text": text})
    return names


@pytest.fixture
def job(
    tmp_path: Path, values: dict[str, Any], indexes: dict[str, str], config_file: Callable[[Any], str], server: FakeServer,
    monkeypatch: pytest.MonkeyPatch,
) -> str:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    engine = {"kind": "openai", "model": "refiner-8b", "base_url": server.address, "attempts": 1}
    values["iterate"] = {"by": "bm25", "below": 0.0, "documents": SHOWN, "rounds": ROUNDS, "merge": "fuse", "engine": engine}
    values["fuse"] = {"method": "rrf", "k": K, "keep": KEEP, "redundancy": "none"}
    job_in_process(tmp_path, values, {"kind": "elastic", "index": indexes["all"]}, config_file)
    values["rewrite"]["strategies"] = []
    values["retrieve"]["depth"] = DEPTH
    return config_file(values)


class Searched(NamedTuple):
    """A text's ranking, and the best score of each retriever's list."""

    ranking: list[str]
    best: dict[str, float]


class ByHand:
    """What rounds make of a query, by plain searches."""

    def __init__(self, collections: Mapping[str, str], texts: Mapping[str, str], by: str, labels: str | None) -> None:
        """`collections`: retriever -> index; of several documents are called by their retrievers, as collections are."""
        self._collections, self._texts, self._by, self._labels = collections, texts, by, labels
        self.known: dict[str, Searched] = {}

    def searched(self, text: str) -> Searched:
        if text not in self.known:
            scored, best = [], {}
            for name, index in self._collections.items():
                body = {"size": 100, "query": {"match": {"text": text}}}
                hits = ask("POST", f"/{index}/_search", body)["hits"]["hits"]
                ranked = sorted((-hit["_score"], hit["_id"]) for hit in hits)[:DEPTH]
                best |= {name: -ranked[0][0]} if ranked else {}
                called = f"{name}:" if len(self._collections) > 1 else ""
                scored += [(-1 / (K + rank), f"{called}{doc_id}") for rank, (_, doc_id) in enumerate(ranked, start=1)]
            self.known[text] = Searched([doc_id for _, doc_id in sorted(scored)][:KEEP], best)
        return self.known[text]

    def text_of(self, doc_id: str) -> str:
        return self._texts[doc_id.rpartition(":")[2]]

    def score(self, query: str, doc_id: str) -> float:
        return overlap(query, [self.text_of(doc_id)])[0]

    def best(self, query: str, text: str, candidates: Sequence[str]) -> float:
        if self._by == "rerank":
            return max((self.score(query, doc_id) for doc_id in candidates), default=float("-inf"))
        return self.searched(text).best.get(self._by, float("-inf"))

    def merged(self, query: str, texts: Sequence[str]) -> tuple[list[str], list[str]]:
        """The candidates of all rounds, and the results, which the reranker orders where there is one."""
        found: dict[str, float] = {}
        for text in texts:
            for rank, doc_id in enumerate(self.searched(text).ranking, start=1):
                found[doc_id] = found.get(doc_id, 0.0) + 1 / (K + rank)
        candidates = sorted(found, key=lambda doc_id: (-round(found[doc_id], 12), doc_id))[:KEEP]
        by_score = sorted(candidates, key=lambda doc_id: -self.score(query, doc_id))
        return candidates, by_score if self._by == "rerank" else candidates

    def label(self, query: str, doc_id: str) -> str | None:
        if self._labels == "llm":
            return LABELS[verdict_of(query, self.text_of(doc_id))]
        score = self.score(query, doc_id)
        return None if self._labels is None else "High" if score >= HIGH else "Medium" if score >= MEDIUM else "Low"

    def rounds(self, query: str, below: float) -> tuple[list[tuple[Any, ...]], list[str]]:
        """The rows of rounds/ of a query, and its results."""
        texts, found = [query], []
        candidates, results = self.merged(query, texts)
        best = self.best(query, query, candidates)
        while best < below and len(texts) <= ROUNDS:
            text, shown = refined(query, texts[1:]), results[:SHOWN]
            if text in texts:
                break
            texts.append(text)
            had = set(results)
            candidates, results = self.merged(query, texts)
            labels = [(doc_id, self.label(query, doc_id)) for doc_id in shown]
            new = len(set(results) - had)
            found.append((len(texts) - 1, text, None if best == float("-inf") else pytest.approx(best, rel=1e-5), new, labels))
            best = max(best, self.best(query, text, candidates))
        return found, results


CASES = {"plain": None, "grades": "llm", "reranked": "rerank", "collections": "llm"}


@pytest.mark.parametrize("case", CASES)
def test_rounds_are_plain_searches_merged_by_hand(
    job: str, indexes: dict[str, str], server: FakeServer, reranker: FakeModels, passages: dict[str, str], case: str
) -> None:
    labels, settings = CASES[case], list[str]()
    collections, by = {"bm25": indexes["all"]}, "bm25"
    if case == "collections":
        collections, by = {name: indexes[name] for name in ("law", "med")}, "law"
        retrievers = {name: {"kind": "elastic", "index": index} for name, index in collections.items()}
        named = {name: {"retrievers": [name]} for name in collections}
        settings = [f"retrieve.retrievers={json.dumps(retrievers)}", f"retrieve.collections={json.dumps(named)}"]
    if labels == "rerank":
        by = "rerank"
        model = {"kind": "server", "model": reranker.model, "base_url": reranker.address, "combine": "replace", "keep": KEEP}
        settings.append(f"rerank={json.dumps(model)}")
    if labels is not None:
        engine = {"kind": "openai", "model": "refiner-8b", "base_url": server.address, "attempts": 1}
        shown = {"by": labels} | ({"high": HIGH, "medium": MEDIUM} if labels == "rerank" else {"grades": {"engine": engine}})
        settings += ["iterate.prompt=refine", f"iterate.labels={json.dumps(shown)}"]
    by_hand = ByHand(collections, passages, by, labels)
    first = {query: by_hand.best(query, query, by_hand.merged(query, [query])[0]) for query in QUERIES}
    below = sorted(first.values())[len(QUERIES) // 2] + 1e-4  # more than half of the queries
    settings += [f"iterate.by={by}", f"iterate.below={below!r}"]
    run = finished(prepared_work(job, settings, None))
    texts = {one["query_id"]: one["query"] for one in rows(run, "queries")}
    made: dict[str, list[tuple[Any, ...]]] = {query: [] for query in QUERIES}
    for one in sorted(rows(run, "rounds"), key=lambda one: one["round"]):
        documents = [(of["doc_id"], of["label"]) for of in one["documents"]]
        made[texts[one["query_id"]]].append((one["round"], one["text"], one["best"], one["new"], documents))
    found: dict[str, list[str]] = {query: [] for query in QUERIES}
    for one in sorted(rows(run, "results"), key=lambda one: one["rank"]):
        found[texts[one["query_id"]]].append(one["doc_id"])
    for query in QUERIES:
        expected, results = by_hand.rounds(query, below)
        assert made[query] == expected, query
        assert found[query] == results, query
    numbers = [len(of) for of in made.values()]
    assert 0 in numbers
    assert sum(numbers) >= len(QUERIES) // 2
    assert any(new for of in made.values() for _, _, _, new, _ in of)
    sent = len(server.bodies)
    again = finished(prepared_work(job, [*settings, "name=again"], None))
    assert len(server.bodies) == sent
    assert sorted(map(repr, rows(again, "rounds"))) == sorted(map(repr, rows(run, "rounds")))
