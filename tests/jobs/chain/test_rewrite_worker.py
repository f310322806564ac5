"""The rewriting worker: what comes out, that nothing is asked for twice, and what each request has taken."""

import json
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from cluster.costs import settle
from jobs.chain.stages.rewrite import Rewrite
from jobs.tables import COMPLETIONS, QUERIES
from rewriters.classifier import load_rules
from rewriters.engines.settings import OpenaiSettings, RecordedSettings
from rewriters.pool import load_pool
from rewriters.query import Query
from rewriters.rewriter import Rewriting
from rewriters.settings import SelectAdaptive, SelectClassified, SelectColumn
from tests.support.jobs.in_flight import REWRITTEN
from tests.support.jobs.workers import rewriter
from tests.support.rewriters.fake_server import FAULTS, FakeServer

TWO = ["why is the sky blue", "how long to boil an egg"]
Row = dict[str, Any]
Worker = Callable[..., Rewrite]


def answer(query: str, **texts: str) -> str:
    return json.dumps({"general": f"about {query}", "keyword": f"{query}, words"} | texts)


@pytest.fixture
def record(tmp_path: Path) -> Callable[..., RecordedSettings]:
    """Writes a recording (query -> completions, or the joint answer) and gives the settings of its engine."""

    def write(recorded: dict[str, Any]) -> RecordedSettings:
        lines = [
            {"query": query, "completions": given if isinstance(given, dict) else {"dmqr": given}}
            for query, given in (recorded or {"some other query": "x"}).items()
        ]
        path = tmp_path / f"{len(list(tmp_path.iterdir()))}.jsonl"
        path.write_text("".join(json.dumps(line) + "\n" for line in lines))
        return RecordedSettings(kind="recorded", path=str(path))

    return write


@pytest.fixture
def worker(tmp_path: Path, record: Callable[..., RecordedSettings]) -> Worker:
    """A worker of a start of a run, over a recording."""

    def build(recorded: dict[str, Any], start: int = 1, strategies: Any = ("general", "keyword"), **more: Any) -> Rewrite:
        return rewriter(record(recorded), Rewriting(load_pool(list(strategies)), **more), tmp_path / "run", start)

    return build


def block(*queries: str) -> pa.Table:
    more = {"shard": 3, "log_count": 2, "costs": [], "errors": []}
    return pa.Table.from_pylist([more | {"query_id": f"id-{query}", "query": query} for query in queries], QUERIES)


def stored(tmp_path: Path) -> list[Row]:
    rows: list[Row] = []
    for path in sorted((tmp_path / "run" / "completions").rglob("*.parquet")):
        rows += pq.read_table(path, schema=COMPLETIONS).to_pylist()
    return rows


def texts(result: pa.Table) -> list[dict[str, list[str]]]:
    found: list[dict[str, list[str]]] = []
    for row in result.column("rewrites").to_pylist():
        found.append({})
        for one in row:
            found[-1].setdefault(one["strategy"], []).append(one["text"])
    return found


def errors(result: pa.Table) -> list[dict[str, str]]:
    return [{one["component"]: one["reason"] for one in row} for row in result.column("errors").to_pylist()]


def costs(result: pa.Table, *names: str) -> list[list[tuple[Any, ...]]]:
    return [[tuple(one[name] for name in names) for one in row] for row in result.column("costs").to_pylist()]


def selections(result: pa.Table) -> list[tuple[str | None, list[str], str | None]]:
    rows = result.column("selections").to_pylist()
    return [(one["query_type"], one["strategies"], one["reason"]) for (one,) in rows]


# ---------------------------------------------------------------- what comes out


def test_every_strategy_of_every_query_ends_as_a_rewrite_or_an_error(worker: Worker) -> None:
    result = worker({TWO[0]: answer(TWO[0], keyword="")})(block(*TWO))
    assert texts(result) == [{"general": [f"about {TWO[0]}"]}, {}]
    assert errors(result) == [{"keyword": "empty"}, {"general": "not_recorded", "keyword": "not_recorded"}]
    empty = result.column("errors").to_pylist()[0][0]
    assert (empty["stage"], empty["attempts"], json.loads(empty["raw"])["keyword"]) == ("rewrite", 1, "")
    assert costs(result, "component", "requests", "error", "attempt")[1] == [("dmqr", 1, "not_recorded", 1)]


