"""A hybrid retriever in a job: its indexes are built, and their documents are of one corpus."""

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
from jobs.index.index import index
from jobs.job.opening import open_documents
from jobs.terminal.live_display import LiveDisplay
from retrievers.local.build import build_local_index
from tests.support.jobs.in_process_runs import prepared_job
from tests.support.retrievers.blocks import index_fields

Values = dict[str, Any]


def test_index_builds_what_it_is_made_of(values: Values, corpus: Path, tmp_path: Path, served_dense: Values) -> None:
    words = {"kind": "local", "index": str(tmp_path / "built")}
    parts = {"a": words, "b": words | {"encoder": served_dense["encoder"]}}
    values["retrieve"] = {"retrievers": {"both": {"kind": "hybrid", "of": parts}}}
    config = Config.model_validate(values)
    (built,) = index(config, [str(corpus)], LiveDisplay(io.StringIO()))
    assert (built["index"], built["documents"]) == (words["index"], 8)
    texts = open_documents("both", config.retrieve.retrievers["both"]).texts(["d04"])
    assert texts == ["Bread. Rye bread keeps for a week in a linen bag."]


def test_documents_of_two_corpora_are_refused(small_job: Callable[..., str], served_dense: Values) -> None:
    pq.write_table(pa.table({"doc_id": ["x"], "title": [""], "text": ["another"]}), "other.parquet")
    build_local_index(Path("other"), Path("other.parquet"), index_fields("english"))
    of = {"bm25": {"kind": "local", "index": "other"}, "dense": served_dense}
    path = small_job(retrieve={"retrievers": {"both": {"kind": "hybrid", "of": of}}})
    with pytest.raises(ConfigError, match=r"both\.of\.bm25, both\.of\.dense search indexes of different corpora"):
        prepared_job(path, "fuse.duplicates=drop")
