"""Finding runs by folder and name; the tally of their manifests; counts of kinds, of each arm its own."""

import json
import tracemalloc
from collections import Counter
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cluster.costs import QUANTITIES, Totals, added
from cluster.run.shards import File, Manifest, Plan, commit, put_plan, read_manifest, read_plan
from cluster.storage import Storage, open_storage
from cluster.storage.files import FileStorage
from jobs import counts
from jobs.config.config import Config
from jobs.counts import ERRORS, FLAGGED_TEXTS, READ_TEXTS, SELECTED_QUERIES, WORK, CountKind, arm_key, by_arm
from jobs.runs.folder import find_runs, open_run
from jobs.runs.tally import kept
from tests.support.jobs.in_process_runs import prepared_job, run_in_process


@pytest.fixture
def output(tmp_path: Path, values: dict[str, Any]) -> Path:
    """An output folder with one run of two shards, of which one is committed."""
    storage = open_storage(str(tmp_path / "runs" / "small-1"))
    put_plan(storage, Plan([], {"queries": 2}, 1, {}, []))
    commit(storage, Manifest(0, 1, {}, {"queries": 1}, {"rewrite": {"dmqr@m": {"seconds": 2.0}}}, {"write": 0.5}))
    record = {"run_id": "small-1", "status": "stopped", "config": Config.model_validate(values).model_dump()}
    storage.put("run.json", json.dumps(record).encode())
    named = {"run_id": "small-1", "path": storage.root, "finished_at": 1.0}
    open_storage(str(tmp_path / "runs")).put("small/latest.json", json.dumps(named).encode())
    return tmp_path / "runs"


def test_by_its_folder_and_by_its_name(output: Path) -> None:
    by_folder, by_name = open_run(str(output / "small-1")), open_run(str(output / "small"))
    assert by_folder.storage.root == by_name.storage.root == str(output / "small-1")
    assert (by_folder.finished, by_folder.state) == (False, "stopped: 1 of 0 shards are committed")
    assert by_folder.counts == {"queries": 1}
    assert by_folder.spent == {"rewrite": {"dmqr@m": {"seconds": 2.0}}, "write": {"@": {"seconds": 0.5}}}


def test_a_copied_output_names_its_own_run(output: Path, tmp_path: Path) -> None:
    copied = output.rename(tmp_path / "elsewhere")
    assert open_run(str(copied / "small")).storage.root == str(copied / "small-1")


