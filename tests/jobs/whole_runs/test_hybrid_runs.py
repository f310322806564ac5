"""A hybrid retriever in a whole job: built, planned, tried, submitted, compared, like any other retriever."""

from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from cluster.errors import ConfigError
from jobs.config.config import Config
from jobs.config.load import load_config
from jobs.index.index import index
from jobs.job.opening import open_documents
from jobs.job.pools import shared_limits, with_precisions
from jobs.job.prepare import prepare
from jobs.job.shipping import absolute
from jobs.log.judgements import Judgements
from jobs.measure.evaluate import evaluate
from jobs.runs.folder import open_run
from jobs.submit.sent_config import sent_config
from jobs.terminal.live_display import LiveDisplay
from retrievers.local.build import build_local_index
from tests.support.jobs.in_process_runs import job_in_process, prepared_job, run_in_process
from tests.support.jobs.whole_runs import rows
from tests.support.jobs.workers import lists_of, query, searches
from tests.support.jobs.workers import retriever as worker
from tests.support.jobs.workers import rewritten as block
from tests.support.retrievers.blocks import index_fields

Values = dict[str, Any]
ELASTIC = {"kind": "elastic", "index": "docs", "api_key_env": "ES_KEY", "max_in_flight": 6}


@pytest.fixture
def hybrid(bm25: Values, served_dense: Values) -> Values:
    return {"kind": "hybrid", "of": {"bm25": bm25, "dense": served_dense}}


@pytest.fixture
def path(tmp_path: Path, values: Values, hybrid: Values, config_file: Callable[[Any], str], monkeypatch: Any) -> str:
    """A job with a hybrid that runs in this process."""
    monkeypatch.chdir(tmp_path)
    return job_in_process(tmp_path, values, hybrid, config_file).replace(str(tmp_path) + "/", "")


def test_it_has_one_list_per_text_and_searches_of_each_part(bm25: Values, served_dense: Values, hybrid: Values) -> None:
    rewritten = block(query("lamp of a lighthouse", keyword="lamp, sea"), query("yeast"))
    made, whole = worker({"both": hybrid}).seen(rewritten)
    both = lists_of(whole)
    assert {name for _, _, name in both} == {"both"}
    assert searches(made) == [{"both/bm25": 2, "both/dense": 2}, {"both/bm25": 1, "both/dense": 1}]
    _, apart = worker({"bm25": bm25, "dense": served_dense}).seen(rewritten)
    for found, wanted in zip(whole, apart, strict=True):
        assert found["similarity"] == pytest.approx(wanted["similarity"], abs=1e-5)
    lists = lists_of(apart)
    for (row, strategy, _), hits in both.items():
        alone = {doc_id for name in ("bm25", "dense") for doc_id, _ in lists.get((row, strategy, name), [])}
        assert {doc_id for doc_id, _ in hits} <= alone | {f"d0{n}" for n in range(1, 9)}


def test_one_retriever_that_fails_fails_the_query(hybrid: Values, monkeypatch: pytest.MonkeyPatch) -> None:
    opened = worker({"both": hybrid})
    part = opened.retrieval.opened["both"]._parts["dense"]  # type: ignore[attr-defined]

    def fail(*_: Any) -> Any:
        raise OSError("away")

    monkeypatch.setattr(part, "search", fail)
    with pytest.raises(OSError, match="away"):
        opened(block(query("yeast")))


def test_a_measure_knows_how_deep_its_lists_are(path: str) -> None:
    folder = run_in_process(prepared_job(path, "retrieve.retrievers.bm25.depth=2"))
    grades = {row["query"]: {"d01": 1} for row in rows(folder, "queries")}
    found = evaluate(open_run(str(folder)), Judgements("", grades, "query"), ["R@8", "P@2"])
    assert tuple(found.pairs) == ("P@2",)
    assert found.frame.left_out[0].startswith("R@8: left out: reads 8 documents, lists end at ")


def test_index_builds_what_it_is_made_of(values: Values, corpus: Path, tmp_path: Path, served_dense: Values) -> None:
    place = str(tmp_path / "built")
    words = {"kind": "local", "index": place}
    parts = {"a": words, "b": words | {"encoder": served_dense["encoder"]}}
    values["retrieve"] = {"retrievers": {"both": {"kind": "hybrid", "of": parts}}}
    config = Config.model_validate(values)
    (built,) = index(config, [str(corpus)], LiveDisplay(io.StringIO()))
    assert (built["index"], built["documents"]) == (place, 8)
    texts = open_documents("both", config.retrieve.retrievers["both"]).texts(["d04"])
    assert texts == ["Bread. Rye bread keeps for a week in a linen bag."]


def test_requests_in_flight_are_shared_and_aliases_resolved(values: Values) -> None:
    values["retrieve"] = {"retrievers": {"both": {"kind": "hybrid", "of": {"a": ELASTIC, "b": ELASTIC | {"field": "title"}}}}}
    values["rerank"] = {"kind": "none"}
    config = Config.model_validate(values)
    assert {server: (one.max_in_flight, one.pools) for server, one in shared_limits(config).items()} == {
        None: (6, ["retrieve"])
    }
    planned = {"of": {"a": {"index": "docs-1"}, "b": {"index": "docs-1"}}}
    settings = config.retrieve.retrievers["both"].at(planned).for_worker({None: 3})
    assert [(one.index, one.max_in_flight) for one in settings.of.values()] == [("docs-1", 2), ("docs-1", 2)]  # type: ignore[union-attr]


def test_paths_are_absolute_for_workers_and_for_what_is_sent(
    values: Values, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "index").mkdir()
    parts = {"a": {"kind": "local", "index": "index"}, "b": ELASTIC}
    values["retrieve"] = {"retrievers": {"both": {"kind": "hybrid", "of": parts}}}
    config = Config.model_validate(values)
    found = absolute(config.retrieve.retrievers["both"]).of  # type: ignore[union-attr]
    assert (found["a"].index, found["b"].index) == (f"{tmp_path}/index", "docs")
    sent = sent_config(config).values["retrieve"]["retrievers"]["both"]["of"]
    assert (sent["a"]["index"], sent["b"]["index"]) == (f"{tmp_path}/index", "docs")


def test_precision_is_resolved_in_its_encoders(values: Values) -> None:
    dense = {"kind": "local", "index": "i", "encoder": {"model": "m"}}
    values["retrieve"] = {"retrievers": {"both": {"kind": "hybrid", "of": {"a": {"kind": "local", "index": "i"}, "b": dense}}}}
    values["rerank"] = {"kind": "none"}
    config = Config.model_validate(values)
    assert config.dense_retriever == "both"
    assert config.retrieve.retrievers["both"].encoder.dtype == "auto"  # type: ignore[union-attr]
    assert with_precisions(config).retrieve.retrievers["both"].encoder.dtype == "float32"  # type: ignore[union-attr]


def test_documents_of_two_corpora_are_refused(
    path: str, tmp_path: Path, bm25: Values, config_file: Callable[[Any], str]
) -> None:
    other = tmp_path / "other.parquet"
    pq.write_table(pa.table({"doc_id": ["x"], "title": [""], "text": ["another"]}), other)
    build_local_index(tmp_path / "other", other, index_fields("english"))
    config = load_config(path, [f"retrieve.retrievers.bm25.of.bm25.index={tmp_path}/other", "fuse.duplicates=drop"])
    with pytest.raises(ConfigError, match=r"bm25\.of\.bm25, bm25\.of\.dense search indexes of different corpora"):
        prepare(config, path)
