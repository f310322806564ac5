"""A retriever of the user's own in the current folder: what the config says of it, how the job is known, what is sent."""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml

from cluster.errors import ConfigError, RetrieverError
from cluster.plugins import sent_modules
from jobs.chain.arms.arms import arms_of
from jobs.config.config import Config
from jobs.config.load import load_config
from jobs.job.keys import fingerprint
from jobs.job.prepare import prepare
from jobs.submit.ids import submission_id
from jobs.submit.sent_config import sent_config, write_package
from jobs.submit.submit import submission
from retrievers.retriever import retriever_identity
from tests.support.plugins import forget, page_file

Values = dict[str, Any]
Load = Callable[..., Config]


@pytest.fixture
def job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, values: Values) -> Values:
    """A config with the retriever of docs/python.md in the current folder."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "overlap.py").write_text(page_file("overlap.py"))
    (tmp_path / "overlap.json").write_text('{"corpus": "sha256:c", "texts": {"d1": "the sea"}}')
    pq.write_table(pa.table({"query": ["sea", "bread"]}), "log.parquet")
    values["log"]["path"] = str(tmp_path / "log.parquet")  # as a job elsewhere finds it
    values["retrieve"] = {"retrievers": {"own": {"kind": "overlap:OverlapSettings", "index": "overlap.json"}}}
    values["rewrite"] = {"strategies": []}
    values["rerank"] = {"kind": "none"}
    return values


@pytest.fixture
def load(job: Values, tmp_path: Path) -> Load:
    def write(*settings: str, **more: Any) -> Config:
        path = tmp_path / "job.yaml"
        path.write_text(yaml.safe_dump(job | more))
        return load_config(str(path), list(settings))

    return write


def made(config: Config) -> str:
    return fingerprint(prepare(config, "job.yaml").identity)


def indexes(config: Config) -> Values:
    return dict(prepare(config, "job.yaml").indexes)


def change(tmp_path: Path) -> None:
    """Changes the code, as another process finds it."""
    with (tmp_path / "overlap.py").open("a") as file:
        file.write("# another version\n")
    forget("overlap")


def test_its_fields_have_defaults_and_its_values_are_read_again(load: Load) -> None:
    own = load().retrieve.retrievers["own"]
    assert (own.together, own.score_floor, own.encoder) == (False, None, None)
    assert Config.model_validate(load().model_dump()) == load()


def test_its_code_is_in_the_fingerprint_and_in_the_identity_of_its_index(load: Load, tmp_path: Path) -> None:
    first = made(load())
    assert made(load("retrieve.retrievers.own.least=2")) != first
    (before,) = prepare(load(), "job.yaml").indexes.values()
    change(tmp_path)
    assert made(load()) != first
    (after,) = prepare(load(), "job.yaml").indexes.values()
    assert {key: before[key] for key in ("kind", "corpus")} == {"kind": "overlap", "corpus": "sha256:c"}
    assert before["code"]["class"] == "OverlapSettings"
    assert before["code"] != after["code"]


def test_a_hybrid_may_have_it_as_a_part(load: Load) -> None:
    own = {"kind": "overlap:OverlapSettings", "index": "overlap.json"}
    config = load(retrieve={"retrievers": {"both": {"kind": "hybrid", "of": {"a": own, "b": own | {"least": 2}}}}})
    assert prepare(config, "job.yaml").indexes["both"]["of"]["b"]["code"]["class"] == "OverlapSettings"


def test_a_config_of_before_is_read_without_the_code_and_refused_when_it_is_opened(load: Load, tmp_path: Path) -> None:
    recorded = load().model_dump()
    (tmp_path / "overlap.py").unlink()
    forget("overlap")
    config = Config.model_validate(recorded)
    own = config.retrieve.retrievers["own"]
    assert config.model_dump() == recorded
    assert own.indexed("own") == {"own": own}
    with pytest.raises(RetrieverError, match="there is no module overlap") as raised:
        retriever_identity("own", own)
    assert raised.value.code == "plugin"
    with pytest.raises(ConfigError, match="there is no module overlap"):
        load()


def test_an_arm_may_have_other_code_and_a_wrong_one_is_refused_at_once(load: Load, tmp_path: Path) -> None:
    changed = page_file("overlap.py").replace("text.lower()", "text.upper()")
    (tmp_path / "other.py").write_text(changed)
    kind = "retrieve.retrievers.own.kind"
    arms = {arm.name: arm.config for arm in arms_of(load(ablate={"arms": {"b": {kind: "other:OverlapSettings"}}}))}
    assert made(arms["b"]) != made(arms["full"])
    with pytest.raises(ConfigError, match=r"ablate\.arms: b: .*there is no module no"):
        arms_of(load(ablate={"arms": {"b": {kind: "no:OverlapSettings"}}}))


def test_the_id_of_a_submission_is_of_the_code(load: Load, tmp_path: Path) -> None:
    def known() -> str:
        return submission_id(load(), sent_config(load()), "run")

    first = known()
    assert known() == first
    change(tmp_path)
    assert known() != first


def test_an_error_of_its_code_is_one_line_with_its_place(load: Load, tmp_path: Path) -> None:
    text = page_file("overlap.py")
    wrong = text.replace('return {"kind": "overlap"', 'return {}["no"] or {"kind": "overlap"')
    (tmp_path / "overlap.py").write_text(wrong)
    with pytest.raises(RetrieverError) as raised:
        prepare(load(), "job.yaml")
    assert raised.value.code == "plugin"
    assert str(raised.value) == "retrieve.retrievers.own: overlap: retriever_identity failed: KeyError: 'no'; correct it"


def test_the_content_of_its_files_is_in_the_fingerprint(load: Load, job: Values, tmp_path: Path) -> None:
    text = page_file("overlap.py").replace(
        "    least: int",
        '    words: Annotated[str, Names.TEXT] = "words.txt"\n    least: int',
        1,
    )
    (tmp_path / "overlap.py").write_text(text)
    (tmp_path / "words.txt").write_text("sea\n")
    first = made(load())
    (tmp_path / "copy.txt").write_text("sea\n")
    assert made(load("retrieve.retrievers.own.words=copy.txt")) == first
    (tmp_path / "words.txt").write_text("sea\nbread\n")
    assert made(load()) != first


# ---------------------------------------------------------------- sent to a cluster


def there(config: Config, folder: Path, monkeypatch: pytest.MonkeyPatch) -> Config:
    """The config as the job reads it, in the folder that it was sent, when the files of here are gone."""
    folder.mkdir()
    place = write_package(folder, sent_config(config), "job.yaml", Path("prices.yaml"))
    for file in [*Path().glob("*.py"), *Path("conf").glob("*"), *Path("packed").glob("*.py")]:
        file.unlink()
    forget("overlap", "packed", "echo")
    sys.path[:] = [one for one in sys.path if one != str(Path.cwd())]
    monkeypatch.chdir(folder)
    return load_config(place)


@pytest.mark.parametrize("kind", ["overlap:OverlapSettings", "packed.overlap:OverlapSettings"])
def test_it_is_the_same_job_when_it_is_sent(load: Load, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    (tmp_path / "packed").mkdir()
    (tmp_path / "packed" / "overlap.py").write_text(page_file("overlap.py"))
    config = load(retrieve={"retrievers": {"own": {"kind": kind, "index": str(tmp_path / "overlap.json")}}})
    known = made(config)
    assert made(there(config, tmp_path / "there", monkeypatch)) == known


def test_a_module_that_an_arm_alone_names_is_sent(load: Load, tmp_path: Path) -> None:
    (tmp_path / "armed.py").write_text(page_file("overlap.py"))
    arms = {"b": {"retrieve.retrievers.own.kind": "armed:OverlapSettings"}}
    submission(load(ablate={"arms": arms}), "job.yaml", "ablate", "dmqr submit", {})
    assert tmp_path / "armed.py" in sent_modules()
