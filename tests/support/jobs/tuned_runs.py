"""Runs for `tune`, made without Ray: lists in which it is known which help, and judgements of them."""

from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

from jobs.log.judgements import Judgements
from jobs.runs.folder import RunFolder
from tests.support.jobs.run_folders import Query, RunMaker, query_id

LENGTH = 10  # of each list
STRATEGIES = ("general", "keyword")
RETRIEVERS = ("bm25", "dense")
Found = Callable[[Random, str, str, str], bool]
"""Of a query, a strategy and a retriever: whether this list is good, with the relevant document near its top."""


class Judged(NamedTuple):
    """A run and its judgements."""

    run: RunFolder
    judgements: Judgements


def judged_run(folder: Path, good: Found, names: list[str], seed: int = 1, **settings: Any) -> Judged:
    """A run with a relevant document per query, in every good list at a rank from 1 to 3, in others nowhere.

    All other documents are found by one list alone.
    """
    draw = Random(seed)
    queries, grades = [], {}
    for number, name in enumerate(names):
        hits = {}
        for strategy in ("original", *STRATEGIES):
            for retriever in RETRIEVERS:
                others = [f"{number}-{strategy}-{retriever}-{place}" for place in range(LENGTH)]
                if good(draw, name, strategy, retriever):
                    others.insert(draw.randrange(3), f"{number}-answer")
                hits[strategy, retriever] = others[:LENGTH]
        queries.append(Query(name, {strategy: f"{strategy} of {name}" for strategy in STRATEGIES}, hits=hits))
        grades[query_id(number)] = {f"{number}-answer": 1}
    run = RunMaker(folder)(queries, STRATEGIES, shard_size=50, **settings)
    return Judged(run, Judgements("qrels.tsv", grades, "query_id"))


def names_of(count: int, words: str = "topic{}") -> list[str]:
    return [words.format(number) for number in range(count)]


def half(draw: Random, name: str, strategy: str, retriever: str) -> bool:
    """Any list is good in half of all cases: none is better than another."""
    return draw.random() < 0.5


def none(draw: Random, name: str, strategy: str, retriever: str) -> bool:
    """No list has the relevant document, and no two lists share one."""
    return False


def only_bm25(draw: Random, name: str, strategy: str, retriever: str) -> bool:
    """Dense lists are noise."""
    return retriever == "bm25" and draw.random() < 0.8


def permuted(judged: Judged, seed: int) -> Judgements:
    """Judgements without meaning: one document of any list of the query, drawn at random, is called relevant.

    Of a run with `none`, all rankings are then expected to be equally good.
    """
    draw = Random(seed)
    strategies = ("original", *STRATEGIES)
    grades = {}
    for key, of in judged.judgements.grades.items():
        number = next(iter(of)).partition("-")[0]
        doc_ids = [f"{number}-{s}-{r}-{place}" for s in strategies for r in RETRIEVERS for place in range(LENGTH)]
        grades[key] = {draw.choice(doc_ids): 1}
    return judged.judgements._replace(grades=grades)
