"""The code of plug-ins in what is sent of a config: all of it is there, under names by which it is the same job."""

from __future__ import annotations

import importlib
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml

from cluster.plugins.modules import installed_packages
from jobs.config.config import Config
from jobs.config.load import load_config
from jobs.job.keys import fingerprint
from jobs.job.prepare import prepare
from jobs.submit.ids import VERBS
from jobs.submit.sent_config import sent_config, write_package
from jobs.submit.submit import submission
from tests.support.jobs.whole_runs import ROOT
from tests.support.plugins import forget, installed, page_file

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
        "retrieve": {"retrievers": {"own": {"kind": "overlap.py:OverlapSettings", "index": "overlap.json"}}},
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
    for file in [*Path().glob("*.py"), *Path().glob("words.txt"), *Path("conf").glob("*")]:
        file.unlink()
    monkeypatch.chdir(place.parents[1])
    return load_config(str(place.relative_to(place.parents[1])))


def there(config: Config, folder: Path, monkeypatch: pytest.MonkeyPatch) -> Config:
    """The config, sent and read there."""
    return received(send(config, folder), monkeypatch)


def made(config: Config) -> str:
    return fingerprint(prepare(config, "job.yaml").identity)


@pytest.mark.slow
def test_a_module_as_a_part_of_a_hybrid(write: Write, tmp_path: Path) -> None:
    with installed(tmp_path / "site", "solo", {"solo.py": page_file("overlap.py")}, ""):
        part = {"kind": "solo:OverlapSettings", "index": "overlap.json"}
        config = write(retrieve={"retrievers": {"both": {"kind": "hybrid", "of": {"a": part, "b": part | {"least": 2}}}}})
        sent = sent_config(config)
        assert {file.name for file in sent.files.values()} == {"solo.py"}
        assert sent.values["retrieve"]["retrievers"]["both"]["kind"] == "hybrid"
        assert sent.values["retrieve"]["retrievers"]["both"]["of"]["b"]["kind"].endswith("/solo.py:OverlapSettings")


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


def test_a_package_that_an_arm_alone_names(write: Write, tmp_path: Path) -> None:
    files = {"armed/__init__.py": "", "armed/overlap.py": page_file("overlap.py")}
    with installed(tmp_path / "site", "armed", files, ""):
        arms = {"b": {"retrieve.retrievers.own.kind": "armed.overlap:OverlapSettings"}}
        submission(write(ablate={"arms": arms}), "job.yaml", "ablate", "dmqr submit", {})
        assert installed_packages()["armed"] == [tmp_path / "site" / "armed"]


PACKED = {"packed/__init__.py": "", "packed/overlap.py": page_file("overlap.py"), "packed/.ipynb_checkpoints/overlap.py": "x"}


@pytest.mark.parametrize("kind", ["packed.overlap:OverlapSettings", "packed"])
def test_a_package_is_the_same_job_when_it_is_sent(
    write: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    own = {"retrievers": {"own": {"kind": kind, "index": "overlap.json"}}}
    points = "[dmqr.retrievers]\npacked = packed.overlap:OverlapSettings\n"
    with installed(tmp_path / "site", "packed", PACKED, points):
        config = write(retrieve=own)
        known, place = made(config), send(config, tmp_path / "there")
        assert sorted(one.name for one in (tmp_path / "there" / "packed").iterdir()) == ["__init__.py", "overlap.py"]
    shutil.rmtree(tmp_path / "site")
    monkeypatch.syspath_prepend(tmp_path / "there")
    importlib.invalidate_caches()
    try:
        assert made(received(place, monkeypatch)) == known
    finally:
        forget("packed")


def test_a_namespace_package_is_sent_whole(write: Write, tmp_path: Path) -> None:
    (tmp_path / "more" / "wide").mkdir(parents=True)
    (tmp_path / "more" / "wide" / "words.py").write_text("")
    text = "import wide.words\n" + page_file("overlap.py")
    with installed(tmp_path / "site", "wide", {"wide/overlap.py": text}, ""), pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(tmp_path / "more")
        send(
            write(retrieve={"retrievers": {"own": {"kind": "wide.overlap:OverlapSettings", "index": "overlap.json"}}}),
            tmp_path / "there",
        )
    assert sorted(one.name for one in (tmp_path / "there" / "wide").iterdir()) == ["overlap.py", "words.py"]


def test_an_engine_that_the_file_of_a_strategy_names(write: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "conf").mkdir()
    (tmp_path / "conf" / "echo.py").write_text(page_file("echo.py"))
    fields = {"label": "Mine", "prompt": "Say it again: {query}", "engine": {"kind": "echo.py:Echo", "model": "echo-3"}}
    (tmp_path / "conf" / "mine.yaml").write_text(yaml.safe_dump(fields))
    engine = {"kind": "conf/echo.py:Echo"}
    config = write(rewrite={"engine": engine, "strategies": ["./conf/mine.yaml"]})
    known = made(config)
    config = there(config, tmp_path / "there", monkeypatch)
    assert config.rewrite.planned == ["mine"]
    assert made(config) == known


def test_the_class_is_named_as_the_config_names_it(write: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a.py").write_text("import b\n" + page_file("overlap.py"))
    (tmp_path / "b.py").write_text("import a\n" + page_file("overlap.py"))
    (tmp_path / "over.py").write_text("from overlap import *\nfrom overlap import OverlapSettings as Own\n")
    own = {"index": "overlap.json"}
    kinds = {"one": "a.py:OverlapSettings", "two": "b.py:OverlapSettings", "three": "over.py:Own"}
    config = write(retrieve={"retrievers": {name: own | {"kind": kind} for name, kind in kinds.items()}})
    retrievers = sent_config(config).values["retrieve"]["retrievers"]
    assert {name: one["kind"].rpartition("/")[2] for name, one in retrievers.items()} == kinds
    known = {name: type(one).__module__.rpartition(".")[2] for name, one in config.retrieve.retrievers.items()}
    config = there(config, tmp_path / "there", monkeypatch)
    assert {name: type(one).__module__.rpartition(".")[2] for name, one in config.retrieve.retrievers.items()} == known


def test_a_bi_encoder_takes_the_encoder_of_a_retriever_that_is_sent(write: Write, tmp_path: Path) -> None:
    text = page_file("overlap.py").replace("    least: int", "    encoder: EncoderSettings\n    least: int", 1)
    (tmp_path / "dense.py").write_text(
        text.replace("from retrievers.kinds", "from retrievers.settings import EncoderSettings\nfrom retrievers.kinds", 1)
    )
    own = {"kind": "dense.py:OverlapSettings", "index": "overlap.json", "encoder": {"model": "no/such"}}
    config = write(retrieve={"retrievers": {"own": own}}, rerank={"kind": "bi_encoder"})
    assert config.rerank.kind == "bi_encoder"
    first = submission(config, "job.yaml", "run", "dmqr submit", {}).base
    with (tmp_path / "dense.py").open("a") as file:
        file.write("# another version\n")
    assert submission(load_config("job.yaml"), "job.yaml", "run", "dmqr submit", {}).base != first
    recorded = config.model_dump()
    (tmp_path / "dense.py").unlink()
    read = Config.model_validate(recorded)
    assert read.model_dump() == recorded
    assert read.retrieve.retrievers["own"].encoder == config.retrieve.retrievers["own"].encoder
