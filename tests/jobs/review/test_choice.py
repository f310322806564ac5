"""Rows worth a look: which, in which order, and what is cut, against a count over the stored tables in plain Python."""

from __future__ import annotations

import csv
import json
from collections import Counter
from math import log2
from pathlib import Path
from random import Random
from typing import Any

import pytest

import dmqr
from cluster.storage.spreadsheet import guarded
from jobs.__main__ import main
from jobs.review import portions
from jobs.review.choice import REASONS, changed
from jobs.review.review import Review, review_run, write_sheet
from jobs.runs.folder import RunFolder
from tests.support.jobs.report_runs import Query, RunMaker, query_id, stored

STRATEGIES = ("general", "keyword")
FLAGS = ["lost_name", "lost_number", "drift", "cut", "too_long", "near_duplicate", "repaired"]


def drawn(draw: Random, count: int) -> list[Query]:
    """Queries with lists of one retriever, flags, texts that guards left out, and no hits at times."""
    queries = []
    for number in range(count):
        docs = [f"{number}-{n}" for n in range(8)]
        hits = {("original", "bm25"): draw.sample(docs, draw.randrange(1, 6))} if draw.random() < 0.8 else {}
        texts: dict[str, str | list[str]] = {}
        left: dict[str, str] = {}
        for strategy in STRATEGIES:
            if draw.random() < 0.75:
                texts[strategy] = draw.choice([f"{strategy} of {number}", f"query {number}"])
                if hits or draw.random() < 0.4:
                    hits[strategy, "bm25"] = draw.sample(docs, draw.randrange(1, 6))
            elif draw.random() < 0.5:
                left[strategy] = draw.choice(["not_preserved", "near_duplicate", "no_vocabulary"])
        guards = {name: draw.sample(FLAGS, draw.randrange(3)) for name in texts}
        if draw.random() < 0.1 and "general" in texts:
            guards["general"] = ["override"]
        queries.append(Query(f"query {number}", texts, hits=hits, asked=draw.randrange(1, 30), guards=guards, left_out=left))
    return queries


Place = tuple[str, str, int]


def by_hand(run: RunFolder, queries: list[Query], depth: int = 10) -> tuple[dict[Place, tuple[set[str], float]], int]:
    """Rewrite, or query, that is worth a look -> its reasons, and how much of the traffic it moves; and what is settled."""
    results: dict[str, list[dict[str, Any]]] = {}
    for row in sorted(stored(run, "results"), key=lambda row: row["rank"]):
        results.setdefault(row["query_id"], []).append(row)
    found: dict[Place, set[str]] = {}
    change: dict[str, float] = {}
    approved = set()
    for number, query in enumerate(queries):
        of, served = query_id(number), [row["doc_id"] for row in results.get(query_id(number), [])][:depth]
        before = query.hits.get(("original", "bm25"), [])[:depth]
        weight = {rank: 1 / log2(1 + rank) for rank in range(1, 20)}
        whole = sum(weight[rank] for rank in range(1, 1 + max(len(served), len(before))))
        same = sum(weight[max(served.index(doc), before.index(doc)) + 1] for doc in served if doc in before)
        change[of] = 1 - same / whole if whole else 0.0
        if change[of] > 1e-9:
            best: dict[str, float] = {}
            for rank, row in enumerate(results.get(of, [])[:depth], start=1):
                if row["doc_id"] not in before or before.index(row["doc_id"]) + 1 > rank:
                    for source in row["sources"]:
                        name = source["strategy"]
                        if name != "original" and str(query.texts[name]).lower() != query.name:
                            best[name] = best.get(name, 0) + weight[rank] / log2(1 + source["rank"])
            most = max(best.values(), default=0)
            names = [name for name in STRATEGIES if name in best and best[name] > most - 1e-9]
            found.setdefault((of, names[0], 1) if names else (of, "", 0), set()).add("changed")
        if not query.hits:
            found.setdefault((of, "", 0), set()).add("no_hits")
        for name, told in query.guards.items():
            flags = [flag for flag in told if "repaired" not in told or not flag.startswith("lost_")]
            if wanted := {*flags} & {*REASONS}:
                found.setdefault((of, name, 1), set()).update(wanted)
            if "override" in flags:
                approved.add((of, name, 1))
        for name, guard in query.left_out.items():
            if guard in REASONS:
                found.setdefault((of, name, 0), set()).add(guard)
    settled = len(approved & found.keys())
    asked = {query_id(number): query.asked for number, query in enumerate(queries)}
    return {
        place: (why, asked[place[0]] * (1.0 if "no_hits" in why else change[place[0]]))
        for place, why in found.items()
        if place not in approved
    }, settled


def place_of(row: Any, queries: list[Query]) -> Place:
    query = queries[int(row.query_id, 16)]
    return row.query_id, row.strategy, int(bool(row.text) and row.strategy in query.texts)


