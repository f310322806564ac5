"""Cost accounting: entries on the rows that caused them, totals, and prices.

A worker appends one entry per row and component, with the seconds that it measured; `settle` then scales a call's entries so
that they add up to the call's share of the worker's busy time (`BusyTime`), overhead included. So the sum over a table is its
workers' busy time, without double counting; what no row caused (start-up, reading, writing, requests to S3, the driver) is
kept apart. Quantities are stored, money is not: `Prices` computes it on demand.
"""

import contextlib
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Literal, TypeVar, get_args

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

# `saved`: searches that were not made, because texts were searched together, or equal to another text of the shard.
# `reused`: results taken from a store that runs share; their seconds and tokens are 0.
# `cached_tokens` and `cache_write_tokens` are parts of `prompt_tokens`.
TOKENS = ("prompt_tokens", "cached_tokens", "cache_write_tokens", "completion_tokens")
"""The quantities that have parts by the tier of the provider's prices: of `prompt_tokens` those of `prompt_tokens@flex` were
billed by the tier flex."""
QUANTITIES = ("requests", *TOKENS, "searches", "saved", "pairs", "reused")
StorageRequest = Literal["put", "get", "list", "head", "delete", "multipart"]
STORAGE_REQUESTS: tuple[StorageRequest, ...] = get_args(StorageRequest)
STORAGE = (*STORAGE_REQUESTS, "sent_bytes", "received_bytes")  # quantities of the component `storage`
DRIVER = "driver"  # the stage of what the driver has spent; its wall time is the quantity `driver_seconds`
STORAGE_COMPONENT = "storage@"  # key of a stage's requests to S3 in Totals
COMPLETION_QUANTITIES = ("seconds", "device_seconds", *TOKENS)
START_UP = "start_up"  # component of a worker's time before its first row; its parts are start_up.load and the like

Key = TypeVar("Key", int, str)
_TIER = "@"  # between a quantity and the tier of its part
COST = pa.struct(
    [
        ("stage", pa.string()),
        ("component", pa.string()),  # strategy or request, retriever, or model
        ("engine", pa.string()),
        ("model", pa.string()),
        ("attempt", pa.int32()),
        ("seconds", pa.float64()),  # worker busy time
        ("device_seconds", pa.float64()),  # seconds x accelerators of the worker
        *((name, pa.int64()) for name in QUANTITIES),
        ("usage", pa.string()),  # who counted the tokens: "reported" by the engine, or "counted" here
        ("error", pa.string()),
        ("start", pa.int32()),  # number of the run's start, from 1; 0: not settled yet
        ("provider", pa.string()),  # host of the server that did the work
        ("latency", pa.float64()),  # seconds in flight of the request's last send; those of concurrent requests overlap
        ("tier", pa.string()),  # of the provider's prices, as the answer reports it
    ]
)
COSTS = pa.list_(COST)
# What a stage has spent on a block apart from its rows: seconds of work, and a quantity of STORAGE.
OVERHEAD = pa.struct([("stage", pa.string()), ("quantity", pa.string()), ("amount", pa.float64())])


def entry(stage: str, component: str, seconds: float = 0.0, **values: Any) -> dict[str, Any]:
    """Returns an unsettled COST entry; fields of COST that are not given are 0 or null. `seconds` is measured busy time."""
    own = {"stage": stage, "component": component, "seconds": seconds, "attempt": 1, "device_seconds": 0.0, "start": 0}
    return dict.fromkeys(COST.names) | own | dict.fromkeys(QUANTITIES, 0) | values


def settle(table: pa.Table, seconds: float, devices: float, start: int) -> tuple[pa.Table, bool]:
    """Returns the table with the unsettled entries of its column `costs` settled, and whether any of them has seconds.

    Their seconds are scaled to add up to `seconds`; they share equally if none has measured time. An entry of what was taken
    from a store alone has none. Settled entries (of earlier stages, or of completions that an earlier start has stored) stay.
    `devices` are the worker's accelerators, `start` is the number of this start of the run, from 1.
    """
    column = table.column("costs").combine_chunks()
    flat = column.flatten()
    names = ("start", "seconds", "device_seconds", "reused", "requests", "searches", "pairs")
    values = {name: flat.field(name).to_numpy(zero_copy_only=False) for name in names}
    fresh = values["start"] == 0
    if not fresh.any():
        return table, False
    worked = np.any([values[name] > 0 for name in ("requests", "searches", "pairs")], axis=0)
    charged = fresh & (worked | ~(values["reused"] > 0))
    measured = np.where(charged, values["seconds"], 0.0)
    share = measured / measured.sum() if measured.sum() > 0 else charged / max(1, charged.sum())
    settled = {
        "seconds": np.where(fresh, share * seconds, values["seconds"]),
        "device_seconds": np.where(fresh, share * seconds * devices, values["device_seconds"]),
        "start": np.where(fresh, start, values["start"]).astype(np.int32),
    }
    fields = [pa.array(settled[f.name]) if f.name in settled else flat.field(f.name) for f in COST]
    lengths = pc.list_value_length(column).to_numpy(zero_copy_only=False)
    offsets = pa.array(np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32))
    costs = pa.ListArray.from_arrays(offsets, pa.StructArray.from_arrays(fields, fields=list(COST)), type=COSTS)
    settled_table = table.set_column(table.schema.get_field_index("costs"), pa.field("costs", COSTS), costs)
    return settled_table, bool(charged.any())


