"""Versions in a folder and on S3: exported, compared, promoted, rolled back; two at once, after kills, refused."""

from __future__ import annotations

import json
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier
from typing import Any

import pyarrow.parquet as pq
import pytest

from cluster.errors import ConfigError, HeldError
from cluster.storage import open_storage
from cluster.storage.files import FileStorage
from jobs.__main__ import main
from jobs.log.judgements import read_qrels
from jobs.publish.folder import promotions
from jobs.publish.folder.target import FolderTarget
from jobs.publish.rows import LOOK_UP
from jobs.publish.target import open_target
from jobs.runs.folder import open_run
from jobs.verbs.inputs import GroundTruth
from jobs.verbs.publishing import ExportArguments, PromoteArguments, promoted, rolled_back
from jobs.verbs.publishing import exported as export
from rewriters.normalise import query_id
from tests.support.cluster.s3_server import S3Server
from tests.support.jobs.look_up_rows import HOSTILE, bare, expected_rows, exported
from tests.support.jobs.report_runs import Query, RunMaker
from tests.support.jobs.report_runs import query_id as query_id_of
from tests.support.jobs.whole_runs import ROOT

Night = Callable[..., Path]
OPEN = {"gates": {"error_rate": None, "coverage": None, "changed_first": None}}
FIRST = [*HOSTILE[:4], "moon and tides", "spring tide", "yeast of beer"]
SECOND = [*HOSTILE[:4], "moon and tides", "harbours at night", ("yeast of beer", "of bread?")]


def ignored(_: str) -> None: ...


def put(run: Path, to: str, version: str, **more: Any) -> Any:
    return export(open_run(str(run)), ExportArguments({"to": to}, version, **more))


def promote(run: Path, to: str, version: str, **more: Any) -> Any:
    return promoted(open_run(str(run)), PromoteArguments({"to": to} | OPEN, version, **more), GroundTruth(ignored, "--qrels"))


def applied(before: list[dict[str, Any]], to: Path, version: str) -> dict[str, dict[str, Any]]:
    """key -> row, of rows to which the changes of a version were applied, as its JSON lines say."""
    record = json.loads((to / version / "export.json").read_text())
    (file,) = (to / version / one["key"] for one in record["files"] if one["name"] == "changes.jsonl")
    rows = {row["key"]: row for row in before}
    for line in file.read_text(encoding="utf-8").split("\n")[:-1]:
        change = json.loads(line)
        if change.pop("op") == "put":
            rows[change["key"]] = {"context": None} | change
        else:
            assert set(change) == {"key"}
            del rows[change["key"]]
    return rows


@pytest.mark.slow
def test_a_delta_makes_the_version_before_equal_to_the_whole_export(night: Night, tmp_path: Path) -> None:
    first = night("one", FIRST)
    second = night("two", SECOND, said="another rewrite")
    to = tmp_path / "to"
    put(first, str(to), "one")
    done = put(second, str(to), "two", since="one")
    old, new = expected_rows(first)[0], expected_rows(second)[0]
    assert done.record.changes == {
        "since": "one",
        "new": len(new.keys() - old.keys()), "gone": len(old.keys() - new.keys()),
        "changed": sum(old[key] != new[key] for key in old.keys() & new.keys()),
        "same": sum(old[key] == new[key] for key in old.keys() & new.keys()),
    }  # fmt: skip
    assert done.record.changes["new"] == 2
    assert done.record.changes["gone"] == 2
    before, whole = exported(to, "one")[0], exported(to, "two")[0]
    after = applied(before, to, "two")
    assert {key: bare(row) for key, row in after.items()} == {row["key"]: bare(row) for row in whole}
    assert [after[row["key"]]["digest"] for row in whole] == [row["digest"] for row in whole]
    (changes,) = (to / "two").glob("changes-*.parquet")
    table = pq.read_table(changes)
    assert table.schema.names == ["op", *LOOK_UP.names]
    assert [row["key"] for row in table.to_pylist() if row["op"] == "delete"] == sorted(old.keys() - new.keys())
    # and of a version that has not changed, nothing is to be done
    assert put(second, str(to), "three", since="two").record.changes["same"] == len(new)
    assert applied(whole, to, "three") == {row["key"]: row for row in whole}
    with pytest.raises(ConfigError, match=r"^--since none: is no complete version in "):
        put(second, str(to), "four", since="none")


