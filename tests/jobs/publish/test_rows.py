"""Look-up rows hold what the run's Parquet files say, counted apart; so do both files of an export."""

from __future__ import annotations

import hashlib
import json
import re
from pathlib import Path
from random import Random
from typing import Any

import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cluster.errors import ConfigError
from jobs.publish.rows import LOOK_UP
from jobs.runs.folder import RunFolder, open_run
from jobs.verbs.publishing import ExportArguments
from jobs.verbs.publishing import exported as export
from rewriters.normalise import query_id
from tests.support.jobs.look_up_rows import GENERAL, HOSTILE, Row, bare, expected_rows, exported
from tests.support.jobs.report_runs import Query, RunMaker, stored


def checked(folder: Path, to: Path, version: str = "v", **choice: Any) -> Row:
    """Exports a run, and compares both files with the rows made apart; returns the record."""
    done = export(open_run(str(folder)), ExportArguments({"to": str(to)} | choice, version))
    parquet, lines, record = exported(to, version)
    rows, left = expected_rows(folder, **choice)
    assert list(map(bare, parquet)) == list(rows.values())
    assert [{"context": None} | line for line in lines] == parquet
    assert {row["version"] for row in parquet} <= {version}
    counts = record["counts"]
    assert counts["rows"] == len(rows)
    assert counts["rewrites"] == sum(len(row["rewrites"]) for row in rows.values())
    assert counts["hits"] == sum(len(row["hits"]) for row in rows.values())
    assert counts["without_rewrites"] == sum(not row["rewrites"] for row in rows.values())
    assert {why: n for why, n in record["left_out"].items() if why in ("strategy", "value")} == left
    assert record == json.loads(json.dumps(done.record.values()))
    return record


doc = st.sampled_from([f"d{n}" for n in range(8)])
lists = st.dictionaries(
    st.tuples(st.sampled_from(["original", "general", "keyword"]), st.sampled_from(["bm25", "dense"])),
    st.lists(doc, max_size=5, unique=True),
)
texts = st.dictionaries(st.sampled_from(["general", "keyword"]), st.text('ab "\\\n,', min_size=1, max_size=8))
queries = st.lists(
    st.builds(
        lambda name, texts, hits, asked: Query(
            name, texts, {}, {key: found for key, found in hits.items() if key[0] in ("original", *texts)}, asked
        ),
        st.text(min_size=1, max_size=6).filter(str.strip), texts, lists, st.integers(1, 5),
    ),
    max_size=7,
)  # fmt: skip


@pytest.mark.slow
@given(
    queries,
    st.none() | st.lists(st.sampled_from(["general", "keyword"]), unique=True),
    st.integers(0, 3), st.integers(1, 6), st.integers(1, 300), st.sampled_from(["", "s", "Ω\n"]), st.integers(1, 4),
)  # fmt: skip
def test_rows_of_drawn_runs(
    tmp_path_factory: pytest.TempPathFactory, asked: list[Query], strategies: list[str] | None, min_added: int, hits: int,
    buckets: int, salt: str, size: int,
) -> None:  # fmt: skip
    folder = tmp_path_factory.mktemp("drawn")
    run = RunMaker(folder)(asked, shard_size=size)
    choice = {"min_added": min_added, "hits": hits, "buckets": buckets, "salt": salt}
    checked(Path(run.storage.root), folder / "out", strategies=strategies, **choice)


def test_a_night_of_hostile_queries(hostile_night: Path, tmp_path: Path) -> None:
    assert open_run(str(hostile_night)).plan.head > 0  # the head is sorted apart
    checked(hostile_night, tmp_path / "whole")
    checked(hostile_night, tmp_path / "least", strategies=[GENERAL], min_added=1, hits=3)
    parquet, lines, _ = exported(tmp_path / "whole", "v")
    assert [row["key"] for row in parquet] == sorted(row["key"] for row in parquet)
    keys = {query_id(one): one for one in [*HOSTILE, "yeast of bread"]}
    assert {row["key"] for row in parquet if row["context"] is None} == set(keys)
    (talk,) = (row for row in lines if "context" in row)
    assert talk["key"] == query_id("lamp", "who kept the lighthouse?")
    assert all(row["rewrites"][0]["strategy"] == "keyword" for row in lines if len(row["rewrites"]) == 2)
    assert {one["weight"] for row in lines for one in row["rewrites"] if one["strategy"] == GENERAL} == {0.5}
    table = pq.read_schema(next((tmp_path / "whole" / "v").glob("rows-*.parquet")))
    assert table.equals(LOOK_UP)


@pytest.mark.slow
def test_a_digest_is_that_of_the_line_without_it_and_of_the_content_alone(hostile_night: Path, tmp_path: Path) -> None:
    for version in ("a", "b"):
        checked(hostile_night, tmp_path / "out", version)
    checked(hostile_night, tmp_path / "out", "c", hits=2)
    digests = {}
    for version in ("a", "b", "c"):
        (file,) = (tmp_path / "out" / version).glob("*.jsonl")
        for line in file.read_text(encoding="utf-8").split("\n")[:-1]:
            row = json.loads(line)
            body = re.sub(r',"digest":"[0-9a-f]{16}","version":"[abc]"}$', "}", line)
            assert row["digest"] == hashlib.sha256(body.encode()).hexdigest()[:16]
            digests.setdefault(version, {})[row["key"]] = row["digest"], json.dumps(row["hits"])
    assert digests["a"] == digests["b"]
    for key, (digest, hits) in digests["c"].items():
        assert (digest == digests["a"][key][0]) == (hits == digests["a"][key][1])
    assert any(digest != digests["a"][key][0] for key, (digest, _) in digests["c"].items())


