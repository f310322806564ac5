"""Requests to S3 of a shard: a run of three times the shards makes so many more, of each kind."""

from __future__ import annotations

import json
from collections import Counter

import pytest

from jobs.runs.folder import open_run
from tests.support.cluster.s3_proxy import kind, proxied
from tests.support.cluster.s3_server import S3Server
from tests.support.jobs.in_process_runs import prepared_job, record, run_in_process
from tests.support.jobs.nights import log

FEW, MANY = 10, 30
BY_TIME = ("/lease/", "/progress.json", "/logs/")  # written every few seconds, however many shards there are


@pytest.mark.slow
def test_requests_per_shard_by_kind(bm25_job: str, s3: S3Server, monkeypatch: pytest.MonkeyPatch) -> None:
    found = []
    with proxied(s3) as (proxy, address):
        monkeypatch.setenv("AWS_ENDPOINT_URL_S3", address)
        for shards in (FEW, MANY):
            queries = [f"tides and bread {number}" for number in range(shards)]
            log(queries)
            record({query: {"dmqr": json.dumps({"general": f"about {query}"})} for query in queries})
            proxy.requests.clear()
            job = prepared_job(bm25_job, f"output={s3.fresh('runs')}", "cluster.shard_size=1", f"label=of-{shards}")
            run_in_process(job)
            open_run(job.prepared.storage.root)
            sent = [one for one in proxy.requests if not any(part in one[1] for part in BY_TIME)]
            found.append(Counter(kind(*one) for one in sent))
    few, many = found
    slope = {of: (many[of] - few[of]) / (MANY - FEW) for of in many | few}
    # PUT: four tables, the lists, the manifest. LIST: what an attempt before has stored, of completions and of lists.
    most = {"put": 6.0, "get": 10.0, "list": 2.0, "head": 0.0, "delete": 0.0}
    assert {of: n for of, n in slope.items() if n > most.get(of, 0.0)} == {}, slope
