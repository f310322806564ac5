"""The file of overrides: three formats, found by the normal form, and every mistake one line with its row."""

from __future__ import annotations

import json
import pickle
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from cluster.errors import RewriterError
from rewriters.guards.files import guard_file
from rewriters.guards.overrides import Override, Overrides, load_overrides

TEXTS = (("general", 1), ("multi_query", 2))
KNOWN = ("general", "keyword", "multi_query")
Rows = list[tuple[str, str, str, str]]
ROWS: Rows = [
    ("Rye  Bread", "general", "rye bread, how to bake", "approved"),
    ("rye bread", "multi_query", "bread of rye", "pinned"),
    ("rye bread", "multi_query", "whole\trye", "banned"),
    ("tides", "keyword", "", "banned"),
]
COLUMNS = ("query", "strategy", "text", "status")


def written(path: Path, rows: Rows) -> Path:
    if path.suffix == ".csv":
        lines = [",".join(("who", *COLUMNS)), *(",".join(f'"{cell}"' for cell in ("me", *row)) for row in rows)]
        path.write_text("\n".join(lines) + "\n")
    elif path.suffix == ".jsonl":
        path.write_text("".join(json.dumps(dict(zip(COLUMNS, row, strict=True)) | {"who": 1}) + "\n" for row in rows))
    else:
        pq.write_table(pa.table([*zip(*rows, strict=True), [1] * len(rows)], [*COLUMNS, "who"]), path)
    return path


def loaded(path: Path, rows: Rows = ROWS) -> Overrides:
    return load_overrides(guard_file("rewrite.guards.overrides", str(written(path, rows))), TEXTS, KNOWN)


@pytest.mark.parametrize("name", ["rows.csv", "rows.jsonl", "rows.parquet"])
def test_a_query_is_found_by_its_normal_form_in_the_order_of_the_file(tmp_path: Path, name: str) -> None:
    found = loaded(tmp_path / name)
    assert len(found) == 4
    assert found.of(" RYE bread ") == [Override(*row[1:]) for row in ROWS[:3]]
    assert found.of("tides") == [Override("keyword", "", "banned")]
    assert found.of("tide") == found.of("") == []


def test_many_rows_are_found_each(tmp_path: Path) -> None:
    rows = [(f"query {i // 2}", ("general", "keyword")[i % 2], f"text {i}", "approved") for i in range(40_000)]
    found = loaded(tmp_path / "many.parquet", rows)
    assert all(found.of(f"Query {i}") == [Override(*row[1:]) for row in rows[2 * i : 2 * i + 2]] for i in range(0, 20_000, 997))


@pytest.mark.parametrize(
    ("rows", "problem"),
    [
        ([("q", "generel", "x", "approved")], "row 1: unknown strategy 'generel'; did you mean 'general'?"),
        ([ROWS[0], ("q", "general", "x", "aproved")], "row 2: unknown status 'aproved'; did you mean 'approved'?"),
        ([("  ", "general", "x", "approved")], "row 1: has no query"),
        ([("q", "general", " ", "pinned")], "row 1: is pinned without a text"),
        ([("q", "general", "x", "banned"), ("Q ", "general", "X", "banned")], "row 2: has the query, strategy and text of row"),
        ([("q", "general", "x", "banned"), ("q", "keyword", "x", "approved")], "row 2: is approved, and row 1 with the same"),
        ([("q", "general", "x", "approved"), ("q", "general", "", "banned")], "row 1: row 2 bans its strategy for this query"),
        ([("q", "general", "x", "approved"), ("q", "general", "y", "pinned")], "row 2: is one of 2 texts for its query, and "
         "strategy 'general' has 1"),
    ],
)  # fmt: skip
def test_a_wrong_row_is_named(tmp_path: Path, rows: Rows, problem: str) -> None:
    with pytest.raises(RewriterError) as refused:
        loaded(tmp_path / "rows.jsonl", rows)
    assert str(refused.value).startswith(f"rewrite.guards.overrides: {tmp_path}/rows.jsonl: {problem}")
    assert refused.value.code == "guard-file"
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("name", "content", "problem"),
    [
        ("rows.txt", "x", "should end in .parquet, .csv or .jsonl"),
        ("rows.csv", "query,strategy,texts,status\nq,general,x,approved\n", "has no column 'text'; did you mean 'texts'?"),
        ("rows.jsonl", "{", "is no jsonl file with rows"),
        ("rows.parquet", "no", "is no parquet file with rows"),
    ],
)
def test_a_file_that_is_no_table_is_refused(tmp_path: Path, name: str, content: str, problem: str) -> None:
    (tmp_path / name).write_text(content)
    with pytest.raises(RewriterError, match=problem):
        load_overrides(guard_file("rewrite.guards.overrides", str(tmp_path / name)), TEXTS, KNOWN)


def test_a_file_that_is_not_there_or_was_changed_is_refused(tmp_path: Path) -> None:
    with pytest.raises(RewriterError, match="cannot be read: No such file"):
        guard_file("rewrite.guards.overrides", str(tmp_path / "none.csv"))
    file = pickle.loads(pickle.dumps(guard_file("rewrite.guards.overrides", str(written(tmp_path / "rows.csv", ROWS)))))
    written(tmp_path / "rows.csv", ROWS[:1])
    with pytest.raises(RewriterError, match="was changed while the job ran"):
        load_overrides(file, TEXTS, KNOWN)