class BusyTime:
    """Divides the time with at least one call among a worker's concurrent calls (processor sharing). Thread-safe."""

    def __init__(self, clock: Callable[[], float] = time.perf_counter) -> None:
        """Starts without calls; `clock` returns seconds."""
        self._clock, self._lock = clock, threading.Lock()
        self._calls, self._at, self._shared = 0, 0.0, 0.0  # _shared: the share of a call that lasts from the beginning

    @contextlib.contextmanager
    def share(self) -> Iterator[Callable[[], float]]:
        """Counts the body as one call; yields a function that returns the call's share since its last use, in seconds."""
        last = self._advance(+1)

        def lap() -> float:
            nonlocal last
            before, last = last, self._advance(0)
            return last - before

        try:
            yield lap
        finally:
            self._advance(-1)

    def _advance(self, calls: int) -> float:
        with self._lock:
            now = self._clock()
            if self._calls:
                self._shared += (now - self._at) / self._calls
            self._at, self._calls = now, self._calls + calls
            return self._shared


Totals = dict[str, dict[str, dict[str, float]]]  # stage -> component@model -> quantity -> sum


def totals(flat: pa.StructArray) -> Totals:
    """Returns the sums of COST entries by stage and `component@model` (model may be empty), with `by_tier`."""
    table = pa.Table.from_struct_array(flat)
    table = table.set_column(3, "model", pc.fill_null(table.column("model"), ""))
    sums = ("seconds", "device_seconds", *QUANTITIES)
    grouped = table.group_by(["stage", "component", "model", "tier"]).aggregate([(name, "sum") for name in sums])
    result: Totals = {}
    for row in grouped.to_pylist():
        amounts = {name: row[f"{name}_sum"] for name in sums if row[f"{name}_sum"]}
        add_totals(result, {row["stage"]: {f"{row['component']}@{row['model']}": amounts | by_tier(amounts, row["tier"])}})
    return result


def by_start(flat: pa.StructArray) -> dict[str, dict[str, dict[str, float]]]:
    """Returns the seconds of COST entries by number of the run's start and stage: `attributed` to rows, and `start_up`."""
    table = pa.Table.from_struct_array(flat).select(["start", "stage", "component", "seconds"])
    table = table.append_column("starting", pc.starts_with(table.column("component"), START_UP))
    result: dict[str, dict[str, dict[str, float]]] = {}
    for row in table.group_by(["start", "stage", "starting"]).aggregate([("seconds", "sum")]).to_pylist():
        seconds = result.setdefault(str(row["start"]), {}).setdefault(row["stage"], {"attributed": 0.0, "start_up": 0.0})
        seconds["start_up" if row["starting"] else "attributed"] = row["seconds_sum"]
    return result


def add_totals(sums: dict[Key, dict[str, dict[str, float]]], more: Mapping[Key, Mapping[str, Mapping[str, float]]]) -> None:
    """Adds `more` to `sums`, in place: totals, whose keys are stages, or others of their form."""
    for stage, components in more.items():
        for component, quantities in components.items():
            into = sums.setdefault(stage, {}).setdefault(component, {})
            for name, value in quantities.items():
                into[name] = into.get(name, 0) + value


def added(parts: Iterable[Totals]) -> Totals:
    """Returns the sums of the parts, which stay as they are."""
    sums: Totals = {}
    for part in parts:
        add_totals(sums, part)
    return sums


def stage_sums(costs: Totals, *stages: str) -> dict[str, float]:
    """Returns the quantities of the named stages (default: all), summed over their components."""
    result: dict[str, float] = {}
    for stage in stages or costs:
        for sums in costs.get(stage, {}).values():
            for name, value in sums.items():
                result[name] = result.get(name, 0) + value
    return result


def by_tier(sums: Mapping[str, float], tier: str | None) -> dict[str, float]:
    """Returns the parts of quantities that were all billed by one tier; None: it is not known."""
    return {} if tier is None else {f"{name}{_TIER}{tier}": sums[name] for name in TOKENS if name in sums}


def tokens_of(sums: Mapping[str, float], tier: str) -> dict[str, float]:
    """Returns the quantities that were billed by a tier."""
    end = f"{_TIER}{tier}"
    return {name.removesuffix(end): value for name, value in sums.items() if name.endswith(end)}
