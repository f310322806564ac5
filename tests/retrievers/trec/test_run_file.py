"""Run files of TREC: the order of trec_eval, what is counted, and what is refused."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
import pytrec_eval
from hypothesis import given, settings
from hypothesis import strategies as st

from cluster.errors import RetrieverError
from retrievers.retriever import RankedList, SearchText, single_lists
from retrievers.trec.retriever import GivenLists, TrecLists, open_retriever, plain
from retrievers.trec.run_file import RunFile, read_run
from retrievers.trec.settings import TrecSettings
from rewriters.normalise import normalise


def run_of(*lines: str) -> RunFile:
    return read_run(lines, "run")


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
    found = run_of(*lines).lists["1"]
    assert found.doc_ids == ranks_of_trec_eval(scores)
    assert (np.diff(found.scores) < 0).all()
    narrow = np.array([np.float32(scores[doc_id]) for doc_id in found.doc_ids], np.float64)
    span = float(np.ptp(narrow)) or 1.0
    assert np.abs(found.scores - narrow).max() <= span * 1e-6


def test_moved_scores_stay_apart_when_they_are_fused() -> None:
    found = run_of(*(line(f"d{number:03}", 5.0 if number < 900 else 4.0) for number in range(1000))).lists["1"]
    scaled = (found.scores - found.scores[-1]) / (found.scores[0] - found.scores[-1])
    assert len(np.unique(np.round(scaled, 12))) == 1000


def test_what_was_decided_is_counted() -> None:
    run = run_of(
        line("a", 2.0, 1), line("b", 3.0, 2), line("c", 1.0, 3), line("c", 1.5, 4), "", "# a header",
        line("a", 2.0, 1, "2"), line("b", 2.0, 2, "2"), line("c", 1.0, 3, "2"),
    )  # fmt: skip
    assert {topic: one.doc_ids for topic, one in run.lists.items()} == {"1": ["b", "a", "c"], "2": ["b", "a", "c"]}
    assert run.lists["1"].scores.tolist() == [3.0, 2.0, 1.5]
    assert (run.counts.duplicates, run.counts.ties, run.counts.disordered) == (1, 1, 1)
    plain_run = run_of(line("a", 3.0, 0), line("b", 2.0, 1), line("c", 2.0, 2))
    assert (plain_run.counts.duplicates, plain_run.counts.ties, plain_run.counts.disordered) == (0, 1, 0)


@pytest.mark.parametrize(
    ("lines", "words"),
    [
        (["1 Q0 a 1 2.0"], "run: line 1: is no line of topic, Q0, document, rank, score and tag"),
        ([line("a", 1.0), "1 Q0 b 2 high tag"], "run: line 2: is no line of"),
        ([line("a", 1.0), "1 Q0 b first 1 tag"], "run: line 2: is no line of"),
        (["1 Q0 a 1 nan tag"], "run: line 1: the score nan is no number"),
        (["", "#"], "run: holds no list"),
    ],
)
def test_what_is_no_run_is_refused_with_its_line(lines: list[str], words: str) -> None:
    with pytest.raises(RetrieverError) as error:
        run_of(*lines)
    assert words in str(error.value)


def test_a_text_that_is_no_query_has_no_list() -> None:
    of_moon = RankedList(pa.array(["a", "b", "c"]), np.array([3.0, 2.0, 1.0]))
    given_lists = GivenLists({plain("Moon and  tides"): of_moon}, {"kind": "trec"})
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
