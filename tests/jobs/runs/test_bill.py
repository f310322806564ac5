"""The bill: it is what prices.yaml says of run.json and the manifests, and its lines add up to it."""

import hashlib
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from cluster.costs import DRIVER, STORAGE_REQUESTS, Totals, add_totals
from cluster.prices import Prices
from cluster.run.shards import Manifest
from cluster.storage import Storage
from cluster.storage.files import FileStorage
from cluster.storage.s3_client import take_traffic
from jobs.config.load import load_config
from jobs.job.prepare import Prepared, prepare
from jobs.measure.run_list import list_runs
from jobs.pages.run import cost_section
from jobs.pages.summary import closing_values, lost_words
from jobs.run.limits import Stopped
from jobs.run.money import COUNT_SECONDS, DriverCosts
from jobs.runs.bill import bill
from jobs.runs.folder import open_run
from jobs.runs.starts import BROKEN, TIMES, known_starts, node_time
from jobs.runs.tally import kept
from tests.support.cluster.s3_proxy import Proxy, proxied
from tests.support.cluster.s3_server import S3Server
from tests.support.jobs.in_process_runs import full_disk, record, run_in_process
from tests.support.jobs.nights import log

NODES: dict[str, Any] = {
    "node_hour": {"cpu": 3600.0, "gpu": 36000.0},
    "searches": {"bm25": 1e6},
    "storage_requests": {"put": 5.0, "get": 0.4, "list": 5.0, "multipart": 5.0},
}
WORKERS: dict[str, Any] = {
    "cpu_worker_hour": 3600.0,
    "device_hour": 7200.0,
    "driver_hour": 360.0,
    "searches": {"bm25": 1e6},
    "storage_requests": {"put": 5.0, "get": 0.4, "list": 5.0},
    "tokens": {"recorded": {"prompt": 1.0}},
}
Make = Callable[..., Prepared]

# ---------------------------------------------------------------- of a whole run


@pytest.fixture
def make(small_job: Callable[..., str], values: dict[str, Any], config_file: Callable[[Any], str]) -> Make:
    """A small job in one process, with prices beside it."""
    small_job()
    queries = ["why does bread rise", "lamp of a lighthouse", "moon and tides", "rye", "beer", "harbour"]
    log(queries)
    record({query: {"keyword": query.split()[0]} for query in queries})
    values["rewrite"] |= {"strategies": ["keyword"], "calls": "separate"}
    values["cluster"]["shard_size"] = 2

    def prepared(prices: dict[str, Any], **changes: Any) -> Prepared:
        Path("prices.yaml").write_text(yaml.safe_dump(prices))
        path = config_file(values | changes)
        return prepare(load_config(path, []), path)

    return prepared


@pytest.fixture
def proxy(s3: S3Server, monkeypatch: pytest.MonkeyPatch) -> Iterator[Proxy]:
    with proxied(s3) as (proxy, address):
        monkeypatch.setenv("AWS_ENDPOINT_URL_S3", address)
        yield proxy


def by_hand(storage: Storage, prices: dict[str, Any]) -> float:
    """The bill by run.json, the manifests and prices.yaml alone, without the code under test."""
    record = json.loads(storage.get("run.json") or b"")
    manifests = [json.loads(storage.get(one.key) or b"") for one in storage.list("commits")]
    usd = 0.0

    def quantities(stage: str, key: str, sums: dict[str, float]) -> float:
        component, _, model = key.partition("@")
        worked = sums.get("device_seconds", 0) * prices.get("device_hour", 0)
        found = (worked or sums.get("seconds", 0) * prices.get("cpu_worker_hour", 0)) / 3600
        found += sums.get("driver_seconds", 0) * prices.get("driver_hour", 0) / 3600
        found += sums.get("searches", 0) * prices["searches"].get(component, 0) / 1e6
        found += sums.get("prompt_tokens", 0) * prices.get("tokens", {}).get(model, {}).get("prompt", 0) / 1e6
        return found + sum(sums.get(kind, 0) * price / 1000 for kind, price in prices["storage_requests"].items())

    for manifest in manifests:
        usd += sum(quantities(stage, key, sums) for stage, of in manifest["costs"].items() for key, sums in of.items())
        usd += sum(quantities(stage, "@", {"seconds": seconds}) for stage, seconds in manifest["seconds"].items())
        usd += sum(quantities(stage, "@", sums) for stage, sums in manifest["storage"].items())
    for start in record["starts"]:
        usd += sum(quantities(stage, key, sums) for stage, of in start["spent"].items() for key, sums in of.items())
        if "node_hour" in prices:
            usd += sum(seconds / 3600 * prices["node_hour"][kind] for kind, seconds in start["node_seconds"].items())
    return usd