def test_an_empty_night(tmp_path: Path) -> None:
    run = RunMaker(tmp_path)([])
    record = checked(Path(run.storage.root), tmp_path / "out")
    assert record["counts"]["rows"] == 0
    nothing = RunMaker(tmp_path / "more")([Query("a"), Query("b")])
    record = checked(Path(nothing.storage.root), tmp_path / "more" / "out")
    assert (record["counts"]["rows"], record["counts"]["served_traffic"]) == (2, 0)


def drawn_run(draw: Random, folder: Path, *, keep_runs: bool = True) -> tuple[RunFolder, list[Query], Row]:
    """A run with drawn weights, routes and floors; its queries and its settings."""
    retrievers, strategies = ("bm25", "dense"), ("general", "keyword")
    routes = {name: draw.choice([["bm25"], ["dense"], []]) for name in strategies if draw.random() < 0.4}
    routes |= {"original": [draw.choice(retrievers)]} if draw.random() < 0.3 else {}
    names = [*("original", *strategies), *(f"{one}/{by}" for one in ("original", *strategies) for by in retrievers)]
    fuse: Row = {
        "method": "rrf",
        "weights": {name: draw.choice([0, 0, 0.5, 2]) for name in names if draw.random() < 0.4},
        "retriever_weights": {by: draw.choice([0, 3]) for by in retrievers if draw.random() < 0.3},
    }
    left_out = any(name.startswith("original") and not weight for name, weight in fuse["weights"].items())
    fuse["original_floor"] = draw.choice([None, 6.5]) if left_out else None  # which these results do not know
    floor = draw.choice([None, 5.5]) if left_out else None
    queries = []
    for number in range(6):
        texts = {name: f"{name} {number}" for name in strategies if draw.random() < 0.8}
        hits = {
            (name, by): draw.sample([f"d{n}" for n in range(9)], draw.randrange(1, 6))
            for name in ("original", *texts) for by in routes.get(name, retrievers) if draw.random() < 0.9
        }  # fmt: skip
        queries.append(Query(f"query {number}", texts, hits=hits))
    settings: Row = {"routes": routes, "keep_runs": keep_runs}
    settings["retrievers"] = {by: {"kind": "local", "index": "i", "score_floor": floor} for by in retrievers}
    run = RunMaker(folder)(queries, shard_size=3, fuse=fuse, retrieve=settings, keep_runs=keep_runs)
    return run, queries, {"fuse": fuse, "routes": routes, "floor": floor}


@pytest.mark.parametrize("seed", range(8))
def test_weights_and_added_documents_are_those_of_a_count_by_hand(seed: int, tmp_path: Path) -> None:
    draw = Random(seed)
    run, queries, settings = drawn_run(draw, tmp_path)
    fuse, least = settings["fuse"], draw.choice([0, 1, 2])
    export(run, ExportArguments({"to": str(tmp_path / "out"), "min_added": least}, "v"))
    rows = {row["query"]: row for row in exported(tmp_path / "out", "v")[0]}
    floors = [one for one in (fuse["original_floor"], settings["floor"]) if one is not None]

    def weight(name: str) -> float:
        """The greatest weight of a list by a retriever that counts."""
        found = [0.0]
        for by in settings["routes"].get(name, ("bm25", "dense")):
            if fuse["retriever_weights"].get(by, 1):
                found.append(fuse["weights"].get(f"{name}/{by}", fuse["weights"].get(name, 1.0)))
        return max(found)

    for query in queries:
        row, expected = rows[query.name], []
        of_original = {
            doc_id
            for (name, _), docs in query.hits.items() if name == "original"
            for place, doc_id in enumerate(docs) if all(9.0 - place >= floor for floor in floors)
        }  # fmt: skip
        sources = {hit["doc_id"]: {one["strategy"] for one in hit["sources"]} for hit in stored(run, "results")
                   if hit["query_id"] == row["key"] and hit["rank"] <= 10}  # fmt: skip
        for name in query.texts:
            added = {doc_id for doc_id, of in sources.items() if name in of} - of_original
            if len(added) >= least:
                expected.append((name, weight(name)))
        assert [(one["strategy"], one["weight"]) for one in row["rewrites"]] == sorted(expected)


def test_what_a_rewrite_has_added_needs_the_lists_of_an_original_without_weight(tmp_path: Path) -> None:
    run = RunMaker(tmp_path)([Query("a")], keep_runs=False, fuse={"weights": {"original/dense": 0}})
    with pytest.raises(ConfigError, match=r"^--min-added: original/dense may be left out of fusion, and no list was kept"):
        export(run, ExportArguments({"to": str(tmp_path / "out"), "min_added": 1}))


def test_unknown_strategies_are_refused_with_the_nearest(tmp_path: Path) -> None:
    run = RunMaker(tmp_path)()
    with pytest.raises(ConfigError, match=r"no strategy 'keywrd' in .*; did you mean 'keyword'\? \(known: general, keyword\)"):
        export(run, ExportArguments({"to": str(tmp_path / "out"), "strategies": ["keywrd"]}))


def test_what_a_rewrite_has_added_is_not_told_by_texts_searched_as_one(tmp_path: Path) -> None:
    retrievers = {"bm25": {"kind": "local", "index": "i", "together": True}}
    run = RunMaker(tmp_path)([Query("a")], retrieve={"retrievers": retrievers})
    with pytest.raises(ConfigError, match=r"^--min-added: bm25 search all texts as one"):
        export(run, ExportArguments({"to": str(tmp_path / "out"), "min_added": 1}))
