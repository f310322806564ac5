"""Selection by chance, by a column of the log, and by number."""

from __future__ import annotations

from collections import Counter

import pytest

from rewriters.classifier import Rules
from rewriters.pool import Entry
from rewriters.query import Query
from rewriters.rewriter import Rewriter
from rewriters.settings import SelectClassified, SelectColumn, SelectRandom
from tests.support.rewriters.pools import FOUR, rewriter, said

POOL: list[Entry] = [*FOUR, {"rag_fusion": {"n": 2}}, {"rag_fusion": {"n": 3, "temperature": 0.5}}]
NAMES = [*FOUR, "rag_fusion(n=2)", "rag_fusion(n=3,temperature=0.5)"]


def random_k(k: int = 2, seed: int = 0, pool: list[Entry] | None = None) -> Rewriter:
    return rewriter(pool or [*FOUR], select=SelectRandom(kind="random_k", k=k, seed=seed))


def drawn(one: Rewriter, count: int = 400) -> list[tuple[str, ...]]:
    return [tuple(one.choose(Query(f"{number:032x}", "tea")).texts) for number in range(count)]


def test_a_query_has_the_same_strategies_in_every_run() -> None:
    assert drawn(random_k()) == drawn(random_k())
    assert [set(one) for one in drawn(random_k())] == [set(one) for one in drawn(random_k(pool=[*FOUR[::-1]]))]
    assert drawn(random_k()) != drawn(random_k(seed=1))


@pytest.mark.parametrize("k", [1, 2, 3, 4])
def test_k_strategies_are_drawn_roughly_evenly_in_the_order_of_the_pool(k: int) -> None:
    found = drawn(random_k(k))
    assert {len(set(one)) for one in found} == {k}
    assert all(list(one) == [name for name in FOUR if name in one] for one in found)
    counts = Counter(name for one in found for name in one)
    assert all(abs(counts[name] - 100 * k) < 45 for name in FOUR)  # five standard deviations


# ---------------------------------------------------------------- a column of the log


def by_cell(cell: str | None) -> tuple[list[str], str | None]:
    one = rewriter(POOL, select=SelectColumn(kind="column", column="methods"))
    choice = one.choose(Query("id1", "tea", None, {} if cell is None else {"methods": cell}))
    return list(choice.texts), choice.note


@pytest.mark.parametrize("cell", ["generl", "keyword, generl", "rag_fusion", "-1", "2.5", "keyword keyword"])
def test_a_cell_that_names_none_of_the_pool_takes_all_with_a_note(cell: str) -> None:
    strategies, note = by_cell(cell)
    assert strategies == NAMES
    assert note is not None
    assert note.startswith("column 'methods': '")
    assert "is not among rewrite.strategies" in note
    assert note.endswith("; add it; all strategies are taken")


def test_the_column_is_read_from_the_log_and_the_reason_kept() -> None:
    one = rewriter(["keyword"], select=SelectColumn(kind="column", column="methods"))
    assert one._of.columns == ("methods",)
    query = Query("id1", "green tea", None, {"methods": "keyword"})
    (request,) = one.requests(query)
    (rewrite,) = one.read(query, [(request, said("green, tea"))]).rewrites
    assert rewrite.selected_reason == "methods: keyword"


# ---------------------------------------------------------------- a number of texts


def test_a_number_of_rewrites_that_follows_the_query() -> None:
    """Bare keywords none, simple queries two, complex ones four to five."""
    rules = Rules.model_validate(
        {
            "rules": [{"type": "keywords", "at_most_words": 2}, {"type": "complex", "contains": ["and", "with"]}],
            "otherwise": "simple",
            "descriptions": {"keywords": "a", "complex": "b", "simple": "c"},
            "strategies": {"keywords": 0, "simple": 2, "complex": 5},
        }
    )
    one = rewriter(["general", "rag_fusion"], select=SelectClassified(kind="classified"), rules=rules)
    variants = "\n".join(f"{number}. tea variant {'abcd'[number - 1]}" for number in range(1, 5))
    for text, positions in (("green tea", {}), ("how is tea made", {"general": 1, "rag_fusion": 1}),
                            ("tea with milk and sugar", {"general": 1, "rag_fusion": 4})):  # fmt: skip
        query = Query("id1", text)
        choice = one.choose(query)
        requests = one.requests(query, choice)
        answers = {"dmqr": '{"general": "tea in general"}', "rag_fusion": variants}
        made = one.read(query, [(request, said(answers[request.name])) for request in requests], choice)
        assert Counter(rewrite.strategy for rewrite in made.rewrites) == positions
        assert made.failures == []
