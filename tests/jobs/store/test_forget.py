"""Forgotten means forgotten: in files, for jobs meanwhile, in runs on S3, and in whatever form words stand."""

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cluster.errors import ClusterError, ConfigError, Stopped
from cluster.storage import open_storage
from jobs.chain.store.facts import Scored, StoredScores
from jobs.chain.store.files import Space, open_store
from jobs.store import forget as forgetting
from jobs.store.compact import GRACE_SECONDS, compact
from jobs.store.forget import Forgotten, QueryWords, forget
from rewriters.normalise import normalise, query_id
from tests.support.cluster.s3_server import S3Server
from tests.support.jobs.in_process_runs import run_in_process
from tests.support.jobs.nights import QUERIES, Nights, log
from tests.support.jobs.stored import SPACE, all_rows, found, names, opened, put, put_into, texts
from tests.support.jobs.whole_runs import rows

BEGAN = 1_790_000_000.0

SECRET = "Zwergohreule  im Garten"  # words that stand nowhere else


def forgotten(store: Path, query: str, **more: Any) -> Forgotten:
    return forget(open_storage(str(store)), query, more.pop("output", None), **more)


def held_words(folder: Path, query: str) -> list[Path]:
    """The files of a store that have a query's id or words."""
    wanted = normalise(query)
    return [
        path
        for path in folder.glob("v1/*/*/*.parquet")
        if any(query_id(query) == row["query_id"] or wanted in normalise(json.dumps(row, default=str, ensure_ascii=False))
               for row in pq.read_table(path).to_pylist())
    ]  # fmt: skip


def test_no_file_holds_it(tmp_path: Path) -> None:
    put(tmp_path, {SECRET: "an owl", "lighthouse": "a lamp"}, BEGAN)
    put(tmp_path, {"other": "after turns"}, BEGAN, prompt=f"Earlier: {SECRET.upper()}. Now: other")
    put(tmp_path, {"third": json.dumps({"general": f"like {SECRET}"}), "fourth": "4"}, BEGAN)
    told = forgotten(tmp_path, "zwergohreule im garten")
    assert told.query_id == query_id(SECRET)
    assert told.others == {query_id("other"), query_id("third")}
    assert (told.rows, told.files, told.runs) == ({"completions": 3}, 3, None)
    assert held_words(tmp_path, SECRET) == []
    assert texts(tmp_path, [SECRET, "other", "third", "fourth", "lighthouse"]) == {"fourth": "4", "lighthouse": "a lamp"}
    assert {path.parent.name for path in tmp_path.glob("v1/forgotten/*/*")} == told.query_ids
    assert forgotten(tmp_path, SECRET).rows.total() == 0


def test_a_dry_run_only_says_what_would_go(tmp_path: Path) -> None:
    put(tmp_path, {SECRET: "an owl", "lighthouse": "a lamp"}, BEGAN)
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    told = forgotten(tmp_path, SECRET, dry_run=True)
    assert (told.rows, told.files) == ({"completions": 1}, 1)
    assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == before


def test_a_job_that_began_before_does_not_bring_it_back(tmp_path: Path) -> None:
    began = time.time() - 5
    put(tmp_path, {"lighthouse": "a lamp"}, BEGAN)
    job = opened(tmp_path, began)
    forgotten(tmp_path, SECRET)
    put_into(job, {SECRET: "an owl", "moon": "round"})
    assert held_words(tmp_path, SECRET) == []
    assert texts(tmp_path, [SECRET, "moon"]) == {"moon": "round"}
    put_into(opened(tmp_path, began), {SECRET: "an owl"})  # resumed: it opens the store anew, and has its answers
    assert held_words(tmp_path, SECRET) == []


