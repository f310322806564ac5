"""The desk: how many shards are under way, who works on them, and when no more begin."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

from cluster.desk import Account, Attempt, Desk

POOLS = {"retrieve": 3}


def run(story: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(story, 10))


async def settled(task: asyncio.Task[bool]) -> bool:
    """Whether the task has ended after everything that could go on has gone on."""
    for _ in range(20):
        await asyncio.sleep(0)
    return task.done()


def test_no_more_shards_than_the_limit_are_under_way() -> None:
    async def story() -> None:
        desk = Desk(2, POOLS)
        assert await desk.admit(0)
        assert await desk.admit(1)
        third = asyncio.create_task(desk.admit(2))
        assert not await settled(third)
        await desk.committed(1)
        assert await third
        fourth = asyncio.create_task(desk.admit(3))
        assert not await settled(fourth)
        await desk.committed(0)
        assert await fourth

    run(story())


def test_one_commit_lets_one_of_several_in() -> None:
    async def story() -> None:
        desk = Desk(1, POOLS)
        await desk.admit(0)
        waiting = [asyncio.create_task(desk.admit(n)) for n in (1, 2)]
        assert [await settled(task) for task in waiting] == [False, False]
        await desk.committed(0)
        assert sorted([await settled(task) for task in waiting]) == [False, True]
        await desk.close()
        assert sorted(await asyncio.gather(*waiting)) == [False, True]

    run(story())


def test_a_shard_that_is_tried_again_does_not_wait_for_itself() -> None:
    async def story() -> None:
        desk = Desk(2, POOLS)
        await desk.admit(0)
        await desk.admit(1)
        assert await desk.admit(0)
        await desk.committed(0)
        assert await desk.admit(2)  # the second try took no second place
        assert not await settled(asyncio.create_task(desk.admit(3)))

    run(story())


def test_a_commit_that_is_told_twice_makes_room_once() -> None:
    async def story() -> None:
        desk = Desk(1, POOLS)
        await desk.admit(0)
        await desk.committed(0)
        await desk.committed(0)
        assert await desk.admit(1)
        assert not await settled(asyncio.create_task(desk.admit(2)))

    run(story())


def test_closing_turns_away_who_waits_and_who_comes_later() -> None:
    async def story() -> None:
        desk = Desk(1, POOLS)
        await desk.admit(0)
        waiting = asyncio.create_task(desk.admit(1))
        assert not await settled(waiting)
        await desk.close()
        assert not await waiting
        await desk.committed(0)
        assert not await desk.admit(2)

    run(story())


def test_work_goes_to_the_least_busy_worker() -> None:
    async def story() -> None:
        desk = Desk(9, POOLS)
        assert {await desk.take("retrieve") for _ in range(3)} == {0, 1, 2}
        await desk.give("retrieve", 1)
        assert await desk.take("retrieve") == 1
        await desk.give("retrieve", 2)
        await desk.give("retrieve", 2)  # a desk that began anew hears of work it never gave out
        assert [await desk.take("retrieve") for _ in range(2)] == [2, 2]

    run(story())


def test_stages_have_workers_of_their_own() -> None:
    async def story() -> None:
        desk = Desk(9, {"rewrite": 1, "retrieve": 2})
        assert [await desk.take("rewrite") for _ in range(2)] == [0, 0]
        assert sorted([await desk.take("retrieve") for _ in range(2)]) == [0, 1]

    run(story())


def test_the_desk_keeps_the_books_and_hears_every_word() -> None:
    async def story() -> None:
        desk = Desk(1, {"read": 0, "retrieve": 1})
        await desk.admit(7)
        desk._heard -= 100
        await desk.seated("retrieve", 0, "life")
        assert await desk.quiet() < 1
        desk._heard -= 100
        await desk.began("read", 7, 1, 7, Attempt("task", 1))
        assert await desk.quiet() < 1
        await desk.ended("read", 7, 40, Attempt("task", 1), Account({}, {}))
        await desk.began("retrieve", 7, 40, 0, Attempt("life", 1))
        desk._heard -= 100
        await desk.pulse("retrieve", 7, None)  # a sign of life only
        assert await desk.quiet() < 1
        await desk.pulse("retrieve", 7, 0.25)
        pages = await desk.books()
        assert [(name, page.done, page.at_work, page.waiting) for name, page in pages.items()] == [
            ("read", 40, 0, 0),
            ("retrieve", 10, 30, 0),
        ]
        await desk.close()
        assert not await desk.admit(8)  # who is turned away never comes into the books
        assert (await desk.books())["read"] == pages["read"]
        await desk.committed(7)
        assert [(page.done, page.at_work, page.waiting) for page in (await desk.books()).values()] == [(0, 0, 0)] * 2

    run(story())
