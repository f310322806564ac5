"""Forgotten means forgotten, in a folder and on S3: nights before, one that runs meanwhile, compaction, and nights after."""

from __future__ import annotations

import io
import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from cluster.storage import open_storage
from jobs.chain.stages.score import Score
from jobs.store.collect import collect
from jobs.store.compact import compact
from jobs.store.forget import Forgotten, forget
from rewriters.normalise import normalise, query_id
from tests.support.cluster.s3_server import S3Server, connect
from tests.support.jobs.nights import QUERIES, Nights, log, results

SECRET = "Zwergohreule  and the moon"  # words that stand nowhere else; the last finds documents
ID = query_id(SECRET)


@pytest.fixture(params=["folder", "s3"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "folder":
        return str(tmp_path / "facts")
    s3: S3Server = request.getfixturevalue("s3")
    return s3.fresh("facts")


@pytest.fixture
def objects(store: str, request: pytest.FixtureRequest) -> Callable[[], Iterator[tuple[str, bytes]]]:
    """Yields the name and the bytes of every file of the store, by other means than the store's own."""

    def of_folder() -> Iterator[tuple[str, bytes]]:
        for path in Path(store).rglob("*"):
            if path.is_file():
                yield str(path.relative_to(store)), path.read_bytes()

    def of_s3() -> Iterator[tuple[str, bytes]]:
        client, (bucket, _, below) = connect(request.getfixturevalue("s3")), store.removeprefix("s3://").partition("/")
        for page in client.get_paginator("list_objects_v2").paginate(Bucket=bucket, Prefix=f"{below}/"):
            for one in page.get("Contents", ()):
                yield one["Key"].removeprefix(f"{below}/"), client.get_object(Bucket=bucket, Key=one["Key"])["Body"].read()

    return of_s3 if store.startswith("s3://") else of_folder


def held(objects: Callable[[], Iterator[tuple[str, bytes]]]) -> dict[str, set[str]]:
    """Kind -> what of the secret its files hold: its id, its words; marks have the id alone, as their name."""
    found: dict[str, set[str]] = {}
    for name, data in objects():
        kind = name.split("/")[1]
        whole = pq.read_table(io.BytesIO(data)).to_pylist() if name.endswith(".parquet") else data.decode()
        said = normalise(json.dumps(whole, default=str, ensure_ascii=False))
        told = {word for word, text in (("id", ID), ("words", normalise(SECRET))) if text in said}
        told |= {"words"} if normalise(SECRET) in normalise(name) else set()
        if told:
            found.setdefault(kind, set()).update(told)
    return found


@pytest.mark.slow
def test_forgotten_means_forgotten(
    nights: Nights, store: str, objects: Callable[[], Iterator[tuple[str, bytes]]], monkeypatch: pytest.MonkeyPatch
) -> None:
    storage = open_storage(store)
    settings = [f"store={store}", "retrieve.store=true"]
    log([*QUERIES, SECRET])
    first = nights.run("one", *settings)[0]
    output = open_storage(str(first.parent))
    assert held(objects) == {"completions": {"id", "words"}, "lists": {"id"}, "scores": {"id", "words"}}

    score, told = Score.__call__, list[Forgotten]()

    def forgetting(self: Score, table: pa.Table) -> pa.Table:
        """The query is forgotten while another night, which asks in other words, is under way with it."""
        if not told:
            told.append(forget(storage, SECRET.upper(), output))
        return score(self, table)

    with monkeypatch.context() as patch:
        patch.setattr(Score, "__call__", forgetting)
        second, sent, _ = nights.run("two", "rewrite.language=Dutch", *settings)
    assert sent == len(QUERIES) + 1
    assert (told[0].query_id, sorted(told[0].runs or ())) == (ID, sorted(map(str, (first, second))))
    assert held(objects) == {}
    assert [name for name, _ in objects() if name.startswith(f"v1/forgotten/{ID}/")]
    assert len(results(second)) == len(results(first))  # it goes on with what it has

    for _ in range(2):
        compact(storage, grace=0.0)
        collect(storage, 86_400.0)
        assert held(objects) == {}
    log(QUERIES)
    assert nights.run("three", *settings)[1:] == (0, 0)  # no other row has gone
    assert held(objects) == {}
    assert [name for name, _ in objects() if name.startswith(f"v1/forgotten/{ID}/")]

    time.sleep(0.002)  # a job that began in the same millisecond began before
    log([*QUERIES, SECRET])
    fourth, sent, scored = nights.run("four", *settings)
    assert (sent, scored > 0) == (1, True)
    assert results(fourth) == results(first)
    compact(storage, grace=0.0)
    assert nights.run("five", *settings)[1:] == (0, 0)
    assert set(held(objects)) == {"completions", "lists", "scores"}
