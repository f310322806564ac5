"""Tries in a run: what they cost, that a later start makes none twice, and that a budget counts them."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from jobs.__main__ import main
from jobs.chain.stages.rewrite import Rewrite
from jobs.runs.folder import open_run
from jobs.tables import QUERIES
from rewriters.engines.settings import OpenaiSettings
from rewriters.outcome.retries import FIRST_TRY
from rewriters.pool import load_pool
from rewriters.rewriter import Rewriting
from tests.support.jobs.whole_runs import rows
from tests.support.jobs.workers import rewriter
from tests.support.rewriters.fake_server import Body, FakeServer

QUERY_TEXTS = ["why is the sky blue", "how long to boil an egg", "who made the first bell"]


def said(body: Body) -> str:
    """Refuses the first query at first, and the second always."""
    query = body["messages"][0]["content"].rpartition("Query: ")[2]
    if query == QUERY_TEXTS[1] or (query == QUERY_TEXTS[0] and body["seed"] < FIRST_TRY):
        return "I'm sorry, but I can't help with that request."
    return json.dumps({"general": f"about {query}", "keyword": f"{query}, words"})


@pytest.fixture
def worker(tmp_path: Path) -> Iterator[Callable[..., Rewrite]]:
    opened: list[Rewrite] = []

    def build(server: FakeServer, start: int = 1, retries: int = 1) -> Rewrite:
        engine = OpenaiSettings(kind="openai", model="tiny", base_url=server.address)
        rewriting = Rewriting(load_pool(["general", "keyword"]), decoding={"max_tokens": 64, "seed": 3}, retries=retries)
        opened.append(rewriter(engine, rewriting, tmp_path, start))
        return opened[-1]

    yield build
    for one in opened:
        one.close()


def block() -> pa.Table:
    rows = [{"shard": 3, "query_id": text, "query": text, "log_count": 1, "costs": [], "errors": []} for text in QUERY_TEXTS]
    return pa.Table.from_pylist(rows, QUERIES)


def outcome(table: pa.Table) -> list[tuple[Any, ...]]:
    columns = (table.column(name).to_pylist() for name in ("rewrites", "errors", "costs"))
    return [
        (len(rewrites), sorted(one["reason"] for one in errors), sum(one["requests"] for one in costs))
        for rewrites, errors, costs in zip(*columns, strict=True)
    ]


WANTED = [(2, ["tried_again"], 2), (0, ["refusal", "refusal", "tried_again"], 2), (2, [], 1)]


def test_tries_are_made_counted_and_found_again(worker: Callable[..., Rewrite]) -> None:
    with FakeServer(text=said) as server:
        assert outcome(worker(server)(block())) == WANTED
        assert len(server.bodies) == 5
        assert outcome(worker(server, start=2)(block())) == WANTED
        assert len(server.bodies) == 5  # the later start has all of them
        assert outcome(worker(server, retries=0)(block())) == [(0, ["refusal"] * 2, 1), (0, ["refusal"] * 2, 1), (2, [], 1)]
        assert len(server.bodies) == 5


def test_a_start_that_stopped_between_makes_the_tries_only(worker: Callable[..., Rewrite]) -> None:
    with FakeServer(text=said) as server:
        worker(server, retries=0)(block())
        assert len(server.bodies) == 3
        assert outcome(worker(server, start=2)(block())) == WANTED
        assert [body["seed"] for body in server.bodies[3:]] == [3 + FIRST_TRY] * 2


@pytest.mark.slow
def test_a_recording_is_not_asked_again(
    tmp_path: Path, values: dict[str, Any], bm25: dict[str, Any], config_file: Callable[[Any], str],
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    refused = "I'm sorry, but I can't help with that request."
    answers = {"lamp of a ship": json.dumps({"general": "a ship's lamp", "keyword": "lamp, ship"}), "yeast": refused}
    lines = [json.dumps({"query": query, "completions": {"dmqr": text}}) for query, text in answers.items()]
    Path("recorded.jsonl").write_text("\n".join(lines))
    pq.write_table(pa.table({"query": list(answers)}), "log.parquet")
    values["rewrite"]["strategies"] = ["general", "keyword"]
    values |= {"retrieve": {"retrievers": {"bm25": bm25}}, "rerank": {"kind": "none"}, "cluster": {"address": "none"}}
    path = config_file(values | {"limits": {"error_rate": 1}})

    def found(retries: int) -> list[list[Any]]:
        assert main(["run", path, "--set", f"rewrite.retries={retries}", "--set", f"output=of-{retries}"]) == 0
        folder = Path(open_run(f"of-{retries}/small").storage.root)
        wanted = {"rewrites": ("query_id", "strategy", "text"), "errors": ("query_id", "component", "reason"),
                  "costs": ("query_id", "stage", "component", "requests", "error")}  # fmt: skip
        return [
            sorted(([row[name] for name in names] for row in rows(folder, table)), key=str) for table, names in wanted.items()
        ]

    once = found(0)
    assert "a recording has one answer" not in capfd.readouterr().err
    assert found(2) == once
    assert "a recording has one answer to each request" in capfd.readouterr().err
    assert main(["try", path, "yeast", "--set", "rewrite.retries=1", "--json"]) == 0
    (trial,) = json.loads(capfd.readouterr().out)
    assert [one["sample"] for one in trial["requests"]] == [0]
    ablate = ["ablate", path, "--set", "rewrite.retries=1", "--set", "ablate={arms: {best: {fuse.method: best}}}"]
    assert main(ablate) == 0
    folder = capfd.readouterr().out.splitlines()[-1]
    assert {row["reason"] for row in rows(Path(folder), "errors")} == {"refusal"}
