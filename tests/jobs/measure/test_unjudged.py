"""What is left to judge: every document once, those first that move most arms most; the sheet is read as judgements then."""

from __future__ import annotations

from math import log2
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cluster.errors import ConfigError
from jobs.log.judgements import Judgements, read_qrels
from jobs.measure.export.unjudged import unjudged_of, write_unjudged
from jobs.measure.frame import measure
from tests.support.jobs.arms_by_hand import ablation, arm, ask

DOCS = [f"d{n:02}" for n in range(20)]
QUERIES = [ask(f"q{n}", f"word{n}\tof {n}") for n in range(6)]
GRADES = {f"Q{n}": {DOCS[n]: 1, DOCS[n + 3]: 0} for n in range(5)} | {"gone": {"d01": 1}}


def made(folder: Path) -> tuple[Any, dict[str, dict[str, list[str]]]]:
    arms = [
        arm("full", seeds=2), arm("full #2", "samples", seed_of="full"), arm("original"), arm("other", "arms"),
        arm("best", "arms", k=1, members=["full", "other"]),
    ]  # fmt: skip
    random = np.random.default_rng(4)
    names = ("full", "full #2", "original", "other")
    lists = {
        name: {row["query_id"]: [str(doc) for doc in random.permutation(DOCS)[:12]] for row in QUERIES[:5]} for name in names
    }
    return ablation(folder, arms, lists, QUERIES), lists


def by_hand(lists: dict[str, dict[str, list[str]]], depth: int) -> dict[tuple[str, str], tuple[set[str], int, float]]:
    found: dict[tuple[str, str], tuple[set[str], int, float]] = {}
    for name, of in lists.items():
        for query_id, docs in of.items():
            for rank, doc_id in enumerate(docs[:depth], start=1):
                key = query_id.upper()
                if doc_id not in GRADES[key]:
                    arms, best, weight = found.get((key, doc_id), (set(), 99, 0.0))
                    share = 0.5 if name.startswith("full") else 1.0  # two seeds are one arm
                    arms = arms | {name.removesuffix(" #2")}
                    found[key, doc_id] = arms, min(best, rank), weight + share / log2(rank + 1)
    return found


@pytest.mark.parametrize("depth", [3, 10, 50])
def test_each_document_stands_once_by_what_it_moves(tmp_path: Path, depth: int) -> None:
    run, lists = made(tmp_path)
    judgements = Judgements("", GRADES)
    found = unjudged_of(run, judgements, measure(run, judgements, ["nDCG@10"]), depth)
    expected = by_hand(lists, depth)
    rows = {(one.key, one.doc_id): (one.arms, one.rank, pytest.approx(one.weight)) for one in found.rows}
    assert len(rows) == len(found.rows)
    assert rows == {key: (len(arms), rank, weight) for key, (arms, rank, weight) in expected.items()}
    weights = [one.weight for one in found.rows]
    assert weights == sorted(weights, reverse=True)
    assert (found.arms, found.queries) == (3, 5)
    assert f"not judged: {len(rows):,} documents of 5 keys among the first {depth} results of 3 arms" in found.said
    assert found.without_text == len(rows)  # the index is gone, and it is said
    assert found.why is not None


def test_a_sheet_that_is_filled_in_is_judgements(tmp_path: Path) -> None:
    run, _ = made(tmp_path)
    judgements = Judgements("", GRADES)
    frame = measure(run, judgements, ["nDCG@10"])
    sheet = tmp_path / "sheet.tsv"
    write_unjudged(str(sheet), unjudged_of(run, judgements, frame))
    heading, *lines = sheet.read_text().splitlines()
    assert heading.split("\t") == ["log_id", "doc_id", "grade", "arms", "rank", "weight", "query", "text"]
    assert lines[0].split("\t")[6].startswith("word")
    with pytest.raises(ConfigError, match="holds no judgement"):
        read_qrels(str(sheet))
    graded = [line.split("\t") for line in lines]
    filled = ["\t".join([*row[:2], str(n % 3), *row[3:]]) for n, row in enumerate(graded[:-4])] + lines[-4:]
    sheet.write_text("\n".join([heading, *filled]) + "\n")
    found = read_qrels(str(sheet)).grades
    assert found == {
        key: {row[1]: n % 3 for n, row in enumerate(graded[:-4]) if row[0] == key} for key in {row[0] for row in graded[:-4]}
    }
    before = "".join(f"{key}\t{doc_id}\t{grade}\n" for key, of in GRADES.items() for doc_id, grade in of.items())
    both = tmp_path / "both.tsv"
    both.write_text(before + sheet.read_text())
    more = read_qrels(str(both))
    left = unjudged_of(run, more, measure(run, more, ["nDCG@10"]))
    assert {(one.key, one.doc_id) for one in left.rows} == {(row[0], row[1]) for row in graded[-4:]}
    assert measure(run, more, ["nDCG@10"]).unjudged[0] < frame.unjudged[0]
    with pytest.raises(ConfigError, match=r"line 1 heads a sheet of log_ids, and query_ids are judged; name its key"):
        read_qrels(str(sheet), key="query_id")


def test_an_id_that_a_sheet_cannot_hold_is_refused(tmp_path: Path) -> None:
    grades = {"a\tb": {"d00": 1}}
    mapped = ablation(tmp_path / "tab", [arm("full")], {"full": {"q0": ["d01"]}}, QUERIES[:1], [("a\tb", "q0")])
    judgements = Judgements("", grades)
    found = unjudged_of(mapped, judgements, measure(mapped, judgements, ["P@5"]))
    with pytest.raises(ConfigError, match="has white space that a sheet cannot hold"):
        write_unjudged(str(tmp_path / "sheet.tsv"), found)
    assert not (tmp_path / "sheet.tsv").exists()
