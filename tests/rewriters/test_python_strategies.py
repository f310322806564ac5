"""Strategies that are code: how they are named, what they may give, weights as words; RM3 by the contract of all strategies."""

from __future__ import annotations

import math
import pickle
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cluster.errors import RewriterError
from rewriters.engines import Completion, Request
from rewriters.engines.python.engine import PythonEngine
from rewriters.engines.python.settings import PythonSettings
from rewriters.guards.guards import GuardRules
from rewriters.pool import load, load_pool, named
from rewriters.python.given import FirstHit, FirstLists, GivenQuery, Reads
from rewriters.python.strategy import PythonStrategy
from rewriters.python.texts import read_written, weighted_texts, written
from rewriters.python.words import weighted_words
from rewriters.query import Query
from rewriters.rewriter import Rewriter, Rewriting
from rewriters.settings import GuardSettings
from rewriters.strategy import Strategy
from tests.support.plugins import installed

RM3 = str(Path(__file__).resolve().parents[2] / "configs" / "plugins" / "rm3.py")


def rm3(query: str, hits: list[FirstHit]) -> Counter[str]:
    """The words of RM3 with four terms."""
    engine = load({f"{RM3}:Rm3": {"terms": 4}}).engine
    assert isinstance(engine, PythonSettings)
    ((text, _),) = weighted_texts(engine.strategy.open()(Query("q", query), {"bm25": hits}), 1)
    return Counter(text.split())


def test_the_first_document_weighs_more() -> None:
    counts = rm3("zebra", [FirstHit("a", 9.0, "apple pear cherry"), FirstHit("b", 1.0, "plum grape fig")])
    assert counts["zebra"] == 50
    assert counts["apple"] == counts["pear"] == counts["cherry"]
    assert (counts["apple"], counts["fig"]) == (16, 2)  # 9 : 1, in hundredths


@pytest.mark.parametrize("hits", [[], [FirstHit("a", 0.0, "apple")], [FirstHit("a", 2.0, "")]])
def test_without_feedback_its_own_words_are_left(hits: list[FirstHit]) -> None:
    assert rm3("light of the lamp", hits) == {"lamp": 50, "light": 50}


@given(st.dictionaries(st.text("abc", min_size=1, max_size=3), st.floats(0, 1e6), min_size=1))
def test_words_stand_as_often_as_their_weights_say(weights: dict[str, float]) -> None:
    whole = math.fsum(weights.values())
    if whole == 0:
        with pytest.raises(ValueError, match="above 0"):
            weighted_words(weights)
        return
    text = weighted_words(weights).split()
    counts = Counter(text)
    assert counts.keys() <= weights.keys()
    for word, weight in weights.items():
        assert abs(counts[word] - 100 * weight / whole) <= 0.5 + 1e-6
    assert [counts[word] for word in dict.fromkeys(text)] == sorted(counts.values(), reverse=True)


@pytest.mark.parametrize(
    ("source", "name"),
    [
        ("rules.py:LongTail", "long_tail"), ("./a/b/rm3.py:Rm3", "rm3"), ("my.package:T5Rewriter", "t5_rewriter"),
        ("s3://bucket/strategies/mine.yaml", "mine"), ("./mine.yaml", "mine"), ("general", "general"),
    ],
)  # fmt: skip
def test_the_name_is_that_of_the_class(source: str, name: str) -> None:
    assert named(source).name == name
    assert named({source: {"n": 2}}).name == f"{name}(n=2)"


@pytest.mark.parametrize(
    ("given_texts", "problem"),
    [
        ("one text", "rewrite gives str"), (None, "rewrite gives NoneType"), ([1], "a list with 1"), ([("a",)], "a list with"),
        ([("a", "b")], "the weight 'b'"), ([("a", -1)], "the weight -1"), ([("a", math.nan)], "the weight nan"),
        ([("a", True)], "the weight True"), (["a", "b", "c"], "gives 3 texts, and its n says 2"),
    ],
)  # fmt: skip
def test_what_is_no_text_is_refused(given_texts: Any, problem: str) -> None:
    with pytest.raises((TypeError, ValueError), match=problem):
        weighted_texts(given_texts, 2)


