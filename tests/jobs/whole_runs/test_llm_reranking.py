"""A reranker that is a language model, from the config to the results."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from jobs.config.load import load_config
from jobs.try_one.stages import LoadedConfig
from tests.support.retrievers.tiny_llm import make_gemma

QUERY = "how does a lighthouse lamp work"


@pytest.fixture(scope="module")
def gemma(tmp_path_factory: pytest.TempPathFactory, passages: dict[str, str]) -> str:
    return str(make_gemma(tmp_path_factory.mktemp("gemma"), [*passages.values(), QUERY]))


@pytest.mark.parametrize("more", [{}, {"prompt": "Does B answer A? Yes or No", "passage_instruction": "B is: "}])
def test_results_stand_in_the_order_of_flagembeddings_scores(
    values: dict[str, Any],
    bm25: dict[str, Any],
    passages: dict[str, str],
    config_file: Callable[[Any], str],
    gemma: str,
    tmp_path: Path,
    more: dict[str, str],
) -> None:
    reranker = {"kind": "cross_encoder", "model": gemma, "max_length": 64, "combine": "replace", **more}
    values |= {"rewrite": {"strategies": []}, "rerank": reranker, "output": str(tmp_path)}
    values["retrieve"]["retrievers"] = {"bm25": bm25}
    path = config_file(values)
    with LoadedConfig(load_config(path), path, "llm") as loaded:
        trial = loaded.try_query(QUERY, lambda words: None)
    found = {hit["doc_id"]: hit["score"] for hit in trial.row["hits"]}
    arguments = {key.replace("instruction", "instruction_for_rerank"): value for key, value in more.items()}
    import FlagEmbedding  # 6 s, so not where tests are collected

    oracle = FlagEmbedding.FlagLLMReranker(gemma, devices="cpu", max_length=64, **arguments)
    scores = oracle.compute_score([(QUERY, passages[doc_id]) for doc_id in found])
    assert len(found) >= 2
    assert list(found.values()) == sorted(found.values(), reverse=True)
    assert list(found.values()) == pytest.approx(scores, abs=2e-4)
    assert trial.spent["rerank"][f"cross_encoder@{gemma}"]["pairs"] == len(found)
