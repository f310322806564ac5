"""The rewriting worker where queries differ in their strategies, and strategies in their engines."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from jobs.tables import COMPLETIONS, QUERIES
from rewriters.classifier import load_rules
from rewriters.engines.settings import RecordedSettings
from rewriters.pool import load_pool
from rewriters.query import Query
from rewriters.rewriter import Rewriting
from rewriters.settings import SelectAdaptive, SelectClassified, SelectColumn
from tests.support.jobs.in_flight import REWRITTEN
from tests.support.jobs.workers import rewriter

Row = dict[str, Any]


@pytest.fixture
def record(tmp_path: Path) -> Callable[..., RecordedSettings]:
    """Writes a recording (query -> request -> answer) and gives the settings of its engine."""

    def write(name: str, recorded: dict[str, Row]) -> RecordedSettings:
        lines = [{"query": query, "completions": completions} for query, completions in recorded.items()]
        (tmp_path / name).write_text("".join(json.dumps(line) + "\n" for line in lines))
        return RecordedSettings(kind="recorded", path=str(tmp_path / name))

    return write


def block(*queries: str) -> pa.Table:
    more = {"shard": 3, "log_count": 1, "costs": [], "errors": []}
    return pa.Table.from_pylist([more | {"query_id": f"id-{query}", "query": query} for query in queries], QUERIES)


def written(result: pa.Table) -> list[dict[str, list[str]]]:
    found: list[dict[str, list[str]]] = []
    for row in result.column("rewrites").to_pylist():
        found.append({})
        for one in row:
            found[-1].setdefault(one["strategy"], []).append(one["text"])
    return found


def errors(result: pa.Table) -> list[list[tuple[str, str]]]:
    return [[(one["component"], one["reason"]) for one in row] for row in result.column("errors").to_pylist()]


def selections(result: pa.Table) -> list[Row]:
    """The selection of each row, which has one, without its arm."""
    return [{name: value for name, value in one.items() if name != "arm"} for (one,) in result.column("selections").to_pylist()]


# ---------------------------------------------------------------- engines


def test_a_strategy_s_own_engine_answers_its_requests_and_no_others(
    record: Callable[..., RecordedSettings], tmp_path: Path
) -> None:
    common = record("common.jsonl", {"green tea": {"dmqr": '{"general": "tea"}', "rewrite": "of the wrong engine"}})
    trained = record("trained.jsonl", {"green tea": {"rewrite": {"text": "camellia sinensis", "model": "trained"}}})
    pool = load_pool(["general", {"rewrite": {"engine": trained.model_dump()}}])
    made = rewriter(common, Rewriting(pool), tmp_path / "run", 1)
    result = made(block("green tea"))
    made.close()
    assert written(result) == [{"general": ["tea"], "rewrite": ["camellia sinensis"]}]
    assert {one["strategy"]: one["model"] for one in result.column("rewrites").to_pylist()[0]} == {
        "general": "recorded",
        "rewrite": "trained",
    }
    assert [(one["component"], one["model"]) for one in result.column("costs").to_pylist()[0]] == [
        ("dmqr", "recorded"),
        ("rewrite", "trained"),
    ]
    again = rewriter(record("none.jsonl", {"x": {"dmqr": "x"}}), Rewriting(pool), tmp_path / "run", 2)
    assert written(again(block("green tea"))) == written(result)  # stored, whichever engine made it


def test_samples_are_stored_and_paid_for_one_by_one(record: Callable[..., RecordedSettings], tmp_path: Path) -> None:
    engine = record("r.jsonl", {"green tea": {"rewrite": ["matcha", "sencha"]}})
    rewriting = Rewriting(load_pool([{"rewrite": {"n": 3, "temperature": 0.7}}]))
    result = rewriter(engine, rewriting, tmp_path / "run", 1)(block("green tea"))
    assert written(result) == [{"rewrite(n=3,temperature=0.7)": ["matcha", "sencha"]}]
    assert errors(result) == [[("rewrite(n=3,temperature=0.7)", "texts_dropped")]]
    assert [one["error"] for one in result.column("costs").to_pylist()[0]] == [None, None, "not_recorded"]
    stored = [
        row for path in (tmp_path / "run").rglob("*.parquet") for row in pq.read_table(path, schema=COMPLETIONS).to_pylist()
    ]
    assert sorted((row["sample"], row["text"]) for row in stored) == [(0, "matcha"), (1, "sencha"), (2, None)]


# ---------------------------------------------------------------- selection


def test_the_choice_of_the_llm_stands_with_its_reason(record: Callable[..., RecordedSettings], tmp_path: Path) -> None:
    answers = {"green tea": "Keyword Rewriting: green, tea\nreason: it has terms", "tea": "reason: it is clear", "broken": "hm"}
    engine = record("r.jsonl", {query: {"dmqr_adaptive": answer} for query, answer in answers.items()})
    rewriting = Rewriting(load_pool(["general", "keyword"]), select=SelectAdaptive(kind="adaptive"))
    result = rewriter(engine, rewriting, tmp_path / "run", 1)(block(*answers))
    assert result.schema == REWRITTEN
    assert written(result) == [{"keyword": ["green, tea"]}, {}, {}]
    assert selections(result) == [
        {"query_type": None, "strategies": ["keyword"], "reason": "it has terms"},
        {"query_type": None, "strategies": [], "reason": "it is clear"},
        {"query_type": None, "strategies": ["general", "keyword"], "reason": None},
    ]
    assert errors(result) == [[], [], [("general", "unparsable"), ("keyword", "unparsable")]]


def test_the_llm_tells_the_type_and_the_rules_where_it_does_not(
    record: Callable[..., RecordedSettings], tmp_path: Path
) -> None:
    queries = {
        "printer not working": {"classify": "comparison", "decompose": "1. printers of today\n2. faults of printers"},
        "why is tea green": {"classify": "a question", "step_back": "colours of tea"},
        "tall trees": {"step_back": "trees", "hyde": "A tree."},
    }
    engine = record("r.jsonl", queries)
    pool = load_pool(["hyde", "multi_query", "step_back", "decompose"])
    rewriting = Rewriting(pool, select=SelectClassified(kind="classified", by="llm"), rules=load_rules("english"))
    result = rewriter(engine, rewriting, tmp_path / "run", 1)(block(*queries))
    assert written(result) == [
        {"decompose": ["printers of today", "faults of printers"]}, {"step_back": ["colours of tea"]}, {},
    ]  # fmt: skip
    assert [row["query_type"] for row in selections(result)] == ["comparison", "conceptual", "keywords"]
    assert errors(result) == [[], [("classify", "not_classified")], [("classify", "not_classified")]]
    note = result.column("errors").to_pylist()[1][0]
    assert (note["message"], note["raw"]) == ("the LLM's answer names no type; the rules say conceptual", "a question")
    asked = [[one["component"] for one in row] for row in result.column("costs").to_pylist()]
    assert asked == [["classify", "decompose"], ["classify", "step_back"], ["classify"]]


def test_a_wrong_cell_of_the_log_is_a_note_and_not_the_end(
    record: Callable[..., RecordedSettings], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cells = {"green tea": "keyword", "black tea": "keywrd", "tea": "none"}
    monkeypatch.setattr(
        "jobs.chain.block.queries_of",
        lambda _: [Query(f"id-{q}", q, None, {"methods": cell}) for q, cell in cells.items()],
    )
    answer = json.dumps({"general": "about tea", "keyword": "tea, cup"})
    engine = record("r.jsonl", {query: {"dmqr": answer} for query in cells})
    rewriting = Rewriting(load_pool(["general", "keyword"]), select=SelectColumn(kind="column", column="methods"))
    result = rewriter(engine, rewriting, tmp_path / "run", 1)(block(*cells))
    assert [list(row) for row in written(result)] == [["keyword"], ["general", "keyword"], []]
    assert errors(result) == [[], [("select", "wrong_cell")], []]
    ((note,),) = [row for row in result.column("errors").to_pylist() if row]
    assert note["message"] == (
        "column 'methods': 'keywrd' is not among rewrite.strategies; did you mean 'keyword'? (known: general, keyword); "
        "add it; all strategies are taken"
    )
    assert [row["strategies"] for row in selections(result)] == [["keyword"], ["general", "keyword"], []]
