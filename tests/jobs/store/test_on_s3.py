"""A store on S3: the same rows, and fewer requests once it is compacted."""

from __future__ import annotations

from cluster.storage import open_storage
from cluster.storage.traffic import take_traffic
from jobs.store.collect import collect
from jobs.store.compact import compact
from jobs.store.forget import forget
from tests.support.cluster.s3_server import S3Server
from tests.support.jobs.stored import found, opened, put, texts

QUERIES = [f"query {number}" for number in range(20)]
BEGAN = 1_790_000_000.0


def test_a_store_on_s3(s3: S3Server) -> None:
    store = s3.fresh()
    storage = open_storage(store)
    for night in range(6):
        put(store, dict.fromkeys(QUERIES[night:], f"night {night}"), BEGAN + night)
    early = opened(store)
    take_traffic()
    before = texts(store, QUERIES)
    apart = take_traffic()
    assert before == dict.fromkeys(QUERIES, "night 0")
    (done,) = compact(storage, grace=0.0)
    assert done.files == (6, 1)
    take_traffic()
    assert texts(store, QUERIES) == before
    together = take_traffic()
    assert apart["get"] - together["get"] == 5  # of six files one is left
    assert {name: apart[name] for name in ("list", "put")} == {name: together[name] for name in ("list", "put")}
    assert found(early, QUERIES) == before
    forget(storage, "query 3", None, others="none")
    assert sorted(texts(store, QUERIES)) == sorted({*QUERIES} - {"query 3"})
    assert collect(storage, 86_400.0) == []
