"""A stage's borders and its meter, with workers that are a few lines."""

import gc
import threading
import time
from collections.abc import Callable

import pyarrow as pa
import pytest

from cluster.costs import COSTS, START_UP, BusyTime, entry
from cluster.errors import ClusterError, RetrieverError, RewriterError, UnavailableError
from cluster.run.meter import Meter
from cluster.run.pool_sizes import Pool
from cluster.run.stage import Stage, bear, heartbeat, reporting_to
from tests.support.cluster.clock import Clock
from tests.support.waits import PATIENCE

IN = pa.schema([("n", pa.int64()), ("costs", COSTS)])
OUT = IN.append(pa.field("double", pa.int64()))
SLOW = 0.05


class Double:
    """Charges each row its number of seconds, whatever it took."""

    def __init__(self, wait: float = 0.0, start_up: float = 0.0, sleep: Callable[[float], None] = time.sleep) -> None:
        sleep(start_up)
        self._wait = wait

    def __call__(self, table: pa.Table) -> pa.Table:
        time.sleep(self._wait)
        numbers = table.column("n").to_pylist()
        spent = pa.array([[*old, entry("double", "d", n)] for old, n in zip(costs_of(table), numbers, strict=True)], COSTS)
        return table.set_column(1, OUT.field("costs"), spent).append_column("double", pa.array([2 * n for n in numbers]))


def costs_of(table: pa.Table) -> list[list[dict[str, object]]]:
    rows: list[list[dict[str, object]]] = table.column("costs").to_pylist()
    return rows


def block(*numbers: int) -> pa.Table:
    earlier = [[entry("earlier", "e", 5.0, start=1)] for _ in numbers]
    return pa.table({"n": list(numbers), "costs": pa.array(earlier, COSTS)}, schema=IN)


def stage(worker: Callable[..., object] = Double, pool: Pool | None = None, **settings: object) -> Stage:
    return Stage("double", worker, settings, IN, OUT, pool)  # type: ignore[arg-type]


# ---------------------------------------------------------------- borders


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (block(1).drop_columns("costs"), "missing ['costs: list"),
        (block(1).append_column("x", pa.array([1])), "missing [], unknown ['x: int64']"),
        (block(1).set_column(0, "n", pa.array(["1"])), "missing ['n: int64'], unknown ['n: string']"),
        (block(1).select(["costs", "n"]), "found ['costs', 'n']"),
    ],
    ids=["missing", "unknown", "type", "order"],
)
def test_what_a_stage_is_given_must_be_its_schema(given: pa.Table, words: str) -> None:
    with pytest.raises(ClusterError) as refused:
        Meter(stage(), 1)(given)
    assert str(refused.value).startswith("double was given a table that differs from its schema")
    assert words in str(refused.value)


def test_what_a_stage_returns_must_be_its_schema() -> None:
    with pytest.raises(
        ClusterError, match=r"double returned a table .* missing \['double: int64'\], unknown \['triple: int64'\]"
    ):
        Meter(stage(lambda: lambda table: Double()(table).rename_columns(["n", "costs", "triple"])), 1)(block(1))


def test_a_block_without_rows_passes_the_worker_by() -> None:
    def never(table: pa.Table) -> pa.Table:
        raise AssertionError("the worker was called")

    assert Meter(stage(lambda: never), 1)(pa.table({"any": pa.array([], pa.string())})).equals(OUT.empty_table())


# ---------------------------------------------------------------- the meter


def test_the_rows_share_the_time_of_the_call_and_earlier_costs_stay() -> None:
    began = time.perf_counter()
    result = Meter(stage(wait=SLOW), 7)(block(1, 3))
    took = time.perf_counter() - began
    rows = costs_of(result)
    assert [row[0] for row in rows] == [entry("earlier", "e", 5.0, start=1)] * 2
    first, second = (row[1] for row in rows)
    assert SLOW <= first["seconds"] + second["seconds"] <= took  # type: ignore[operator]
    assert second["seconds"] == pytest.approx(3 * first["seconds"])  # type: ignore[operator]
    assert (first["start"], second["start"]) == (7, 7)
    assert result.column("double").to_pylist() == [2, 6]


