"""Files that a person asks for: whole or not at all."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest

from cluster.storage.whole_file import written


def test_a_file_is_there_once_it_is_whole(tmp_path: Path) -> None:
    path = tmp_path / "page.html"
    path.write_text("before")
    with written(str(path)) as file:
        file.write_text("after")
        assert path.read_text() == "before"
    assert path.read_text() == "after"
    assert list(tmp_path.iterdir()) == [path]


def test_what_fails_leaves_the_file_as_it_was(tmp_path: Path) -> None:
    path = tmp_path / "page.html"
    path.write_text("before")
    with pytest.raises(UnicodeEncodeError), written(str(path)) as file:
        file.write_text("after \ud800", encoding="utf-8")
    assert path.read_text() == "before"
    assert list(tmp_path.iterdir()) == [path]


def test_what_is_no_file_is_written_to_and_stays(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    read: list[str] = []
    reader = threading.Thread(target=lambda: read.append(pipe.read_text()))
    reader.start()
    with written(str(pipe)) as file:
        file.write_text("a page")
    reader.join(300)
    assert read == ["a page"]
    assert pipe.is_fifo()


def test_a_folder_that_is_missing_is_an_error_with_the_path(tmp_path: Path) -> None:
    path = str(tmp_path / "none" / "page.html")
    with pytest.raises(FileNotFoundError) as refused, written(path):
        pass
    assert refused.value.filename == path
