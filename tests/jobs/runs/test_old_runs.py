"""`dmqr runs --prune`: what goes and what stays, in folders and on S3; a removal that is killed; what the store keeps."""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from cluster.errors import ConfigError
from cluster.run.lease import Lease
from cluster.run.shards import SUCCESS
from cluster.storage import Storage, open_storage
from cluster.storage.files import FileStorage
from jobs.__main__ import main
from jobs.chain.stages.order import Order
from jobs.measure.run_list import list_runs
from jobs.runs.folder import open_run
from jobs.runs.old.prune import Pruning, prune
from jobs.runs.old.removal import HALF_REMOVED, MARKER
from jobs.runs.status import read_status
from tests.support.cluster.s3_server import S3Server
from tests.support.jobs.in_process_runs import job_in_process, prepared_job, prepared_work, run_in_process
from tests.support.jobs.replayed_runs import QUERIES as ASKED
from tests.support.jobs.replayed_runs import REFUSED, Llm, Nights, job_with, runs_below
from tests.support.jobs.whole_runs import rows

DAY = 86_400.0
Values = dict[str, Any]


@pytest.fixture
def job(
    tmp_path: Path, values: Values, bm25: Values, config_file: Callable[[Any], str], monkeypatch: pytest.MonkeyPatch
) -> str:
    monkeypatch.chdir(tmp_path)
    return job_in_process(tmp_path, values, bm25, config_file)


def night(job: str, label: str, *settings: str) -> Storage:
    """A finished run."""
    prepared = prepared_job(job, f"label={label}", *settings)
    run_in_process(prepared)
    return prepared.prepared.storage


def aged(storage: Storage, days: float) -> Storage:
    """Has a run finished so long ago."""
    body = json.loads(storage.get(SUCCESS) or b"{}")
    storage.put(SUCCESS, json.dumps(body | {"finished_at": time.time() - days * DAY}).encode())
    return storage


def name(storage: Storage) -> str:
    return storage.root.rpartition("/")[2]


def output_of(storage: Storage) -> Storage:
    return open_storage(storage.root.rpartition("/")[0])


def pruned(output: Storage, keep: float = 30, *, dry_run: bool = False, later: float = 0.0) -> Pruning:
    """Removes what is older than so many days, as if it were so many days later."""
    return prune(output, None, keep * DAY, time.time() + later * DAY, dry_run=dry_run)


def keys(storage: Storage) -> list[str]:
    return [entry.key for entry in storage.list()]


def check_pruned(job: str, *settings: str) -> None:
    """Three old nights and a young one: of the old ones all go but that which `latest.json` names."""
    old = [aged(night(job, label, *settings), 100 - number) for number, label in enumerate(("one", "two", "three"))]
    young = night(job, "four", *settings)
    output, latest = output_of(young), "small/latest.json"
    named = json.loads(output.get(latest) or b"{}")
    output.put(latest, json.dumps(named | {"run_id": name(old[1]), "path": old[1].root}).encode())
    stored = keys(open_storage(output.url("store")))

    planned = pruned(output, dry_run=True)
    assert [one.run_id for one in planned.going] == [name(old[0]), name(old[2])]
    assert all(keys(one) for one in old)
    (first, _) = planned.going
    assert (first.files, first.size) == (len(keys(old[0])), sum(entry.size for entry in old[0].list()))
    tables = json.loads(old[0].get(SUCCESS) or b"{}")["tables"]
    assert first.rows == sum(open_rows(old[0], key) for files in tables.values() for key in files)

    done = pruned(output)
    assert done == planned
    assert not keys(old[0])
    assert not keys(old[2])
    assert output.folders() == sorted(["small", *(["store"] if stored else []), name(old[1]), name(young)])
    assert done.kept == {name(old[1]): "small/latest.json names it", name(young): "the newest finished run of small"}
    assert keys(open_storage(output.url("store"))) == stored
    assert open_run(old[1].root).finished
    assert pruned(output).going == []


def open_rows(storage: Storage, key: str) -> int:
    import pyarrow.parquet as pq

    with storage.open(key) as file:
        return int(pq.ParquetFile(file).metadata.num_rows)


@pytest.mark.slow
def test_old_runs_go_and_what_is_named_stays(job: str) -> None:
    check_pruned(job)


