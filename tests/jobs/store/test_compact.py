"""Many files of one range become one, and what no job has used for long goes: what jobs find stays the same."""

import json
import os
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cluster.errors import HeldError
from cluster.storage import open_storage
from jobs.chain.store import files as module
from jobs.chain.store.files import Space, open_store, put_rows
from jobs.chain.store.tombstones import mark_forgotten
from jobs.store import collect as collecting
from jobs.store import compact as compacting
from jobs.store.collect import OLD, UNUSED, Collected, collect
from jobs.store.compact import GRACE_SECONDS, Compacted, compact, compact_crowded
from jobs.store.contents import maintaining, stored_spaces
from rewriters.normalise import query_id
from tests.support.jobs.stored import ABOUT, SPACE, all_rows, found, names, opened, put, texts

NIGHTS: list[dict[str, str]] = [
    {f"query {number}": f"answer {number} of night {night}" for number in range(night, night + 6)} for night in range(5)
]

QUERIES = sorted({query for night in NIGHTS for query in night})

BEGAN = 1_790_000_000.0


def five_nights(store: Path) -> None:
    for number, night in enumerate(NIGHTS):
        put(store, night, BEGAN + number)


def compacted(store: Path, **more: Any) -> list[Compacted]:
    return compact(open_storage(str(store)), **more)


def test_what_others_replace_stays_for_jobs_that_have_listed_it(tmp_path: Path) -> None:
    five_nights(tmp_path)
    early, before = opened(tmp_path), names(tmp_path)
    compacted(tmp_path)
    assert set(before) < set(names(tmp_path))
    later = time.time() + GRACE_SECONDS + 60
    compacted(tmp_path, now=lambda: later)
    assert len(names(tmp_path)) == 1
    assert not list(tmp_path.glob("v1/*/*/merged-*"))
    assert found(early, QUERIES) == texts(tmp_path, QUERIES)  # its files are gone: it lists the space once more
    assert len(early.names[SPACE]) == 1


@pytest.mark.parametrize("kept", range(8))
def test_a_crash_leaves_duplicates_or_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kept: int, killed_after: Callable[..., None]
) -> None:
    """The process is killed after so many changes of the store; the next one goes on."""
    five_nights(tmp_path)
    before, killed = texts(tmp_path, QUERIES), False
    with monkeypatch.context() as patch:
        killed_after(kept, patch)
        try:
            compacted(tmp_path, grace=0.0)
        except SystemExit:
            killed = True
    assert killed or kept > 4
    assert texts(tmp_path, QUERIES) == before
    compacted(tmp_path, grace=0.0)
    assert texts(tmp_path, QUERIES) == before
    assert len(opened(tmp_path).names[SPACE]) == 1


def test_a_note_without_its_files_does_not_count(tmp_path: Path) -> None:
    """Whatever removed the merged file: what it replaced is read again, and the note goes."""
    five_nights(tmp_path)
    before = texts(tmp_path, QUERIES)
    compacted(tmp_path)
    (note,) = tmp_path.glob("v1/*/*/merged-*")
    for name in json.loads(note.read_text())["by"]:
        (note.parent / name).unlink()
    assert texts(tmp_path, QUERIES) == before
    later = time.time() + GRACE_SECONDS + 60
    compacted(tmp_path, now=lambda: later)
    assert not note.exists()
    assert texts(tmp_path, QUERIES) == before


