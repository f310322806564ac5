"""What docs/plugins.md shows of rerankers and engines, line by line, in this process."""

from __future__ import annotations

import re
import shlex
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from jobs.__main__ import main
from jobs.runs.folder import RunFolder, open_run
from tests.support.jobs.in_process_runs import rows
from tests.support.plugins import PAGE, page_file

QUERIES = ["the light of a lighthouse lamp", "wild yeast and bread", "the moon and the sea", "zzz"]
FILES = ("shares.py", "shares.yaml",
         "echo.py", "echo.yaml")  # fmt: skip
Dmqr = Callable[..., list[str]]


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, corpus: Path) -> Path:
    """The files of the page beside a log and a corpus, in the current folder."""
    monkeypatch.chdir(tmp_path)
    for name in FILES:
        (tmp_path / name).write_text(page_file(name))
    pq.write_table(pa.table({"query": QUERIES}), "log.parquet")
    shutil.copy(corpus, tmp_path / "corpus.parquet")
    return tmp_path


@pytest.fixture
def dmqr(place: Path, capsys: pytest.CaptureFixture[str]) -> Dmqr:
    """Runs the lines of the page that name a config, in this process; returns what each prints."""
    assert main(["index", "shares.yaml", "--corpus", "corpus.parquet"]) == 0
    capsys.readouterr()

    def run(config: str, *settings: str) -> list[str]:
        blocks = re.findall(r"^```sh\n(.*?)^```", PAGE.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
        said = []
        for line in [line for block in blocks for line in block.splitlines() if f" {config}" in line]:
            own = shlex.split(line)[1:]
            more = [] if own[0] == "index" else [word for one in ("cluster.address=none", *settings) for word in ("--set", one)]
            assert main([*own, *more]) == 0, capsys.readouterr().err
            said.append(capsys.readouterr().out)
        assert said
        return said

    return run


def folder_of(said: str) -> RunFolder:
    return open_run(said.strip().splitlines()[-1])


def texts(run: RunFolder, strategy: str) -> dict[str, list[tuple[str, float, float]]]:
    queries = {one["query_id"]: one["query"] for one in rows(run, "queries")}
    found: dict[str, list[Any]] = {}
    for one in sorted(rows(run, "rewrites"), key=lambda one: one["position"]):
        if one["strategy"] == strategy:
            found.setdefault(queries[one["query_id"]], []).append((one["text"], one["weight"], one["position_weight"]))
    return found


@pytest.mark.slow
def test_a_reranker(dmqr: Dmqr, passages: dict[str, str]) -> None:
    shown, run, ablated = dmqr("shares.yaml")
    assert "Coverage (replace)" in shown
    folder = folder_of(run)
    queries = {one["query_id"]: one["query"] for one in rows(folder, "queries")}
    for one in rows(folder, "scores"):
        words = [word for word in queries[one["query_id"]].split() if len(word) >= 4]
        wanted = sum(word in passages[one["doc_id"]].lower() for word in words) / max(1, len(words))
        assert one["score"] == pytest.approx(wanted)
    arms = {one["name"] for one in folder_of(ablated).record["ablation"]["arms"]}
    assert {"fused", "least=1"} <= arms


def test_an_engine(dmqr: Dmqr) -> None:
    (run,) = dmqr("echo.yaml")
    folder = folder_of(run)
    assert texts(folder, "rewrite")[QUERIES[1]] == [(f"{QUERIES[1]} again", 1.0, 1.0)]
    assert {one["model"] for one in rows(folder, "rewrites")} == {"echo-2"}