@given(st.lists(st.tuples(st.text(min_size=1), st.floats(0, 1e9)), max_size=5))
def test_texts_are_read_as_they_were_written(texts: list[tuple[str, float]]) -> None:
    strategy = load(f"{RM3}:Rm3")
    read = read_written(written(weighted_texts(texts, 5)), "q", strategy)
    assert len(read) == len(texts)
    for one, (text, weight) in zip(read, texts, strict=True):
        if "text" in one._fields:
            assert one.weight == weight
            assert one.text == " ".join(one.text.split())
        else:
            assert not text.strip() or not text.isprintable()


@pytest.mark.parametrize(
    ("text", "reason"),
    [("x" * 4001, "too_long"), (" \n", "empty"), ("a bad word", "banned"), ("one", "too_short"), ("one two three", "too_long")],
)
def test_texts_are_held_to_the_limits_of_any_strategy(text: str, reason: str) -> None:
    words = {"least": 2, "most": 2} if reason in ("too_short", "too_long") else {}
    strategy = load({f"{RM3}:Rm3": {"banned": ["bad"], "words": words}})
    (read,) = read_written(written(weighted_texts([text], 1)), "q", strategy)
    assert read == (reason,)
    assert read_written(written(weighted_texts(["good word"], 1)), "q", strategy)[0][:2] == ("good word", "code")


def test_two_of_one_file_stand_in_one_pool() -> None:
    pool = load_pool(["general", f"{RM3}:Rm3", {f"{RM3}:Rm3": {"terms": 5}}])
    assert [one.name for one in pool] == ["general", "rm3", "rm3(terms=5)"]
    assert [one.is_code for one in pool] == [False, True, True]
    assert pool[1].reads == Reads(documents=10)
    again = pickle.loads(pickle.dumps(pool[2]))
    assert again.engine == pool[2].engine


def test_parameters_are_checked() -> None:
    with pytest.raises(RewriterError, match="no parameter 'term'; did you mean 'terms'"):
        load({f"{RM3}:Rm3": {"term": 5}})
    with pytest.raises(RewriterError, match="no parameter 'engine'"):
        load({f"{RM3}:Rm3": {"engine": {"kind": "recorded", "path": "x"}}})


class Columns(PythonStrategy):
    columns: ClassVar[tuple[str, ...]] = ("country",)

    def rewrite(self, query: Query, lists: Any = None) -> list[str]:
        return [f"{query.text} {query.values['country']} {query.context}"]


def test_it_is_given_what_a_prompt_would_show() -> None:
    code = Strategy(name="columns", label="Columns", prompt="{country}\n{query}", output="array")
    pool = (code.model_copy(update={"engine": PythonSettings.of(Columns())}),)
    rewriter = Rewriter(Rewriting(pool, guards=GuardRules(GuardSettings(mask=["mail"])), decoding={"temperature": 1.0}))
    query = Query("q", "write to me@example.org", "before: you@example.org", {"country": "Iceland", "secret": "x"})
    (request,) = rewriter.requests(query)
    assert request.given is not None
    seen = request.given.query
    assert "example.org" not in f"{seen.text} {seen.context}"
    assert seen.values == {"country": "Iceland"}
    assert (request.engine, dict(request.decoding)) == ("columns", {})
    (other,) = rewriter.requests(query._replace(values={"country": "Chile", "secret": "x"}))
    assert other.variables != request.variables
    engine = PythonEngine(pool[0].engine)
    engine.start()
    read = rewriter.read(query, list(engine.complete([request])))
    assert read.rewrites[0].text.startswith("write to me@example.org Iceland")
    assert read.rewrites[0].guards == ("masked",)


def test_an_installed_one_has_the_name_of_its_entry_point(tmp_path: Path) -> None:
    module = "from rewriters.python.strategy import PythonStrategy\n\n\nclass Rule(PythonStrategy):\n    more: int = 1\n"
    points = "[dmqr.strategies]\nlong_tail = tail_rules:Rule\n"
    with installed(tmp_path, "tail_rules", {"tail_rules.py": module}, points):
        strategy = load({"long_tail": {"more": 2}})
        assert (strategy.name, strategy.base, strategy.is_code) == ("long_tail(more=2)", "long_tail", True)
        assert load("tail_rules:Rule").name == "rule"
        with pytest.raises(RewriterError, match="unknown strategy 'long_tale'; did you mean 'long_tail'"):
            load("long_tale")