def test_a_large_space_becomes_files_that_share_no_range(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    many = {f"query {number}": f"answer {number}" for number in range(600)}
    put(tmp_path, many, BEGAN)
    put(tmp_path, {query: f"late {query}" for query in list(many)[::3]}, BEGAN + 1)
    size = sum(path.stat().st_size for path in tmp_path.glob("v1/completions/*/*.parquet"))
    monkeypatch.setattr(compacting, "MERGED_BYTES", size // 5)
    monkeypatch.setattr(module, "ROW_GROUP", 16)
    (one,) = compacted(tmp_path, grace=0.0)
    assert one.files == (2, 5)
    (space,) = stored_spaces(open_storage(str(tmp_path)))
    assert space.most_together == 1
    assert texts(tmp_path, list(many)) == many
    assert all_rows(tmp_path).num_rows == 800
    ids = all_rows(tmp_path).column("query_id").to_pylist()
    assert ids == sorted(ids)


def test_rows_that_are_too_old_or_forgotten_go(tmp_path: Path) -> None:
    five_nights(tmp_path)
    mark_forgotten(open_storage(str(tmp_path)), [query_id("query 8")], int(1000 * (BEGAN + 3)))
    (one,) = compacted(tmp_path, oldest=int(1000 * (BEGAN + 2)), grace=0.0)
    kept = texts(tmp_path, QUERIES)
    assert sorted(kept) == [f"query {number}" for number in range(2, 10)]
    assert kept["query 8"] == "answer 8 of night 4"  # made after it was forgotten
    assert kept["query 2"] == "answer 2 of night 2"
    assert (one.rows, one.dropped) == (13, 17)


def test_rows_of_other_columns_become_one_file(tmp_path: Path) -> None:
    """A later version adds a column: rows of before have null there."""
    storage, space = open_storage(str(tmp_path)), Space("lists", "new")
    for number, more in enumerate(({}, {"extra": pa.array([7])})):
        row = {"query_id": pa.array([f"{number:032x}"]), "search": pa.array(["a"])} | more
        put_rows(storage, space, pa.table(row | {"made_at": pa.array([number], pa.timestamp("ms", "UTC"))}))
    put_rows(storage, space, pa.table({"query_id": [f"{0:032x}", f"{1:032x}"], "search": ["b", "b"],
                                       "made_at": pa.array([5, 5], pa.timestamp("ms", "UTC"))}))  # fmt: skip
    compacted(tmp_path, grace=0.0)
    (file,) = tmp_path.glob("v1/lists/new/*.parquet")
    assert pq.read_table(file).select(["search", "extra"]).to_pylist() == [
        {"search": "a", "extra": None}, {"search": "b", "extra": None},
        {"search": "a", "extra": 7}, {"search": "b", "extra": None},
    ]  # fmt: skip


def rows_of(space: Space, **columns: Any) -> pa.Table:
    made = pa.array(columns.pop("made_at"), pa.timestamp("ms", "UTC"))
    return pa.table({"query_id": ["a" * 32] * len(made), **columns, "made_at": made})


@pytest.mark.parametrize(
    ("kind", "columns", "kept"),
    [
        ("scores", {"text": ["t", "t", "t"], "document": [b"1", b"2", b"1"], "number": [1, 2, 3]}, [1, 2, 3]),
        ("scores", {"text": ["t", "t", "t"], "document": [b"1"] * 3, "number": [1, 2, 3]}, [1, 3]),
        ("unknown", {"search": ["x", "x", "x"], "number": [1, 2, 3]}, [1, 2, 3]),
    ],
)
def test_which_rows_of_one_key_stay(kind: str, columns: Mapping[str, Any], kept: list[int]) -> None:
    rows = rows_of(Space(kind, "a"), **columns, made_at=[10, 20, 30])
    assert sorted(compacting.ends_of_keys(kind, rows).column("number").to_pylist()) == sorted(kept)


def test_a_run_compacts_where_many_files_hold_one_range(tmp_path: Path) -> None:
    storage = open_storage(str(tmp_path))
    for number in range(32):
        put(tmp_path, {"one": f"{number}", "two": f"{number}"}, BEGAN + number)
    assert compact_crowded(storage) == []
    put(tmp_path, {"one": "32", "two": "32"}, BEGAN + 32)
    (one,) = compact_crowded(storage)
    assert one.files == (33, 1)
    assert texts(tmp_path, ["one"]) == {"one": "0"}


def test_of_rows_of_one_age_the_first_stays(tmp_path: Path) -> None:
    rows = rows_of(Space("scores", "a"), text=["t"] * 4, document=[b"1"] * 4, number=[1, 2, 3, 4], made_at=[20, 10, 10, 20])
    assert compacting.ends_of_keys("scores", rows).column("number").to_pylist() == [2, 1]


def test_what_is_too_old_for_one_config_stays_for_another(tmp_path: Path) -> None:
    """The compaction after a run serves all jobs: of each key the oldest row stays, and one that is good for longest."""
    day, now, storage = 86_400.0, time.time(), open_storage(str(tmp_path))
    for number in range(40):  # "one" was asked anew by a config for which all others were too old
        put(tmp_path, {"one": f"{number}", "two": f"{number}"}, now - (60 - number) * day)
    put(tmp_path, {"one": "new"}, now - day)
    assert len(compact_crowded(storage)) == 1
    assert texts(tmp_path, ["one", "two"]) == {"one": "0", "two": "0"}
    assert found(opened(tmp_path, lifetime=30 * day), ["one", "two"]) == {"one": "new", "two": "39"}
    assert found(opened(tmp_path, lifetime=2 * day), ["one", "two"]) == {"one": "new"}


def test_one_maintainer_at_a_time(tmp_path: Path) -> None:
    five_nights(tmp_path)
    storage = open_storage(str(tmp_path))
    with maintaining(storage):
        with pytest.raises(HeldError, match=r"another process \(\d+ on .*\) maintains this store; wait for it"):
            compacted(tmp_path)
        for number in range(40):
            put(tmp_path, {"one": "1", "two": "2"}, BEGAN + number)
        assert compact_crowded(storage) == []  # a run does without
    assert len(compacted(tmp_path)) == 1
    assert len(list(tmp_path.glob("v1/maintainer/lease/*"))) == 1


answers = st.dictionaries(st.sampled_from([f"q{number}" for number in range(12)]), st.text("ab", min_size=1, max_size=3),
                          min_size=1, max_size=8)  # fmt: skip


@settings(
    max_examples=settings.default.max_examples // 3,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(nights=st.lists(st.tuples(st.integers(0, 4), answers), min_size=1, max_size=8), most=st.integers(1, 4))
def test_any_nights_read_the_same(
    tmp_path_factory: pytest.TempPathFactory, nights: list[tuple[int, dict[str, str]]], most: int
) -> None:
    store, queries = tmp_path_factory.mktemp("store"), [f"q{number}" for number in range(12)]
    for at, night in nights:
        put(store, night, BEGAN + at)
    before = texts(store, queries)
    compacted(store, most_together=most, grace=0.0)
    assert texts(store, queries) == before
    (space,) = stored_spaces(open_storage(str(store)))
    assert space.most_together <= most


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