@pytest.mark.slow
def test_old_runs_go_from_s3(job: str, s3: S3Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DMQR_CACHE", str(tmp_path / "cache"))
    check_pruned(job, f"output={s3.fresh('runs')}")


@pytest.mark.slow
def test_the_newest_finished_run_stays_however_old_it_is(job: str) -> None:
    older, newer = aged(night(job, "one"), 400), aged(night(job, "two"), 300)
    ablation = prepared_work(job, ["label=three"], {"arms": {"best": {"fuse.method": "best"}}})
    run_in_process(ablation)
    arms = aged(ablation.prepared.storage, 500)
    done = pruned(output_of(newer))
    assert [one.run_id for one in done.going] == [name(older)]
    assert done.kept[name(newer)] == "the newest finished run of small"
    assert done.kept[name(arms)] == "the newest finished ablation of small"


@pytest.mark.slow
def test_names_have_newest_runs_of_their_own_and_are_pruned_apart(job: str) -> None:
    mine, yours = aged(night(job, "one"), 90), aged(night(job, "one", "name=other"), 90)
    assert pruned(output_of(mine)).going == []
    night(job, "two")
    night(job, "two", "name=other")
    assert main(["runs", "runs/other", "--prune", "--keep", "30d"]) == 0
    assert (bool(keys(mine)), bool(keys(yours))) == (True, False)


@pytest.mark.slow
def test_what_a_driver_works_on_stays(job: str) -> None:
    storage = aged(night(job, "one"), 90)
    night(job, "two")
    lease = Lease.acquire(storage)
    done = pruned(output_of(storage))
    assert (done.going, done.kept[name(storage)]) == ([], "a driver works on it")
    lease.release()
    assert [one.run_id for one in pruned(output_of(storage)).going] == [name(storage)]


def test_a_run_that_a_driver_has_taken_meanwhile_stays(job: str, monkeypatch: pytest.MonkeyPatch) -> None:
    storage = aged(night(job, "one"), 90)
    night(job, "two")
    from jobs.runs.old import prune as module

    measured = module._measured

    def meanwhile(*given: Any) -> Any:
        Lease.acquire(storage).release()
        return measured(*given)

    monkeypatch.setattr(module, "_measured", meanwhile)
    before = keys(storage)
    done = pruned(output_of(storage))
    assert (done.going, done.kept[name(storage)]) == ([], "a driver works on it, or has since")
    assert {*before} < {*keys(storage)}  # with the leases
    assert open_run(storage.root).finished


@pytest.mark.slow
def test_the_run_that_an_unfinished_replay_does_again_stays(job: str, monkeypatch: pytest.MonkeyPatch) -> None:
    storage = night(job, "one")
    with monkeypatch.context() as patch:
        patch.setattr(Order, "__call__", broken)
        assert main(["replay", storage.root, "--reason", "not_recorded"]) == 1
    aged(storage, 90)
    night(job, "two")
    (replay,) = [one for one in output_of(storage).folders() if "replay" in one]
    done = pruned(output_of(storage))
    assert (done.going, done.kept[name(storage)]) == ([], f"its replay {replay} is not finished")
    assert main(["replay", storage.root, "--reason", "not_recorded"]) == 0
    assert [one.run_id for one in pruned(output_of(storage)).going] == [name(storage)]
    assert open_run(output_of(storage).url(replay)).finished  # it needs the other no more


def broken(*_: Any) -> Any:
    raise MemoryError("no room")


# ---------------------------------------------------------------- a removal that is killed


class Killed(BaseException):
    """The process ends."""


@pytest.fixture
def dying(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[int], None]]:
    """Has the process end at the n-th change of a folder from now on; nothing is written behind it."""
    left = [-1]

    def before(change: Callable[..., Any]) -> Callable[..., Any]:
        def changed(self: FileStorage, *given: Any) -> Any:
            if left[0] == 0:
                raise Killed
            left[0] -= 1
            return change(self, *given)

        return changed

    def one_by_one(self: FileStorage, *gone: str) -> None:
        for key in gone:
            delete(self, key)

    delete = before(FileStorage.delete)
    monkeypatch.setattr(FileStorage, "delete", one_by_one)
    for method in ("put", "put_if_absent"):
        monkeypatch.setattr(FileStorage, method, before(getattr(FileStorage, method)))

    def at(number: int) -> None:
        left[0] = number

    yield at
    left[0] = -1