def check_agreement(prepared: Prepared, prices: dict[str, Any]) -> float:
    """All that shows the cost of a run shows the same."""
    wanted = by_hand(prepared.storage, prices)
    folder, priced = open_run(prepared.storage.root), Prices.model_validate(prices)
    assert folder.bill(priced).usd == pytest.approx(wanted)
    assert closing_values(folder, priced)["usd"] == pytest.approx(wanted)
    (listed,) = list_runs(prepared.output, prepared.config.name, lambda _: priced)
    assert listed["usd"] == pytest.approx(wanted)
    (table,) = cost_section(folder, priced).parts
    *lines, total = [row for row in table.rows if not row[0].startswith("  ")]  # type: ignore[union-attr]
    for place, value in ((1, wanted), (2, 1.0)):  # USD, share
        assert sum(line[place] for line in lines) == pytest.approx(value)
        assert total[place] == pytest.approx(value)
    return wanted


@pytest.mark.slow
@pytest.mark.parametrize("prices", [NODES, WORKERS])
def test_report_and_bill_agree_and_every_request_to_s3_is_in_them(make: Make, proxy: Proxy, prices: dict[str, Any]) -> None:
    prepared = make(prices, output=proxy.server.fresh("runs"))
    take_traffic()
    proxy.requests.clear()
    run_in_process(prepared)
    after = take_traffic()
    seen = proxy.kinds()
    check_agreement(prepared, prices)
    record = json.loads(prepared.storage.get("run.json") or b"")
    last = json.loads(prepared.storage.get("progress.json") or b"")["spent"][DRIVER]["storage@"]  # after the record's last
    recorded = [of["storage@"] for of in record["costs"].values() if "storage@" in of]
    late = {name: last[name] - record["costs"][DRIVER]["storage@"].get(name, 0) + after.get(name, 0) for name in last}
    counted = {kind: sum(one.get(kind, 0) for one in [*recorded, late]) for kind in STORAGE_REQUESTS}
    assert {kind: n for kind, n in counted.items() if n} == dict(seen)
    assert {"read", "write", DRIVER} <= {stage for stage, of in record["costs"].items() if "storage@" in of}
    assert sum(late.get(name, 0) for name in STORAGE_REQUESTS) < 15  # the last record, _SUCCESS, latest, progress, lease
    data = Path("prices.yaml").read_bytes()
    assert record["prices"] == {"name": "prices.yaml", "sha256": hashlib.sha256(data).hexdigest()}
    assert "usd" not in json.dumps(record["starts"]).lower()  # money is not stored


@pytest.mark.slow
def test_starts_that_failed_are_in_the_bill(make: Make) -> None:
    prepared = make(NODES)
    with full_disk():
        run_in_process(prepared)
    once = check_agreement(prepared, NODES)
    run_in_process(prepared)
    assert check_agreement(prepared, NODES) > once
    record = json.loads(prepared.storage.get("run.json") or b"")
    first, second = record["node_time"]
    for one in (first, second):
        assert sum(one[name] for name in TIMES) == pytest.approx(one["worker_seconds"])
        assert one["lost"] == pytest.approx(sum(stage["lost"] for stage in one["stages"].values()))
    assert first["lost"] > 0 == second["lost"]
    assert first["stages"]["rewrite"]["start_up"] > 0
    assert ["finish@" in start["spent"][DRIVER] for start in record["starts"]] == [False, True]


def test_phases_of_the_driver_and_nodes_fill_the_time_of_the_start(make: Make) -> None:
    prepared = make(NODES)
    run_in_process(prepared)
    (start,) = json.loads(prepared.storage.get("run.json") or b"")["starts"]
    driver = {name: sums["driver_seconds"] for name, sums in start["spent"][DRIVER].items() if "driver_seconds" in sums}
    assert set(driver) == {"start@", "log@", "plan@", "work@", "finish@"}
    assert sum(start["node_seconds"].values()) == pytest.approx(sum(driver.values()), rel=0.05, abs=0.2)
    assert sum(driver.values()) >= start["wall_seconds"]  # the log is read before the lease is taken


def test_a_budget_counts_nodes_and_the_driver(make: Make) -> None:
    limited = {"limits": {"error_rate": 1, "max_cost_usd": 0.01}}
    prepared = make(NODES | {"node_hour": 3600.0 * 1000}, **limited)  # 1,000 USD a second
    with pytest.raises(Stopped, match=r"are spent, limits\.max_cost_usd is \$0\.0100"):
        run_in_process(prepared)
    assert len(list(prepared.storage.list("commits"))) <= 1  # what was in flight


# ---------------------------------------------------------------- sharing out the nodes

