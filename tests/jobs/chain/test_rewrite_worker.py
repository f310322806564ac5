"""The rewriting worker with the recorded engine: completions are durable, and nothing is asked for twice."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from jobs.chain.stages.rewrite import Rewrite
from jobs.tables import COMPLETIONS, QUERIES
from rewriters.engines.settings import RecordedSettings
from rewriters.pool import load_pool
from rewriters.rewriter import Rewriting
from tests.support.jobs.workers import rewriter

STRATEGIES = ["general", "keyword"]
QUERY_TEXTS = ["why is the sky blue", "how long to boil an egg"]
Row = dict[str, Any]


def answer(query: str, **texts: str) -> str:
    return json.dumps({"general": f"about {query}", "keyword": f"{query}, words"} | texts)


@pytest.fixture
def record(tmp_path: Path) -> Callable[..., str]:
    """Writes a recording (query -> completions, or the joint answer) and gives its path."""

    def write(recorded: dict[str, Any], name: str = "recorded.jsonl") -> str:
        lines = [
            {"query": query, "completions": given if isinstance(given, dict) else {"dmqr": given}}
            for query, given in recorded.items()
        ]
        (tmp_path / name).write_text("".join(json.dumps(line) + "\n" for line in lines))
        return str(tmp_path / name)

    return write


@pytest.fixture
def nothing(record: Callable[..., str]) -> str:
    """A recording that has no completion for any query of these tests."""
    return record({"some other query": answer("x")}, "nothing.jsonl")


@pytest.fixture
def worker(tmp_path: Path) -> Callable[..., Rewrite]:
    def build(recording: str, calls: str = "joint", start: int = 1, strategies: list[str] = STRATEGIES) -> Rewrite:
        engine = RecordedSettings(kind="recorded", path=recording)
        return rewriter(engine, Rewriting(load_pool(strategies), calls, {"max_tokens": 512}), tmp_path / "run", start)

    return build


def block(*queries: str, shard: int = 3) -> pa.Table:
    rows = [
        {"shard": shard, "query_id": f"id-{query}", "query": query, "log_count": 2, "costs": [], "errors": []}
        for query in queries
    ]
    return pa.Table.from_pylist(rows, QUERIES)


def stored(tmp_path: Path) -> list[Row]:
    rows: list[Row] = []
    for path in sorted((tmp_path / "run" / "completions").rglob("*.parquet")):
        rows += pq.read_table(path, schema=COMPLETIONS).to_pylist()
    return rows


def texts(result: pa.Table) -> list[dict[str, str]]:
    return [{one["strategy"]: one["text"] for one in row} for row in result.column("rewrites").to_pylist()]


def reasons(result: pa.Table) -> list[dict[str, str]]:
    return [{one["component"]: one["reason"] for one in row} for row in result.column("errors").to_pylist()]


def starts(result: pa.Table) -> list[list[int]]:
    return [[one["start"] for one in row] for row in result.column("costs").to_pylist()]


EXPECTED = [{"general": f"about {query}", "keyword": f"{query}, words"} for query in QUERY_TEXTS]


# ---------------------------------------------------------------- what comes out


def test_every_strategy_of_every_query_ends_as_a_rewrite_or_an_error(
    worker: Callable[..., Rewrite], record: Callable[..., str]
) -> None:
    recording = record({QUERY_TEXTS[0]: answer(QUERY_TEXTS[0], keyword="")})
    result = worker(recording)(block(*QUERY_TEXTS))
    assert texts(result) == [{"general": f"about {QUERY_TEXTS[0]}"}, {}]
    assert reasons(result) == [{"keyword": "empty"}, {"general": "not_recorded", "keyword": "not_recorded"}]
    empty = result.column("errors").to_pylist()[0][0]
    assert (empty["stage"], empty["attempts"]) == ("rewrite", 1)
    assert json.loads(empty["raw"])["keyword"] == ""


def test_separate_calls_make_a_request_and_a_cost_per_strategy(
    worker: Callable[..., Rewrite], record: Callable[..., str]
) -> None:
    usage = {"prompt_tokens": 10, "cached_tokens": 4, "completion_tokens": 3}
    recording = record({"q one": {"general": {"text": "about one", "usage": usage}, "keyword": "one, words"}})
    result = worker(recording, calls="separate")(block("q one"))
    assert texts(result) == [{"general": "about one", "keyword": "one, words"}]
    (spent,) = result.column("costs").to_pylist()
    assert [(one["stage"], one["component"], one["engine"], one["requests"]) for one in spent] == [
        ("rewrite", "general", "recorded", 1),
        ("rewrite", "keyword", "recorded", 1),
    ]
    assert {name: spent[0][name] for name in usage} == usage


def test_a_failed_request_costs_and_says_why(worker: Callable[..., Rewrite], nothing: str) -> None:
    ((spent,),) = worker(nothing)(block("q one")).column("costs").to_pylist()
    assert (spent["component"], spent["requests"], spent["error"], spent["attempt"]) == ("dmqr", 1, "not_recorded", 1)


# ---------------------------------------------------------------- durable


def test_completions_are_put_to_storage_with_what_was_sent(
    worker: Callable[..., Rewrite], record: Callable[..., str], tmp_path: Path
) -> None:
    worker(record({query: answer(query) for query in QUERY_TEXTS}), start=2)(block(*QUERY_TEXTS))
    rows = stored(tmp_path)
    assert sorted(row["query_id"] for row in rows) == sorted(f"id-{query}" for query in QUERY_TEXTS)
    for row in rows:
        query = row["query_id"].removeprefix("id-")
        assert (row["request"], row["text"], row["start"]) == ("dmqr", answer(query), 2)
        assert row["prompt"].endswith(query)
    assert [path.name for path in (tmp_path / "run" / "completions").iterdir()] == ["000003"]


def test_a_second_attempt_at_a_shard_asks_the_engine_for_nothing(
    worker: Callable[..., Rewrite], record: Callable[..., str], nothing: str, tmp_path: Path
) -> None:
    first = worker(record({query: answer(query) for query in QUERY_TEXTS}))(block(*QUERY_TEXTS))
    kept = stored(tmp_path)
    second = worker(nothing, start=2)(block(*QUERY_TEXTS))
    assert texts(second) == texts(first) == EXPECTED
    assert second.column("rewrites") == first.column("rewrites")
    assert stored(tmp_path) == kept
    assert starts(first) == [[0], [0]]  # the meter settles them
    assert starts(second) == [[1], [1]]  # the first start has paid
    paid = [one["seconds"] for row in second.column("costs").to_pylist() for one in row]
    assert paid == pytest.approx([row["seconds"] for row in sorted(kept, key=lambda r: QUERY_TEXTS.index(r["query_id"][3:]))])


def test_only_what_is_missing_is_asked_for(worker: Callable[..., Rewrite], record: Callable[..., str], tmp_path: Path) -> None:
    worker(record({QUERY_TEXTS[0]: answer(QUERY_TEXTS[0])}, "one.jsonl"))(block(QUERY_TEXTS[0]))
    other = record({QUERY_TEXTS[1]: answer(QUERY_TEXTS[1])}, "two.jsonl")
    second = worker(other, start=2)(block(*QUERY_TEXTS))
    assert texts(second) == EXPECTED
    assert starts(second) == [[1], [0]]
    assert sorted(row["start"] for row in stored(tmp_path)) == [1, 2]


def test_what_failed_is_asked_for_again(
    worker: Callable[..., Rewrite], record: Callable[..., str], nothing: str, tmp_path: Path
) -> None:
    first = worker(nothing)(block("q one"))
    assert reasons(first) == [{"general": "not_recorded", "keyword": "not_recorded"}]
    assert [(row["text"], row["lost"]) for row in stored(tmp_path)] == [(None, 1)]
    second = worker(record({"q one": answer("q one")}), start=2)(block("q one"))
    assert texts(second) == [{"general": "about q one", "keyword": "q one, words"}]
    assert reasons(second) == [{}]


def test_a_bad_answer_is_an_answer_and_not_asked_for_again(
    worker: Callable[..., Rewrite], record: Callable[..., str], nothing: str
) -> None:
    first = worker(record({"q one": {"dmqr": {"text": '{"general": "about', "finish_reason": "length"}}}))(block("q one"))
    second = worker(nothing)(block("q one"))
    assert reasons(first) == reasons(second) == [{"general": "truncated", "keyword": "truncated"}]


def test_an_answer_to_another_prompt_is_not_taken(
    worker: Callable[..., Rewrite], record: Callable[..., str], nothing: str
) -> None:
    worker(record({"q one": answer("q one")}))(block("q one"))
    other = worker(nothing, strategies=["general", "core_content"])(block("q one"))  # the same request name, another template
    assert reasons(other) == [{"general": "not_recorded", "core_content": "not_recorded"}]


def test_a_worker_says_how_far_its_shard_is(
    worker: Callable[..., Rewrite], record: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    said: list[float] = []
    monkeypatch.setattr("jobs.chain.completer.heartbeat", lambda share, _spent: said.append(share))
    monkeypatch.setattr("jobs.chain.completer.HEARTBEAT_SECONDS", -1.0)
    queries = [f"query {n}" for n in range(6)]
    recording = record({query: answer(query) for query in queries})
    worker(recording)(block(*queries[:2]))
    assert said == [0.5, 1.0]
    worker(recording, start=2)(block(*queries))  # two of the six are there already
    assert said[2:] == [3 / 6, 4 / 6, 5 / 6, 1.0]