@pytest.mark.slow
def test_a_removal_that_is_killed_leaves_a_run_whole_or_known_as_half_removed(job: str, dying: Callable[[int], None]) -> None:
    storage, _ = aged(night(job, "one"), 90), night(job, "two")
    output, whole = output_of(storage), Path("whole")
    shutil.copytree(storage.root, whole)
    tables = {table: rows(whole, table) for table in ("queries", "rewrites", "results")}
    states = list[str]()
    for number in range(1000):
        shutil.rmtree(storage.root, ignore_errors=True)
        shutil.copytree(whole, storage.root)
        dying(number)
        try:
            pruned(output)
            break
        except Killed:
            pass
        finally:
            dying(-1)
        released(storage)
        listed = {one.run_id: one.state for one in list_runs(output, None, lambda _: None)}
        states.append(listed.get(name(storage), "gone"))
        if storage.stat(SUCCESS) is not None:
            assert open_run(storage.root).finished
            assert {table: rows(Path(storage.root), table) for table in tables} == tables
            assert states[-1] == "finished"
        elif keys(storage):
            assert storage.stat(MARKER) is not None
            assert states[-1] in (HALF_REMOVED, "gone")
            with pytest.raises(ConfigError, match="half removed"):
                open_run(storage.root)
        left = bool(keys(storage))
        assert [one.run_id for one in pruned(output).going] == [name(storage)] * left
        assert not keys(storage)
    assert not Path(storage.root).exists()
    assert states[:3] == ["finished"] * 3
    assert states.count(HALF_REMOVED) > 10


def released(storage: Storage) -> None:
    """Has the last lease look like that of a process that has ended: the killed one is this."""
    leases = [entry.key for entry in storage.list("lease")]
    if leases:
        body = json.loads(storage.get(leases[-1]) or b"{}")
        storage.put(leases[-1], json.dumps(body | {"released": True}).encode())


def test_a_half_removed_run_is_not_gone_on_with(job: str) -> None:
    storage = night(job, "one")
    storage.put(MARKER, b"{}")
    run_in_process(prepared_job(job, "label=one"))  # finished: nothing of it has gone
    storage.delete(SUCCESS)
    for read in (lambda: run_in_process(prepared_job(job, "label=one")), lambda: read_status(storage.root)):
        with pytest.raises(ConfigError, match="half removed"):
            read()
    assert main(["report", storage.root]) == 2
    assert [one.run_id for one in pruned(output_of(storage)).going] == [name(storage)]
    run_in_process(prepared_job(job, "label=one"))
    assert open_run(storage.root).finished


# ---------------------------------------------------------------- what a run alone has


@pytest.fixture
def llm() -> Iterator[Llm]:
    made = Llm()
    with made.server:
        yield made


@pytest.fixture
def nights(
    tmp_path: Path, values: Values, bm25: Values, config_file: Callable[[Any], str], llm: Llm, monkeypatch: pytest.MonkeyPatch
) -> Nights:
    monkeypatch.chdir(tmp_path)
    return Nights(job_with(llm, values, bm25, config_file), llm)


