"""The plan and the commits: put once, read by manifest, cleaned of what no manifest names."""

import io
import json
import os
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from cluster.errors import ClusterError
from cluster.run.shards import (
    SUCCESS,
    File,
    Manifest,
    Plan,
    Shard,
    check_inputs,
    commit,
    committed_tables,
    manifests,
    put_plan,
    put_success,
    read_manifest,
    read_plan,
    remove_orphans,
    write_table,
)
from cluster.storage import Storage

INPUT = {"path": "/log/a.parquet", "size": 10, "mtime_ns": 5}
PLAN = Plan(
    inputs=[INPUT],
    counts={"log_rows": 4, "queries": 3, "rejected": 1},
    shard_size=2,
    tables={"queries": [File("queries/plan-x.parquet", 3, 99)], "errors": []},
    shards=[Shard(0, "queries/plan-x.parquet", 0, 2), Shard(1, "queries/plan-x.parquet", 1, 1)],
)
ROWS = pa.table({"query_id": ["a", "b"], "n": [1, 2]})


def manifest(storage: Storage, shard: int, start: int = 1) -> Manifest:
    files = {table: [write_table(storage, table, shard, ROWS)] for table in ("results", "costs")}
    spent = {"rewrite": {"dmqr@m": {"seconds": 1.5, "requests": 2}}}
    return Manifest(shard, start, files, {"queries": 2}, spent, {"write": 0.25})


def keys(storage: Storage, prefix: str = "") -> list[str]:
    return [entry.key for entry in storage.list(prefix)]


# ---------------------------------------------------------------- the plan


def test_a_plan_comes_back_as_it_was_put_and_the_first_counts(storage: Storage) -> None:
    assert read_plan(storage) is None
    assert put_plan(storage, PLAN) == PLAN
    assert read_plan(storage) == PLAN
    assert put_plan(storage, replace(PLAN, shard_size=500, shards=[])) == PLAN
    assert read_plan(storage) == PLAN


@pytest.mark.parametrize(
    ("found", "words"),
    [
        ([], "/log/a.parquet is gone since runs/x was started"),
        ([INPUT | {"size": 11}], "/log/a.parquet has changed since runs/x was started"),
        ([INPUT | {"mtime_ns": 6}], "/log/a.parquet has changed since"),
        ([INPUT, INPUT | {"path": "/log/b.parquet"}], "/log/b.parquet is new since"),
    ],
)
def test_changed_inputs_are_refused_by_name(found: list[dict[str, Any]], words: str) -> None:
    check_inputs(PLAN, [dict(INPUT)], "runs/x")
    with pytest.raises(ClusterError) as refused:
        check_inputs(PLAN, found, "runs/x")
    assert words in str(refused.value)
    assert "restore it, or start another run" in str(refused.value)


# ---------------------------------------------------------------- commits


def test_a_manifest_comes_back_as_it_was_committed(storage: Storage) -> None:
    mine = manifest(storage, 3)
    assert commit(storage, mine) == mine
    assert read_manifest(storage.get("commits/000003.json") or b"") == mine


def test_written_files_say_what_they_hold(storage: Storage) -> None:
    file = write_table(storage, "results", 7, ROWS)
    data = storage.get(file.key) or b""
    assert (file.rows, file.size) == (2, len(data))
    assert pq.read_table(io.BytesIO(data)).equals(ROWS)
    assert write_table(storage, "results", 7, ROWS).key != file.key


def test_who_commits_second_drops_its_own_files_and_gets_the_first_manifest(storage: Storage) -> None:
    theirs = commit(storage, manifest(storage, 0))
    mine = manifest(storage, 0, start=2)
    assert commit(storage, mine) == theirs
    assert not [file for (file,) in mine.files.values() if storage.get(file.key) is not None]
    assert sorted(keys(storage, "results") + keys(storage, "costs")) == sorted(file.key for (file,) in theirs.files.values())