def test_separate_calls_make_a_request_and_a_cost_per_strategy(worker: Worker) -> None:
    usage = {"prompt_tokens": 10, "cached_tokens": 4, "completion_tokens": 3}
    recorded = {"q one": {"general": {"text": "about one", "usage": usage}, "keyword": "one, words"}}
    result = worker(recorded, calls="separate")(block("q one"))
    assert texts(result) == [{"general": ["about one"], "keyword": ["one, words"]}]
    general, keyword = costs(result, "stage", "component", "engine", "requests", *usage)[0]
    assert general == ("rewrite", "general", "recorded", 1, *usage.values())
    assert keyword[:4] == ("rewrite", "keyword", "recorded", 1)


def test_samples_are_stored_and_paid_for_one_by_one(worker: Worker, tmp_path: Path) -> None:
    recorded = {"green tea": {"rewrite": ["matcha", "sencha"]}}
    result = worker(recorded, strategies=[{"rewrite": {"n": 3, "temperature": 0.7}}])(block("green tea"))
    assert texts(result) == [{"rewrite(n=3,temperature=0.7)": ["matcha", "sencha"]}]
    assert errors(result) == [{"rewrite(n=3,temperature=0.7)": "texts_dropped"}]
    assert costs(result, "error") == [[(None,), (None,), ("not_recorded",)]]
    assert sorted((row["sample"], row["text"]) for row in stored(tmp_path)) == [(0, "matcha"), (1, "sencha"), (2, None)]


# ---------------------------------------------------------------- durable


def test_completions_are_stored_and_only_what_is_missing_or_failed_is_asked_for(worker: Worker, tmp_path: Path) -> None:
    first = worker({TWO[0]: answer(TWO[0])})(block(*TWO))
    assert [(row["request"], row["text"], row["lost"], row["start"]) for row in sorted(stored(tmp_path), key=str)] == [
        ("dmqr", None, 1, None), ("dmqr", answer(TWO[0]), 0, 1)
    ]  # fmt: skip
    assert all(row["prompt"].endswith(row["query_id"].removeprefix("id-")) for row in stored(tmp_path) if row["text"])
    second = worker({TWO[1]: answer(TWO[1])}, 2)(block(*TWO))
    assert texts(second) == [{"general": [f"about {query}"], "keyword": [f"{query}, words"]} for query in TWO]
    assert second.column("rewrites")[0] == first.column("rewrites")[0]
    assert [row[0] for row in costs(second, "start")] == [(1,), (0,)]  # the first start has paid, the meter settles the rest
    kept = stored(tmp_path)
    third = worker({}, 3)(block(*TWO))
    assert third.column("rewrites") == second.column("rewrites")
    assert stored(tmp_path) == kept
    by_id = {row["query_id"]: row["seconds"] for row in kept if row["text"] is not None}
    assert [row[0] for row in costs(third, "seconds")] == [(pytest.approx(by_id[f"id-{query}"]),) for query in TWO]
    other = worker({}, 4, ["general", "core_content"])(block(TWO[0]))  # the same request name, another template
    assert errors(other) == [{"general": "not_recorded", "core_content": "not_recorded"}]


def test_a_bad_answer_is_an_answer_and_not_asked_for_again(worker: Worker) -> None:
    first = worker({TWO[0]: {"dmqr": {"text": '{"general": "about', "finish_reason": "length"}}})(block(TWO[0]))
    assert errors(first) == errors(worker({}, 2)(block(TWO[0]))) == [{"general": "truncated", "keyword": "truncated"}]


def test_a_worker_says_how_far_its_shard_is(worker: Worker, monkeypatch: pytest.MonkeyPatch) -> None:
    shares: list[float] = []
    monkeypatch.setattr("jobs.chain.engines.heartbeat", lambda share, _spent: shares.append(share))
    monkeypatch.setattr("jobs.chain.engines.HEARTBEAT_SECONDS", -1.0)
    recorded = {query: answer(query) for query in (f"query {n}" for n in range(6))}
    worker(recorded)(block(*list(recorded)[:2]))
    assert shares == [0.5, 1.0]
    worker(recorded, 2)(block(*recorded))  # two of the six are there already
    assert shares[2:] == [3 / 6, 4 / 6, 5 / 6, 1.0]


# ---------------------------------------------------------------- selection


def test_the_choice_of_the_llm_stands_with_its_reason(worker: Worker) -> None:
    answers = {"green tea": "Keyword Rewriting: green, tea\nreason: it has terms", "tea": "reason: it is clear", "broken": "hm"}
    recorded = {query: {"dmqr_adaptive": answer} for query, answer in answers.items()}
    result = worker(recorded, select=SelectAdaptive(kind="adaptive"))(block(*answers))
    assert result.schema == REWRITTEN
    assert texts(result) == [{"keyword": ["green, tea"]}, {}, {}]
    assert selections(result) == [
        (None, ["keyword"], "it has terms"), (None, [], "it is clear"), (None, ["general", "keyword"], None)
    ]  # fmt: skip
    assert errors(result) == [{}, {}, {"general": "unparsable", "keyword": "unparsable"}]


