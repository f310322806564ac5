"""A bi-encoder that is the dense retriever's encoder is taken as the index was built with it, by arms as by a run."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from jobs.config.load import load_config
from jobs.run.ablation import prepare_ablation
from retrievers.local.build import build_local_index
from tests.support.jobs.in_process_runs import job_in_process, prepared_job
from tests.support.retrievers.blocks import index_fields
from tests.support.retrievers.passages import PASSAGES
from tests.support.retrievers.tiny_encoders import make_encoder


@pytest.mark.slow
def test_arms_rerank_as_a_run_does_over_an_index_that_was_built_otherwise(
    tmp_path: Path, values: dict[str, Any], bm25: dict[str, Any], corpus: Path, config_file: Callable[[Any], str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    model = str(make_encoder(tmp_path / "model", "bert", [text for _, text in PASSAGES.values()], "mean"))
    otherwise = {"model": model, "pooling": "cls", "query_prefix": "", "passage_prefix": ""}
    build_local_index(tmp_path / "index", corpus, index_fields(None, otherwise))
    path = job_in_process(tmp_path, values, bm25, config_file)
    dense = f"retrieve.retrievers.dense={{kind: local, index: index, encoder: {{model: '{model}'}}}}"
    settings = [dense, "rerank={kind: bi_encoder}", "ablate={arms: {shallow: {retrieve.depth: 3}}}"]
    ablation = prepare_ablation(load_config(path, settings), path)
    alone = prepared_job(path, *settings)
    pooled = {one.identity["encoder"]["pooling"] for one in ablation.compiled.work.rerankers}
    assert pooled == {alone.prepared.identity["rerank"]["encoder"]["pooling"]} == {"cls"}
