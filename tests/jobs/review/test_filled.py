"""A filled sheet: what is read of it, what is added to which file, and every mistake as one line with its row."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable
from pathlib import Path
from random import Random

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from cluster.errors import DmqrError
from jobs.__main__ import main
from jobs.log.judgements import read_qrels
from jobs.pages.review import filled_page
from jobs.review.filled import read_filled
from jobs.review.merged import merged_judgements, merged_overrides, write_merged
from jobs.review.review import TO_FILL, review_run, write_sheet
from jobs.runs.folder import RunFolder
from rewriters.guards.files import guard_file
from rewriters.guards.overrides import Override, load_overrides
from tests.support.jobs.report_runs import Query, RunMaker, query_id

QUERIES = [
    Query(name, {"general": f"general, of {name}", "keyword": f"keyword of {name}"}, asked=9 - number, hits={
        ("original", "bm25"): [f"{number}-a", f"{number}-b"], ("general", "bm25"): [f"{number}-c", f"{number}-d"],
        ("keyword", "bm25"): [f"{number}-c", f"{number}-b"],
    }, guards={"general": ["lost_name"], "keyword": ["drift"]})
    for number, name in enumerate(["Rye Bread", "1-2", "=tides", "zürich 東京"])
]  # fmt: skip
HEADER = b"query_id,query,strategy,text,original,served,status,relevance,original_relevance\n"
TEXTS = (("general", 1), ("keyword", 1))
Row = dict[str, str]


@pytest.fixture
def run(tmp_path: Path) -> RunFolder:
    return RunMaker(tmp_path)(QUERIES, ("general", "keyword"), shard_size=3)


@pytest.fixture
def filled(run: RunFolder, tmp_path: Path) -> Callable[..., str]:
    """Writes a sheet in which cells are filled in: (query, strategy) -> column -> cell; its path."""

    def fill(cells: dict[tuple[str, str], Row], name: str = "sheet.csv", delimiter: str = ",") -> str:
        path = tmp_path / name
        path.unlink(missing_ok=True)
        write_sheet(str(path), review_run(run))
        with path.open(encoding="utf-8-sig", newline="") as file:
            rows = list(csv.DictReader(file))
        for row in rows:
            row.update(cells.get((row["query"].removeprefix("'"), row["strategy"]), {}))
        Random(1).shuffle(rows)  # a person may sort them
        with path.open("w", encoding="utf-8-sig", newline="") as file:
            writer = csv.DictWriter(file, list(rows[0]), delimiter=delimiter)
            writer.writeheader()
            writer.writerows(rows)
        return str(path)

    return fill


CELLS = {
    ("Rye Bread", "general"): {"status": "Approved ", "text": "bread of rye"},
    ("1-2", "keyword"): {"status": "banned", "relevance": "2", "original_relevance": "0"},
    ("=tides", "general"): {"status": "banned", "text": "", "note": "never"},
    ("zürich 東京", "keyword"): {"status": "pinned", "relevance": "1"},
}


@pytest.mark.parametrize("delimiter", [",", ";", "\t"])
def test_a_filled_sheet_is_read(run: RunFolder, filled: Callable[..., str], delimiter: str) -> None:
    found = read_filled(filled(CELLS, delimiter=delimiter), run)
    assert (found.rows, found.empty) == (8, 4)
    assert {(one.query, one.strategy, one.text, one.status, one.note) for one in found.verdicts} == {
        ("Rye Bread", "general", "bread of rye", "approved", ""), ("1-2", "keyword", "keyword of 1-2", "banned", ""),
        ("=tides", "general", "", "banned", "never"), ("zürich 東京", "keyword", "keyword of zürich 東京", "pinned", ""),
    }  # fmt: skip
    graded = {(one.query_id, one.doc_id, one.grade) for one in found.grades}
    assert {(of, grade) for of, _, grade in graded} == {(query_id(1), 2), (query_id(1), 0), (query_id(3), 1)}
    assert (query_id(1), "1-a", 0) in graded


@pytest.mark.parametrize("delimiter", [",", ";", "\t"])
def test_rows_may_lack_their_last_empty_fields(run: RunFolder, filled: Callable[..., str], delimiter: str) -> None:
    """As Excel writes them, which leaves the last fields out of each 16 rows in which all of them are empty."""
    sheet = Path(filled(CELLS | {("zürich 東京", "keyword"): {"status": "banned", "note": "two\nlines"}}, delimiter=delimiter))
    whole = read_filled(str(sheet), run)
    with sheet.open(encoding="utf-8-sig", newline="") as file:
        rows = list(csv.reader(file, delimiter=delimiter))
    with sheet.open("w", encoding="utf-8-sig", newline="") as file:
        for row in rows:
            last = max(place for place, cell in enumerate(row, start=1) if cell)
            csv.writer(file, delimiter=delimiter).writerow(row[:last])
    assert len({len(row) for row in csv.reader(sheet.open(encoding="utf-8-sig", newline=""), delimiter=delimiter)}) > 2
    assert read_filled(str(sheet), run) == whole


@pytest.mark.parametrize("ending", ["csv", "jsonl", "parquet"])
def test_overrides_are_added_to_what_is_there(run: RunFolder, filled: Callable[..., str], tmp_path: Path, ending: str) -> None:
    path = tmp_path / f"overrides.{ending}"
    before = [{"who": "007", "query": "tides", "strategy": "keyword", "text": "tide, moon", "status": "approved"}]
    if ending == "csv":
        path.write_text('who,query,strategy,text,status\r\n007,tides,keyword,"tide, moon",approved')
    elif ending == "jsonl":
        path.write_text(json.dumps(before[0]))
    else:
        pq.write_table(pa.Table.from_pylist(before), path)
    as_it_was = path.read_bytes()
    sheet = filled(CELLS)
    merged = merged_overrides(str(path), read_filled(sheet, run).verdicts, run, sheet)
    assert (merged.added, merged.known, path.read_bytes()) == (4, 0, as_it_was)
    write_merged([merged])
    if ending != "parquet":
        assert path.read_bytes().startswith(as_it_was)
    else:
        assert pq.read_table(path).column("who").to_pylist() == ["007", None, None, None, None]
    rows = load_overrides(guard_file("key", str(path)), TEXTS, ("general", "keyword"))
    assert len(rows) == 5
    assert rows.of("Tides") == [Override("keyword", "tide, moon", "approved")]
    assert rows.of("RYE  bread") == [Override("general", "bread of rye", "approved")]
    assert rows.of("1-2") == [Override("keyword", "keyword of 1-2", "banned")]
    assert rows.of("=tides") == [Override("general", "", "banned")]
    again = merged_overrides(str(path), read_filled(sheet, run).verdicts, run, sheet)
    assert (again.added, again.known) == (0, 4)
    old = path.read_bytes()
    write_merged([again])
    assert path.read_bytes() == old


@pytest.mark.parametrize(
    ("head", "left"), [("query,strategy,text,status", 2), ("query,strategy,note,text,status", 0), (None, 0)]
)
def test_notes_that_a_file_does_not_take_are_told(
    run: RunFolder, filled: Callable[..., str], tmp_path: Path, head: str | None, left: int
) -> None:
    path = tmp_path / "overrides.csv"
    if head is not None:
        path.write_text(f"{head}\n")
    notes = dict(zip(CELLS, ("by Ann", "by Ben"), strict=False))
    sheet = filled({name: cells | {"note": notes.get(name, "")} for name, cells in CELLS.items()})
    merged = merged_overrides(str(path), read_filled(sheet, run).verdicts, run, sheet)
    assert (merged.notes_left, merged.data.count(b"by ")) == (left, 2 - left)
    page = str(filled_page(read_filled(sheet, run), {"overrides": merged}))
    assert ("; it has no column note for 2 of them" in page) == bool(left)


@pytest.mark.parametrize("key", ["query_id", "query"])
def test_judgements_are_added_to_what_is_there(run: RunFolder, filled: Callable[..., str], tmp_path: Path, key: str) -> None:
    path = tmp_path / "qrels.tsv"
    other = "other" if key == "query" else query_id(99)
    path.write_text(f"{other}\td1\t3")
    sheet = filled(CELLS)
    grades = read_filled(sheet, run).grades
    merged = merged_judgements(str(path), grades, run, sheet, key)  # type: ignore[arg-type]
    write_merged([merged])
    found = read_qrels(str(path), key=key).grades  # type: ignore[arg-type]
    names = (
        {"1-2": query_id(1), "zürich 東京": query_id(3)} if key == "query_id" else {"1-2": "1-2", "zürich 東京": "zürich 東京"}
    )
    assert found[other] == {"d1": 3}
    assert found[names["1-2"]] == {"1-a": 0, "1-c": 2}
    assert list(found[names["zürich 東京"]].values()) == [1]
    assert merged_judgements(str(path), grades, run, sheet, key).added == 0  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("cells", "line"),
    [
        ({"status": "aproved"}, "unknown status 'aproved'; did you mean 'approved'?"),
        ({"status": "approved", "strategy": ""}, "is approved without a strategy; write the name of one of the run's"),
        ({"status": "approved", "strategy": "genral"}, "unknown strategy 'genral'; did you mean 'general'?"),
        ({"status": "pinned", "text": " "}, "is pinned without a text; write one, or ban the strategy"),
        ({"relevance": "good"}, "relevance is 'good'; write a whole number, 0 for a document that is not relevant"),
        ({"relevance": "-1"}, "relevance is '-1'; write"),
        ({"relevance": "1001"}, "relevance is '1001'; write"),
        ({"original_relevance": "1.0"}, "original_relevance is '1.0'; write"),
        ({"relevance": "1", "served": ""}, "has relevance 1, and no document in column 'served'; leave it empty"),
        ({"relevance": "1", "served": "02-Jan"}, "document '02-Jan' is none that the run has found for the query; leave"),
        ({"status": "banned", "query": "2-Jan"}, "the query is '2-Jan', and its query_id is that of '1-2'; leave both columns"),
        ({"status": "banned", "query_id": "7"}, "query_id '7' is none of the run's; give the run of this sheet, or leave"),
        ({"note": "odd"}, "has a note alone; write a status or a relevance, too, or remove the note"),
    ],
)
def test_mistakes_are_lines_with_the_row(
    run: RunFolder, filled: Callable[..., str], tmp_path: Path, cells: Row, line: str, capsys: pytest.CaptureFixture[str]
) -> None:
    sheet = filled({("1-2", "keyword"): cells})
    with open(sheet, encoding="utf-8-sig", newline="") as file:
        (number,) = {row["row"] for row in csv.DictReader(file) if any(row[name] for name in TO_FILL)}
    command = ["review", run.storage.root, "--read", sheet]
    assert main([*command, "--overrides", str(tmp_path / "o.csv"), "--qrels", str(tmp_path / "q.tsv")]) == 2
    (said,) = capsys.readouterr().err.splitlines()
    assert f"row {number}" in said
    assert line in said
    assert not (tmp_path / "o.csv").exists()
    assert not (tmp_path / "q.tsv").exists()


@pytest.mark.parametrize(
    ("there", "status", "line"),
    [
        ("keyword,keyword of 1-2,approved", "banned", "{new}: has the query, strategy and text of row 1 of {o}; keep one"),
        (
            "general,keyword of 1-2,approved",
            "banned",
            "{new}: is banned, and row 1 of {o} with the same query and text is approved",
        ),
        ("keyword,another,approved", "pinned", "{new}: is one of 2 texts for its query, and strategy 'keyword' has 1; keep 1"),
        ("keyword,,banned", "approved", "{new}: row 1 of {o} bans its strategy for this query; keep one"),
        ("nobody,a,approved", "banned", "row 1 of {o}: unknown strategy 'nobody'"),
    ],
)
def test_rows_that_contradict_a_file_are_refused(
    run: RunFolder, filled: Callable[..., str], tmp_path: Path, there: str, status: str, line: str
) -> None:
    path = tmp_path / "overrides.csv"
    path.write_text(f"query,strategy,text,status\n1-2,{there}\n")
    sheet = filled({("1-2", "keyword"): {"status": status}})
    verdicts = read_filled(sheet, run).verdicts
    with pytest.raises(DmqrError) as refused:
        merged_overrides(str(path), verdicts, run, sheet)
    assert line.format(new=f"{verdicts[0].place} of {sheet}", o=path) in str(refused.value)


def test_grades_that_contradict_are_refused(run: RunFolder, filled: Callable[..., str], tmp_path: Path) -> None:
    sheet = filled({("1-2", "keyword"): {"original_relevance": "0"}, ("1-2", "general"): {"original_relevance": "1"}})
    grades = read_filled(sheet, run).grades
    with pytest.raises(DmqrError, match=r"row \d: document '1-a' has the grade \d, and in row \d of .* for the same query \d"):
        merged_judgements(str(tmp_path / "q.tsv"), grades, run, sheet, "query_id")
    (tmp_path / "q.tsv").write_text(f"{query_id(1)}\t1-a\t7\n")
    with pytest.raises(DmqrError, match=r"has the grade \d, and in .*q\.tsv for the same query 7; keep one"):
        merged_judgements(str(tmp_path / "q.tsv"), grades, run, sheet, "query_id")


@pytest.mark.parametrize(
    ("evaluate", "key", "before", "line"),
    [
        (
            {"qrels": "q.tsv"},
            [],
            "row-17\td9\t2\n",
            "the run has it judge by log_id (evaluate.key), by which lines of a query_id",
        ),
        ({"qrels": "q.tsv"}, [], None, "the run has it judge by log_id"),
        ({"qrels": "q.tsv", "key": "query"}, ["--key", "query_id"], "tides\td9\t2\n", "the run has it judge by query "),
        ({"qrels": "q.tsv", "key": "query_id"}, ["--key", "query"], None, "the run has it judge by query_id (evaluate.key)"),
        ({}, [], f"{query_id(1)}\td9\t2\nrow-17\td9\t2\n", "judges 'row-17', which is no query_id"),
        ({"qrels": "q.tsv", "key": "query_id"}, [], f"{query_id(1)}\td9\t2\n", None),
        ({"qrels": "q.tsv", "key": "query"}, [], "tides\td9\t2\n", None),
        ({"qrels": "other.tsv"}, [], None, None),
    ],
)
def test_a_file_in_which_grades_would_never_count_is_refused(
    filled: Callable[..., str], tmp_path: Path, evaluate: Row, key: list[str], before: str | None, line: str | None,
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    (folder,) = tmp_path.glob("small-*")
    record = json.loads((folder / "run.json").read_text())
    record["config"]["evaluate"] |= evaluate
    sheet = filled(CELLS)
    (folder / "run.json").write_text(json.dumps(record))
    path = tmp_path / "q.tsv"
    if before is not None:
        path.write_text(before)
    command = ["review", str(folder), "--read", sheet, "--overrides", "o.csv", "--qrels", str(path), *key]
    assert main(command) == (0 if line is None else 2)
    said = capsys.readouterr()
    if line is None:
        assert "3 judgements" in said.out
        return
    assert f"--qrels {path}: {line}" in said.err
    assert f"give another file, and judge by it with evaluate.key: {key[-1] if key else 'query_id'}" in said.err
    assert (path.read_text() if path.exists() else None, Path("o.csv").exists()) == (before, False)


def test_what_is_filled_in_is_not_lost(run: RunFolder, filled: Callable[..., str], capsys: pytest.CaptureFixture[str]) -> None:
    sheet = filled(CELLS)
    assert main(["review", run.storage.root, "--read", sheet, "--overrides", "o.csv"]) == 2
    assert "has a relevance, and no --qrels says where it goes; give --qrels FILE, too" in capsys.readouterr().err
    assert main(["review", run.storage.root, "--out", sheet]) == 2
    assert "is there, perhaps filled in, and is not overwritten" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("data", "line"),
    [
        (b"", "is empty; give the sheet"),
        (b"\xff\xfea\0", "is UTF-16; write it as UTF-8"),
        (b"query_id,query\n", "has no column 'strategy'"),
        (HEADER + b'a,"b\n', "a quote that is not"),
        (HEADER + b"a\n", "record 1: has a query_id and no query; leave"),
        (HEADER + b"a,b,,,,,,,,,\n", "has 11 fields, and the header 9; correct it"),
        (HEADER + b"a,Z\xfcrich,,,,,,,\n", "is not UTF-8"),
    ],
)
def test_what_is_no_sheet_is_refused(run: RunFolder, tmp_path: Path, data: bytes, line: str) -> None:
    (tmp_path / "sheet.csv").write_bytes(data)
    with pytest.raises(DmqrError) as refused:
        read_filled(str(tmp_path / "sheet.csv"), run)
    assert line in str(refused.value)
    assert refused.value.code == "review-sheet"