def promoted_versions(night: Night, to: str, tmp_path: Path) -> None:
    first, second = night("one", FIRST), night("two", SECOND)
    storage = open_storage(to)
    assert open_target(to).current() is None
    for run, version in ((first, "one"), (second, "two"), (second, "three")):
        put(run, to, version)
    assert not promote(first, to, "one", check=True).done
    assert open_target(to).current() is None
    for run, version, history in ((first, "one", []), (second, "two", ["one"]), (second, "three", ["one", "two"])):
        done = promote(run, to, version)
        assert (done.version, done.history, done.done) == (version, history, True)
        said = json.loads(storage.get("current.json") or b"")
        assert (said["version"], said["run_id"]) == (version, run.name)
        assert [one["version"] for one in said["history"]] == history
    assert promote(second, to, "three").history == ["one", "two"]  # a second time: nothing
    assert rolled_back(to, check=True).version == "two"
    for version in ("two", "one"):
        assert rolled_back(to).version == version
        assert json.loads(storage.get("current.json") or b"")["version"] == version
    with pytest.raises(ConfigError, match=r"^one: no version was promoted before it"):
        rolled_back(to)
    with pytest.raises(ConfigError, match=r"^four in .*: there is no complete export of it"):
        promote(second, to, "four")
    with pytest.raises(ConfigError, match=r"^one in .*: is of the run small-one-.*, not of small-two-"):
        promote(second, to, "one")


@pytest.mark.slow
def test_promotions_and_rollbacks_in_a_folder(night: Night, tmp_path: Path) -> None:
    promoted_versions(night, str(tmp_path / "to"), tmp_path)


@pytest.mark.slow
def test_promotions_and_rollbacks_on_s3(night: Night, tmp_path: Path, s3: S3Server) -> None:
    to = s3.fresh()
    promoted_versions(night, to, tmp_path)
    served: dict[str, list[str]] = {}
    for batch in open_target(to).served("two"):
        served |= {row["key"]: row["docs"] for row in batch.to_pylist()}
    assert served.keys() == {query_id(*(one if isinstance(one, tuple) else (one,))) for one in SECOND}


def test_two_exports_at_once_leave_the_files_of_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run, to = RunMaker(tmp_path)(), tmp_path / "to"
    both = Barrier(2)
    plain = FileStorage.put_if_absent

    def together(self: FileStorage, key: str, data: bytes) -> bool:
        both.wait(30)
        return plain(self, key, data)

    monkeypatch.setattr(FileStorage, "put_if_absent", together)
    with ThreadPoolExecutor(2) as pool:
        done = list(pool.map(lambda _: export(run, ExportArguments({"to": str(to)}, "v")), range(2)))
    assert sorted(one.existed for one in done) == [False, True]
    assert done[0].record == done[1].record
    named = {"export.json", *(one["key"] for one in done[0].record.files)}
    assert {path.name for path in (to / "v").iterdir()} == named


def test_of_two_exports_at_once_with_other_choices_one_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run, to = RunMaker(tmp_path)(), tmp_path / "to"
    both = Barrier(2)
    plain = FileStorage.put_if_absent
    monkeypatch.setattr(FileStorage, "put_if_absent", lambda *given: both.wait(30) is not None and plain(*given))

    def one(hits: int) -> str:
        try:
            return export(run, ExportArguments({"to": str(to), "hits": hits}, "v")).place
        except ConfigError as error:
            return error.code

    with ThreadPoolExecutor(2) as pool:
        assert sorted(pool.map(one, (1, 2))) == [str(to / "v"), "publish-version"]
    assert len(list((to / "v").iterdir())) == 3


