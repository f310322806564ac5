"""A kind of retriever, and one of engine, that only a test knows: each is a module and a line in the registry of kinds."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml

from cluster.errors import ConfigError
from cluster.run.pool_sizes import Pool
from jobs.chain.pipeline import stages
from jobs.chain.store.files import NO_STORE
from jobs.config.load import load_config
from jobs.job.keys import fingerprint
from jobs.job.pools import check_shares, requested_pools, rerankers_of, shared_limits, sharing_workers
from jobs.job.prepare import prepare
from jobs.submit.sent_config import sent_config
from retrievers.kinds import KINDS
from retrievers.retriever import open_retriever
from rewriters.engines import open_engine
from rewriters.engines.settings import ENGINES
from tests.support.jobs.one_arm import one_arm

Values = dict[str, Any]
TOY = '''
from typing import Annotated, ClassVar, Literal

from cluster.settings import NOT_IDENTITY, Names
from retrievers.kinds import RetrieverSettings
from retrievers.settings import AnyEncoderSettings
from rewriters.engines.settings import EngineSettings


class ToySettings(RetrieverSettings):
    """A retriever at a server."""

    opener: ClassVar[str] = "toy_kind"
    kind: Literal["toy"]
    words: Annotated[str, NOT_IDENTITY, Names.FILE]
    url: Annotated[str, NOT_IDENTITY] = "http://toy:80/v1"
    key_env: Annotated[str | None, NOT_IDENTITY] = None
    max_in_flight: Annotated[int, NOT_IDENTITY] = 6
    boost: float = 1.0
    encoder: AnyEncoderSettings | None = None
    together: bool = False
    score_floor: float | None = None

    def own_limits(self):
        return [(self.url, self.max_in_flight)]


class ToyEngineSettings(EngineSettings):
    """An engine."""

    opener: ClassVar[str] = "toy_kind:ToyEngine"
    is_recorded: ClassVar[bool] = True
    kind: Literal["toy"]
    model: Annotated[str, Names.FILE]


class ToyEngine:
    kind = "toy"

    def __init__(self, settings):
        self.model = settings.model

    def identity(self):
        return {"kind": "toy"}

    def close(self):
        pass


class Toy:
    def __init__(self, settings):
        self.settings = settings

    def search(self, block):
        return []

    def identity(self):
        return {"kind": "toy"}

    def close(self):
        pass


def open_retriever(name, settings, device="cpu", expect_identity=None):
    return Toy(settings)


def open_documents(name, settings, *, patient=False):
    return {}


def retriever_identity(name, settings):
    return {"kind": "toy", "corpus": "c", "boost": settings.boost}
'''


@pytest.fixture
def job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, values: Values) -> Iterator[Values]:
    """A config with the toy retriever and the toy engine, in the current folder."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "toys").mkdir()
    (tmp_path / "toys" / "toy_kind.py").write_text(TOY)
    monkeypatch.syspath_prepend(tmp_path / "toys")
    monkeypatch.setitem(KINDS.classes, "toy", "toy_kind:ToySettings")
    monkeypatch.setitem(ENGINES.classes, "toy", "toy_kind:ToyEngineSettings")
    pq.write_table(pa.table({"query": ["sea", "bread"]}), "log.parquet")
    Path("words").write_text("a b c")
    values["retrieve"] = {"retrievers": {"toy": {"kind": "toy", "words": "words", "key_env": "TOY_KEY"}}}
    values["rewrite"] = {"engine": {"kind": "toy", "model": "words"}}
    values["rerank"] = {"kind": "none"}
    yield values
    sys.modules.pop("toy_kind", None)


@pytest.fixture
def load(job: Values) -> Callable[..., Any]:
    def write(**more: Any) -> Any:
        Path("job.yaml").write_text(yaml.safe_dump(job | more))
        return load_config("job.yaml")

    return write


