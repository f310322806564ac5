"""The books: a shard is at one place, in whatever order and however often the words about it come."""

from __future__ import annotations

import random
import time

import pyarrow as pa
import pytest

from cluster.costs import COSTS, entry
from cluster.desk import TASK_SLOTS, Account, Attempt, Books, account

NOTHING = Account({}, {})
STAGES = {"read": 0, "rewrite": 2, "rerank": 1}
ONCE, AGAIN = Attempt("one", 1), Attempt("two", 1)


@pytest.fixture
def now() -> list[float]:
    """A clock that stands still until the test moves it."""
    return [100.0]


@pytest.fixture
def books(now: list[float]) -> Books:
    return Books(STAGES, lambda: now[0])


def rows(books: Books) -> dict[str, tuple[int, int, int]]:
    """done, at work, waiting."""
    return {name: page[:3] for name, page in books.pages().items()}


def passed(books: Books, stage: str, shard: int, made: int, seat: int = 0, found: Account = NOTHING) -> None:
    attempt = Attempt(f"{stage}-{time.monotonic_ns()}", 1)
    books.began(stage, shard, made, seat, attempt)
    books.ended(stage, shard, made, attempt, found)


def test_a_shard_is_followed_from_stage_to_stage(books: Books) -> None:
    assert rows(books) == {"read": (0, 0, 0), "rewrite": (0, 0, 0), "rerank": (0, 0, 0)}
    books.began("read", 5, 1, 5, ONCE)
    assert rows(books)["read"] == (0, 1, 0)
    books.ended("read", 5, 200, ONCE, NOTHING)  # a place in the plan became rows
    assert rows(books) == {"read": (200, 0, 0), "rewrite": (0, 0, 200), "rerank": (0, 0, 0)}
    books.began("rewrite", 5, 200, 1, ONCE)
    assert rows(books)["rewrite"] == (0, 200, 0)
    books.ended("rewrite", 5, 200, ONCE, NOTHING)
    books.began("rerank", 5, 200, 0, ONCE)
    books.ended("rerank", 5, 1, ONCE, NOTHING)  # the rows became a manifest
    assert rows(books) == dict.fromkeys(STAGES, (200, 0, 0))
    books.committed(5)
    assert rows(books) == dict.fromkeys(STAGES, (0, 0, 0))


def test_a_worker_says_how_far_it_is_within_its_block(books: Books) -> None:
    for shard in (1, 2):
        passed(books, "read", shard, 100, shard)
        books.began("rewrite", shard, 100, 0, ONCE)
    books.reached("rewrite", 1, 0.25)
    books.reached("rewrite", 2, 0.6)
    assert rows(books)["rewrite"] == (85, 115, 0)
    books.reached("rewrite", 2, 0.1)  # an older word
    books.reached("rewrite", 1, 7.0)
    assert rows(books)["rewrite"] == (160, 40, 0)
    books.ended("rewrite", 1, 100, ONCE, NOTHING)
    books.reached("rewrite", 1, 0.5)  # too late
    books.reached("rerank", 1, 0.5)  # not begun
    books.reached("rewrite", 9, 0.5)  # never heard of
    assert rows(books)["rewrite"] == (160, 40, 0)
    assert rows(books)["rerank"] == (0, 0, 100)


def test_a_block_that_is_done_again_is_not_counted_twice(books: Books, now: list[float]) -> None:
    counted = Account({"rewrite": {"dmqr@m": {"requests": 10}}}, {"failed_queries": 1})
    passed(books, "read", 1, 10, 1)
    books.began("rewrite", 1, 10, 0, ONCE)
    books.reached("rewrite", 1, 0.5)
    now[0] += 3
    books.seated("rewrite", 0, AGAIN.life)  # its worker died, and is back
    assert rows(books)["rewrite"] == (0, 0, 10)
    now[0] += 5
    books.began("rewrite", 1, 10, 0, AGAIN)
    now[0] += 2
    books.seated("rewrite", 0, AGAIN.life)  # late: it is this worker that has the block
    assert rows(books)["rewrite"] == (0, 10, 0)
    books.ended("rewrite", 1, 10, AGAIN, counted)
    assert books.pages()["rewrite"].busy == 5  # the time without a worker is none
    for _ in range(2):  # the result was lost with its node: all of it again
        passed(books, "read", 1, 10, 1)
        assert rows(books) == {"read": (10, 0, 0), "rewrite": (0, 0, 10), "rerank": (0, 0, 0)}
        assert books.pages()["rewrite"].counts == {}
        passed(books, "rewrite", 1, 10, 1, counted)
    assert books.pages()["rewrite"].counts == {"failed_queries": 1}
    assert books.pages()["rewrite"].spent == counted.spent
    assert rows(books)["rerank"] == (0, 0, 10)


