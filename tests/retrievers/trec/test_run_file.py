"""Run files of TREC: the order of trec_eval, what is counted, and what is refused."""

import pickle
import random
from itertools import pairwise

import numpy as np
import pytest
import pytrec_eval
from hypothesis import given, settings
from hypothesis import strategies as st

from cluster.errors import RetrieverError
from retrievers.retriever import SearchText, single_lists
from retrievers.trec import run_file
from retrievers.trec.retriever import GivenLists, TrecLists, open_retriever, plain
from retrievers.trec.run_file import RunFile, read_run
from retrievers.trec.settings import TrecSettings
from rewriters.normalise import normalise


def run_of(*lines: str) -> RunFile:
    return read_run(lines, "run")


def lists_of(run: RunFile) -> dict[str, list[str]]:
    return {topic: run.list_at(place).doc_ids.to_pylist() for place, topic in enumerate(run.topics)}


def line(doc_id: str, score: float, rank: int = 1, topic: str = "1") -> str:
    return f"{topic} Q0 {doc_id} {rank} {score!r} tag"


def ranks_of_trec_eval(scores: dict[str, float]) -> list[str]:
    """The documents in trec_eval's order: the rank of each is one over its reciprocal rank, where it alone is relevant."""
    judged = {doc_id: {doc_id: 1} for doc_id in scores}
    measured = pytrec_eval.RelevanceEvaluator(judged, {"recip_rank"}).evaluate(dict.fromkeys(scores, scores))
    return sorted(scores, key=lambda doc_id: -measured[doc_id]["recip_rank"])


SCORE = st.one_of(
    st.integers(-3, 3).map(float),
    st.floats(-1e6, 1e6),
    st.sampled_from([0.1, 0.1 + 1e-12, 16777216.0, 16777217.0, 1e-30, 2e-30]),  # equal as numbers of 32 bits, or nearly
)


@settings(max_examples=150, deadline=None)
@given(st.dictionaries(st.text("abcABC012-é日", min_size=1, max_size=4), SCORE, min_size=1, max_size=30), st.randoms())
def test_documents_stand_as_trec_eval_has_them(scores: dict[str, float], order: object) -> None:
    lines = [line(doc_id, score) for doc_id, score in scores.items()]
    order.shuffle(lines)  # type: ignore[attr-defined]
    found = run_of(*lines).list_at(0)
    doc_ids = found.doc_ids.to_pylist()
    assert doc_ids == ranks_of_trec_eval(scores)
    assert (np.diff(found.scores) < 0).all()
    shown = np.array([float(str(np.float32(scores[doc_id]))) for doc_id in doc_ids])
    span = float(np.ptp(shown)) or 1.0
    assert np.abs(found.scores - shown).max() <= span * 1e-6
    for floor in shown.tolist():
        assert (found.scores >= floor).tolist() == (shown >= floor).tolist()


def by_rules(lines: list[str]) -> tuple[dict[str, list[tuple[str, float]]], tuple[int, int, int]]:
    """Each topic's documents and scores, and the counts, line by line: the best line of a document, by score and then by id."""
    best: dict[str, dict[str, tuple[float, int]]] = {}
    repeated = 0
    for topic, _, doc_id, rank, score, _ in map(str.split, lines):
        of = best.setdefault(topic, {})
        repeated += doc_id in of
        narrow = float(np.float32(score)), int(rank)
        if doc_id not in of or narrow[0] > of[doc_id][0]:
            of[doc_id] = narrow
    lists, ties, disordered = {}, 0, 0
    for topic, of in best.items():
        ordered = sorted(of, key=lambda doc_id: (of[doc_id][0], doc_id), reverse=True)
        lists[topic] = [(doc_id, of[doc_id][0]) for doc_id in ordered]
        steps = [(of[a], of[b]) for a, b in pairwise(ordered)]
        ties += sum(a[0] == b[0] for a, b in steps)
        disordered += any(a[0] > b[0] and a[1] > b[1] for a, b in steps)
    return lists, (repeated, ties, disordered)


