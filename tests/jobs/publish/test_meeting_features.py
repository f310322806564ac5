"""Where publishing meets what else a run may be: replays, strategies with several parameters."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from cluster.errors import ConfigError
from jobs.__main__ import main
from jobs.cli.command_line.publish_arguments import names
from jobs.runs.folder import open_run
from jobs.verbs.inputs import GroundTruth
from jobs.verbs.publishing import ExportArguments, PromoteArguments, promoted
from jobs.verbs.publishing import exported as export
from tests.support.jobs.report_runs import Query, RunMaker, query_id

Night = Callable[..., Path]


def test_an_export_removes_nothing_that_none_has_written(tmp_path: Path) -> None:
    run, to = RunMaker(tmp_path)(), tmp_path / "to"
    (to / "documents" / "deep").mkdir(parents=True)
    for name in ("thesis.txt", "deep/rows-0123456789ab.parquet", "draft-2.txt"):
        (to / "documents" / name).write_text("mine")
    (to / "documents" / "rows-0123456789ab.jsonl").write_text("of an export that was killed")
    done = export(run, ExportArguments({"to": str(to)}, "documents"))
    named = {"export.json", *(one["key"] for one in done.record.files)}
    assert {path.name for path in (to / "documents").iterdir()} == named | {"thesis.txt", "deep", "draft-2.txt"}
    assert (to / "documents" / "deep" / "rows-0123456789ab.parquet").read_text() == "mine"
    with pytest.raises(ConfigError, match=r"^--to .*: is the folder of a run; give one of its own to versions"):
        export(run, ExportArguments({"to": run.storage.root}, "commits"))
    assert not Path(run.storage.root, "commits", "export.json").exists()


def test_a_replay_of_some_queries_is_no_version_of_a_night(tmp_path: Path) -> None:
    run, to = RunMaker(tmp_path)(), {"to": str(tmp_path / "to")}
    record = Path(run.storage.root, "run.json")
    noted = {"of": "small-2026-01-31-0123456789ab", "path": "runs/x", "reasons": {"truncated": 3}, "queries": 3}
    record.write_text(json.dumps(json.loads(record.read_text()) | {"replay": noted}))
    line = (
        r"is a replay, which has 3 queries of small-2026-01-31-0123456789ab alone; run that config again with another --label"
    )
    with pytest.raises(ConfigError, match=line) as error:
        export(open_run(run.storage.root), ExportArguments(to))
    assert error.value.code == "publish-run"
    with pytest.raises(ConfigError, match=line):
        promoted(open_run(run.storage.root), PromoteArguments(to), GroundTruth(lambda _: None, "--qrels"))


@pytest.mark.parametrize(
    ("words", "found"),
    [
        ("general, keyword,", ["general", "keyword"]),
        ("rag_fusion(n=2,temperature=0.5),keyword", ["rag_fusion(n=2,temperature=0.5)", "keyword"]),
        ("a(b=f(1,2),c=[3,4]), d(e=1)", ["a(b=f(1,2),c=[3,4])", "d(e=1)"]),
        ("a),b", ["a)", "b"]),
        ("", []),
    ],
)
def test_commas_within_parentheses_are_of_a_name(words: str, found: list[str]) -> None:
    assert names(words) == found


@pytest.mark.parametrize("since", ["../other/v", "Up", "", "promotions"])
def test_a_version_to_compare_with_has_the_name_of_one(since: str, tmp_path: Path) -> None:
    run = RunMaker(tmp_path)()
    export(run, ExportArguments({"to": str(tmp_path / "other")}, "v"))
    with pytest.raises(ConfigError, match=r"^--since .*: a version has lower-case letters") as error:
        export(run, ExportArguments({"to": str(tmp_path / "to")}, "v", since))
    assert error.value.code == "argument"
    assert not (tmp_path / "to").exists()


def test_not_all_queries_are_held_out(tmp_path: Path) -> None:
    run, to = RunMaker(tmp_path)(), {"to": str(tmp_path / "to"), "formats": ["rows", "chat"]}
    with pytest.raises(ConfigError, match=r"^--holdout 10: of 10 buckets, so chat would hold out every query; give a lower"):
        export(run, ExportArguments(to | {"buckets": 10}, "v"))
    done = export(run, ExportArguments(to | {"buckets": 10}, "v", options={"holdout": 0}))
    assert (done.record.formats["chat"]["held_out"], done.record.counts["rows"]) == (0, 3)


def test_a_night_without_any_document_is_held_against_the_one_before(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    asked = [Query(name, {"general": f"about {name}"}, {}, {("general", "bm25"): ["d1"]}, 2) for name in ("a", "b")]
    full = RunMaker(tmp_path / "full")(asked)
    empty = RunMaker(tmp_path / "empty")([Query(name, {"general": f"about {name}"}) for name in ("a", "b")])
    to, qrels = str(tmp_path / "to"), tmp_path / "qrels.tsv"
    qrels.write_text(f"{query_id(0)}\td1\t1\n")
    judged = ("--qrels", str(qrels), "--key", "query_id", "--json")
    for run, version in ((full, "full"), (empty, "empty")):
        assert main(["export", run.storage.root, "--to", to, "--version", version]) == 0
    assert main(["promote", full.storage.root, "--to", to, "--version", "full", *judged]) == 0
    capfd.readouterr()
    look = ["promote", empty.storage.root, "--to", to, "--version", "empty", "--check", *judged]
    assert main(look) == 1
    gates = {one["name"]: one for one in json.loads(capfd.readouterr().out)["gates"]}
    assert {name: (one["passed"], one["figure"]) for name, one in gates.items()} == {
        "error_rate": (True, 0.0), "coverage": (True, 1.0), "changed_first": (False, 1.0), "quality": (False, 0.0),
    }  # fmt: skip
    shutil.rmtree(tmp_path / "to" / "full")  # and where that one is gone, it says so
    main(look)
    assert "full is gone, or was exported without rows" in capfd.readouterr().out


def test_training_rows_alone_are_no_version_for_a_search(tmp_path: Path) -> None:
    run, to = RunMaker(tmp_path)(), {"to": str(tmp_path / "to")}
    export(run, ExportArguments(to | {"formats": ["chat"]}, "v"))
    with pytest.raises(
        ConfigError, match=r"^v in .*: has training rows alone \(chat\), in which no search looks; export"
    ) as error:
        promoted(run, PromoteArguments(to, "v"), GroundTruth(lambda _: None, "--qrels"))
    assert error.value.code == "publish-version"
    assert not (tmp_path / "to" / "current.json").exists()


@pytest.mark.parametrize("setting", ["publish.hits=3", "publish.to=elsewhere", "publish.gatesx=1", "fuse.k=1", "publish.gat=1"])
def test_promote_sets_bounds_alone(setting: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    run = RunMaker(tmp_path)()
    command = ["promote", run.storage.root, "--to", str(tmp_path / "to"), "--set", setting]
    assert main(command) == 2
    line = f"dmqr promote: --set {setting}: is no bound; give one like publish.gates.coverage=0.9 [argument]"
    assert capfd.readouterr().err.splitlines()[-1] == line
