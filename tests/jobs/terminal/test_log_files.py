"""The log of a verb: text or JSON lines on standard error, JSON lines and what libraries print in the run's folder."""

import json
import logging
import os
import pty
import re
import tempfile
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from cluster.storage import open_storage
from cluster.storage.files import FileStorage
from jobs.__main__ import main
from jobs.chain import counts
from jobs.chain.counts import BlockErrors
from jobs.tables import ERROR
from jobs.terminal.log_files import logged
from jobs.terminal.logs import event
from tests.support.cluster.s3_server import S3Server
from tests.support.jobs.in_process_runs import QUERIES, UNANSWERED, WITHOUT_HITS
from tests.support.jobs.terminals import read_terminal
from tests.support.jobs.whole_runs import rows


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of temporary files."""
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    return folder


def lines(text: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in text.splitlines()]


def kept(folder: Path, ending: str) -> str:
    (path,) = (folder / "logs").glob(f"*{ending}")
    return path.read_text()


def test_events_are_json_lines_on_request(capfd: pytest.CaptureFixture[str]) -> None:
    tree = logging.getLogger("dmqr")
    before = list(tree.handlers), tree.level, tree.propagate
    with logged("run", "night-1", as_json=True):
        assert not tree.propagate
        event("commit", 'shard "3"\nis committed', shard=3, queries=20)
        logging.getLogger("dmqr.rewriters.engine").warning("no usage from %s", "http://host")
    assert (list(tree.handlers), tree.level, tree.propagate) == before
    first, second = lines(capfd.readouterr().err)
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", first.pop("time"))
    said = {"level": "info", "event": "commit", "message": 'shard "3"\nis committed', "verb": "run", "run": "night-1"}
    assert first == said | {"shard": 3, "queries": 20}
    assert (second["level"], second["event"], second["message"]) == ("warning", "log_line", "no usage from http://host")


def test_what_libraries_print_goes_to_a_file_of_its_own(
    capfd: pytest.CaptureFixture[str], tmp_path: Path, elsewhere: Path
) -> None:
    run = tmp_path / "run"
    with logged("run", "night-1", as_json=True) as (_, log):
        os.write(1, b"chatter before\n")
        event("start", "run night-1")
        log.keep(FileStorage(str(run)))
        os.write(2, b"chatter after\n")
        event("plan", "7 queries")
        assert log.where == log.url
    os.write(1, b"the table\n")
    printed = capfd.readouterr()
    assert printed.out == "the table\n"
    assert [line["event"] for line in lines(printed.err)] == ["start", "log", "plan"]
    assert kept(run, ".jsonl") == printed.err
    assert kept(run, ".output.log") == "chatter before\nchatter after\n"
    assert log.url is not None
    assert Path(log.url).parent == run / "logs"
    assert list(elsewhere.iterdir()) == []


def test_a_verb_without_a_run_leaves_no_file_and_its_error_has_what_libraries_printed(
    capfd: pytest.CaptureFixture[str], elsewhere: Path
) -> None:
    def fail() -> None:
        with logged("plan") as (_, log):
            os.write(2, b"a library's last words\n")
            assert log.where == "the trace above"
            raise ValueError("bug")

    with pytest.raises(ValueError, match="bug") as raised:
        fail()
    assert raised.value.__notes__ == ["libraries printed last:\na library's last words"]
    assert list(elsewhere.iterdir()) == []
    os.write(1, b"back\n")
    assert capfd.readouterr() == ("back\n", "")


def test_on_s3_the_files_are_put_now_and_then_and_at_the_end(
    s3: S3Server, elsewhere: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    run = open_storage(s3.fresh("run"))
    with logged("run", "night-1", as_json=True) as (_, log):
        log.keep(run)
        assert log.url is not None
        key = log.url.removeprefix(f"{run.root}/")
        log.store()
        assert run.get(key) is None, "not at once"
        monkeypatch.setattr("jobs.terminal.log_files.STORED_SECONDS", 0)
        log.store()
        assert [line["event"] for line in lines((run.get(key) or b"").decode())] == ["log"]
        event("commit", "shard 0 is committed")
    assert (run.get(key) or b"").decode() == capfd.readouterr().err
    assert list(elsewhere.iterdir()) == []


class Away(FileStorage):
    """A store that takes nothing."""

    def __init__(self) -> None:
        super().__init__("/nowhere")
        self.root = "s3://bucket/run"

    def upload(self, path: Path, key: str) -> None:
        raise OSError(5, "Input/output error")


def test_a_log_that_cannot_be_put_stays_here_and_a_warning_says_where(
    elsewhere: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    with logged("run", "night-1", as_json=True) as (_, log):
        log.keep(Away())
    last = lines(capfd.readouterr().err)[-1]
    (folder,) = elsewhere.iterdir()
    assert last["event"] == "warning"
    assert last["message"].endswith(f"it is in {folder}")
    assert len(list(folder.iterdir())) == 2


def test_a_terminal_gets_text_and_the_file_everything(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "30")  # lines are broken between words
    master, slave = pty.openpty()
    before = os.dup(2)
    os.dup2(slave, 2)
    try:
        with logged("run", "night-1") as (display, log):
            log.keep(FileStorage(str(tmp_path)))
            event("resume", "resuming: 3 of 7 shards are committed")
            event("commit", "shard 4 is committed")
            display.phase("working")
            event("end", "finished")
        shown = read_terminal(master, slave)
    finally:
        os.dup2(before, 2)
        os.close(before)
        os.close(slave)
    os.close(master)
    assert "resuming: 3 of 7 shards are\r\ncommitted" in shown
    assert "shard 4" not in shown
    assert '"event"' not in shown
    assert "finished" not in shown
    assert [line["event"] for line in lines(kept(tmp_path, ".jsonl"))] == ["log", "resume", "commit", "phase", "end"]


def test_every_line_has_the_run_and_failures_have_their_queries(bm25_job: str, capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["run", bm25_job]) == 0
    printed = capfd.readouterr()
    folder = Path(printed.out.splitlines()[-1])
    (log,) = (folder / "logs").glob("*.jsonl")
    logged_lines = lines(log.read_text())
    assert printed.err.splitlines() == [line["message"] for line in logged_lines if line["event"] != "end"]
    assert {line.get("run") for line in logged_lines} == {folder.name}
    commits = [line for line in logged_lines if line["event"] == "commit"]
    assert [(line["shard"], line["start"], line["queries"]) for line in commits] == [(0, 1, 3), (1, 1, 3)]
    (failures,) = [line for line in logged_lines if line["event"] == "failures"]  # without hits is a note
    ids = {row["query"]: row["query_id"] for row in rows(folder, "queries")}
    said = {"stage": "rewrite", "reason": "not_recorded", "queries": 1, "query_ids": [ids[UNANSWERED]], "start": 1}
    assert failures.items() >= said.items()
    assert failures["message"] == f"shard {failures['shard']}: 1 query failed in rewrite: not_recorded"
    assert {row["query_id"] for row in rows(folder, "errors")} == {ids[UNANSWERED], ids[WITHOUT_HITS]}
    assert not [query for query in QUERIES if query in log.read_text()]
    assert main(["run", bm25_job, "--log", "json"]) == 0
    assert lines(capfd.readouterr().err)[1]["message"].startswith("already finished, so nothing was done")


def test_the_first_queries_of_a_block_stand_for_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(counts, "_FIRST", 2)
    said = [("a", "rewrite", "truncated"), ("a", "rewrite", "truncated"), ("b", "retrieve", "no_hits")]
    said += [(query, "rewrite", "truncated") for query in "bcd"] + [("d", "rerank", "failed")]
    errors = [
        [{"stage": stage, "reason": reason} for query, stage, reason in said if query == row]
        for row in ("a", "b", "c", "d", "e")
    ]
    table = pa.table({"query_id": list("abcde"), "errors": pa.array(errors, pa.list_(ERROR))})
    assert BlockErrors(table).first_failed() == {"rerank/failed": ["d"], "rewrite/truncated": ["a", "b"]}
    assert BlockErrors(table.slice(4)).first_failed() == {}
    assert BlockErrors(table.slice(2, 2)).first_failed() == {"rerank/failed": ["d"], "rewrite/truncated": ["c", "d"]}
