"""A run whose rewrites come from the Messages API: its bill, and the night after it."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from cluster.prices import load_prices
from jobs.__main__ import main
from jobs.runs.folder import open_run
from tests.support.jobs.whole_runs import rows
from tests.support.rewriters.messages_server import MessagesServer

KEY = "sk-ant-very-secret-0123456789"


def test_the_cache_is_in_the_bill_and_the_next_night_asks_nothing(
    tmp_path: Path, values: dict[str, Any], bm25: dict[str, Any], config_file: Callable[[Any], str],
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("ANTHROPIC_API_KEY", KEY)
    texts = ["lamp of a ship", "yeast for bread", "tides at new moon"]
    pq.write_table(pa.table({"query": texts}), "log.parquet")
    prices = "tokens: {claude-a: {prompt: 1000, cached: 100, cache_write: 1250, completion: 5000}}\n"
    Path("prices.yaml").write_text(prices)
    said = json.dumps({"general": "about it", "keyword": "it, words"})
    with MessagesServer(["claude-a"], key=KEY, text=lambda _: said) as server:
        engine = {"kind": "anthropic", "model": "claude-a", "base_url": server.address, "max_in_flight": 1}
        values["rewrite"] = {"engine": engine, "strategies": ["general", "keyword"]}
        values |= {"retrieve": {"retrievers": {"bm25": bm25}}, "rerank": {"kind": "none"}, "cluster": {"address": "none"}}
        path = config_file(values)
        assert main(["run", path]) == 0
        assert len(server.bodies) == 3
        folder = Path(open_run("runs/small").storage.root)
        costs = [row for row in rows(folder, "costs") if row["component"] == "dmqr" and row["requests"]]
        written, read, prompt, completion = (
            sum(row[f"{name}_tokens"] for row in costs) for name in ("cache_write", "cached", "prompt", "completion")
        )
        assert written > 0
        assert read == 2 * written
        assert prompt == sum(len(body["messages"][0]["content"][0]["text"].split()) for body in server.bodies) + sum(
            len(body["messages"][0]["content"][1]["text"].split()) for body in server.bodies
        )
        totals = {"rewrite": {"dmqr@claude-a": {
            "prompt_tokens": prompt, "cached_tokens": read, "cache_write_tokens": written, "completion_tokens": completion,
        }}}  # fmt: skip
        paid = load_prices(Path("prices.yaml"))
        assert paid is not None
        fresh = prompt - read - written
        assert paid.usd(totals) == pytest.approx((1000 * fresh + 100 * read + 1250 * written + 5000 * completion) / 1e6)
        assert main(["run", path, "--set", "fuse.method=rrf"]) == 0
        assert len(server.bodies) == 3
    assert not [path for path in tmp_path.rglob("*") if path.is_file() and KEY.encode() in path.read_bytes()]