@pytest.mark.parametrize("seed", [0, 1, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(2, 6))])
def test_rows_are_those_of_a_count_by_hand(tmp_path: Path, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    draw = Random(seed)
    monkeypatch.setattr(portions, "PORTION", draw.choice([1, 40, 10_000]))
    queries = drawn(draw, 40)
    run = RunMaker(tmp_path)(
        queries, STRATEGIES, shard_size=draw.choice([1, 7, 40]), fuse={"method": draw.choice(["rrf", "minmax"])}
    )
    expected, settled = by_hand(run, queries)
    whole = review_run(run, 1000)
    assert {place_of(row, queries): {*row.reasons} for row in whole.rows} == {
        place: why for place, (why, _) in expected.items()
    }
    assert whole.settled == settled
    moved = [expected[place_of(row, queries)][1] for row in whole.rows]
    assert moved == pytest.approx(sorted(moved, reverse=True), abs=1e-4)
    assert whole.counts == {reason: n for reason in REASONS if (n := sum(reason in why for why, _ in expected.values()))}
    for most in (0, 1, 5, 17):
        few = review_run(run, most)
        assert (len(few.rows), few.found, few.counts) == (most, len(expected), whole.counts)
        kept = {(row.query_id, row.strategy, row.text) for row in few.rows}
        assert kept <= {(row.query_id, row.strategy, row.text) for row in whole.rows}
        for reason in list(whole.counts)[:most]:  # the best row of each reason, as far as there is room
            best = next(row for row in whole.rows if reason in row.reasons)
            assert (best.query_id, best.strategy, best.text) in kept


def test_change_counts_places_and_documents() -> None:
    assert changed(["a", "b"], ["a", "b"]) == changed([], []) == 0
    assert changed(["a", "b"], ["c", "d"]) == changed(["a"], []) == changed([], ["a"]) == 1
    assert 0 < changed(["a", "b", "c"], ["a", "c", "b"]) < changed(["b", "a", "c"], ["a", "b", "c"]) < 1


def test_without_lists_reasons_of_the_original_are_not_told(tmp_path: Path) -> None:
    queries = drawn(Random(3), 20)
    found = review_run(RunMaker(tmp_path)(queries, STRATEGIES, shard_size=5, keep_runs=False), 1000)
    assert "changed" not in found.counts
    assert found.unknown == "the run kept no lists (retrieve.keep_runs)"
    assert {row.change for row in found.rows} == {None}
    assert [row.log_count for row in found.rows] == sorted((row.log_count for row in found.rows), reverse=True)


def sheet(path: Path, found: Review) -> list[dict[str, str]]:
    write_sheet(str(path), found)
    with path.open(encoding="utf-8-sig", newline="") as file:
        return list(csv.DictReader(file))


def test_the_sheet_can_be_opened_in_a_spreadsheet(tmp_path: Path) -> None:
    texts = ["=cmd|' /C calc'!A0", "+1 234", "-x", "@SUM(A1)", "0012", "3-4", 'a "quoted", text', "zwei\nZeilen", "ß ﬁ 東京"]
    queries = [
        Query(text, {"general": texts[n - 1]}, hits={("general", "bm25"): [text]}, asked=9 - n) for n, text in enumerate(texts)
    ]
    found = review_run(RunMaker(tmp_path)(queries, ("general",), shard_size=4))
    rows = sheet(tmp_path / "sheet.csv", found)
    assert (tmp_path / "sheet.csv").read_bytes().startswith(b"\xef\xbb\xbf")
    assert [int(row["row"]) for row in rows] == list(range(1, 10))
    assert [int(row["log_count"]) for row in rows] == list(range(9, 0, -1))
    assert [row[name] for row in rows[:6] for name in ("query", "served")] == [f"'{text}" for text in texts[:6] for _ in "ab"]
    assert [row["query"] for row in rows[6:]] == texts[6:] == [row["text"] for row in [*rows[7:], rows[0]]]
    assert not any(cell.startswith(("=", "+", "-", "@", "\t", "\r")) for row in rows for cell in row.values())
    assert Counter(row["status"] + row["relevance"] + row["original_relevance"] + row["note"] for row in rows) == {"": 9}


def test_python_has_what_the_command_line_writes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = RunMaker(tmp_path)(drawn(Random(3), 20), STRATEGIES, shard_size=7)
    reviewed = dmqr.open(run.storage.root).review(7)  # type: ignore[union-attr]
    assert main(["review", run.storage.root, "--rows", "7", "--out", str(tmp_path / "a.csv"), "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert {name: said[name] for name in reviewed.values} == json.loads(json.dumps(reviewed.values))
    reviewed.write(str(tmp_path / "b.csv"))
    assert (tmp_path / "a.csv").read_bytes() == (tmp_path / "b.csv").read_bytes()
    with pytest.raises(dmqr.ConfigError, match="is not overwritten"):
        reviewed.write(str(tmp_path / "b.csv"))
    with (tmp_path / "b.csv").open(encoding="utf-8-sig", newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["query"] for row in rows] == [guarded(query) for query in reviewed.table.column("query").to_pylist()]
    assert reviewed.table.column_names == list(rows[0])[:-4]
    assert "rows worth a look" in reviewed._repr_html_()