def test_start_up_is_charged_once_and_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock()
    monkeypatch.setattr("cluster.run.meter.time", clock)
    monkeypatch.setattr("cluster.costs.BusyTime", lambda: BusyTime(clock.perf_counter))
    meter = Meter(stage(pool=Pool(1, 1, 0), start_up=SLOW, sleep=clock.sleep), 2)
    meter(IN.empty_table())
    first, second = costs_of(meter(block(1, 2))), costs_of(meter(block(1, 2)))
    assert [[one["component"] for one in row] for row in first] == [["e", "d", START_UP], ["e", "d"]]
    assert [[one["component"] for one in row] for row in second] == [["e", "d"], ["e", "d"]]
    alone = costs_of(Meter(stage(start_up=SLOW, sleep=clock.sleep), 1)(block(1, 2)))  # made for one block
    assert [one["component"] for row in alone for one in row] == [*"eded"]
    charged = first[0][-1]
    assert charged["seconds"] == pytest.approx(SLOW)
    assert (charged["stage"], charged["start"], charged["device_seconds"]) == ("double", 2, 0.0)
    assert sum(one["seconds"] for row in first for one in row if one["component"] == "d") == 0  # type: ignore[misc]


def test_garbage_is_not_looked_for_among_what_a_worker_has_loaded() -> None:
    def loaded(kept: list[list[int]]) -> Double:
        kept += [[] for _ in range(1000)]
        return Double()

    before, kept = gc.get_freeze_count(), list[list[int]]()
    Meter(stage(loaded, Pool(1, 1, 0), kept=kept), 1)
    assert gc.get_freeze_count() <= before  # of a process that goes on without the worker, it would never be freed
    Meter(stage(loaded, Pool(1, 1, 0), kept=kept), 1, own_process=True)
    assert gc.get_freeze_count() - before >= 1000


def test_seconds_of_accelerators_are_those_of_the_worker_times_what_it_holds() -> None:
    (row,) = costs_of(Meter(stage(pool=Pool(1, 1, 2.0), wait=0.01), 1)(block(1)))
    earlier, mine, start_up = row
    assert earlier["device_seconds"] == 0.0
    assert mine["device_seconds"] == pytest.approx(2 * mine["seconds"])  # type: ignore[operator]
    assert start_up["device_seconds"] == pytest.approx(2 * start_up["seconds"])  # type: ignore[operator]


def test_a_result_without_costs_is_left_as_it_is() -> None:
    plain = pa.schema([("n", pa.int64())])
    last = Stage("last", lambda: lambda table: table.select(["n"]), {}, IN, plain, Pool(1, 1, 0))
    assert Meter(last, 1)(block(1, 2)).equals(pa.table({"n": [1, 2]}))


# ---------------------------------------------------------------- a row on which the worker raises


class Fragile(Double):
    """Raises on blocks that hold one of the numbers in `on`."""

    def __init__(self, on: tuple[int, ...]) -> None:
        super().__init__()
        self._on = set(on)

    def __call__(self, table: pa.Table) -> pa.Table:
        if broken := self._on & set(table.column("n").to_pylist()):
            raise ValueError(f"cannot double {sorted(broken)}")
        return super().__call__(table)


def zero(table: pa.Table, error: Exception) -> pa.Table:
    return table.append_column("double", pa.array([0] * table.num_rows))


def fragile(*on: int, fallback: Callable[[pa.Table, Exception], pa.Table] | None = zero) -> Stage:
    return Stage("double", Fragile, {"on": on}, IN, OUT, fallback=fallback)


def test_one_bad_row_touches_one_row() -> None:
    numbers = list(range(1, 42))
    result = Meter(fragile(7, 40), start=2)(block(*numbers))
    assert result.column("double").to_pylist() == [0 if n in (7, 40) else 2 * n for n in numbers]
    assert result.column("n").to_pylist() == numbers