SECONDS = st.floats(0, 1e5, allow_subnormal=False)


def driver(seconds: float, dedup: float) -> Totals:
    return {DRIVER: {"work@": {"driver_seconds": seconds}}, "dedup": {"@": {"seconds": dedup}}}


STAGES = ("rewrite", "retrieve", "rerank", "write")
STARTS = st.lists(
    st.fixed_dictionaries(
        {
            "status": st.sampled_from(["finished", *BROKEN]),
            "wall_seconds": SECONDS,
            "pools": st.dictionaries(
                st.sampled_from(["rewrite", "rewrite_2", "retrieve", "rerank"]),
                st.fixed_dictionaries({"workers": st.integers(1, 9), "gpus": st.sampled_from([0.0, 1.0])}),
            ),
            "busy": st.dictionaries(st.sampled_from(STAGES), SECONDS),
            "node_seconds": st.dictionaries(st.sampled_from(["cpu", "gpu"]), SECONDS),
            "spent": st.one_of(st.just({}), st.builds(driver, SECONDS, SECONDS)),
        }
    ),
    max_size=3,
)  # fmt: skip
TIME = st.dictionaries(st.sampled_from(STAGES), st.fixed_dictionaries({"attributed": SECONDS, "start_up": SECONDS}))


@given(STARTS, st.lists(TIME, min_size=3, max_size=3), st.sampled_from([0.5, {"cpu": 0.4, "gpu": 3.0}, {"gpu": 3.0}]))
def test_lines_add_up_to_the_bill(starts: list[dict[str, Any]], times: list[dict[str, Any]], node_hour: Any) -> None:
    prices = Prices(node_hour=node_hour, storage_requests={"put": 1.0})
    committed, spent = [], {}
    for number, start in enumerate(starts, start=1):
        start["start"] = number
        costs = {
            stage: {"c@": {"seconds": of["attributed"], "put": 3}, "start_up@": {"seconds": of["start_up"]}}
            for stage, of in times[number - 1].items()
        }
        committed.append(Manifest(number, 1, {}, {}, costs, {}, {str(number): times[number - 1]}))
        add_totals(spent, costs)
        add_totals(spent, start["spent"])
    reconciled = node_time(starts, kept(committed)[1].by_start)
    for one in reconciled:
        assert sum(one[name] for name in TIMES) == pytest.approx(one["worker_seconds"] + one["over"])
    found = bill(prices, starts, reconciled, spent)
    of = node_hour if isinstance(node_hour, dict) else {"cpu": node_hour, "gpu": node_hour}
    nodes = sum(of.get(kind, 0) * seconds / 3600 for start in starts for kind, seconds in start["node_seconds"].items())
    assert found.usd == pytest.approx(nodes + prices.usd(spent))
    assert found.of_stages(spent) + found.idle + found.lost == pytest.approx(found.usd)
    assert found.idle >= -1e-9 * found.usd
    if not any(one["lost"] for one in reconciled):
        assert found.lost == 0


def test_stages_with_accelerators_pay_the_nodes_that_have_some() -> None:
    start = {
        "start": 1, "status": "finished", "wall_seconds": 100.0, "node_seconds": {"cpu": 100.0, "gpu": 100.0},
        "pools": {"rerank": {"workers": 1, "cpus": 1, "gpus": 1.0}, "retrieve": {"workers": 1, "cpus": 1, "gpus": 0.0}},
        "spent": {DRIVER: {"work@": {"driver_seconds": 100.0}}},
    }  # fmt: skip
    costs = {"rerank": {"c@": {"seconds": 25.0}}, "retrieve": {"c@": {"seconds": 50.0}}}
    by_start = {"1": {stage: {"attributed": of["c@"]["seconds"], "start_up": 0.0} for stage, of in costs.items()}}
    times = node_time([start], kept([Manifest(1, 1, {}, {}, costs, {}, by_start)])[1].by_start)
    spent = costs | start["spent"]  # type: ignore[operator]
    found = bill(Prices(node_hour={"cpu": 36.0, "gpu": 360.0}), [start], times, spent)
    assert found.usd == pytest.approx(11.0)
    assert found.of_stages(["rerank"]) == pytest.approx(2.5)
    assert found.of_stages(["retrieve"]) == pytest.approx(0.25)
    assert found.of_stages([DRIVER]) == pytest.approx(0.5)
    assert found.idle == pytest.approx(7.5 + 0.25)
    assert found.usd_of("rerank", "c@", {"seconds": 5.0}) == pytest.approx(0.5)  # a part of it, as an arm's


# ---------------------------------------------------------------- what a start leaves behind