def test_a_run_that_ends_meanwhile_is_not_finished_by_an_earlier_record(output: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def end_and_read(storage: Storage) -> Plan | None:
        storage.put("run.json", (storage.get("run.json") or b"").replace(b"stopped", b"finished"))
        storage.put("_SUCCESS.json", b"{}")
        return read_plan(storage)

    monkeypatch.setattr("jobs.runs.folder.read_plan", end_and_read)
    run = open_run(str(output / "small-1"))
    assert run.finished == (run.record["status"] == "finished")


# ---------------------------------------------------------------- which folders are runs


def recorded(output: Storage, name: str, label: str | None, fingerprint: str = "0123456789ab") -> str:
    folder = "-".join(part for part in (name, label, fingerprint) if part)
    output.put(f"{folder}/run.json", json.dumps({"config": {"name": name}, "label": label}).encode())
    return folder


def test_the_runs_of_a_name(tmp_path: Path) -> None:
    output = open_storage(str(tmp_path))
    plain = recorded(output, "night", None)
    monday = recorded(output, "night", "monday")
    another = recorded(output, "night-monday", None, "ba9876543210")  # its folder could be that of a run with a label
    output.put("night/latest.json", b"{}")
    output.put("night-index/index.json", b"{}")
    assert [folder for folder, _ in find_runs(output, "night")] == [plain, monday]
    assert [folder for folder, _ in find_runs(output, "night-monday")] == [another]
    assert [folder for folder, _ in find_runs(output)] == [plain, monday, another]


def test_a_run_without_a_record_yet_is_one_by_its_name(tmp_path: Path) -> None:
    output = open_storage(str(tmp_path))
    output.put("night-0123456789ab/lease/000001.json", b"{}")
    output.put("night-ba9876543210/run.json", b"cut o")
    assert list(find_runs(output, "night")) == [("night-0123456789ab", {}), ("night-ba9876543210", {})]
    assert list(find_runs(output)) == []


COMPONENTS = {"rewrite": ("dmqr@model", "general@model"), "retrieve": ("bm25@", "dense@encoder"), "rerank": ("rerank@model",)}
STAGES = ("read", "rewrite", "retrieve", "fuse", "rerank", "order", "write")
TABLES = ("rewrites", "results", "tails", "costs", "scores")


def manifest(shard: int, start: int = 1) -> Manifest:
    """One of a run with two requests, two retrievers and a reranker, as it is read from its JSON."""
    quantities = {"seconds": 0.5 + shard, "device_seconds": 0.125, **dict.fromkeys(QUANTITIES, 1000 + shard)}
    costs: Totals = {stage: {name: dict(quantities) for name in of} for stage, of in COMPONENTS.items()}
    costs["rewrite"]["start_up@"] = {"seconds": 9.0}
    made = Manifest(
        shard,
        start,
        {name: [File(f"{name}/shard-{shard:06d}-0123456789ab.parquet", 1000, 12345)] for name in TABLES},
        {f"count/{number}": 1000 + number + shard for number in range(26)},
        costs,
        dict.fromkeys(STAGES, 0.25),
        {str(start): {stage: {"attributed": 1.5, "start_up": 0.5} for stage in COMPONENTS}},
        {stage: {"put": 3.0, "get": 1.0} for stage in ("read", "write")},
        {"rerank/failed": [f"{shard:032x}"]},
    )
    return read_manifest(json.dumps(asdict(made)))


def test_what_is_kept_is_what_the_manifests_say() -> None:
    manifests = [manifest(number, start=1 + number % 2) for number in range(5)]
    shards, tally = kept(manifests)
    assert [(one.shard, one.files, one.counts) for one in shards] == [(one.shard, one.files, one.counts) for one in manifests]
    assert (tally.shards, tally.spent) == (set(range(5)), added(one.spent for one in manifests))
    assert tally.counts == sum((Counter(one.counts) for one in manifests), Counter())
    assert tally.by_start[2]["rewrite"] == {"attributed": 2 * 1.5 + 2 * 0.25, "start_up": 2 * 0.5}


@pytest.mark.slow
def test_a_shard_of_an_opened_run_takes_little_memory() -> None:
    few, many = 50, 550
    kept(manifest(number) for number in range(few))  # imports, and names that all shards share

    def held(count: int) -> int:
        before = tracemalloc.get_traced_memory()[0]
        found = kept(manifest(number) for number in range(count))
        return tracemalloc.get_traced_memory()[0] - before + 0 * len(found)

    tracemalloc.start()
    try:
        of_few, of_many = held(few), held(many)
    finally:
        tracemalloc.stop()
    assert (of_many - of_few) / (many - few) < 6000  # bytes: a hundred thousand in 600 MB


def test_a_run_is_closed_by_one_reading_of_its_manifests(bm25_job: str, monkeypatch: pytest.MonkeyPatch) -> None:
    job = prepared_job(bm25_job, "rewrite.strategies=[]")
    read: Counter[str] = Counter()
    get = FileStorage.get

    def counted(storage: FileStorage, key: str) -> bytes | None:
        read[key] += key.startswith("commits/")
        return get(storage, key)

    monkeypatch.setattr(FileStorage, "get", counted)
    run_in_process(job)
    assert +read == {"commits/000000.json": 1, "commits/000001.json": 1}


PARSED = [kind for kind in vars(counts).values() if isinstance(kind, CountKind) and kind is not SELECTED_QUERIES]
NAMES = st.text(st.sampled_from("ab/(=1, )"), max_size=8)
PLAIN = st.text(st.sampled_from("ab_"), max_size=4)
Key = tuple[CountKind, tuple[str, ...]]


@st.composite
def keys(draw: st.DrawFn) -> Key:
    kind = draw(st.sampled_from(PARSED))
    parts = [draw(NAMES if place == kind.wide else PLAIN) for place in range(kind.size)]
    if kind is WORK:
        parts[0] = draw(st.sampled_from(list(counts.QUANTITIES)))
    return kind, tuple(parts)


@given(keys())
def test_a_key_is_read_back_as_it_was_and_by_no_other_kind(of: Key) -> None:
    kind, parts = of
    assert kind.parse(kind.key(*parts)) == parts
    assert [one for one in PARSED if one.parse(kind.key(*parts)) is not None] == [kind]


@given(st.dictionaries(NAMES, st.dictionaries(keys(), st.integers(1, 9), max_size=3), max_size=3))
def test_each_arm_has_its_own_counts(arms: dict[str, dict[Key, int]]) -> None:
    # an arm "a" may count what an arm "a/requests" seems to: such names are told apart by no stored key
    apart = not any(other.startswith(f"{one}/") for one in arms for other in arms)
    counted = {arm: {kind.key(*parts): n for (kind, parts), n in own.items()} for arm, own in arms.items()}
    stored = {arm_key(arm, key): n for arm, own in counted.items() for key, n in own.items()}
    found = by_arm(stored | {"queries": 7}, arms)
    assert sum(map(Counter.total, found.values())) == sum(stored.values())
    if apart:
        assert found == counted


def test_the_stored_keys_are_what_they_were() -> None:
    assert FLAGGED_TEXTS.key("a(x=1/2)", "drift") == "guard/a(x=1/2)/drift"
    assert arm_key("a/b", WORK.key("pairs", "cross_encoder@org/model")) == "arm/a/b/pairs/cross_encoder@org/model"
    assert ERRORS.key("retrieve", "", "failed") == "error/retrieve//failed"
    assert dict(READ_TEXTS.of({"rung/a/b/json": 2, "rung": 1, "queries": 3})) == {("a/b", "json"): 2}


@pytest.mark.parametrize("key", ["queries", "guard/x", "guarded/a/b", "arm/a/guard/b/c", "requests"])
def test_other_keys_are_of_no_kind(key: str) -> None:
    assert not [kind for kind in PARSED if kind.parse(key) is not None]
