"""What docs/plugins.md shows, line by line, and a retriever of the user's own in whole runs: store, ablation, other code."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from jobs.__main__ import main
from jobs.runs.folder import open_run
from tests.support.jobs.in_process_runs import rows
from tests.support.jobs.whole_runs import ROOT
from tests.support.plugins import PAGE, forget, page_file

QUERIES = ["light of a lamp at sea", "wild yeast and bread", "the moon and the sea", "zzz"]
Dmqr = Callable[..., Path]


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, corpus: Path) -> Path:
    """The files of the page beside a log and a corpus, in the current folder."""
    monkeypatch.chdir(tmp_path)
    for name in ("overlap.py", "own.yaml"):
        (tmp_path / name).write_text(page_file(name))
    pq.write_table(pa.table({"query": QUERIES}), "log.parquet")
    (tmp_path / "corpus.parquet").write_bytes(corpus.read_bytes())
    return tmp_path


@pytest.fixture
def dmqr(capsys: pytest.CaptureFixture[str]) -> Dmqr:
    """Runs a verb; returns the last line of its output as a path."""

    def run(*words: str) -> Path:
        code = main([str(word) for word in words])
        said = capsys.readouterr()
        assert code == 0, said.err
        return Path(said.out.strip().splitlines()[-1])

    return run


def own_lists(folder: Path) -> dict[str, list[tuple[str, float]]]:
    """Query -> the hits of the own retriever."""
    run = open_run(str(folder))
    queries = {row["query_id"]: row["query"] for row in rows(run, "queries")}
    hits = sorted((row for row in rows(run, "runs") if row["retriever"] == "overlap"), key=lambda row: row["rank"])
    return {text: [(row["doc_id"], row["score"]) for row in hits if row["query_id"] == key] for key, text in queries.items()}


def by_hand(passages: dict[str, str], least: int) -> dict[str, list[tuple[str, float]]]:
    """The same by another way."""
    held = {doc_id: set(re.split(r"\W+", text.lower())) - {""} for doc_id, text in passages.items()}
    counted = {query: [(one, float(len(set(query.split()) & words))) for one, words in held.items()] for query in QUERIES}
    return {q: sorted((h for h in hits if h[1] >= least), key=lambda h: (-h[1], h[0])) for q, hits in counted.items()}


def reused(folder: Path) -> set[str]:
    """The components whose searches the store has saved."""
    return {row["component"] for row in rows(open_run(str(folder)), "costs") if row["stage"] == "retrieve" and row["reused"]}


def test_every_line_of_the_page(place: Path, dmqr: Dmqr, passages: dict[str, str], capsys: pytest.CaptureFixture[str]) -> None:
    blocks = re.findall(r"^```sh\n(.*?)^```", PAGE.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    lines = [line for block in blocks for line in block.splitlines() if "own.yaml" in line]
    assert [line.split()[1] for line in lines] == ["index", "try", "run", "run"]
    folders = {}
    for line in lines:
        assert main(shlex.split(line)[1:]) == 0
        said = capsys.readouterr().out
        folders[line] = said.strip().splitlines()[-1]
        if " try " in line:
            assert "overlap" in said
    first, second = (Path(folders[line]) for line in lines if " run " in line)
    assert (own_lists(first), own_lists(second)) == (by_hand(passages, 2), by_hand(passages, 1))


@pytest.mark.slow
def test_the_contract_that_the_page_shows(place: Path, dmqr: Dmqr) -> None:
    (place / "test_overlap.py").write_text(page_file("test_overlap.py"))
    dmqr("index", "own.yaml", "--corpus", "corpus.parquet")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_overlap.py"]
    given: Any = {"cwd": place, "env": {**os.environ, "PYTHONPATH": str(ROOT)}, "capture_output": True, "text": True}
    done = subprocess.run(command, **given, check=False, timeout=900)
    assert re.search(r"^1\d passed", done.stdout, re.MULTILINE), done.stdout[-3000:]
    (place / "overlap.py").write_text(page_file("overlap.py").replace("lists_of(found, depth)", "lists_of(found, depth + 1)"))
    done = subprocess.run(command, **given, check=False, timeout=900)
    assert "test_lists_are_ordered_and_bounded" in done.stdout
    assert done.returncode == 1


def test_the_index_is_built_once_for_a_corpus(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command = ["index", "own.yaml", "--corpus", "corpus.parquet"]
    assert main(command) == 0
    assert "overlap: 8 documents, built" in capsys.readouterr().out
    assert main(command) == 0
    assert "overlap: 8 documents, exists already" in capsys.readouterr().out
    (place / "overlap.py").write_text(page_file("overlap.py").replace("def build_index", "def build_no_index"))
    forget("overlap")
    assert main(command) == 0
    assert "overlap.py has no build_index, so its index is built elsewhere" in capsys.readouterr().out


@pytest.mark.slow
def test_other_code_is_another_run_and_takes_no_list_of_before(place: Path, dmqr: Dmqr) -> None:
    dmqr("index", "own.yaml", "--corpus", "corpus.parquet")
    first = dmqr("run", "own.yaml")
    assert dmqr("run", "own.yaml") == first
    fused = dmqr("run", "own.yaml", "--set", "fuse.method=rrf")
    assert (reused(first), reused(fused)) == (set(), {"overlap"})  # lists of local BM25 are not kept
    changed = page_file("overlap.py").replace("float(len(asked & held))", "2.0 * len(asked & held)")
    (place / "overlap.py").write_text(changed)
    forget("overlap")
    second = dmqr("run", "own.yaml")
    assert second != first
    assert reused(second) == set()
    doubled = {query: [(doc_id, score) for doc_id, score in hits] for query, hits in own_lists(second).items()}
    assert doubled["light of a lamp at sea"][0][1] == 2 * own_lists(first)["light of a lamp at sea"][0][1]
    (place / "overlap.py").write_text(page_file("overlap.py"))
    forget("overlap")
    assert dmqr("run", "own.yaml") == first


@pytest.mark.slow
def test_a_finished_run_is_reported_and_read_without_the_code(
    place: Path, dmqr: Dmqr, capsys: pytest.CaptureFixture[str]
) -> None:
    dmqr("index", "own.yaml", "--corpus", "corpus.parquet")
    folder = dmqr("run", "own.yaml")
    (place / "overlap.py").unlink()
    forget("overlap")
    assert main(["report", str(folder)]) == 0
    assert main(["runs", str(folder)]) == 0
    capsys.readouterr()
    assert main(["run", "own.yaml"]) == 2
    assert "there is no module overlap" in capsys.readouterr().err
