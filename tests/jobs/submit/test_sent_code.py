"""The code of plug-ins in what is sent of a config: all of it is there, under names by which it is the same job."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml

from cluster.plugins import sent_modules
from jobs.config.config import Config
from jobs.config.load import load_config
from jobs.job.keys import fingerprint
from jobs.job.prepare import prepare
from jobs.submit.ids import VERBS
from jobs.submit.sent_config import sent_config, write_package
from jobs.submit.submit import submission
from tests.support.jobs.whole_runs import ROOT
from tests.support.plugins import forget, page_file

Values = dict[str, Any]
Write = Callable[..., Config]


@pytest.fixture
def write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, values: Values) -> Write:
    """Writes the config of a job over the retriever of docs/plugins.md, and reads it."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "overlap.py").write_text(page_file("overlap.py"))
    (tmp_path / "overlap.json").write_text('{"corpus": "sha256:c", "texts": {"d1": "the sea"}}')
    pq.write_table(pa.table({"query": ["sea", "bread"]}), "log.parquet")
    values |= {
        "log": {"path": str(tmp_path / "log.parquet"), "query_column": "query"},
        "retrieve": {"retrievers": {"own": {"kind": "overlap:OverlapSettings", "index": "overlap.json"}}},
        "rewrite": {"strategies": []},
        "rerank": {"kind": "none"},
    }

    def written(**more: Any) -> Config:
        (tmp_path / "job.yaml").write_text(yaml.safe_dump(values | more))
        return load_config("job.yaml")

    return written


def send(config: Config, folder: Path) -> Path:
    """Writes what is sent into a new folder; gives the path of the config in it."""
    folder.mkdir()
    return folder / write_package(folder, sent_config(config), "job.yaml", Path("prices.yaml"))


def received(place: Path, monkeypatch: pytest.MonkeyPatch) -> Config:
    """The config as the job reads it, in the folder that it was sent, when the files of here are gone."""
    for file in [*Path().glob("*.py"), *Path("conf").glob("*"), *Path("packed").glob("*.py")]:
        file.unlink()
    forget("overlap", "packed", "echo")
    sys.path[:] = [one for one in sys.path if one != str(Path.cwd())]
    monkeypatch.chdir(place.parents[1])
    return load_config(str(place.relative_to(place.parents[1])))


def there(config: Config, folder: Path, monkeypatch: pytest.MonkeyPatch) -> Config:
    """The config, sent and read there."""
    return received(send(config, folder), monkeypatch)


def made(config: Config) -> str:
    return fingerprint(prepare(config, "job.yaml").identity)


def test_another_text_of_an_arm_s_file_and_another_run_file_are_another_job(write: Write, tmp_path: Path) -> None:
    """Submitted again as it was, it is the job that works."""
    shutil.copy(ROOT / "rewriters" / "strategies" / "general.yaml", tmp_path / "mine.yaml")
    (tmp_path / "other.run").write_text("q1 Q0 d1 1 1.0 other\n")
    ablate = {"arms": {"b": {"rewrite.strategies": ["mine.yaml"]}}, "runs": {"other": "other.run"}}
    engine = {"kind": "recorded", "path": str(tmp_path / "recorded.jsonl")}

    def ids() -> tuple[str, str]:
        config = write(ablate=ablate, rewrite={"engine": engine, "strategies": []})
        ablation, run = (submission(config, "job.yaml", verb, "dmqr submit", {}).base for verb in VERBS[::-1])
        return ablation, run

    ablations, runs = {ids()[0], ids()[0]}, {ids()[1]}
    assert len(ablations) == 1
    for count, name in enumerate(("mine.yaml", "other.run"), start=2):
        with (tmp_path / name).open("a") as file:
            file.write("# changed\n")
        ablation, run = ids()
        ablations.add(ablation)
        runs.add(run)
        assert len(ablations) == count
    assert len(runs) == 1


@pytest.mark.parametrize("kind", ["overlap:OverlapSettings", "packed.overlap:OverlapSettings"])
def test_it_is_the_same_job_when_it_is_sent(write: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    (tmp_path / "packed").mkdir()
    (tmp_path / "packed" / "overlap.py").write_text(page_file("overlap.py"))
    config = write(retrieve={"retrievers": {"own": {"kind": kind, "index": str(tmp_path / "overlap.json")}}})
    known = made(config)
    assert made(there(config, tmp_path / "there", monkeypatch)) == known


def test_a_module_that_an_arm_alone_names_is_sent(write: Write, tmp_path: Path) -> None:
    (tmp_path / "armed.py").write_text(page_file("overlap.py"))
    arms = {"b": {"retrieve.retrievers.own.kind": "armed:OverlapSettings"}}
    submission(write(ablate={"arms": arms}), "job.yaml", "ablate", "dmqr submit", {})
    assert tmp_path / "armed.py" in sent_modules()


def test_an_engine_that_the_file_of_a_strategy_names(write: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "conf").mkdir()
    (tmp_path / "echo.py").write_text(page_file("echo.py"))
    fields = {"label": "Mine", "prompt": "Say it again: {query}", "engine": {"kind": "echo:Echo", "model": "echo-3"}}
    (tmp_path / "conf" / "mine.yaml").write_text(yaml.safe_dump(fields))
    engine = {"kind": "echo:Echo"}
    config = write(rewrite={"engine": engine, "strategies": ["./conf/mine.yaml"]})
    known = made(config)
    config = there(config, tmp_path / "there", monkeypatch)
    assert config.rewrite.planned == ["mine"]
    assert made(config) == known