def test_an_attempt_that_is_repeated_after_its_commit_keeps_the_files_of_earlier_stages(storage: Storage) -> None:
    lists = write_table(storage, "runs", 0, ROWS)  # by a stage before, whose block both attempts are given
    theirs = manifest(storage, 0)
    theirs.files["runs"] = [lists]
    commit(storage, theirs)
    again = manifest(storage, 0)
    again.files["runs"] = [lists]
    assert commit(storage, again) == theirs
    assert keys(storage, "runs") == [lists.key]
    assert keys(storage, "results") == [theirs.files["results"][0].key]


def test_manifests_come_by_shard_and_temporaries_are_none(storage: Storage) -> None:
    committed = {shard: commit(storage, manifest(storage, shard)) for shard in (11, 2, 100)}
    storage.put("commits/.000005.json.0f.tmp", b'{"shard"')
    assert list(manifests(storage)) == [committed[shard] for shard in (2, 11, 100)]


def test_what_counts_is_what_the_plan_and_the_manifests_name(storage: Storage) -> None:
    one = commit(storage, manifest(storage, 1))
    write_table(storage, "results", 2, ROWS)  # not committed
    assert committed_tables(PLAN, (one.files for one in manifests(storage)))["results"] == one.files["results"]
    assert committed_tables(PLAN, (one.files for one in manifests(storage)))["queries"] == PLAN.tables["queries"]
    assert committed_tables(PLAN, (one.files for one in manifests(storage))).get("rewrites", []) == []


# ---------------------------------------------------------------- the end


def test_temporary_files_of_killed_drivers_go_and_those_of_a_living_one_stay(folder_storage: Storage) -> None:
    for folder in ("", "lease/"):
        folder_storage.put(f"{folder}kept.json", b"1")
        for name, age in (("old", 3600), ("new", 0)):
            path = Path(folder_storage.root, f"{folder}.{name}.json.0.tmp")
            path.touch()
            os.utime(path, (time.time() - age,) * 2)
    assert remove_orphans(folder_storage, [], []) == 2
    assert sorted(entry.key for entry in folder_storage.list()) == [
        ".new.json.0.tmp", "kept.json", "lease/.new.json.0.tmp", "lease/kept.json"
    ]  # fmt: skip


def test_orphans_go_and_the_named_stay(storage: Storage) -> None:
    named = [write_table(storage, "results", shard, ROWS) for shard in range(2)]
    write_table(storage, "results", 1, ROWS)
    write_table(storage, "costs", 1, ROWS)
    storage.put("results/.shard-000001-a.parquet.ff.tmp", b"half")
    storage.put("commits/000001.json", b"a manifest")
    storage.put("commits/.000001.json.ff.tmp", b"half")  # killed between writing and linking
    storage.put("completions/000001/a.parquet", b"another folder's")
    assert remove_orphans(storage, ["results", "costs", "runs"], named) == 4
    kept = ["commits/000001.json", "completions/000001/a.parquet"]
    assert sorted(keys(storage)) == sorted([*(file.key for file in named), *kept])


@pytest.mark.parametrize(
    ("harm", "words"),
    [
        (lambda storage, key: storage.put(key, b"shorter"), "has not the size it was committed with"),
        (lambda storage, key: storage.delete(key), "is committed but missing"),
    ],
)
def test_a_changed_or_missing_file_is_refused_before_anything_is_deleted(
    storage: Storage, harm: Callable[[Storage, str], None], words: str
) -> None:
    named = [write_table(storage, "results", shard, ROWS) for shard in range(2)]
    orphan = write_table(storage, "results", 5, ROWS)
    harm(storage, named[1].key)
    with pytest.raises(ClusterError) as refused:
        remove_orphans(storage, ["results"], named)
    assert storage.url(named[1].key) in str(refused.value)
    assert words in str(refused.value)
    assert storage.get(orphan.key) is not None


def test_the_last_word_names_every_file_and_is_said_once(storage: Storage) -> None:
    put_success(storage, PLAN.tables, {"queries": 3})
    put_success(storage, {}, {"queries": 0})
    said = json.loads(storage.get(SUCCESS) or b"")
    assert said.pop("finished_at") > 0
    assert said == {
        "counts": {"queries": 3},
        "tables": {"queries": ["queries/plan-x.parquet"], "errors": []},
    }
