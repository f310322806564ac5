"""Finding runs: by their own folder, by its name, and after its output was moved. Damaged ones: tests/test_catalogue.py."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from cluster.run.shards import Manifest, Plan, commit, put_plan
from cluster.storage import Storage, open_storage
from jobs.config.config import Config
from jobs.runs.folder import find_runs, open_run


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


# ---------------------------------------------------------------- which folders are runs


def recorded(output: Storage, name: str, label: str | None, fingerprint: str = "0123456789ab") -> str:
    folder = "-".join(part for part in (name, label, fingerprint) if part)
    output.put(f"{folder}/run.json", json.dumps({"config": {"name": name}, "label": label}).encode())
    return folder


def test_the_runs_of_a_name_and_of_a_label(tmp_path: Path) -> None:
    output = open_storage(str(tmp_path))
    plain = recorded(output, "night", None)
    monday = recorded(output, "night", "monday")
    another = recorded(output, "night-monday", None, "ba9876543210")  # its folder could be that of a run with a label
    output.put("night/latest.json", b"{}")
    output.put("night-index/index.json", b"{}")
    assert [folder for folder, _ in find_runs(output, "night")] == [plain, monday]
    assert [folder for folder, _ in find_runs(output, "night", "monday")] == [monday]
    assert [folder for folder, _ in find_runs(output, "night-monday")] == [another]
    assert [folder for folder, _ in find_runs(output)] == [plain, monday, another]


def test_a_run_without_a_record_yet_is_one_by_its_name(tmp_path: Path) -> None:
    output = open_storage(str(tmp_path))
    output.put("night-0123456789ab/lease/000001.json", b"{}")
    output.put("night-ba9876543210/run.json", b"cut o")
    assert list(find_runs(output, "night")) == [("night-0123456789ab", {}), ("night-ba9876543210", {})]
    assert list(find_runs(output)) == []