def test_a_text_that_was_scored_for_another_query_goes_with_it(tmp_path: Path) -> None:
    """A job that began before puts none of them."""
    space = Space("scores", "reranker")
    job = open_store(str(tmp_path), {space: {}}, time.time() - 5)

    def scored(query: str, words: str) -> None:
        scores = StoredScores(job, space)
        scores.fill([Scored(query, words, b"d" * 16)], lambda keys: [(key, 0.5) for key in keys])
        scores.save()

    scored("a" * 32, SECRET)
    assert forgotten(tmp_path, SECRET).others == {"a" * 32}
    scored("b" * 32, SECRET)
    scored("c" * 32, "lighthouse")
    (file,) = tmp_path.glob("v1/scores/reranker/*.parquet")
    assert pq.read_table(file).column("text").to_pylist() == ["lighthouse"]


def test_merged_files_and_those_they_replace(tmp_path: Path) -> None:
    """All of them are written anew; the note still says what is read, so that nothing is merged twice."""
    for number in range(4):
        put(tmp_path, {SECRET: f"{number}", "lighthouse": f"{number}"}, BEGAN + number)
    early = opened(tmp_path)
    storage = open_storage(str(tmp_path))
    compact(storage)
    assert len(names(tmp_path)) == 5
    told = forgotten(tmp_path, SECRET)
    assert told.files == 5
    assert held_words(tmp_path, SECRET) == []
    assert len(opened(tmp_path).names[SPACE]) == 1
    assert compact(storage) == []
    assert found(early, [SECRET, "lighthouse"]) == {"lighthouse": "0"}
    later = time.time() + GRACE_SECONDS + 60
    compact(storage, now=lambda: later)
    assert texts(tmp_path, [SECRET, "lighthouse"]) == {"lighthouse": "0"}


def test_a_row_of_a_job_that_was_killed_goes_when_the_store_is_compacted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = opened(tmp_path, time.time() - 5)
    put(tmp_path, {"lighthouse": "a lamp"}, BEGAN)
    forgotten(tmp_path, SECRET)
    with monkeypatch.context() as patch:
        patch.setattr("jobs.chain.store.files.forgotten_queries", lambda _: {})  # it never came to look for marks
        put_into(job, {SECRET: "an owl"})
    assert held_words(tmp_path, SECRET)
    assert texts(tmp_path, [SECRET]) == {}
    compact(open_storage(str(tmp_path)))
    assert held_words(tmp_path, SECRET) == []


def test_killed_at_any_moment_it_is_forgotten_by_the_next_call(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, killed_after: Callable[..., None]
) -> None:
    for kept in range(7):
        store = tmp_path / f"{kept}"
        put(store, {SECRET: "1", "lighthouse": "1"}, BEGAN)
        put(store, {SECRET: "2", "moon": "2"}, BEGAN)
        with monkeypatch.context() as patch:
            killed_after(kept, patch)
            with pytest.raises(SystemExit):
                forgotten(store, SECRET)
        assert texts(store, ["lighthouse", "moon"]) == {"lighthouse": "1", "moon": "2"}
        forgotten(store, SECRET)
        assert held_words(store, SECRET) == []
        assert texts(store, ["lighthouse", "moon"]) == {"lighthouse": "1", "moon": "2"}


def test_words_of_many_other_queries_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(forgetting, "MOST_OTHERS", 2)
    put(tmp_path, {f"the moon {number}": "a" for number in range(3)} | {"moon": "m"}, BEGAN)
    with pytest.raises(ConfigError, match=r"rows of 3 other queries have these words, too; give --own .* or --all"):
        forgotten(tmp_path, "moon")
    assert all_rows(tmp_path).num_rows == 4
    assert not (tmp_path / "v1/forgotten").exists()
    assert forgotten(tmp_path, "moon", others="none").rows == {"completions": 1}
    assert all_rows(tmp_path).num_rows == 3
    assert forgotten(tmp_path, "moon", others="all").rows == {"completions": 3}
    assert names(tmp_path) == []


def test_a_query_after_turns(tmp_path: Path) -> None:
    told = forgotten(tmp_path, "and then", context="why does bread rise")
    assert told.query_id == query_id("and then", "why does bread rise")
    told = forgotten(tmp_path, "and then", context="bread" * 2000)  # of which a log has the newest 8,000 characters
    assert told.query_id == query_id("and then", "bread" * 1600)


def test_no_words(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="QUERY: has no word"):
        forgotten(tmp_path, "  ")


