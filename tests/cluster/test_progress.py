"""The tracker: how many shards are under way, and where each is; workers that compute are heard of, those that hang are not."""

import random
import subprocess
import sys
import threading
import time

import pyarrow as pa
import pytest

from cluster.costs import COSTS, Totals, entry
from cluster.outages import Outage
from cluster.run.pool_sizes import Pool
from cluster.run.progress import TASKS, ProgressTracker
from cluster.run.pulse import reported_while_busy
from cluster.run.snapshot import BlockTotals, block_totals
from cluster.run.stage import Stage, shards_in_flight
from tests.support.cluster.clock import Clock
from tests.support.waits import until

NOTHING = BlockTotals({}, {})

STAGES = {"read": 0, "rewrite": 2, "rerank": 1}


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def tracker(clock: Clock) -> ProgressTracker:
    return ProgressTracker(STAGES, limit=2, clock=clock.monotonic)


def rows(tracker: ProgressTracker) -> dict[str, tuple[int, int, int]]:
    """done, at work, waiting."""
    return {name: stage[:3] for name, stage in tracker.progress().stages.items()}


def passed(
    tracker: ProgressTracker, stage: str, shard: int, made: int, worker: str = "w", found: BlockTotals = NOTHING
) -> None:
    attempt = tracker.block_started(stage, shard, made, worker)
    tracker.block_finished(stage, shard, made, attempt, found)


def test_no_more_shards_than_the_limit_are_under_way(tracker: ProgressTracker) -> None:
    assert tracker.admit(0, 0) is True
    assert tracker.admit(1, 0) is True
    assert tracker.admit(2, 0) is None
    assert tracker.in_flight() == 2
    for _ in range(2):  # told twice, it makes room once
        tracker.mark_committed(1)
    assert tracker.admit(2, 0) is True
    assert tracker.admit(3, 0) is None


def test_who_waits_is_let_in_by_a_commit() -> None:
    tracker = ProgressTracker(STAGES, limit=1)
    tracker.admit(0, 0)
    answers: list[bool | None] = []
    waiting = [threading.Thread(target=lambda shard=shard: answers.append(tracker.admit(shard, 3600))) for shard in (1, 2)]
    for thread in waiting:
        thread.start()
    time.sleep(0.05)
    assert answers == []
    tracker.mark_committed(0)
    until(lambda: answers)
    assert answers == [True]
    tracker.close()
    for thread in waiting:
        thread.join(300)
    assert answers == [True, False]


def test_a_shard_is_followed_from_stage_to_stage(tracker: ProgressTracker) -> None:
    assert rows(tracker) == dict.fromkeys(STAGES, (0, 0, 0))
    attempt = tracker.block_started("read", 5, 1, "task")
    assert rows(tracker)["read"] == (0, 1, 0)
    tracker.block_finished("read", 5, 200, attempt, NOTHING)  # a place in the plan became rows
    assert rows(tracker) == {"read": (200, 0, 0), "rewrite": (0, 0, 200), "rerank": (0, 0, 0)}
    attempt = tracker.block_started("rewrite", 5, 200, "w")
    assert rows(tracker)["rewrite"] == (0, 200, 0)
    tracker.block_finished("rewrite", 5, 200, attempt, NOTHING)
    attempt = tracker.block_started("rerank", 5, 200, "w")
    tracker.block_finished("rerank", 5, 1, attempt, NOTHING)  # the rows became a manifest
    assert rows(tracker) == dict.fromkeys(STAGES, (200, 0, 0))
    tracker.mark_committed(5)
    assert rows(tracker) == dict.fromkeys(STAGES, (0, 0, 0))


def test_a_worker_reports_how_far_it_is_within_its_block(tracker: ProgressTracker) -> None:
    attempts = {}
    for shard in (1, 2):
        passed(tracker, "read", shard, 100)
        attempts[shard] = tracker.block_started("rewrite", shard, 100, "w")
    tracker.heartbeat("rewrite", 1, attempts[1], 0.25)
    tracker.heartbeat("rewrite", 2, attempts[2], 0.6)
    assert rows(tracker)["rewrite"] == (85, 115, 0)
    tracker.heartbeat("rewrite", 2, attempts[2], 0.1)  # older
    tracker.heartbeat("rewrite", 2, attempts[2] + 1, 0.9)  # of another attempt
    tracker.heartbeat("rewrite", 1, attempts[1], 7.0)
    assert rows(tracker)["rewrite"] == (160, 40, 0)
    tracker.block_finished("rewrite", 1, 100, attempts[1], NOTHING)
    tracker.heartbeat("rewrite", 1, attempts[1], 0.5)  # too late
    tracker.heartbeat("rerank", 1, 1, 0.5)  # not begun
    tracker.heartbeat("rewrite", 9, 1, 0.5)  # never heard of
    assert rows(tracker)["rewrite"] == (160, 40, 0)
    assert rows(tracker)["rerank"] == (0, 0, 100)