def test_of_a_killed_start_counts_what_its_progress_said_last(tmp_path: Path) -> None:
    storage = FileStorage(str(tmp_path))
    running = {"start": 1, "status": "running", "wall_seconds": 0.0, "node_seconds": {"cpu": 0.5}, "spent": {}}
    storage.put("lease/000001.json", json.dumps({"began": 10.0, "beat": 52.0}).encode())
    last = {"start": 1, "node_seconds": {"cpu": 80.0}, "spent": {DRIVER: {"storage@": {"put": 7}}}, "busy": {"retrieve": 9.0}}
    last["queued"] = {"retrieve": 2.0}
    storage.put("progress.json", json.dumps(last | {"phase": "working"}).encode())
    (known,) = known_starts({"starts": [running]}, storage)
    assert known == running | {"wall_seconds": 42.0} | {
        name: last[name] for name in ("node_seconds", "spent", "busy", "queued")
    }
    storage.put("lease/000002.json", json.dumps({"began": 10.0, "beat": 10.0}).encode())
    (other,) = known_starts({"starts": [running | {"start": 2}]}, storage)  # the progress is of another start
    assert (other["node_seconds"], other["wall_seconds"]) == ({"cpu": 0.5}, 5.0)  # until its second heartbeat


def worked(seconds: float, **pool: Any) -> dict[str, Any]:
    """The node time of a start of 10 s, whose pool of two workers was busy so long."""
    start = {"start": 1, "status": "finished", "wall_seconds": 10.0, "pools": {"retrieve": {"workers": 2, "gpus": 0.0} | pool}}
    by_start = {"1": {"retrieve": {"attributed": seconds, "start_up": 0.0}}}
    (times,) = node_time([start], kept([Manifest(0, 1, {}, {}, {}, {}, by_start)])[1].by_start)
    return times


def test_workers_that_were_busy_longer_than_they_were_there_are_told() -> None:
    calm, wrong, grown = worked(15.0), worked(25.0), worked(25.0, most=9)
    assert (calm["worker_seconds"], calm["idle"], calm["over"]) == (20.0, 5.0, 0.0)
    assert (wrong["worker_seconds"], wrong["idle"], wrong["over"]) == (20.0, 0.0, 5.0)
    assert (grown["worker_seconds"], grown["over"]) == (25.0, 0.0)


@pytest.mark.parametrize(("root", "status", "unknown"), [
    ("s3://bucket/run", "killed", True), ("s3://bucket/run", "failed", False), ("/runs/run", "killed", False)
])  # fmt: skip
def test_what_a_lost_machine_had_sent_is_unknown(root: str, status: str, unknown: bool) -> None:
    run: Any = SimpleNamespace(counts={}, starts=[{"status": status}], storage=SimpleNamespace(root=root))
    assert bool(list(lost_words(run))) == unknown


def test_nodes_that_come_and_go() -> None:
    now, there = [0.0], [{"cpu": 1}]
    driver_costs = DriverCosts(lambda: now[0])
    now[0] = 5.0
    driver_costs.watch_nodes(lambda: there[-1])  # IndexError: Ray's head does not answer
    now[0] = 20.0
    assert driver_costs.node_seconds() == {"cpu": 20.0}
    there.append({"cpu": 1, "gpu": 2})
    now[0] += COUNT_SECONDS
    assert driver_costs.node_seconds() == {"cpu": 20.0 + COUNT_SECONDS, "gpu": COUNT_SECONDS}  # on the mean one of them
    now[0] += 1.0
    assert driver_costs.node_seconds() == {"cpu": 21.0 + COUNT_SECONDS, "gpu": 2.0 + COUNT_SECONDS}

    there.clear()
    now[0] += COUNT_SECONDS - 1.0
    assert driver_costs.node_seconds() == {"cpu": 20.0 + 2 * COUNT_SECONDS, "gpu": 3 * COUNT_SECONDS}
    there.append({"cpu": 1})
    now[0] += COUNT_SECONDS
    assert driver_costs.node_seconds() == {"cpu": 20.0 + 3 * COUNT_SECONDS, "gpu": 4 * COUNT_SECONDS}


def test_the_time_of_the_driver_has_no_gap() -> None:
    now = [0.0]
    driver_costs = DriverCosts(lambda: now[0])
    for phase in ("log", "plan", "work"):
        now[0] += 2.0
        driver_costs.begin(phase, 9.0 if phase == "plan" else 0.0)
    now[0] += 1.0
    assert {name: sums["driver_seconds"] for name, sums in driver_costs.spent()[DRIVER].items() if name != "storage@"} == {
        "start@": 2.0, "log@": 2.0, "plan@": 2.0, "work@": 1.0
    }  # fmt: skip
    assert driver_costs.spent()["dedup"] == {"@": {"seconds": 9.0}}
