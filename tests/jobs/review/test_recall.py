"""How many documents queries find, before and after, against a count over the stored tables in plain Python."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from random import Random

import pytest

from jobs.measure.evaluate.traffic import THIRDS
from jobs.review import portions
from jobs.review.recall import RecallRow
from jobs.review.review import review_run
from tests.support.jobs.report_runs import Query, RunMaker, query_id, stored

RETRIEVERS = ("bm25", "dense")


def drawn(draw: Random, count: int) -> list[Query]:
    queries = []
    for number in range(count):
        docs = [f"{number}-{n}" for n in range(12)]
        hits = {
            (strategy, retriever): draw.sample(docs, draw.randrange(1, 8))
            for strategy in ("original", "general") for retriever in RETRIEVERS if draw.random() < 0.5
        }  # fmt: skip
        queries.append(Query(f"query {number}", {"general": f"of {number}"}, hits=hits, asked=draw.choice([1, 1, 2, 5, 30])))
    return queries


def kind(found: int, low: int) -> str:
    return "zero" if not found else "low" if found < low else "enough"


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("least", [None, -3.0])
def test_queries_are_counted_by_what_they_find(
    tmp_path: Path, seed: int, least: float | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    draw = Random(seed)
    monkeypatch.setattr(portions, "PORTION", 30)
    queries, low = drawn(draw, 60), draw.randrange(1, 7)
    rerank = {} if least is None else {"rerank": {"kind": "cross_encoder", "model": "m", "keep": 9, "combine": "replace"}}
    run = RunMaker(tmp_path)(queries, ("general",), shard_size=9, fuse={"depth": 5}, **rerank)
    good = {(row["query_id"], row["doc_id"]) for row in stored(run, "scores") if least is None or row["score"] >= least}
    every = Counter[tuple[str, str, str]]()
    asked = Counter[tuple[str, str, str]]()
    results = Counter(row["query_id"] for row in stored(run, "results") if least is None or row["rerank_score"] >= least)
    of_traffic: dict[str, int] = {}
    found = review_run(run, 0, low, least)
    for number, query in enumerate(queries):
        of = query_id(number)
        docs = {doc for (strategy, _), hits in query.hits.items() if strategy == "original" for doc in hits[:5]}
        before = len(docs if least is None else {doc for doc in docs if (of, doc) in good})
        key = ("all", kind(before, low), kind(results[of], low))
        every[key] += 1
        asked[key] += query.asked
        of_traffic["all"] = of_traffic.get("all", 0) + query.asked
    whole = found.recall[-1]
    assert (whole.name, whole.queries, whole.asked) == ("all", 60, of_traffic["all"])
    for place, side in ((1, whole.before), (2, whole.after)):
        assert side == {
            name: tuple(sum(n for key, n in of.items() if key[place] == name) for of in (every, asked))
            for name in ("zero", "low", "enough")
        }
    assert whole.helped == tuple(sum(n for key, n in of.items() if key[1] == "zero" != key[2]) for of in (every, asked))
    assert whole.lost == tuple(sum(n for key, n in of.items() if key[1] != "zero" == key[2]) for of in (every, asked))
    thirds = found.recall[:-1]
    assert [row.name for row in thirds] == [name for name in THIRDS if name in {row.name for row in thirds}]
    assert summed(thirds) == (whole.queries, whole.asked, whole.before, whole.after)
    assert thirds[0].asked / thirds[0].queries > thirds[-1].asked / thirds[-1].queries


def summed(rows: list[RecallRow]) -> tuple[object, ...]:
    def side(name: str) -> dict[str, tuple[int, ...]]:
        return {
            one: tuple(sum(getattr(row, name)[one][place] for row in rows) for place in (0, 1))
            for one in ("zero", "low", "enough")
        }

    return sum(row.queries for row in rows), sum(row.asked for row in rows), side("before"), side("after")


def test_no_more_is_wanted_than_the_run_keeps(tmp_path: Path) -> None:
    queries = [Query("a", {"general": "b"}, hits={("original", "bm25"): ["1", "2"], ("general", "bm25"): ["3"]})]
    run = RunMaker(tmp_path)(queries, ("general",), fuse={"keep": 2})
    found = review_run(run, 0)
    assert found.low == 2
    assert found.recall[-1].after["enough"] == (1, 1)


def test_what_the_original_finds_may_be_unknown(tmp_path: Path) -> None:
    found = review_run(RunMaker(tmp_path)(keep_runs=False), 0)
    (row,) = [one for one in found.recall if one.name == "all"]
    assert (row.before, row.helped, row.lost) == (None, None, None)
    assert row.after["zero"] == (1, 1)
