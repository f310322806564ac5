"""An alias that is moved while a job is prepared, tried, under way or reported: it stays on the index that it found."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml

from cluster.errors import ClusterError, RetrieverError
from jobs.config.load import load_config
from jobs.index.index import index
from jobs.job import indexes as preparing
from jobs.job.prepare import Prepared, prepare
from jobs.pages.comparison import UNMEASURED
from jobs.pages.samples import samples
from jobs.run.resume_check import check_indexes_unchanged
from jobs.terminal.live_display import LiveDisplay
from jobs.try_one.trial import LoadedConfig
from retrievers.corpora.builds import BuildInputs
from retrievers.elastic.build import build_elastic_index, elastic_indexes
from tests.support.jobs.run_folders import RunMaker
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
        assert loaded.try_query("sea", lambda words: None).texts == OLD


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
