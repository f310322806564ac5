"""Records of published files: lists and lines, packed ones, and what is wrong with them, by number."""

from __future__ import annotations

import gzip
import json
import random
from pathlib import Path
from typing import Any

import pytest

from cluster.errors import ConfigError
from jobs.importers import records
from jobs.importers.records import DataRecord, json_records


def read(path: Path) -> list[dict[str, Any]]:
    found = list(json_records(str(path)))
    assert [one.number for one in found] == list(range(1, len(found) + 1))
    return [one._fields for one in found]


@pytest.mark.parametrize("piece", [1, 7, 64, 1 << 20])
def test_a_list_is_read_whatever_its_layout_and_the_pieces(piece: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(records, "_PIECE", piece)
    drawn = random.Random(piece)
    objects = [{"n": n, "text": drawn.choice(["a, [b]", '"}{', "ü\n", ""]) * drawn.randrange(9)} for n in range(50)]
    path = tmp_path / "set.json"
    for indent in (None, 1):
        path.write_text(f" \n{json.dumps(objects, indent=indent, ensure_ascii=False)}\n ", encoding="utf-8")
        assert read(path) == objects


@pytest.mark.parametrize("piece", [1, 7, 1 << 20])
def test_lines_are_read_with_blank_ones_between_and_without_an_end(
    piece: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(records, "_PIECE", piece)
    path = tmp_path / "set.jsonl"
    path.write_text('\n{"a": 1}\n\n  {"a": 2}\r\n{"a": 3}')
    assert read(path) == [{"a": 1}, {"a": 2}, {"a": 3}]


def test_packed_and_marked_files_are_read_and_empty_ones_have_no_record(tmp_path: Path) -> None:
    path = tmp_path / "set.json.gz"
    path.write_bytes(gzip.compress('\ufeff[{"a": "ü"}]'.encode()))
    assert read(path) == [{"a": "ü"}]
    for text in ("", " \n", "[]", "[ ]\n"):
        (tmp_path / "empty.json").write_text(text)
        assert read(tmp_path / "empty.json") == []


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('[{"a": 1}, {"a": }]', "record 2: is no JSON (Expecting value)"),
        ('[{"a": 1} {"a": 2}]', "record 2: no comma before it"),
        ('[{"a": 1},', "record 2: the list does not end"),
        ('[{"a": 1}, {"a": "2', "record 2: is no JSON (Unterminated string starting at)"),
        ('[{"a": 1}]\n{"a": 2}', "has more behind its list"),
        ('[{"a": 1}, 7]', "record 2: is no object"),
        ('{"a": 1}\n{"a": 2', "record 2: is no JSON (Expecting ',' delimiter)"),
        ('{"a": 1}\n[2]\n', "record 2: is no object"),
        ("id,question\n", "record 1: is no JSON (Expecting value)"),
    ],
)
def test_what_is_wrong_is_one_line_with_file_and_record(text: str, words: str, tmp_path: Path) -> None:
    path = tmp_path / "set.json"
    path.write_text(text)
    with pytest.raises(ConfigError) as caught:
        list(json_records(str(path)))
    assert str(caught.value).startswith(f"{path}: {words}; correct it")


def test_a_record_that_does_not_end_is_not_read_to_the_end_of_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(records, "RECORD_CHARS", 1000)
    monkeypatch.setattr(records, "_PIECE", 100)
    path = tmp_path / "set.json"
    path.write_text('[{"a": "' + "x" * 100_000)
    with pytest.raises(ConfigError, match=r"record 1: is no JSON"):
        list(json_records(str(path)))
    path.write_text('{"a": 1}\n{"a": "' + "x" * 100_000 + '"}')
    with pytest.raises(ConfigError, match=r"record 2: is longer than 1,000 characters"):
        list(json_records(str(path)))


def test_other_encodings_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "set.jsonl"
    path.write_bytes(b'{"a": 1}\n{"a": "\xff"}\n')
    with pytest.raises(ConfigError, match="is not UTF-8"):
        list(json_records(str(path)))


def test_fields_of_other_kinds_are_refused_with_their_place() -> None:
    record = DataRecord(
        "set.json", 3, {"id": 7, "blank": " ", "yes": True, "list": ["a", 1], "inner": [{"x": "y"}, 4], "half": "\ud83d"}
    )
    assert (record.text("id"), record.text("half"), record.truth("yes")) == ("7", "?", True)
    for call, words in (
        (lambda: record.text("yes"), "yes is not text"),
        (lambda: record.text("blank"), "blank is blank"),
        (lambda: record.text("more"), "more is missing (found: id, blank, yes, list, inner, half)"),
        (lambda: record.truth("id"), "id is not true or false"),
        (lambda: record.texts("list"), "list is no list of texts"),
        (lambda: record.items("id"), "id is no list"),
        (lambda: record.objects("inner"), "inner[1] is no object"),
    ):
        with pytest.raises(ConfigError) as caught:
            call()
        assert str(caught.value).startswith(f"set.json: record 3: {words}; correct it")
    inner = DataRecord("set.json", 3, {"inner": [{"x": "y"}]}).objects("inner")[0]
    with pytest.raises(ConfigError, match=r"record 3: inner\[0\]\.z is missing"):
        inner.text("z")