def test_a_run_of_the_same_id_over_another_log_is_no_version_of_before(tmp_path: Path) -> None:
    """As after `runs --prune`: the same config and label, another log in the same place."""
    first = RunMaker(tmp_path / "first")([Query("a"), Query("b")])
    second = RunMaker(tmp_path / "second")([Query("c"), Query("d"), Query("e")])
    to, ids = str(tmp_path / "to"), {one.record["run_id"] for one in (first, second)}
    (run_id,) = ids
    assert export(first, ExportArguments({"to": to}, "v")).record.counts["rows"] == 2
    line = (
        rf"^.*/to/v: is of other files of {run_id}, which was run again since; give another --version, or remove that version"
    )
    with pytest.raises(ConfigError, match=line) as error:
        export(second, ExportArguments({"to": to}, "v"))
    assert error.value.code == "publish-version"
    with pytest.raises(
        ConfigError, match=rf"^v in .*/to: is of other files of {run_id}, .*; export it under another --version"
    ):
        promoted(second, PromoteArguments({"to": to} | OPEN, "v"), GroundTruth(ignored, "--qrels"))
    assert not Path(to, "current.json").exists()
    found = export(second, ExportArguments({"to": to}, "w"))
    assert (found.existed, found.record.counts["rows"]) == (False, 3)
    # a run that lies elsewhere is the same
    shutil.copytree(first.storage.root, tmp_path / "moved/small-0123456789ab")
    moved = open_run(str(tmp_path / "moved/small-0123456789ab"))
    assert export(moved, ExportArguments({"to": to}, "v")).existed
    assert promoted(moved, PromoteArguments({"to": to} | OPEN, "v"), GroundTruth(ignored, "--qrels")).done


def test_a_version_that_was_exported_anew_is_not_the_one_that_was_promoted(tmp_path: Path) -> None:
    """Neither may be served unasked: by a rollback to it, nor as that which is promoted already."""
    first, second = (RunMaker(tmp_path / name)([Query(one) for one in name]) for name in ("ab", "cde"))
    to, closed = tmp_path / "to", {"gates": {"coverage": 1.0, "error_rate": None}}  # no row has anything
    place, current = str(to), to / "current.json"

    def told(gates: dict[str, Any] = OPEN) -> Any:
        return promoted(second, PromoteArguments({"to": place} | gates, "blue"), GroundTruth(ignored, "--qrels"))

    for version in ("blue", "green"):
        export(first, ExportArguments({"to": place}, version))
        promoted(first, PromoteArguments({"to": place} | OPEN, version), GroundTruth(ignored, "--qrels"))
    shutil.rmtree(to / "blue")
    export(second, ExportArguments({"to": place}, "blue"))
    before = current.read_bytes()
    for check in (True, False):
        with pytest.raises(ConfigError, match=r"^blue in .*, so no gate was asked; promote it with its run, or") as error:
            rolled_back(place, check=check)
        assert (error.value.code, current.read_bytes()) == ("publish-version", before)
    shutil.rmtree(to / "blue")  # the same export again is the same
    export(first, ExportArguments({"to": place}, "blue"))
    assert rolled_back(place).version == "blue"
    shutil.rmtree(to / "blue")  # and now of that which is promoted
    export(second, ExportArguments({"to": place}, "blue"))
    with pytest.raises(ConfigError, match=r"^publish.gates.coverage: ") as error:
        told(closed)
    assert error.value.code == "publish-gate"
    gates = {one.name: one.said for one in told().gates}
    assert gates["changed_first"] == "blue is gone, or was exported without rows that it could be compared with"
    said = json.loads(current.read_text())
    assert said["identity"] == json.loads((to / "blue/export.json").read_text())["identity"]
    assert (said["version"], said["history"], told().gates) == ("blue", [], [])