def test_the_llm_tells_the_type_and_the_rules_where_it_does_not(worker: Worker) -> None:
    queries = {
        "printer not working": {"classify": "comparison", "decompose": "1. printers of today\n2. faults of printers"},
        "why is tea green": {"classify": "a question", "step_back": "colours of tea"},
        "tall trees": {"step_back": "trees", "hyde": "A tree."},
    }
    pool = ["hyde", "multi_query", "step_back", "decompose"]
    select = SelectClassified(kind="classified", by="llm")
    result = worker(queries, strategies=pool, select=select, rules=load_rules("english"))(block(*queries))
    assert texts(result) == [{"decompose": ["printers of today", "faults of printers"]}, {"step_back": ["colours of tea"]}, {}]
    assert [query_type for query_type, *_ in selections(result)] == ["comparison", "conceptual", "keywords"]
    assert errors(result) == [{}, {"classify": "not_classified"}, {"classify": "not_classified"}]
    note = result.column("errors").to_pylist()[1][0]
    assert (note["message"], note["raw"]) == ("the LLM's answer names no type; the rules say conceptual", "a question")
    assert costs(result, "component") == [[("classify",), ("decompose",)], [("classify",), ("step_back",)], [("classify",)]]


def test_a_wrong_cell_of_the_log_is_a_note_and_not_the_end(worker: Worker, monkeypatch: pytest.MonkeyPatch) -> None:
    cells = {"green tea": "keyword", "black tea": "keywrd", "tea": "none"}
    queries = [Query(f"id-{query}", query, None, {"methods": cell}) for query, cell in cells.items()]
    monkeypatch.setattr("jobs.chain.block.queries_of", lambda _: queries)
    recorded = {query: answer(query) for query in cells}
    result = worker(recorded, select=SelectColumn(kind="column", column="methods"))(block(*cells))
    assert [list(row) for row in texts(result)] == [["keyword"], ["general", "keyword"], []]
    assert errors(result) == [{}, {"select": "wrong_cell"}, {}]
    assert result.column("errors").to_pylist()[1][0]["message"] == (
        "column 'methods': 'keywrd' is not among rewrite.strategies; did you mean 'keyword'? (known: general, keyword); "
        "add it; all strategies are taken"
    )
    assert [strategies for _, strategies, _ in selections(result)] == [["keyword"], ["general", "keyword"], []]


# ---------------------------------------------------------------- seconds in flight

SECONDS, AT_ONCE = 0.2, 16


def served(server: FakeServer, run: Path, start: int = 1, **settings: Any) -> closing[Rewrite]:
    engine = OpenaiSettings(kind="openai", model="tiny", base_url=server.address, **{"max_in_flight": AT_ONCE} | settings)
    return closing(rewriter(engine, Rewriting(load_pool(["keyword"]), "separate", {"max_tokens": 16}), run, start))


def spent(table: pa.Table) -> list[Row]:
    return [one for row in settle(table, 1.0, 0.0, 9)[0].column("costs").to_pylist() for one in row]


def test_each_of_many_requests_in_flight_has_its_own_seconds(tmp_path: Path) -> None:
    queries = block(*(f"query {number}" for number in range(AT_ONCE)))
    with FakeServer(seconds=SECONDS) as server, served(server, tmp_path) as worker:
        server.together = AT_ONCE
        began = time.monotonic()
        rows = spent(worker(queries))
        took = time.monotonic() - began
        assert server.most_in_flight == AT_ONCE
    assert len(rows) == AT_ONCE
    assert all(SECONDS <= row["latency"] <= took for row in rows)
    assert sum(row["seconds"] for row in rows) == pytest.approx(1.0)  # busy time is shared, as before
    # A later start has the answers of the earlier one, and their seconds, from the store.
    with FakeServer() as other, served(other, tmp_path, start=2) as worker:
        again = spent(worker(queries))
        assert not other.sends
    assert [row["latency"] for row in again] == [row["latency"] for row in rows]


def test_a_request_that_is_given_up_has_those_of_its_last_send(tmp_path: Path) -> None:
    with FakeServer(answer=lambda _: FAULTS["hang"]) as server, served(server, tmp_path, timeout_seconds=0.5) as worker:
        began = time.monotonic()
        (row,) = spent(worker(block("query")))
        took = time.monotonic() - began
    assert (row["attempt"], row["error"]) == (2, "timeout")
    assert 0.5 <= row["latency"] < took - 0.5