def test_words_that_overtake_each_other(books: Books) -> None:
    books.ended("read", 1, 10, ONCE, NOTHING)  # before it began
    books.began("read", 1, 1, 1, ONCE)
    assert rows(books) == {"read": (10, 0, 0), "rewrite": (0, 0, 10), "rerank": (0, 0, 0)}
    books.began("rewrite", 1, 10, 0, ONCE)
    books.began("rerank", 1, 10, 0, ONCE)
    books.ended("rewrite", 1, 10, ONCE, Account({}, {"failed_queries": 2}))
    assert rows(books) == {"read": (10, 0, 0), "rewrite": (10, 0, 0), "rerank": (0, 10, 0)}
    assert books.pages()["rewrite"].counts == {"failed_queries": 2}
    books.committed(1)
    books.ended("rerank", 1, 1, ONCE, NOTHING)
    books.began("rerank", 1, 10, 0, ONCE)
    books.committed(1)
    books.committed(2)
    assert rows(books) == dict.fromkeys(STAGES, (0, 0, 0))
    books.ended("read", 3, 10, ONCE, NOTHING)
    books.ended("rerank", 3, 1, ONCE, NOTHING)  # before the stage between
    books.ended("rewrite", 3, 10, ONCE, NOTHING)
    assert rows(books) == dict.fromkeys(STAGES, (10, 0, 0))


def test_what_is_not_committed_is_summed(books: Books) -> None:
    for shard, tokens in ((1, 30), (2, 12), (3, 100)):
        passed(books, "read", shard, 10, shard)
        passed(books, "rewrite", shard, 10, 0, Account({"rewrite": {"dmqr@m": {"prompt_tokens": tokens}}}, {"x": shard}))
    books.committed(3)
    page = books.pages()["rewrite"]
    assert page.spent == {"rewrite": {"dmqr@m": {"prompt_tokens": 42}}}
    assert page.counts == {"x": 3}
    assert books.pages()["rewrite"].spent == page.spent  # reading changes nothing


def test_busy_seconds_are_those_in_which_a_seat_has_a_block(books: Books, now: list[float]) -> None:
    for shard in (1, 2, 3):
        passed(books, "read", shard, 10, shard)
    books.began("rewrite", 1, 10, 0, ONCE)
    now[0] += 1
    books.began("rewrite", 2, 10, 0, ONCE)  # a second block of the same worker
    books.began("rewrite", 3, 10, 1, ONCE)
    now[0] += 2
    books.ended("rewrite", 1, 10, ONCE, NOTHING)
    now[0] += 4
    assert books.pages()["rewrite"].busy == 7 + 6  # also while they last
    books.ended("rewrite", 2, 10, ONCE, NOTHING)
    books.ended("rewrite", 3, 10, ONCE, NOTHING)
    now[0] += 50
    assert books.pages()["rewrite"].busy == 13
    books.began("read", 8, 1, 8, ONCE)  # tasks of a stage without a pool have a seat for each block
    books.began("read", 9, 1, 9, ONCE)
    now[0] += 1
    assert books.pages()["read"].busy == 2


def test_workers_that_are_there(books: Books) -> None:
    def there() -> dict[str, tuple[int, int]]:
        return {name: (page.there, page.workers) for name, page in books.pages().items()}

    assert there() == {"read": (TASK_SLOTS, TASK_SLOTS), "rewrite": (0, 2), "rerank": (0, 1)}
    books.seated("rewrite", 1, "a")
    books.seated("rewrite", 1, "b")
    books.began("rerank", 4, 10, 0, ONCE)  # to a desk that began anew
    assert there() == {"read": (TASK_SLOTS, TASK_SLOTS), "rewrite": (1, 2), "rerank": (1, 1)}


def test_the_books_stay_small_and_end_empty(books: Books, now: list[float]) -> None:
    order = random.Random(7)
    for shard in range(3000):
        for stage in STAGES:
            now[0] += order.random()
            seat = shard if stage == "read" else 0
            words = [(what, Attempt("", n)) for n in (1, 2) for what in ("began", "ended")]
            order.shuffle(words)
            for what, attempt in words:
                if what == "began":
                    books.began(stage, shard, 10, seat, attempt)
                else:
                    books.ended(stage, shard, 10, attempt, NOTHING)
        if shard >= 3:
            books.committed(shard - 3)
        assert len(books._places) <= 3 + 1
    for shard in range(2997, 3000):
        books.committed(shard)
    assert rows(books) == dict.fromkeys(STAGES, (0, 0, 0))
    assert not books._blocks
    assert not books._since
    assert len(books._committed) <= 1000


def test_an_account_has_the_entries_of_its_own_stage() -> None:
    spent = [
        [entry("rewrite", "dmqr", 2.0, model="m", requests=1, prompt_tokens=7), entry("retrieve", "bm25", 1.0, searches=5)],
        [entry("retrieve", "bm25", 3.0, searches=2)],
    ]
    table = pa.table({"costs": pa.array(spent, COSTS)})
    assert account("retrieve", table, {"n": 1}) == ({"retrieve": {"bm25@": {"seconds": 4.0, "searches": 7}}}, {"n": 1})
    assert account("write", table, {}) == ({}, {})
    assert account("write", pa.table({"n": [1]}), {}) == ({}, {})