def test_a_promotion_of_an_earlier_version_is_known_by_its_run(tmp_path: Path) -> None:
    run, to = RunMaker(tmp_path)([Query("a")]), tmp_path / "to"
    for version in ("one", "two"):
        export(run, ExportArguments({"to": str(to)}, version))
        promoted(run, PromoteArguments({"to": str(to)} | OPEN, version), GroundTruth(ignored, "--qrels"))
    path = to / "promotions/000002.json"
    said = json.loads(path.read_text())
    for one in (said, *said["history"]):
        del one["identity"]
    path.write_text(json.dumps(said))
    assert promoted(run, PromoteArguments({"to": str(to)} | OPEN, "two"), GroundTruth(ignored, "--qrels")).gates == []
    assert rolled_back(str(to), check=True).version == "one"
    path.write_text(json.dumps(said | {"history": [said["history"][0] | {"run_id": "small-fedcba987654"}]}))
    with pytest.raises(ConfigError, match=r"^one in .*, not that of small-fedcba987654, which was promoted"):
        rolled_back(str(to))


def test_an_export_of_an_earlier_version_is_not_taken_for_that_of_these_files(tmp_path: Path) -> None:
    run, to = RunMaker(tmp_path)([Query("a")]), tmp_path / "to"
    export(run, ExportArguments({"to": str(to)}, "v"))
    path = to / "v/export.json"
    record = json.loads(path.read_text())
    del record["content"], record["gains"]
    path.write_text(json.dumps(record | {"identity": "0123456789abcdef"}))
    line = r"/v: was exported by an earlier version of dmqr, .*; give another --version, or remove that version, and export it"
    with pytest.raises(ConfigError, match=line):
        export(run, ExportArguments({"to": str(to)}, "v"))
    assert promoted(run, PromoteArguments({"to": str(to)} | OPEN, "v"), GroundTruth(ignored, "--qrels")).done
    shutil.rmtree(to / "v")
    assert not export(run, ExportArguments({"to": str(to)}, "v")).existed


def test_gains_by_other_judgements_are_no_version_of_before(tmp_path: Path) -> None:
    hits = {("original", "bm25"): ["d1", "d2"], ("general", "bm25"): ["d2", "d1"]}
    run, qrels = RunMaker(tmp_path)([Query("a", {"general": "b"}, {}, hits)]), tmp_path / "qrels.tsv"

    def pairs(version: str) -> tuple[bool, list[str]]:
        options = {"holdout": 0, "qrels": str(qrels), "key": "query_id"}
        given = ExportArguments({"to": str(tmp_path / "to"), "formats": ["chat", "preferences"]}, version, options=options)
        done = export(run, given)
        assert set(done.record.gains) == {"preferences"}  # chat without --min-gain measures nothing
        assert done.record.gains["preferences"] == {"by": str(qrels), "digest": read_qrels(str(qrels), key="query_id").digest}
        (key,) = (one["key"] for one in done.record.files if one["name"] == "preferences.jsonl")
        rows = [json.loads(line) for line in Path(done.place, key).read_text().splitlines()]
        return done.existed, [row["chosen"][0]["content"] for row in rows]

    qrels.write_text(f"{query_id_of(0)}\td1\t1\n")
    assert pairs("v") == (False, ["a"])
    assert pairs("v") == (True, ["a"])
    qrels.write_text(f"{query_id_of(0)}\td2\t1\n")  # the same file, which says the contrary
    with pytest.raises(ConfigError, match=r"/v: has gains by .*qrels.tsv \([0-9a-f]{16}\), which are by .* now; give another"):
        pairs("v")
    assert pairs("w") == (False, ["b"])