class Loads(PythonStrategy):
    opened: ClassVar[list[int]] = []

    def open(self) -> Any:
        Loads.opened.append(1)
        return lambda query: [f"{query.text} again"]


def test_a_model_is_loaded_once_and_errors_name_the_line() -> None:
    engine = PythonEngine(PythonSettings.of(Loads()))
    assert not Loads.opened
    assert engine.start().keys() == {"load"}
    assert engine.start() == {}
    asked = [Request(str(n), text, "loads", text, "", given=GivenQuery(Query(str(n), text))) for n, text in enumerate("abc")]
    answered = list(engine.complete(asked))
    assert [request for request, _ in answered] == asked
    assert [completion.text for _, completion in answered] == [f'[["{text} again", 1.0]]' for text in "abc"]
    assert all(completion.attempts == completion.prompt_tokens == 0 for _, completion in answered)
    assert Loads.opened == [1]
    engine.close()


class Batched(PythonStrategy):
    batch: ClassVar[int] = 3
    sizes: ClassVar[list[int]] = []

    def many(self, queries: Sequence[Query]) -> list[list[str]]:
        Batched.sizes.append(len(queries))
        return [[f"{10 // (query.text != 'bad')} {query.text}"] for query in queries]


class Counted(Batched):
    def many(self, queries: Sequence[Query]) -> list[list[str]]:
        return super().many(queries)[1:]


class Reading(PythonStrategy):
    @property
    def reads(self) -> Reads:
        return Reads(texts=False)

    def open(self) -> Any:
        return self

    def many(self, queries: Sequence[Query], lists: Sequence[FirstLists]) -> Any:
        return ([f"{query.text} {hits['bm25'][0].doc_id}"] for query, hits in zip(queries, lists, strict=True))


def answers(strategy: PythonStrategy, texts: Sequence[str], lists: Any = None) -> list[Completion]:
    engine = PythonEngine(PythonSettings.of(strategy))
    engine.start()
    asked = [Request(text, text, "own", text, "", given=GivenQuery(Query(text, text), lists)) for text in texts]
    answered = list(engine.complete(asked))
    assert [request for request, _ in answered] == asked
    return [completion for _, completion in answered]


def test_batches_are_asked_together_and_an_error_is_of_its_query() -> None:
    Batched.sizes.clear()
    found = answers(Batched(), ["a", "b", "c", "d", "bad", "e", "f"])
    assert Batched.sizes == [3, 3, 1, 1, 1, 1]  # the second batch fails, and each of its queries is asked alone
    assert [one.text for one in found if one.error_reason is None] == [f'[["10 {text}", 1.0]]' for text in "abcdef"]
    assert [one.error_reason for one in found] == [None] * 4 + ["raised"] + [None] * 2
    assert "test_python_strategies.py, line " in str(found[4].error_message)
    assert "ZeroDivisionError" in str(found[4].error_message)


def test_a_batch_gives_a_list_for_each_query() -> None:
    messages = {one.error_message for one in answers(Counted(), ["a", "b"])}
    assert messages == {"ValueError: many gives 0 lists for 1 queries"}


def test_a_batch_is_given_the_lists_and_one_without_them_fails_alone() -> None:
    def lists(given: Sequence[GivenQuery]) -> list[FirstLists | None]:
        return [None if one.query.text == "b" else {"bm25": (FirstHit(f"d-{one.query.text}", 1.0),)} for one in given]

    found = answers(Reading(), ["a", "b", "c"], lists)
    assert [one.text for one in found] == ['[["a d-a", 1.0]]', None, '[["c d-c", 1.0]]']
    assert "the lists of the original are missing" in str(found[1].error_message)


def test_a_query_without_a_text_is_an_error_of_its_own(tmp_path: Path) -> None:
    text = "from rewriters.python.strategy import PythonStrategy\nclass Nothing(PythonStrategy):\n"
    (tmp_path / "nothing.py").write_text(text + "    def rewrite(self, query):\n        return []\n")
    pool = load_pool([f"{tmp_path}/nothing.py:Nothing"])
    assert pool[0].engine is not None
    rewriter, query, engine = Rewriter(Rewriting(pool)), Query("q", "light of a lamp"), PythonEngine(pool[0].engine)
    engine.start()
    read = rewriter.read(query, list(engine.complete(rewriter.requests(query))))
    assert read.rewrites == []
    assert [one.reason for one in read.failures] == ["empty"]
