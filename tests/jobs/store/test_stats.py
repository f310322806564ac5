"""What lies in a store, and what runs have saved by it."""

from __future__ import annotations

import io
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from rich.console import Console

from cluster.costs import Prices
from cluster.storage import open_storage
from jobs.pages.store import stats_page
from jobs.store.compact import compact
from jobs.store.stats import StoreStats, store_stats
from tests.support.jobs.nights import NEW, QUERIES, Nights, log, totals
from tests.support.jobs.stored import put


def shown(stats: StoreStats) -> str:
    console = Console(file=io.StringIO(), width=140, record=True)
    console.print(stats_page(stats))
    return console.export_text()


def test_rows_bytes_and_use(tmp_path: Path) -> None:
    for number in range(3):
        put(tmp_path, {"lighthouse": "a lamp", "moon": "round"}, 1_790_000_000 + number)
    compact(open_storage(str(tmp_path)))
    put(tmp_path, {"lighthouse": "a lens"}, 1_790_000_009)
    stats = store_stats(open_storage(str(tmp_path)), None, None)
    (space,) = stats.spaces
    assert (space.kind, space.rows, space.files, space.replaced, space.most_together) == ("completions", 5, 2, 3, 2)
    assert space.size == sum(path.stat().st_size for path in tmp_path.glob("v1/completions/*/*.parquet")) - replaced(tmp_path)
    assert space.paid["prompt_tokens"] == 50
    assert space.paid["seconds"] == pytest.approx(2.5)
    words = shown(stats)
    assert "tiny" in words
    assert "5 rows in 1 space," in words
    assert "3 files stay beside these" in words
    assert "what it has saved is not known" in words


def replaced(store: Path) -> int:
    """The bytes of the three files that one has replaced: those that are older than it."""
    files = sorted(store.glob("v1/completions/*/*.parquet"), key=lambda path: path.stat().st_mtime_ns)
    assert [pq.read_metadata(path).num_rows for path in files] == [2, 2, 2, 4, 1]
    return sum(path.stat().st_size for path in files[:3])


def test_what_runs_have_saved(nights: Nights) -> None:
    first = nights.run("one")[0]
    log([*QUERIES, NEW])
    second = nights.run("two")[0]
    prices = Prices.model_validate({"tokens": {"tiny": {"prompt": 1e6, "completion": 2e6}}})
    stats = store_stats(open_storage(str(first.parent / "store")), open_storage(str(first.parent)), prices)
    saved = {one.stage: one for one in stats.saved}
    assert {stage: one.reused for stage, one in saved.items()} == {
        stage: totals(second, "reused")[stage] for stage in ("rewrite", "rerank")
    }
    assert stats.runs == 2
    paid = {
        name: totals(first, name)["rewrite"] + totals(second, name)["rewrite"]
        for name in ("prompt_tokens", "completion_tokens")
    }
    rewrite = saved["rewrite"]
    for name, tokens in paid.items():
        assert rewrite.quantities.get(name, 0) == pytest.approx(6 / 7 * tokens)
    usd = rewrite.quantities.get("prompt_tokens", 0) + 2 * rewrite.quantities.get("completion_tokens", 0)
    assert rewrite.usd == pytest.approx(usd)
    words = shown(stats)
    assert f"saved by 2 runs: {sum(one.reused for one in stats.saved):,} reused" in words
    assert "rewrite dmqr: 6 reused" in words
    assert "tokens at the prices of the standard tier" in words


def test_an_empty_store(tmp_path: Path) -> None:
    assert "nothing is stored" in shown(store_stats(open_storage(str(tmp_path)), None, None))