def said(capfd: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    capfd.readouterr()
    code = main(list(words))
    found = capfd.readouterr()
    return code, found.out, found.err.splitlines()[-1] if found.err else ""


def test_a_version_whose_files_are_gone_or_damaged_is_named(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    run, to = RunMaker(tmp_path)([Query("a"), Query("b")]), tmp_path / "to"
    root, place = run.storage.root, str(to)
    files = {version: export(run, ExportArguments({"to": place}, version)).record.files for version in ("one", "two")}
    path = {
        version: next(to / version / one["key"] for one in of if one["name"] == "rows.parquet") for version, of in files.items()
    }
    loose = ["--set", "publish.gates={coverage: null, error_rate: null, changed_first: null}"]
    remedy = "put it back as it was, or remove the folder {0} and export that version again [publish-version]"
    kept = path["one"].read_bytes()
    for version, verbs in (("one", ["export", "promote"]), ("two", ["promote"])):
        path[version].rename(tmp_path / version)
        for verb in verbs:
            found = said(capfd, verb, root, "--to", place, "--version", version, *(loose if verb == "promote" else ()))
            assert found == (2, "", f"dmqr {verb}: {version}: {path[version]} is gone; {remedy.format(version)}")
        (tmp_path / version).rename(path[version])
    for version in ("one", "two"):
        promoted(run, PromoteArguments({"to": place} | OPEN, version), GroundTruth(ignored, "--qrels"))
    path["one"].write_bytes(kept[:-9])
    words = f"one: {path['one']} has {len(kept) - 9:,} bytes in place of {len(kept):,}; {remedy.format('one')}"
    for check in ([], ["--check"]):  # no way back to it
        assert said(capfd, "rollback", "--to", place, *check) == (2, "", f"dmqr rollback: {words}")
    assert json.loads((to / "current.json").read_text())["version"] == "two"
    # the version that one is compared with: of the right size and no table, and gone
    three = ["export", root, "--to", place, "--version", "three", "--since", "one"]
    path["one"].write_bytes(b"x" * len(kept))
    code, _, line = said(capfd, *three)
    assert (code, line.startswith(f"dmqr export: one: {path['one']} cannot be read (")) == (2, True)
    assert line.endswith(remedy.format("one"))
    path["one"].unlink()
    assert said(capfd, *three)[::2] == (2, f"dmqr export: one: {path['one']} is gone; {remedy.format('one')}")
    path["one"].write_bytes(kept)
    export(run, ExportArguments({"to": place}, "three"))
    path["two"].unlink()
    code, _, line = said(capfd, "promote", root, "--to", place, "--version", "three", *loose)
    assert (code, line) == (2, f"dmqr promote: two: {path['two']} is gone; {remedy.format('two')}")
    # the remedy mends it
    shutil.rmtree(to / "two")
    assert said(capfd, "export", root, "--to", place, "--version", "two")[0] == 0
    assert said(capfd, "promote", root, "--to", place, "--version", "three", *loose)[0] == 0


def test_what_a_look_at_a_rollback_says(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    run, to = RunMaker(tmp_path)([Query("a")]), str(tmp_path / "to")
    for version in ("one", "two"):
        export(run, ExportArguments({"to": to}, version))
        promoted(run, PromoteArguments({"to": to} | OPEN, version), GroundTruth(ignored, "--qrels"))
    for now, before in (("two", "one"), ("one", "no version")):
        code, out, _ = said(capfd, "rollback", "--to", to, "--check")
        lines = [re.split(r"\s{2,}", line.strip(), maxsplit=1) for line in out.splitlines()]
        assert code == 0
        assert [line for line in lines if len(line) == 2] == [
            ["promoted", f"{now}; nothing was changed"],
            ["rollback to", before],
        ]
        if before == "one":
            assert said(capfd, "rollback", "--to", to)[0] == 0


KILLED = """
import os, signal, sys
from cluster.storage.files import FileStorage
from jobs.__main__ import main

plain, sent = FileStorage.upload, []


def killed(self, path, key):
    if sent:
        os.kill(os.getpid(), signal.SIGKILL)
    sent.append(key)
    plain(self, path, key)


FileStorage.upload = killed
main(sys.argv[1:])
"""


@pytest.mark.slow
def test_an_export_that_was_killed_is_done_again(tmp_path: Path) -> None:
    run, to = RunMaker(tmp_path)(), tmp_path / "to"
    arguments = ["export", run.storage.root, "--to", str(to), "--version", "v"]
    done = subprocess.run([sys.executable, "-c", KILLED, *arguments], cwd=ROOT, capture_output=True, timeout=600, check=False)
    assert done.returncode == -signal.SIGKILL
    (left,) = (to / "v").iterdir()
    assert left.name.startswith("rows-")
    with pytest.raises(ConfigError, match="there is no complete export of it"):
        promoted(run, PromoteArguments({"to": str(to)}, "v"), GroundTruth(ignored, "--qrels"))
    done_again = export(run, ExportArguments({"to": str(to)}, "v"))
    assert not done_again.existed
    assert {path.name for path in (to / "v").iterdir()} == {"export.json", *(one["key"] for one in done_again.record.files)}
    assert export(run, ExportArguments({"to": str(to)}, "v")).existed


@pytest.mark.slow
def test_two_processes_export_at_once(tmp_path: Path) -> None:
    run, to = RunMaker(tmp_path)(), tmp_path / "to"
    command = [sys.executable, "-m", "jobs", "export", run.storage.root, "--to", str(to), "--version", "v", "--json"]
    both = [subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) for _ in range(2)]
    found = [json.loads(one.communicate(timeout=600)[0]) for one in both]
    assert [one.returncode for one in both] == [0, 0]
    assert sorted(one["existed"] for one in found) == [False, True]
    assert found[0]["files"] == found[1]["files"]
    assert {path.name for path in (to / "v").iterdir()} == {"export.json", *(one["key"] for one in found[0]["files"])}


def test_of_two_promotions_at_once_one_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run, to = RunMaker(tmp_path)([Query("a"), Query("b")]), str(tmp_path / "to")
    for version in ("one", "two"):
        export(run, ExportArguments({"to": to}, version))
    both = Barrier(2)
    plain = FolderTarget.move

    def together(*given: Any) -> None:
        both.wait(30)
        plain(*given)

    monkeypatch.setattr(FolderTarget, "move", together)

    def one(version: str) -> str:
        try:
            return str(promoted(run, PromoteArguments({"to": to} | OPEN, version), GroundTruth(ignored, "--qrels")).version)
        except HeldError as error:
            return error.code if "another promotion came first: " in str(error) else str(error)

    with ThreadPoolExecutor(2) as pool:
        found = list(pool.map(one, ("one", "two")))
    won = next(version for version in found if version != "publish-overtaken")
    assert sorted(found) == sorted([won, "publish-overtaken"])
    now = json.loads(Path(to, "current.json").read_text())
    assert (now["version"], now["history"]) == (won, [])


def test_a_kill_between_the_promotion_and_its_copy_is_mended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run, to = RunMaker(tmp_path)([Query("a")]), str(tmp_path / "to")
    export(run, ExportArguments({"to": to}, "one"))

    def killed(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(promotions, "_put", killed)
        with pytest.raises(KeyboardInterrupt):
            promoted(run, PromoteArguments({"to": to} | OPEN, "one"), GroundTruth(ignored, "--qrels"))
    assert not Path(to, "current.json").exists()
    assert rolled_back(to, check=True).version == "one"
    assert json.loads(Path(to, "current.json").read_text())["version"] == "one"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--to", "elastic:Up"], "the name of an alias has lower-case letters"),
        (["--to", "out", "--url-env", "A"], "--url-env: is of elastic:NAME, and out is a folder"),
        (["--to", "out", "--version", "current.json"], "is none of current.json, promotions; rename it"),
        (["--to", "out", "--hits", "0"], "publish.hits"),
    ],
)
def test_arguments_that_are_refused(
    arguments: list[str], words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    run = RunMaker(tmp_path)()
    assert main(["export", run.storage.root, *arguments]) == 2
    assert words in capfd.readouterr().err.splitlines()[-1]


def test_an_ablation_is_refused(tmp_path: Path) -> None:
    run = RunMaker(tmp_path)()
    run.record["ablation"] = {"arms": []}
    with pytest.raises(
        ConfigError, match=r"is an ablation, whose queries have results of several arms; run the config"
    ) as error:
        export(run, ExportArguments({"to": str(tmp_path / "to")}))
    assert error.value.code == "publish-run"