@pytest.mark.parametrize("seed", range(6))
def test_many_topics_in_any_order_of_lines(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    drawn = random.Random(seed)
    monkeypatch.setattr(run_file, "_BLOCK", drawn.choice([1, 7, 1000]))
    lines = [
        line(
            f"{drawn.choice('abé')}{drawn.randrange(12)}",
            drawn.choice([1.0, 2.5, drawn.random()]),
            rank,
            f"q{drawn.randrange(9)}",
        )
        for rank in range(300)
    ]
    if seed % 2:
        lines.sort(key=lambda one: one.split()[0])
    found = run_of(*lines)
    lists, counts = by_rules(lines)
    assert found.topics == list(lists)
    assert (found.counts.duplicates, found.counts.ties, found.counts.disordered) == counts
    for place, topic in enumerate(found.topics):
        one = found.list_at(place)
        assert one.doc_ids.to_pylist() == [doc_id for doc_id, _ in lists[topic]]
        assert one.scores == pytest.approx([score for _, score in lists[topic]], abs=1e-5)
        assert (np.diff(one.scores) < 0).all()
    some = found.at([1, 4, 7])
    assert lists_of(some) == {topic: lists_of(found)[topic] for topic in (found.topics[place] for place in (1, 4, 7))}
    queries = {f"query {topic}": place for place, topic in enumerate(found.topics) if topic != found.topics[2]}
    given_lists = GivenLists.from_run(queries, found, {"kind": "trec"})
    for topic in found.topics:
        known = given_lists.list_of(f"query {topic}")
        assert (None if known is None else known.doc_ids.to_pylist()) == (
            lists_of(found)[topic] if f"query {topic}" in queries else None
        )
    assert given_lists.list_of("") is None
    assert given_lists.list_of("zebra") is None


def test_a_line_costs_few_bytes() -> None:
    """Of 200,000 lines with ids of 15 characters, columns keep what ids, offsets and scores need, and are sent so."""
    lines = (
        line(f"document-{n * 7919 % 1_000_000:06}", 50 - n % 100 * 0.25, n % 100 + 1, f"q{n // 100:05}") for n in range(200_000)
    )
    run = run_of(*lines)
    kept = run.doc_ids.nbytes + run.scores.nbytes
    assert kept / 200_000 < 30
    sent = pickle.dumps(GivenLists.from_run({f"what is {topic}": place for place, topic in enumerate(run.topics)}, run, {}))
    assert len(sent) / 200_000 < 30


def test_moved_scores_stay_apart_when_they_are_fused() -> None:
    found = run_of(*(line(f"d{number:03}", 5.0 if number < 900 else 4.0) for number in range(1000))).list_at(0)
    scaled = (found.scores - found.scores[-1]) / (found.scores[0] - found.scores[-1])
    assert len(np.unique(np.round(scaled, 12))) == 1000


@pytest.mark.parametrize(
    ("lines", "words"),
    [
        (["1 Q0 a 1 2.0"], "run: line 1: is not a line of topic, Q0, document, rank, score and tag"),
        ([line("a", 1.0), "1 Q0 b 2 high tag"], "run: line 2: is not a line of"),
        ([line("a", 1.0), "1 Q0 b first 1 tag"], "run: line 2: is not a line of"),
        (["1 Q0 a 1 nan tag"], "run: line 1: the score nan is not a number"),
        (["", "#"], "run: holds no list"),
    ],
)
def test_what_is_no_run_is_refused_with_its_line(lines: list[str], words: str) -> None:
    with pytest.raises(RetrieverError) as error:
        run_of(*lines)
    assert words in str(error.value)


def test_a_text_that_is_no_query_has_no_list() -> None:
    run = run_of(line("x", 1.0, topic="0"), *(line(doc_id, 3.0 - place) for place, doc_id in enumerate("abc")))
    given_lists = GivenLists.from_run({plain("Moon and  tides"): 1}, run, {"kind": "trec"})
    opened = open_retriever(
        "run", TrecSettings(kind="trec", path="run").with_lists(given_lists), expect_identity={"kind": "trec"}
    )
    found = single_lists(opened.search([SearchText("moon and TIDES"), SearchText("moon")], 2))
    assert [(one.doc_ids.to_pylist(), one.scores.tolist()) for one in found] == [(["a", "b"], [3.0, 2.0]), ([], [])]
    assert isinstance(opened, TrecLists)
    assert opened.identity() == {"kind": "trec"}
    with pytest.raises(RetrieverError, match="its lists belong to the queries of a log"):
        open_retriever("run", TrecSettings(kind="trec", path="run"))


@given(st.text(), st.text())
def test_queries_that_are_one_in_the_log_are_one_here(text: str, other: str) -> None:
    if normalise(text) == normalise(other):
        assert plain(text) == plain(other)
    assert plain(normalise(text)) == plain(text)
