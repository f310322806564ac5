"""The README's config for a log of one's own, and its commands, on a log and a corpus with columns of their own."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from jobs.__main__ import main
from tests.support.jobs.whole_runs import ROOT, rows
from tests.support.rewriters.fake_server import FakeServer

README = (ROOT / "README.md").read_text(encoding="utf-8")
SECTION = README.split("\n## Your own log\n")[1].split("\n## ")[0]
ANSWER = {name: f"{name} words about tea" for name in ("general", "keyword", "pseudo_answer", "core_content")}


def block(language: str) -> str:
    found = re.search(rf"^```{language}\n(.*?)^```", SECTION, re.MULTILINE | re.DOTALL)
    assert found is not None
    return found[1]


def test_the_config_has_ten_lines_at_most() -> None:
    assert len(block("yaml").splitlines()) <= 10


def test_its_commands_bring_a_log_to_results(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    pq.write_table(pa.table({"query": ["how hot should tea be", "Tea", "tea ", " "]}), "log.parquet")
    Path("corpus.csv").write_text("id,body\n7,Green tea is brewed below boiling.\n8,Bread rises.\n")
    commands = [shlex.split(line, comments=True)[1:] for line in block("sh").splitlines()]
    assert [command[0] for command in commands] == ["try", "plan", "run"]
    with FakeServer(["Qwen/Qwen3-8B"], text=lambda body: json.dumps(ANSWER)) as server:
        Path("mine.yaml").write_text(block("yaml").replace("http://localhost:8000/v1", server.address))
        for command in commands:
            ray = [] if command[0] == "try" else ["--set", "cluster.address=none"]  # so that no Ray is started
            assert main([*command, *ray]) == 0, capfd.readouterr().err
    out = capfd.readouterr().out
    assert "4 rows in 1 file, 1 rejected (1 empty)\n" in out
    assert "4 rows, 1 rejected (1 empty)\n" in out
    run = Path(out.splitlines()[-1])
    assert {row["doc_id"] for row in rows(run, "results")} == {"7"}
    assert len(rows(run, "rewrites")) == 8