@pytest.mark.slow
def test_answers_that_a_killed_run_alone_has_go_into_the_store(nights: Nights, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:  # killed when the first shard's answers were merged, and before they were stored
        patch.setattr("jobs.chain.steps.asking.put_completions", broken)
        assert len(nights.run("one", code=1)) == 2
    output = open_storage("runs")
    assert not [key for key in keys(output) if key.startswith("store/") and key.endswith(".parquet")]
    planned = pruned(output, later=90, dry_run=True)
    assert [(one.state, one.answers) for one in planned.going] == [("not finished", 2)]
    assert not [key for key in keys(output) if key.startswith("store/") and key.endswith(".parquet")]
    assert [one.answers for one in pruned(output, later=90).going] == [2]
    assert len(nights.run("two")) == len(ASKED) - 2


@pytest.mark.slow
def test_they_go_into_its_store_from_another_folder(
    nights: Nights, monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory
) -> None:
    here, elsewhere, store = Path.cwd(), tmp_path_factory.mktemp("elsewhere"), "store=mine"
    with monkeypatch.context() as patch:
        patch.setattr("jobs.chain.steps.asking.put_completions", broken)
        assert len(nights.run("one", store, code=1)) == 2
    output = open_storage("runs")
    (folder,) = here.glob("runs/small-one-*")
    record = json.loads((folder / "run.json").read_text())
    assert record["config"]["store"] == str(here / "mine")
    monkeypatch.chdir(elsewhere)
    of_before = record | {"config": record["config"] | {"store": "mine"}}
    (folder / "run.json").write_text(json.dumps(of_before))
    done = pruned(output, later=90)
    assert done.going == []
    assert "its store, mine, is not in this folder" in done.kept[folder.name]
    (folder / "run.json").write_text(json.dumps(record))
    assert [one.answers for one in pruned(output, later=90).going] == [2]
    assert not list(elsewhere.iterdir())
    monkeypatch.chdir(here)
    assert len(nights.run("two", store)) == len(ASKED) - 2


@pytest.mark.slow
def test_grades_of_rounds_by_an_engine_of_their_own_go_into_its_space(
    nights: Nights, llm: Llm, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(llm.server, "models", ["tiny", "grader"])
    grades = {"engine": {"kind": "openai", "model": "grader", "base_url": llm.server.address, "attempts": 1}}
    iterate = {"by": "bm25", "below": 1e9, "documents": 2, "prompt": "refine", "labels": {"by": "llm", "grades": grades}}
    settings = ["rewrite.strategies=[]", f"iterate={json.dumps(iterate)}"]
    every = len(nights.run("apart", *settings, "store=null"))
    with monkeypatch.context() as patch:
        patch.setattr("jobs.chain.steps.asking.put_completions", lambda _, new: broken() if new else None)
        paid = len(nights.run("one", *settings, code=1))
    assert paid
    assert {body["model"] for body in llm.server.bodies[-paid:]} == {"tiny", "grader"}
    assert [one.answers for one in pruned(open_storage("runs"), later=90).going] == [paid]
    assert len(nights.run("two", *settings)) == every - paid


@pytest.mark.slow
def test_a_run_without_a_store_keeps_nothing_for_others(nights: Nights, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(Order, "__call__", broken)
        nights.run("one", "store=null", code=1)
    assert [one.answers for one in pruned(open_storage("runs"), later=90).going] == [0]
    assert len(nights.run("two")) == len(ASKED)


def test_an_ablation_whose_answers_no_store_has_stays(nights: Nights, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr("jobs.chain.steps.asking.put_completions", broken)
        nights.command("ablate", nights.path, code=1)
    done = pruned(open_storage("runs"), later=90)
    assert done.going == []
    assert [why.partition(",")[0] for why in done.kept.values()] == ["it has answers that no store has"]


@pytest.mark.slow
def test_a_replay_is_no_newest_run_and_goes_with_the_others(nights: Nights, llm: Llm) -> None:
    llm.faulty = {ASKED[1]: [REFUSED]}
    nights.run("one")
    nights.replay("runs/small", "refusal")
    _, replay = runs_below(Path("runs"))
    done = pruned(open_storage("runs"), later=90)
    assert [one.run_id for one in done.going] == [replay.record["run_id"]]
    assert nights.run("two") == []  # what it was answered is in the store


# ---------------------------------------------------------------- the verb


@pytest.mark.slow
def test_the_verb_says_what_goes(job: str, capfd: pytest.CaptureFixture[str]) -> None:
    storage = aged(night(job, "one"), 90)
    night(job, "two")
    capfd.readouterr()
    words = ["runs", job, "--prune", "--keep", "30d"]
    assert main([*words, "--dry-run"]) == 0
    said = capfd.readouterr()
    assert "1 run would go" in said.out
    assert "removing" not in said.err
    assert main([*words, "--dry-run", "--json"]) == 0
    values = json.loads(capfd.readouterr().out)
    (old,) = values["removed"]
    assert (values["dry_run"], old["run_id"], old["files"]) == (True, name(storage), len(keys(storage)))
    assert main(words) == 0
    said = capfd.readouterr()
    assert f"removing {name(storage)}: {old['rows']:,} rows, {old['files']:,} files" in said.err
    assert "1 run is removed" in said.out
    assert main(words) == 0
    assert "0 runs are removed" in capfd.readouterr().out


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--prune"], "--keep is missing"),
        (["--prune", "--keep", "a month"], "is no duration; give one like"),
        (["--keep", "30d"], "goes with --prune alone"),
        (["--dry-run"], "goes with --prune alone"),
        (["--prune", "--keep", "30d", "--query", "yeast"], "give one"),
    ],
)
def test_what_does_not_go_together_is_refused(words: list[str], said: str, capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["runs", "runs", *words]) == 2
    assert said in capfd.readouterr().err


def test_nothing_to_prune_is_no_run(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["runs", str(tmp_path), "--prune", "--keep", "1d"]) == 2
    assert "no run lies there" in capfd.readouterr().err