def test_a_kind_of_a_third_party_goes_through_a_whole_job(load: Callable[..., Any], tmp_path: Path) -> None:
    config = load(cluster={"retrieve": {"workers": 3}})
    prepared = prepare(config, "job.yaml")
    code = prepared.indexes["toy"].pop("code")
    assert prepared.indexes == {"toy": {"kind": "toy", "corpus": "c", "boost": 1.0}}
    assert (code["class"], code["module"]) == ("ToySettings", "toy_kind")
    assert [one.place for one in prepared.searched] == ["toy"]
    assert prepared.engine is not None
    assert open_engine(prepared.engine).model == f"{tmp_path}/words"  # type: ignore[attr-defined]
    pools = {name: Pool(3, 1, 0) for name in requested_pools(config)}
    assert shared_limits(config) == {"http://toy:80/v1": (6, ["retrieve"])}
    with pytest.raises(ConfigError, match="7 workers cannot share 6 requests in flight"):
        check_shares(config, pools | {"retrieve": Pool(7, 1, 0)})
    built = stages(prepared, one_arm(prepared.config), config, pools, rerankers_of(config), 1, NO_STORE)
    (work,) = (stage.settings["work"] for stage in built if stage.name == "retrieve")
    (opened,) = work.retrievers.values()
    assert (opened.settings.max_in_flight, opened.settings.words) == (2, f"{tmp_path}/words")
    assert sharing_workers(config, pools) == {"http://toy:80/v1": 3}
    toy: Any = open_retriever("toy", opened.settings)
    assert toy.settings == opened.settings


def test_what_a_kind_names_is_sent_and_told(load: Callable[..., Any], tmp_path: Path) -> None:
    config = load(ablate={"arms": {"b": {"retrieve.retrievers.toy.words": "words"}}})
    sent = sent_config(config).values
    assert sent["retrieve"]["retrievers"]["toy"] == {"kind": "toy", "words": f"{tmp_path}/words", "key_env": "TOY_KEY"}
    assert sent["rewrite"]["engine"] == {"kind": "toy", "model": f"{tmp_path}/words"}
    assert sent["ablate"]["arms"]["b"] == {"retrieve.retrievers.toy.words": f"{tmp_path}/words"}


def test_a_kind_may_be_part_of_a_hybrid(load: Callable[..., Any], job: Values, tmp_path: Path) -> None:
    toy = {"kind": "toy", "words": "words"}
    config = load(retrieve={"retrievers": {"both": {"kind": "hybrid", "of": {"a": toy, "b": toy | {"boost": 2}}}}})
    assert prepare(config, "job.yaml").indexes["both"]["of"]["b"]["boost"] == 2
    assert shared_limits(config) == {"http://toy:80/v1": (6, ["retrieve"])}
    assert sent_config(config).values["retrieve"]["retrievers"]["both"]["of"]["a"]["words"] == f"{tmp_path}/words"


def test_what_decides_no_hits_does_not_count(load: Callable[..., Any], job: Values) -> None:
    def made(toy: Mapping[str, Any]) -> str:
        job["retrieve"]["retrievers"]["toy"].update(toy)
        return fingerprint(prepare(load(), "job.yaml").identity)

    shutil.copy("words", "others")
    first = made({})
    assert made({"words": "others", "max_in_flight": 2}) == first
    assert made({"boost": 3.0}) != first


def test_a_wrong_key_of_a_kind_is_named_with_the_nearest(load: Callable[..., Any], job: Values) -> None:
    job["retrieve"]["retrievers"]["toy"]["word"] = "x"
    with pytest.raises(ConfigError, match=r"retrieve\.retrievers\.toy\.word: unknown key.*words"):
        load()
    job["retrieve"]["retrievers"]["toy"] = {"kind": "toys"}
    with pytest.raises(ConfigError, match=r"retrieve\.retrievers\.toy\.kind: no kind 'toys'.*toy"):
        load()
