"""The verbs of the store for queries with filters, whose ids are of their values, too."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from jobs.__main__ import main
from retrievers.local.build import build_local_index
from rewriters.normalise import query_id
from tests.support.jobs.nights import QUERIES, Nights
from tests.support.jobs.whole_runs import rows
from tests.support.retrievers.blocks import index_fields

FILTERED = ("retrieve.filters={tenant: shop}", "retrieve.retrievers.bm25.index=filtered")
SHOPS = ("north", "south")


@pytest.fixture
def filtered(nights: Nights) -> Path:
    """A finished run of two queries in two shops."""
    documents = [(f"{query} {shop}", f"what {query} is", shop) for query in QUERIES for shop in SHOPS]
    pq.write_table(
        pa.table(dict(zip(("doc_id", "text", "tenant"), zip(*documents, strict=True), strict=True))), "corpus.parquet"
    )
    build_local_index(Path("filtered"), "corpus.parquet", index_fields("english"))
    asked = [(query, shop) for query in QUERIES[:2] for shop in SHOPS]
    pq.write_table(pa.table(dict(zip(("query", "shop"), zip(*asked, strict=True), strict=True))), "log.parquet")
    return nights.run("one", *FILTERED)[0]


def told(capsys: pytest.CaptureFixture[str], *words: str) -> dict[str, Any]:
    assert main(["store", *words, "--json"]) == 0
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


def stored_ids() -> set[str]:
    files = list(Path("runs/store").glob("v1/*/*/*.parquet"))
    return {one for path in files for one in pq.read_table(path, columns=["query_id"]).column("query_id").to_pylist()}


def test_a_query_is_forgotten_with_all_values(nights: Nights, filtered: Path, capsys: pytest.CaptureFixture[str]) -> None:
    ids = {query: {query_id(query, None, {"tenant": shop}) for shop in SHOPS} for query in QUERIES[:2]}
    assert stored_ids() == ids[QUERIES[0]] | ids[QUERIES[1]] == {one["query_id"] for one in rows(filtered, "queries")}
    words = ("forget", nights.path, QUERIES[0].upper(), "--own")
    planned = told(capsys, *words, "--dry-run")
    assert stored_ids() >= ids[QUERIES[0]]
    done = told(capsys, *words)
    assert set(done["filtered"]) == ids[QUERIES[0]]
    assert done["rows"] == {kind: count for kind, count in planned["rows"].items() if count}
    assert done["rows"]["completions"] == 2
    assert stored_ids() == ids[QUERIES[1]]
    assert done["runs"] == [str(filtered)]


def test_they_are_no_other_queries(
    nights: Nights, filtered: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("jobs.store.forget.MOST_OTHERS", 1)
    done = told(capsys, "forget", nights.path, QUERIES[0])
    assert (len(done["filtered"]), done["others"]) == (2, [])
    assert str(filtered) in done["runs"]
