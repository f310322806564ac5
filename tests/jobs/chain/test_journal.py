"""Kills of the rewriting worker: every answer that came is kept, and requests sent in vain are counted."""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from cluster.storage import open_storage
from cluster.storage.files import FileStorage
from jobs.chain.completions import CompletionRecord, Completions, uncommitted
from jobs.chain.journal import Journal, JournalKeeper, Key, read_journal, remove_journals
from jobs.tables import COMPLETIONS, LOST
from rewriters.engines import Completion
from tests.support.cluster.s3_server import S3Server
from tests.support.jobs.corrective_llm import prompt_of, said
from tests.support.jobs.in_process_runs import finished, prepared_job, rows
from tests.support.rewriters.fake_server import FakeServer, Reply, refusal

ROOT = Path(__file__).parents[3]
A, B, C = (Key(query_id, "dmqr", "h") for query_id in "abc")
COUNT = 120
WORKER = f"""
import json, sys
import pyarrow as pa
from pathlib import Path
from tests.support.jobs.workers import rewriter
from jobs.tables import QUERIES
from rewriters.engines.settings import OpenaiSettings
from rewriters.pool import load_pool
from rewriters.rewriter import Rewriting
run, address, start = sys.argv[1:]
engine = OpenaiSettings(kind="openai", model="tiny", base_url=address, max_in_flight=8)
worker = rewriter(engine, Rewriting(load_pool(["keyword"]), "separate", {{"max_tokens": 16}}), Path(run), int(start))
more = {{"shard": 3, "log_count": 1, "costs": [], "errors": []}}
rows = [more | {{"query_id": f"id-{{n}}", "query": f"question {{n}}"}} for n in range({COUNT})]
print(json.dumps(worker(pa.Table.from_pylist(rows, QUERIES)).column("costs").to_pylist()))
"""


def made(text: str, attempts: int = 1) -> CompletionRecord:
    return CompletionRecord(Completion(text, "stop", "m", 10, 4, 3, "reported", 2.0, attempts), f"Ask.\n{text}")


def costs(printed: str) -> list[dict[str, Any]]:
    return [entry for row in json.loads(printed) for entry in row]


# ---------------------------------------------------------------- killed