def test_a_block_that_is_done_again_is_not_counted_twice(tracker: ProgressTracker, clock: Clock) -> None:
    counted = BlockTotals({"rewrite": {"dmqr@m": {"requests": 10}}}, {"failed_queries": 1})
    passed(tracker, "read", 1, 10)
    assert tracker.block_started("rewrite", 1, 10, "w") == 1
    tracker.heartbeat("rewrite", 1, 1, 0.5)
    clock.sleep(3)
    tracker.worker_started("rewrite", "w")  # its worker died, and is back
    assert rows(tracker)["rewrite"] == (0, 0, 10)
    clock.sleep(5)
    assert tracker.block_started("rewrite", 1, 10, "w") == 2
    clock.sleep(2)
    tracker.block_finished("rewrite", 1, 10, 1, counted)  # of the attempt that died
    assert rows(tracker)["rewrite"] == (0, 10, 0)
    tracker.block_finished("rewrite", 1, 10, 2, counted)
    assert tracker.progress().stages["rewrite"].busy_seconds == 5  # the time without a worker is none
    for _ in range(2):  # the result was lost with its node: all of it again
        passed(tracker, "read", 1, 10)
        assert rows(tracker) == {"read": (10, 0, 0), "rewrite": (0, 0, 10), "rerank": (0, 0, 0)}
        assert tracker.progress().stages["rewrite"].counts == {}
        passed(tracker, "rewrite", 1, 10, "w", counted)
    assert tracker.progress().stages["rewrite"].counts == {"failed_queries": 1}
    assert tracker.progress().stages["rewrite"].spent == counted.spent
    assert rows(tracker)["rerank"] == (0, 0, 10)


def test_an_attempt_that_ends_after_the_commit_changes_nothing(tracker: ProgressTracker) -> None:
    passed(tracker, "read", 1, 10)
    attempt = tracker.block_started("rewrite", 1, 10, "w")
    tracker.mark_committed(1)
    tracker.block_finished("rewrite", 1, 10, attempt, NOTHING)
    tracker.block_started("rerank", 1, 10, "w")
    assert rows(tracker) == dict.fromkeys(STAGES, (0, 0, 0))


def test_busy_seconds_are_those_in_which_a_worker_has_a_block(tracker: ProgressTracker, clock: Clock) -> None:
    attempts = {}
    for shard in (1, 2, 3):
        passed(tracker, "read", shard, 10)
    attempts[1] = tracker.block_started("rewrite", 1, 10, "a")
    clock.sleep(1)
    attempts[2] = tracker.block_started("rewrite", 2, 10, "a")  # a second block of the same worker
    attempts[3] = tracker.block_started("rewrite", 3, 10, "b")
    clock.sleep(2)
    tracker.block_finished("rewrite", 1, 10, attempts[1], NOTHING)
    clock.sleep(4)
    assert tracker.progress().stages["rewrite"].busy_seconds == 7 + 6  # also while they last
    for shard in (2, 3):
        tracker.block_finished("rewrite", shard, 10, attempts[shard], NOTHING)
    clock.sleep(50)
    assert tracker.progress().stages["rewrite"].busy_seconds == 13
    tracker.block_started("read", 8, 1, "task-8")
    tracker.block_started("read", 9, 1, "task-9")
    clock.sleep(1)
    assert tracker.progress().stages["read"].busy_seconds == 2


def test_ready_workers(tracker: ProgressTracker) -> None:
    def there() -> dict[str, tuple[int, int]]:
        return {name: (stage.ready_workers, stage.workers) for name, stage in tracker.progress().stages.items()}

    assert there() == {"read": (TASKS, TASKS), "rewrite": (0, 2), "rerank": (0, 1)}
    tracker.worker_started("rewrite", "a")
    tracker.worker_started("rewrite", "a")  # again
    tracker.block_started("rerank", 4, 10, "x")  # to a tracker that was started anew
    assert there() == {"read": (TASKS, TASKS), "rewrite": (1, 2), "rerank": (1, 1)}
    for worker in "bcd":  # the pool has grown
        tracker.worker_started("rewrite", worker)
    assert there()["rewrite"] == (4, 4)
    for worker in "abcd":  # and is let go: it is not starting
        tracker.worker_stopped("rewrite", worker)
    assert there()["rewrite"] == (2, 2)


def test_the_tracker_stays_small_and_ends_empty(tracker: ProgressTracker, clock: Clock) -> None:
    order = random.Random(7)
    for shard in range(3000):
        for stage in STAGES:
            clock.sleep(order.random())
            attempts = [tracker.block_started(stage, shard, 10, "w") for _ in range(order.randint(1, 3))]
            for attempt in order.sample(attempts, len(attempts)):
                tracker.block_finished(stage, shard, 10, attempt, NOTHING)
        if shard >= 3:
            tracker.mark_committed(shard - 3)
        assert len(tracker._shards) <= 3 + 1
    for shard in range(2997, 3000):
        tracker.mark_committed(shard)
    assert rows(tracker) == dict.fromkeys(STAGES, (0, 0, 0))
    assert not tracker._calls
    assert not tracker._busy_since
    assert not tracker._attempts
    assert len(tracker._committed) <= 1000


