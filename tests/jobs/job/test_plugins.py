"""A retriever of the user's own in the current folder: what the config says of it, how the job is known, what is sent."""

import importlib.metadata
import sys
from collections.abc import Callable
from functools import cache, partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml

from cluster.errors import ConfigError, DmqrError, RetrieverError
from cluster.plugins import sent_modules
from dmqr.testing import engine_settings_of, reranker_settings_of, settings_of
from jobs.chain.arms.arms import arms_of
from jobs.config.config import Config
from jobs.config.load import load_config
from jobs.job.engine import check, open_worker_engine, resolve
from jobs.job.keys import fingerprint
from jobs.job.prepare import prepare
from jobs.submit.ids import submission_id
from jobs.submit.sent_config import sent_config, write_package
from jobs.submit.submit import check_sent
from retrievers.corpora.builds import BuildInputs, index_builds
from retrievers.reranker import open_reranker, reranker_identity
from retrievers.retriever import open_retriever, retriever_identity
from retrievers.settings import CorpusSettings
from tests.support.plugins import forget, page_file

Values = dict[str, Any]
Load = Callable[..., Config]
INSTALLED = cache(importlib.metadata.packages_distributions)


@pytest.fixture(autouse=True)
def _listed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """No test here installs a package, and to list all takes half a second for each module that was forgotten."""
    monkeypatch.setattr(importlib.metadata, "packages_distributions", INSTALLED)


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
    check_sent(load(ablate={"arms": arms}), "job.yaml", "ablate")
    assert tmp_path / "armed.py" in sent_modules()


def test_an_engine_that_the_file_of_a_strategy_names(load: Load, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "conf").mkdir()
    (tmp_path / "echo.py").write_text(page_file("echo.py"))
    fields = {"label": "Mine", "prompt": "Say it again: {query}", "engine": {"kind": "echo:Echo", "model": "echo-3"}}
    (tmp_path / "conf" / "mine.yaml").write_text(yaml.safe_dump(fields))
    engine = {"kind": "echo:Echo"}
    config = load(rewrite={"engine": engine, "strategies": ["./conf/mine.yaml"]})
    known = made(config)
    config = there(config, tmp_path / "there", monkeypatch)
    assert config.rewrite.planned == ["mine"]
    assert made(config) == known


NO = '{}["no"]\n'
FAILED = "failed: KeyError: 'no'; correct it"
OPENER = '    opener: ClassVar[str] = ":EchoEngine"\n'
GIVE_IT = 'give it `opener: ClassVar[str] = ":Engine"`, with the name of the class of the engine'


def opened() -> object:
    return open_retriever("own", settings_of("overlap:OverlapSettings", index="overlap.json"))


def identified() -> object:
    return retriever_identity("own", settings_of("overlap:OverlapSettings", index="overlap.json"))


def built() -> object:
    pq.write_table(pa.table({"doc_id": ["d1"], "text": ["the sea"]}), "corpus.parquet")
    (build,) = index_builds({"own": settings_of("overlap:OverlapSettings", index="new.json")}).builds
    return build.build(BuildInputs(["corpus.parquet"], CorpusSettings(), Path.cwd(), lambda *_: None))


def of_engine(call: Callable[..., object]) -> Callable[[], object]:
    return lambda: call(engine_settings_of("echo:Echo"))


def of_reranker(call: Callable[..., object]) -> Callable[[], object]:
    return lambda: call(reranker_settings_of("shares:Coverage"))


CASES: list[tuple[str, str, str, Callable[[], object], str]] = [
    ("overlap.py", "    return Overlap(", f"    {NO}    return Overlap(", opened,
     f"retrieve.retrievers.own: overlap: open_retriever {FAILED}"),
    ("overlap.py", 'return {"kind": "overlap"', 'return {}["no"] or {"kind": "overlap"', identified,
     f"retrieve.retrievers.own: overlap: retriever_identity {FAILED}"),
    ("overlap.py", "    return Overlap(", "    Overlap(", opened,
     "/overlap.py: open_retriever gives NoneType, and should give what has search and identity; correct it"),
    ("overlap.py", "    texts = {}\n", f"    texts = {NO}", built, f"retrieve.retrievers.own: overlap: build_index {FAILED}"),
    ("overlap.py", "return corpus.built()", "corpus.built()", built,
     "/overlap.py: build_index gives NoneType; return corpus.built() or corpus.there()"),
    ("echo.py", "        self._model = settings.model\n", f"        {NO}", of_engine(open_worker_engine),
     f"echo: EchoEngine.__init__ {FAILED}"),
    ("echo.py", '        """Raises RewriterError where no request can succeed."""\n', f"        {NO}",
     of_engine(partial(check, local=True)), f"echo: EchoEngine.check {FAILED}"),
    ("echo.py", '        return {"kind": self.kind, "model": self._model}\n', f"        {NO}", of_engine(resolve),
     f"echo: EchoEngine.identity {FAILED}"),
    ("echo.py", OPENER, OPENER.replace("Engine", "Engin"), of_engine(open_worker_engine),
     f"/echo.py: has no class EchoEngin; {GIVE_IT}"),
    ("echo.py", OPENER, "", of_engine(open_worker_engine), f"/echo.py: Echo names no engine; {GIVE_IT}"),
    ("shares.py", "    def score(", f"    def open(self, device):\n        {NO}\n    def score(", of_reranker(open_reranker),
     f"rerank: shares: Coverage.open {FAILED}"),
    ("shares.py", "    def score(", f"    def check(self):\n        {NO}\n    def score(", of_reranker(reranker_identity),
     f"rerank: shares: Coverage.check {FAILED}"),
]  # fmt: skip


def broken(name: str, old: str, new: str) -> None:
    """Writes a file of the page with one change."""
    text = page_file(name)
    assert old in text
    Path(name).write_text(text.replace(old, new, 1))


@pytest.mark.usefixtures("job")
@pytest.mark.parametrize(("name", "old", "new", "call", "line"), CASES)
def test_code_that_fails_is_named_in_one_line(name: str, old: str, new: str, call: Callable[[], object], line: str) -> None:
    broken(name, old, new)
    with pytest.raises(DmqrError) as raised:
        call()
    assert raised.value.code == "plugin"
    assert str(raised.value) == line or (line.startswith("/") and str(raised.value).endswith(line))


@pytest.mark.usefixtures("job")
def test_settings_whose_own_check_fails() -> None:
    check_it = f'    @model_validator(mode="after")\n    def _check(self):\n        {NO}\n    """Words that a hit shares'
    broken("overlap.py", '    """Words that a hit shares', check_it)
    text = Path("overlap.py").read_text()
    Path("overlap.py").write_text(text.replace("from typing", "from pydantic import model_validator\nfrom typing", 1))
    with pytest.raises(ValueError, match=r"OverlapSettings cannot be made of these values: KeyError: 'no'; correct it"):
        settings_of("overlap:OverlapSettings", index="overlap.json")