@pytest.mark.slow
def test_a_kill_costs_what_was_in_flight_and_every_send_is_accounted_for(tmp_path: Path) -> None:
    with FakeServer(seconds=0.1) as server:
        arguments = [sys.executable, "-c", WORKER, str(tmp_path), server.address]
        paths = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
        killed = subprocess.Popen([*arguments, "1"], cwd=ROOT, env=paths, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        while sum(server.sends.values()) < 50:
            assert killed.poll() is None
            time.sleep(0.01)
        killed.send_signal(signal.SIGKILL)
        killed.wait()
        before = sum(server.sends.values())
        done = subprocess.run([*arguments, "2"], cwd=ROOT, env=paths, capture_output=True, text=True, check=True)
        sent = sum(server.sends.values())
    again = sum(count > 1 for count in server.sends.values())
    assert 50 <= before < COUNT
    assert again <= 8 + 20  # those in flight, and answers of the last quarter of a second that had not been read
    entries = costs(done.stdout)
    requests = sum(entry["requests"] for entry in entries)
    lost = sum(entry["requests"] for entry in entries if entry["error"] == LOST)
    assert requests - lost == COUNT
    assert sent <= requests <= sent + 8  # some were on their way to the server
    assert not list(tmp_path.rglob("*.jsonl"))  # merged
    rows = pa.concat_tables(pq.read_table(path, schema=COMPLETIONS) for path in tmp_path.rglob("*.parquet")).to_pylist()
    assert sorted(row["query_id"] for row in rows) == sorted(f"id-{n}" for n in range(COUNT))
    assert sum(row["lost"] for row in rows) == lost


# ---------------------------------------------------------------- the store


def keeper(folder: Path) -> JournalKeeper:
    return JournalKeeper(FileStorage(str(folder)), seconds=3600)


def test_a_completion_is_found_at_once_by_another_process_and_a_cut_line_is_not(tmp_path: Path) -> None:
    storage = FileStorage(str(tmp_path))
    first = Completions(storage, 3, 1, 0.5, keeper(tmp_path))
    first.sent(A)
    first.sent(B)
    first.put(A, made("one"))
    (journal,) = tmp_path.rglob("*.jsonl")
    with journal.open("ab") as file:
        file.write(b'{"row": {"query_id": "b"')
    second = Completions(storage, 3, 2, 0.0)
    assert second.get([A, B]) == {A: made("one")._replace(start=1, device_seconds=1.0)}
    assert second.lost == {B: 1}
    assert [row["query_id"] for row in uncommitted(storage, set())] == ["a"]
    assert uncommitted(storage, {3}) == []


def test_what_was_lost_is_counted_once_however_often_a_shard_is_begun(tmp_path: Path) -> None:
    storage, kept = FileStorage(str(tmp_path)), keeper(tmp_path)
    first = Completions(storage, 3, 1, 0.0, kept)
    for key in (A, A, B):
        first.sent(key)
    first.put(A, made("one", attempts=2))
    second = Completions(storage, 3, 2, 0.0, kept)  # the first was killed
    assert set(second.get([A, B, C])) == {A}
    for key in (B, C):
        second.sent(key)
    second.put(B, made("two"))
    second.merge()
    third = Completions(storage, 3, 3, 0.0, kept)  # killed after it was merged, before the commit
    assert set(third.get([A, B, C])) == {A, B}
    assert {key: lost for key, lost in third.lost.items() if lost} == {B: 1}
    third.merge()
    fourth = Completions(storage, 3, 4, 0.0)
    fourth.get([A])
    assert {key: lost for key, lost in fourth.lost.items() if lost} == {B: 1}


def test_a_request_that_is_never_answered_is_kept_as_lost(tmp_path: Path) -> None:
    storage, kept = FileStorage(str(tmp_path)), keeper(tmp_path)
    Completions(storage, 3, 1, 0.0, kept).sent(A)
    (tmp_path / "other").touch()
    modes = {path.stat().st_mode for path in tmp_path.rglob("*") if path.is_file()}
    assert len(modes) == 1  # the umask decides
    second = Completions(storage, 3, 2, 0.0, kept)
    second.get([A])
    second.merge()
    third = Completions(storage, 3, 3, 0.0)
    assert third.get([A]) == {}
    assert third.lost == {A: 1}


def test_a_request_that_fails_in_one_stage_is_no_loss_of_the_next(
    small_job: Callable[..., str], values: dict[str, Any]
) -> None:
    refused: list[str] = []
    refined = json.dumps(dict.fromkeys(("reinforce", "missing", "leave_out"), "") | {"query": "full moon"})

    def answer(body: dict[str, Any]) -> Reply | None:
        if "\n\nDocument:\n" not in prompt_of(body) or refused:
            return None
        refused.append(prompt_of(body))
        return refusal(400, "not this one")

    said_to = lambda body: refined if "Tried before" in prompt_of(body) else said(body)  # noqa: E731
    with FakeServer(["m"], text=said_to, answer=answer) as server:
        engine = {"kind": "openai", "model": "m", "base_url": server.address}
        rounds = {"by": "bm25", "below": 9, "prompt": "refine", "labels": {"by": "llm", "grades": {"engine": engine}}}
        values |= {"iterate": rounds | {"engine": engine}, "answer": {"documents": 2, "engine": engine}}
        values["grade"] = {"documents": 2, "against": "query", "engine": engine}
        run = finished(prepared_job(small_job()))
    spent = [row for row in rows(run, "costs") if row["stage"] in ("iterate", "grade", "answer")]
    assert refused
    assert sum(row["requests"] for row in spent) == len(server.bodies)
    assert LOST not in {row["error"] for row in spent}


def test_a_journal_that_a_kill_left_has_the_tier_that_is_to_be_billed(tmp_path: Path) -> None:
    storage = FileStorage(str(tmp_path))
    tiers = {A: "flex", B: "standard"}  # the second was asked for flex, and answered by the standard tier
    shard = Completions(storage, 3, 1, 0.0, keeper(tmp_path))
    for key, tier in tiers.items():
        shard.put(key, CompletionRecord(replace(made("one").completion, tier=tier), "Ask."))
    assert {key: one.completion.tier for key, one in Completions(storage, 3, 2, 0.0).get([A, B]).items()} == tiers
    assert [(row["query_id"], row["tier"]) for row in uncommitted(storage, ())] == [("a", "flex"), ("b", "standard")]


def test_while_the_run_stops_completions_are_saved_without_delay(
    s3: S3Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DMQR_CACHE", str(tmp_path))
    monkeypatch.setattr("jobs.chain.journal._STOPPING_SECONDS", 0.05)
    storage, stopping = open_storage(s3.fresh("run")), threading.Event()
    kept = JournalKeeper(storage, stopping.is_set, seconds=3600)
    Completions(storage, 3, 1, 0.0, kept).put(A, made("one"))
    time.sleep(0.3)
    assert list(storage.list("completions")) == []
    stopping.set()
    end = time.monotonic() + 300
    while not list(storage.list("completions")):
        assert time.monotonic() < end
        time.sleep(0.05)
    kept.close()


def test_on_s3_the_folder_of_a_shard_has_what_was_saved_until_its_answers_are_merged(
    s3: S3Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DMQR_CACHE", str(tmp_path / "machine one"))
    storage = open_storage(s3.fresh("run"))
    kept = JournalKeeper(storage, seconds=3600)
    shards = [Completions(storage, number, 1, 0.0, kept) for number in (3, 4)]
    shards[0].put(A, made("one"))
    shards[1].put(B, made("two"))
    kept.save()
    kept.save()  # nothing is new
    shards[0].put(C, made("three"))
    kept.save()
    assert len(list(storage.list("completions/000003"))) == 2
    assert len(list(storage.list("completions/000004"))) == 1
    with monkeypatch.context() as other:
        other.setenv("DMQR_CACHE", str(tmp_path / "machine two"))
        elsewhere = Completions(storage, 3, 2, 0.0)
        assert set(elsewhere.get([A, B, C])) == {A, C}
        assert set(Completions(storage, 30, 2, 0.0).get([A, B, C])) == set()
        assert len(uncommitted(storage, set())) == 3
    shards[0].merge()
    shards[1].merge()
    kept.save()
    assert [len(list(storage.list(f"completions/{shard}"))) for shard in ("000003", "000004")] == [1, 1]
    assert not list(tmp_path.rglob("*.jsonl"))
    Completions(storage, 5, 1, 0.0, kept).put(A, made("one"))
    remove_journals(storage)
    assert not list(tmp_path.rglob("*.jsonl"))


def test_a_send_is_lost_once_however_much_of_the_answers_a_killed_attempt_had_saved(
    s3: S3Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DMQR_CACHE", str(tmp_path))
    storage = open_storage(s3.fresh("run"))
    first, second, third = (Completions(storage, 3, n, 0.0, JournalKeeper(storage, seconds=3600)) for n in (1, 2, 3))
    first.sent(A)  # and killed
    second.sent(A)
    second.put(A, made("one"))
    second._keeper.save()
    second.put(B, made("two"))  # its engine fails then, its worker lives
    assert set(third.get([A, B])) == {A, B}
    third.merge()
    assert third.lost == {A: 1}
    second._keeper.save()
    assert len(list(storage.list("completions"))) == 1
    assert {row["query_id"]: row["lost"] for row in Completions(storage, 3, 4, 0.0).rows()} == {"a": 1, "b": 0}


def test_no_error_ends_the_thread_that_saves(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Durability that is gone is said, and said to be there again."""
    failures: list[Exception] = [ValueError("of pyarrow"), OSError(28, "No space left on device")]
    saved = threading.Event()

    def save(self: JournalKeeper) -> None:
        if failures:
            raise failures.pop()
        saved.set()

    monkeypatch.setattr(JournalKeeper, "save", save)
    keeper = JournalKeeper(open_storage(str(tmp_path)), seconds=0.01)
    assert saved.wait(300)
    keeper.close()
    assert caplog.text.count("completions cannot be saved to the disk (OSError") == 1
    end = time.monotonic() + 300
    while "completions are saved again" not in caplog.text:
        assert time.monotonic() < end
        time.sleep(0.01)


def test_a_line_that_a_full_disk_cuts_off_spoils_no_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    journal = Journal(tmp_path / "one.jsonl", 0)
    write, room = os.write, [10, 0]

    def full(file: int, data: Any) -> int:
        if file != journal._file or not room:
            return write(file, data)
        if not (most := room.pop(0)):
            raise OSError(28, "No space left on device")
        return write(file, bytes(data)[:most])

    monkeypatch.setattr(os, "write", full)
    with pytest.raises(OSError, match="No space left"):
        journal.sent(A)
    journal.sent(B)
    room.append(5)  # a short write without an error
    journal.sent(C)
    journal.close()
    assert read_journal(journal.path)[1] == {B: 1, C: 1}
