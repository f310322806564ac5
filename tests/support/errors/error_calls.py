"""Errors that only a worker, a cluster, vLLM, Elasticsearch or S3 meets, by code: each by the function that raises it."""

import os
import signal
import sys
from collections import Counter
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, NamedTuple

import pyarrow as pa

from cluster.isolation import Isolation
from cluster.run.lease import Lease
from cluster.run.meter import run_block
from cluster.run.session import Session
from cluster.run.stage import Stage
from cluster.storage.files import FileStorage
from jobs.chain.stages.write import Write
from jobs.config.config import Config
from jobs.config.load import load_config
from jobs.config.settings import LimitSettings
from jobs.job.pools import check_shares
from jobs.run.finish import check_balances, run_balances
from jobs.run.limits import Signals, Stall, limit
from jobs.runs.tally import Tally
from jobs.terminal.live_display import LiveDisplay
from retrievers.retriever import retriever_identity
from tests.support.errors.small_job import AFTERWARDS, Patch, failing
from tests.support.jobs.in_process_runs import prepared_job, run_in_process
from tests.support.retrievers.blocks import typed
from tests.support.retrievers.proxy import Fault, Proxy, fake_index

AGAIN = "dmqr run job.yaml"


class Call(NamedTuple):
    """A call that raises an error whose line holds `words`."""

    code: str
    words: str
    call: Callable[[Patch], object]
    exit_code: int = 2


def anything(**fields: Any) -> Any:
    return SimpleNamespace(**fields)


def storage() -> FileStorage:
    return FileStorage(os.path.abspath("run"))


# ---------------------------------------------------------------- Elasticsearch, without one


def a_refused_search(patch: Patch) -> object:
    """An index is opened whose server refuses to search it."""
    answer, many = fake_index(), {"error": {"type": "query_shard_exception", "reason": "many"}}
    refusal = Fault("answer", status=400, body=many)
    proxy = Proxy("http://127.0.0.1:9", lambda request: refusal if request.kind == "_search" else answer(request))
    patch.setenv("HERE_URL", AFTERWARDS.enter_context(proxy).url)
    return retriever_identity("bm25", typed({"kind": "elastic", "index": "docs", "url_env": "HERE_URL"}))


def elastic_config() -> Config:
    return load_config("job.yaml", ["retrieve.retrievers={bm25: {kind: elastic, index: docs}}"])


ELASTIC = [
    Call("elastic-refused", "refuses the query", a_refused_search),
    Call(
        "cluster-small", "workers cannot share", lambda _: check_shares({"retrieve": anything(max_workers=9)}, elastic_config())
    ),
]


# ---------------------------------------------------------------- the cluster and the run's folder


def no_ray(patch: Patch) -> None:
    failing(ConnectionError("nobody there"), "ray.init")(patch)
    Session("10.0.0.1:6379", {})


def an_unbalanced_run(_: Patch) -> None:
    plan = anything(counts={"log_rows": 3, "rejected": 0, "queries": 2}, tables={"errors": []})
    prepared = anything(storage=storage(), config=anything(rewrite=anything(planned=[])))
    check_balances(prepared.storage, run_balances(prepared, plan, Counter(), {"query_map": [], "queries": [], "rewrites": []}))


def a_shard_that_kills_every_worker(_: Patch) -> None:
    meter = anything(stage=Stage("rewrite", Write, {}))
    tracker = anything(block_started=lambda *_: 2, isolation=lambda *_: Isolation(meter.stage.retries + 1, (0, 1)))
    run_block(meter, pa.table({"shard": [3]}), tracker, "worker")


CLUSTER = [
    Call("cluster-away", "no Ray answers", no_ray),
    Call("worker-died", "workers died one after the other", a_shard_that_kills_every_worker),
    Call("internal-error", "is not closed", an_unbalanced_run),
]

# ---------------------------------------------------------------- a run that ends early


def a_lost_lease(patch: Patch) -> None:
    """A driver that has stored nothing for long finds that at its first commit."""
    patch.setattr(Lease, "lost", lambda _: True)
    run_in_process(prepared_job("job.yaml"))


def a_signal(_: Patch) -> None:
    with Signals(LiveDisplay(sys.stderr), AGAIN):
        os.kill(os.getpid(), signal.SIGTERM)


def a_limit(**limits: float) -> Callable[[Patch], object]:
    def judge(_: Patch) -> None:
        config = anything(limits=LimitSettings(**limits))
        prepared = anything(config=config, storage=storage())
        counts = Counter({"queries": 200, "failed_queries": 10, "error/rewrite/dmqr/truncated": 10})
        plan = anything(shards=[0, 1], counts={"queries": 400})
        watch = anything(judged=200, counts=counts, snapshot=anything(halted=0), state=anything(usd=2.0))
        stop = limit(prepared, plan, Tally({0}, counts), watch, 0.5, AGAIN)
        assert stop is not None
        raise stop

    return judge


def a_stall(_: Patch) -> None:
    stall = Stall(anything(seconds_since_heartbeat=lambda: 1e9), 1e-9, AGAIN)
    while True:
        stall.check()


RUNNING = [
    Call("stopped-errors", "queries have errors (", a_limit(), 1),
    Call("stopped-cost", "are spent, limits.max_cost_usd", a_limit(error_rate=1, max_cost_usd=1), 1),
    Call("stopped-stall", "(limits.stall_minutes)", a_stall, 1),
    Call("run-held", "taken this run over", a_lost_lease, 1),
    Call("interrupted", "resume with: dmqr run", a_signal, 143),
]


CALLS = [*ELASTIC, *CLUSTER, *RUNNING]