def test_a_row_is_counted_once_however_much_of_its_work_fails() -> None:
    class Bearing(Double):
        def __call__(self, table: pa.Table) -> pa.Table:
            for part in range(2 * (7 in table.column("n").to_pylist())):
                bear(ValueError(part))
            return super().__call__(table)

    stage = Stage("double", Bearing, {}, IN, OUT, fallback=zero)
    assert Meter(stage, start=1)(block(*range(20))).column("double").to_pylist() == [2 * n for n in range(20)]


def test_too_many_bad_rows_and_one_without_a_fallback_are_the_stages_fault() -> None:
    with pytest.raises(ValueError, match="cannot double"):
        Meter(fragile(*range(1, 11)), start=1)(block(*range(1, 42)))
    with pytest.raises(ValueError, match=r"cannot double \[2\]"):
        Meter(fragile(2, fallback=None), start=1)(block(1, 2, 3))


class Away(Double):
    """Fails as a bad row does, as often as it is told, and from then on with another error."""

    def __init__(self, failures: int, error: Exception) -> None:
        super().__init__()
        self._failures, self._error = failures, error

    def __call__(self, table: pa.Table) -> pa.Table:
        self._failures -= 1
        if self._failures == -2:
            pytest.fail("asked again after an outage was waited for")
        raise ValueError("a bad row") if self._failures >= 0 else self._error


OUTAGES = [
    UnavailableError("s3://night: no answer for 120 s"),  # storage
    RetrieverError("server-away", "retrieve.retrievers.bm25: no valid answer"),  # Elasticsearch, an encoder, a reranker
    RewriterError("server-access", "engine 'openai': HTTP 401"),
]


@pytest.mark.parametrize("rows", [1, 40])
@pytest.mark.parametrize("failures", [0, 1, 2])
@pytest.mark.parametrize("error", OUTAGES, ids=lambda error: error.code)
def test_an_outage_is_no_row_s_fault_and_is_waited_for_once(error: Exception, failures: int, rows: int) -> None:
    stage = Stage("double", Away, {"failures": min(failures, rows - 1), "error": error}, IN, OUT, fallback=zero)
    with pytest.raises(type(error)) as raised:
        Meter(stage, start=1)(block(*range(rows)))
    assert raised.value is error


# ---------------------------------------------------------------- several blocks at a time, and the end


class Engine(Double):
    """Knows what its start-up was spent on."""

    def __init__(self) -> None:
        super().__init__(wait=0.1)
        time.sleep(2 * SLOW)
        self.start_up = {"load": SLOW}


def test_a_start_up_is_charged_by_its_parts() -> None:
    (row,) = costs_of(Meter(stage(Engine, Pool(1, 1, 0)), 1)(block(1)))
    parts = {one["component"]: one["seconds"] for one in row[2:]}
    assert parts.keys() == {START_UP, f"{START_UP}.load"}
    assert parts[f"{START_UP}.load"] == SLOW
    assert parts[START_UP] >= SLOW  # the rest  # type: ignore[operator]


def test_blocks_that_overlap_share_the_workers_time() -> None:
    all_four = threading.Barrier(4)

    class Overlapping(Engine):
        def __call__(self, table: pa.Table) -> pa.Table:
            all_four.wait(PATIENCE)
            return super().__call__(table)

    meter = Meter(stage(Overlapping, Pool(1, 1, 0)), 1)
    results: list[pa.Table] = []
    threads = [threading.Thread(target=lambda: results.append(meter(block(1, 1)))) for _ in range(4)]
    began = time.perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    took = time.perf_counter() - began
    mine = [one for table in results for row in costs_of(table) for one in row if one["stage"] == "double"]
    assert 0.1 <= sum(one["seconds"] for one in mine if one["component"] == "d") <= took  # type: ignore[misc]
    assert len([one for one in mine if one["component"] == START_UP]) == 1


def test_a_worker_reports_while_it_is_built() -> None:
    def copying() -> Callable[[pa.Table], pa.Table]:
        heartbeat()
        return lambda table: table

    told: list[float | None] = []
    with reporting_to(report=lambda share, _spent: told.append(share)):
        Meter(Stage("copying", copying, {}, IN, IN, Pool(1, 1, 0)), 1)
    assert told == [None]
    heartbeat()
    assert len(told) == 1