def test_an_account_has_the_entries_of_its_own_stage() -> None:
    spent = [
        [entry("rewrite", "dmqr", 2.0, model="m", requests=1, prompt_tokens=7), entry("retrieve", "bm25", 1.0, searches=5)],
        [entry("retrieve", "bm25", 3.0, searches=2)],
    ]
    table = pa.table({"costs": pa.array(spent, COSTS)})
    found = BlockTotals({"retrieve": {"bm25@": {"seconds": 4.0, "searches": 7}}}, {"n": 1})
    given = pa.table({"costs": pa.array([[], []], COSTS)})
    assert block_totals("retrieve", given, table, {"n": 1}) == found
    assert block_totals("retrieve", pa.table({"n": [1]}), table, {"n": 1}) == found
    assert block_totals("write", given, table, {}) == NOTHING
    assert block_totals("write", given, pa.table({"n": [1]}), {}) == NOTHING


def test_a_shard_that_is_given_up_leaves_the_gate_closed_and_its_costs_counted(tracker: ProgressTracker) -> None:
    spent: Totals = {"rewrite": {"dmqr@m": {"requests": 7}}}
    tracker.admit(0, 0)
    attempt = tracker.block_started("rewrite", 0, 10, "w")
    tracker.heartbeat("rewrite", 0, attempt, 0.7, spent)
    assert tracker.progress().stages["rewrite"].spent == spent  # before the block ends
    tracker.halt(0)
    snapshot = tracker.progress()
    assert (snapshot.halted, snapshot.queries, tracker.in_flight()) == (1, 0, 0)
    assert [page.spent for page in snapshot.stages.values()] == [spent, {}, {}]
    assert tracker.admit(1, 0) is False


def test_outages_of_workers_are_one_per_service_and_end_with_the_worker(tracker: ProgressTracker) -> None:
    early, late = Outage("S3", "away", 100.0, 120), Outage("S3", "away", 105.0, 120)
    tracker.report_outages("v", [late])
    tracker.report_outages("w", [early])
    assert tracker.progress().outages == [early]
    tracker.worker_started("rewrite", "w")  # anew
    assert tracker.progress().outages == [late]
    tracker.report_outages("v", [])
    assert tracker.progress().outages == []


@pytest.mark.parametrize(
    ("shards", "limit"),
    [
        (0, 9),  # unknown: every worker has all it may have, and one more
        (1000, 9),
        (20, 5),  # a quarter
        (7, 4),  # a shard for each worker, and one more
    ],
)
def test_with_few_shards_fewer_are_in_flight(shards: int, limit: int) -> None:
    def never(_: pa.Table) -> pa.Table:
        raise AssertionError

    stages = [
        Stage("rewrite", lambda: never, {}, pool=Pool(1, 1, 0), concurrent_blocks=4),
        Stage("retrieve", lambda: never, {}, pool=Pool(2, 1, 0)),
    ]
    assert shards_in_flight(stages, shards) == limit


@pytest.mark.parametrize("seed", range(20))
def test_work_and_waiting_of_all_shards_fill_their_time(seed: int) -> None:
    """Each shard, from its first begin to its last end, is worked on by one worker or waits: the sums are its whole time."""
    drawn, clock = random.Random(seed), Clock()
    tracker = ProgressTracker(STAGES, limit=99, clock=clock.monotonic)
    shards = range(6)
    at = dict.fromkeys(shards, 0)  # the stage that each is in or waits for
    attempts: dict[int, int] = {}
    begun, ended, names = dict[int, float](), dict[int, float](), list(STAGES)
    while len(ended) < len(shards):
        clock.sleep(drawn.randint(0, 9))
        shard = drawn.choice([one for one in shards if one not in ended])
        stage = names[at[shard]]
        if shard not in attempts:
            begun.setdefault(shard, clock.now)
            attempts[shard] = tracker.block_started(stage, shard, 5, f"worker of {shard}")
            continue
        tracker.block_finished(stage, shard, 5, attempts.pop(shard), NOTHING)
        at[shard] += 1
        if at[shard] == len(names):
            ended[shard] = clock.now
    stages = tracker.progress().stages.values()
    worked, waited = sum(one.busy_seconds for one in stages), sum(one.queued_seconds for one in stages)
    assert worked + waited == sum(ended[shard] - begun[shard] for shard in shards)


def test_one_that_computes_is_reported() -> None:
    heard = threading.Event()
    with reported_while_busy(heard.set, seconds=0.2):
        end = time.monotonic() + 300
        while not heard.is_set() and time.monotonic() < end:
            sum(range(100_000))
    assert heard.is_set()


def test_one_whose_child_computes_is_reported() -> None:
    heard = threading.Event()
    with subprocess.Popen([sys.executable, "-c", "while True: pass"]) as child:
        try:
            with reported_while_busy(heard.set, seconds=0.2):
                heard.wait(300)
        finally:
            child.kill()
    assert heard.is_set()


def test_one_that_waits_is_not_reported() -> None:
    heard: list[None] = []
    with reported_while_busy(lambda: heard.append(None), seconds=0.5):
        time.sleep(2.2)
    assert not heard
