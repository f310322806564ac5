"""What no job has used for long goes, and what is too old to count; nothing that a job uses does."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pyarrow as pa
import pytest

from cluster.storage import open_storage
from jobs.chain.store.files import Space, open_store
from jobs.store import collect as collecting
from jobs.store.collect import OLD, UNUSED, Collected, collect
from jobs.store.compact import compact
from tests.support.jobs.stored import ABOUT, SPACE, names, opened, put, texts

DAY = 86_400.0
OTHER = Space("lists", "index of before")


def collected(store: Path, days: float = 30, **more: object) -> list[Collected]:
    return collect(open_storage(str(store)), days * DAY, **more)  # type: ignore[arg-type]


def used(store: Path, space: Space, days: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """Has a job use a space so many days ago."""
    with monkeypatch.context() as patch:
        at = time.time() - days * DAY
        patch.setattr("jobs.chain.store.files.time.time", lambda: at)
        open_store(str(store), {space: ABOUT.get(space, {"retriever": "bm25"})})


def old_and_new(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put(store, {"lighthouse": "a lamp"})
    used(store, OTHER, 40, monkeypatch)
    files = open_store(str(store), {})
    files.names[OTHER] = ()
    files.put(OTHER, pa.table({"query_id": ["a" * 32, "b" * 32], "search": ["1", "2"]}))


def test_spaces_that_no_job_has_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    old_and_new(tmp_path, monkeypatch)
    before = {path for path in tmp_path.rglob("*") if path.is_file()}
    (told,) = collected(tmp_path, dry_run=True)
    assert (told.space, told.why, told.files, told.rows) == (OTHER, UNUSED, 1, 2)
    assert told.size > 0
    assert {path for path in tmp_path.rglob("*") if path.is_file()} == before
    assert collected(tmp_path) == [told]
    assert not [path for path in tmp_path.rglob("*") if OTHER.name in str(path) and path.is_file()]
    assert texts(tmp_path, ["lighthouse"]) == {"lighthouse": "a lamp"}
    assert collected(tmp_path) == []


def test_a_space_that_a_job_has_used_since_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    old_and_new(tmp_path, monkeypatch)
    used(tmp_path, OTHER, 29, monkeypatch)
    assert collected(tmp_path) == []
    assert [told.space for told in collected(tmp_path, 28)] == [OTHER]


def test_a_job_that_begins_meanwhile_keeps_its_space(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    old_and_new(tmp_path, monkeypatch)
    due = collecting._due

    def begun(*of: object) -> object:
        found = due(*of)  # type: ignore[arg-type]
        used(tmp_path, OTHER, 0, monkeypatch)
        return found

    monkeypatch.setattr(collecting, "_due", begun)
    assert collected(tmp_path) == []
    assert len(names(tmp_path)) == 2


def test_a_space_without_notes_is_as_old_as_it_was_begun(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    old_and_new(tmp_path, monkeypatch)
    for path in tmp_path.glob("v1/used/*/*"):
        path.unlink()
    assert [told.space for told in collected(tmp_path)] == [OTHER]


def test_files_whose_rows_are_too_old(tmp_path: Path) -> None:
    now = time.time()
    put(tmp_path, {"lighthouse": "a lamp", "moon": "round"}, now - 50 * DAY)
    put(tmp_path, {"yeast": "rises"}, now - 5 * DAY)
    lifetime = 30 * DAY
    assert sorted(opened(tmp_path, lifetime=lifetime).names) == [SPACE]
    (told,) = collected(tmp_path, oldest=int(1000 * (now - lifetime)))
    assert (told.why, told.files, told.rows) == (OLD, 1, 2)
    assert len(names(tmp_path)) == 1
    assert texts(tmp_path, ["lighthouse", "yeast"]) == {"yeast": "rises"}


def test_days_before_the_last_one_and_temporary_files_go(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for days in (20, 10, 0):
        used(tmp_path, SPACE, days, monkeypatch)
    put(tmp_path, {"lighthouse": "a lamp"})
    left = tmp_path / SPACE.folder / ".a.tmp"
    left.write_bytes(b"")
    os.utime(left, (1, 1))
    assert collected(tmp_path) == []
    assert len(list(tmp_path.glob("v1/used/*/*"))) == 1
    assert not left.exists()


def test_files_that_others_replace_go_after_their_grace(tmp_path: Path) -> None:
    for number in range(3):
        put(tmp_path, {"lighthouse": "a lamp", "moon": f"{number}"}, 1_790_000_000 + number)
    compact(open_storage(str(tmp_path)))
    assert collected(tmp_path) == []
    assert len(names(tmp_path)) == 4
    assert collected(tmp_path, 3650, now=lambda: time.time() + 3 * DAY) == []
    assert len(names(tmp_path)) == 1