def test_a_night_that_is_resumed_does_not_bring_it_back(nights: Nights, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its own folder has the answer, and it goes on with that; the store does not get it."""
    store = Path("runs/store")

    def broken(*_: Any) -> Any:
        raise ClusterError("storage-refused", "the disk is gone")

    with monkeypatch.context() as patch:
        patch.setattr("jobs.chain.stages.score.Score.__call__", broken)
        with pytest.raises(Stopped):
            run_in_process(nights.job("one"))
    assert held_words(store, QUERIES[0])
    told = forgotten(store, QUERIES[0], output=open_storage("runs"))
    assert [Path(one).name.startswith("small-one-") for one in told.runs or ()] == [True]
    folder, sent, _ = nights.counted(nights.job("one"))
    assert sent == 3  # of the other shard
    assert len(rows(folder, "queries")) == len(QUERIES)
    assert held_words(store, QUERIES[0]) == []
    assert pa.concat_tables([pq.read_table(path) for path in store.glob("v1/scores/*/*.parquet")]).num_rows > 0


SECRET_QUERY = "Zwergohreule  and the moon"  # words that stand nowhere else; the last finds documents


def test_runs_on_s3_that_hold_it_are_named(nights: Nights, s3: S3Server) -> None:
    """By their queries; those after it was forgotten, and without it, are not."""
    address = s3.fresh("runs")
    output = open_storage(address)
    log([*QUERIES, SECRET_QUERY])
    nights.run("one", f"output={address}")
    log(QUERIES)
    nights.run("two", f"output={address}")
    store = open_storage(output.url("store"))
    (held_by,) = forget(store, SECRET_QUERY, output).runs or []
    assert held_by.startswith(f"{address}/small-one-")
    assert forget(store, "Uhu and the moon", output).runs == []
    assert forget(store, SECRET_QUERY, None).runs is None


@pytest.mark.parametrize(
    ("query", "text", "held"),
    [
        ("spring tide", "Rewrite this query: Spring  TIDE", True),
        ("Spring Tide", "about\nspring\ttide?", True),
        ("spring tide", "springtide", False),
        ("tide", "tides", False),
        ("tide", "(tide)", True),
        ("tide", "ebb-tide,", True),
        ("tide", "riptide and tide", True),
        ("Straße", "STRASSE", True),
        ("tide", "\uff54\uff49\uff44\uff45", True),  # full width
        ("東京", "は東京の", True),
        ("café", json.dumps({"general": "the café"}), True),
        ("red fox", json.dumps({"prompt": "a\nred\nfox"}), True),
        ('say "no"', json.dumps({"text": 'they say "no" again'}), True),
        ("😀 faces", json.dumps({"text": "😀 faces"}), True),
        ("tide", None, False),
    ],
)
def test_texts_with_the_words(query: str, text: str | None, held: bool) -> None:
    rows = pa.table({"text": pa.array([text, "nothing of it"], pa.string())})
    assert QueryWords(query).held_by(rows, ["text"]).tolist() == [held, False]


def test_nested_texts() -> None:
    hits = [
        [{"title": "a", "text": "spring tide"}],
        [],
        [{"title": "b", "text": None}, {"title": "Spring tide", "text": "c"}],
        None,
    ]
    rows = pa.table({"query_id": ["1", "2", "3", "4"], "hits": hits})
    assert QueryWords("spring tide").held_by(rows, ["hits", "missing"]).tolist() == [True, False, True, False]


def test_no_words_are_in_no_text() -> None:
    assert not QueryWords("  ").held_by(pa.table({"text": ["a", " "]}), ["text"]).any()


@given(st.lists(st.text("aB\u00e9ß \\u0\n", max_size=12), max_size=6), st.text("aB\u00e9ß ", min_size=1, max_size=4))
def test_the_quick_look_leaves_nothing_out(texts: list[str], query: str) -> None:
    """By columns, where most texts are never normalised, as text by text."""
    words = QueryWords(query)
    held = words.held_by(pa.table({"text": pa.array(texts, pa.string())}), ["text"])
    assert np.array_equal(held, [bool(normalise(query)) and words.in_text(text) for text in texts])
