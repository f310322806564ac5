"""Replays: queries of a run that failed are done again; only what is at fault is asked for anew, and later nights have it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from cluster.run.stage import shard_of
from jobs.__main__ import main
from jobs.chain.stages.order import Order
from rewriters.outcome.replays import FIRST_REPLAY, MOST_REPLAYS, first_sample, replays_so_far
from rewriters.outcome.retries import TEMPERATURE
from rewriters.reading.answers import Answers
from tests.support.jobs.replayed_runs import (
    QUERIES,
    REFUSED,
    Llm,
    Nights,
    errors,
    folder_of,
    good,
    runs_below,
    texts,
)
from tests.support.jobs.whole_runs import check_files, rows

BAD, WORSE = QUERIES[1], QUERIES[4]
SEED = FIRST_REPLAY


@pytest.fixture
def llm(told: Llm) -> Llm:
    return told


@pytest.fixture
def nights(told_nights: Nights) -> Nights:
    return told_nights


def completions(folder: Path) -> set[tuple[int, int, str]]:
    """Sample, start and text of what a run was answered."""
    found = [one for file in folder.glob("completions/*/*.parquet") for one in pq.read_table(file).to_pylist()]
    return {(one["sample"], one["start"], one["text"]) for one in found}


def reused(folder: Path) -> list[int]:
    """Of each query's answers of rewriting, whether it was stored."""
    return [one["reused"] for one in rows(folder, "costs") if one["stage"] == "rewrite" and one["query_id"] is not None]


def requests(folder: Path) -> int:
    return sum(one["requests"] for one in rows(folder, "costs") if one["stage"] == "rewrite")


# ---------------------------------------------------------------- answers at fault


@pytest.mark.slow
def test_answers_at_fault_are_asked_for_anew_and_later_nights_have_them(
    nights: Nights, llm: Llm, capfd: pytest.CaptureFixture[str]
) -> None:
    llm.faulty = {BAD: [REFUSED], WORSE: [REFUSED]}
    assert len(nights.run("one")) == len(QUERIES)
    (first,) = runs_below(Path("runs"))
    assert texts(first).keys() == {*QUERIES} - {BAD, WORSE}
    capfd.readouterr()

    sent = nights.replay(folder_of(first), "refusal")
    assert [(one.query, one.replay, one.temperature) for one in sent] == [(BAD, 1, TEMPERATURE), (WORSE, 1, TEMPERATURE)]
    printed = capfd.readouterr().out
    _, again = runs_below(Path("runs"))
    folder = folder_of(again)
    assert printed.splitlines()[-1] == str(folder)
    check_files(folder, 1)
    assert texts(again) == {query: json.loads(good(query, 1)) for query in (BAD, WORSE)}
    assert errors(again) == {(query, None, "replayed") for query in (BAD, WORSE)}
    assert f"2 queries of {first.record['run_id']}: refusal 2, now 0" in " ".join(printed.split())
    assert again.record["replay"] == {
        "of": first.record["run_id"], "path": str(folder_of(first)), "reasons": {"refusal": 2}, "queries": 2
    }  # fmt: skip
    assert folder.name.startswith("small-one-replay-")
    asked = {one["query_id"] for one in rows(folder, "queries")}
    of_first = [one for one in rows(folder_of(first), "query_map") if one["query_id"] in asked]
    assert rows(folder, "query_map") == of_first
    assert json.loads(Path("runs/small/latest.json").read_text())["run_id"] == first.record["run_id"]
    assert first.record["run_id"] in (folder / "report.html").read_text()
    # beside the answers of the run that it replays, which cost nothing, those that it has paid for
    assert completions(folder) == {(0, -1, REFUSED), (FIRST_REPLAY, 1, good(BAD, 1)), (FIRST_REPLAY, 1, good(WORSE, 1))}
    assert (requests(folder), requests(folder_of(first))) == (2, len(QUERIES))

    assert nights.run("two") == []  # all is stored
    *_, second = runs_below(Path("runs"))
    wanted = {query: json.loads(good(query, 1 if query in (BAD, WORSE) else 0)) for query in QUERIES}
    assert texts(second) == wanted
    assert errors(second) == {(query, None, "replayed") for query in (BAD, WORSE)}
    assert reused(folder_of(second)) == [1] * len(QUERIES)

    assert nights.replay(folder_of(first), "refusal") == []  # it is finished
    assert len(runs_below(Path("runs"))) == 3


@pytest.mark.slow
def test_what_is_refused_again_is_replayed_by_a_replay_of_the_replay(nights: Nights, llm: Llm) -> None:
    llm.faulty = {BAD: [REFUSED, REFUSED, "", REFUSED]}
    nights.run("one")
    run = "runs/small"
    for number, reason in enumerate(("refusal", "refusal", "empty", "refusal"), start=1):
        (sent,) = nights.replay(run, reason)
        assert (sent.query, sent.replay) == (BAD, number)
        replayed = runs_below(Path("runs"))[-1]
        run = str(folder_of(replayed))
        assert replayed.record["run_id"].startswith("small-one-replay-")
    assert texts(replayed) == {BAD: json.loads(good(BAD, 4))}
    assert nights.run("two") == []
    assert texts(runs_below(Path("runs"))[-1])[BAD] == json.loads(good(BAD, 4))


@pytest.mark.slow
def test_a_worse_answer_takes_no_text_away(nights: Nights, llm: Llm) -> None:
    half = json.dumps({"general": "a lamp that is seen from the sea"})
    llm.faulty = {BAD: [half, REFUSED]}
    nights.run("one")
    sent = nights.replay("runs/small", "missing")
    assert [(one.query, one.replay) for one in sent] == [(BAD, 1)]
    again = runs_below(Path("runs"))[-1]
    assert texts(again) == {BAD: json.loads(half)}
    assert errors(again) == {(BAD, "keyword", "missing")}
    assert requests(folder_of(again)) == 1
    assert nights.run("two") == []
    assert texts(runs_below(Path("runs"))[-1])[BAD] == json.loads(half)


@pytest.mark.slow
def test_the_night_after_reads_the_last_of_equal_answers(nights: Nights, llm: Llm) -> None:
    halves = [json.dumps({"general": f"a lamp that is seen from the sea, {number}"}) for number in range(3)]
    llm.faulty = {BAD: halves}
    nights.run("one")
    nights.replay("runs/small", "missing")
    nights.replay(folder_of(runs_below(Path("runs"))[-1]), "missing")
    assert nights.run("two") == []
    assert texts(runs_below(Path("runs"))[-1])[BAD] == json.loads(halves[2])


@pytest.mark.slow
def test_a_replay_of_an_earlier_night_begins_behind_what_others_have_asked_for(nights: Nights, llm: Llm) -> None:
    llm.faulty = {BAD: [REFUSED, REFUSED]}
    nights.run("one")
    nights.run("two")
    first, second = runs_below(Path("runs"))
    assert [one.replay for one in nights.replay(folder_of(first), "refusal")] == [1]
    assert [one.replay for one in nights.replay(folder_of(second), "refusal")] == [2]
    assert texts(runs_below(Path("runs"))[-1]) == {BAD: json.loads(good(BAD, 2))}
    # the night before has a good answer to find now, and pays nothing
    nights.run("three")
    assert nights.replay(folder_of(first), "refusal", settings=["retrieve.depth=20"]) == []


@pytest.mark.slow
def test_a_cut_answer_is_given_more_tokens(nights: Nights, llm: Llm) -> None:
    def cut(body: dict[str, Any]) -> Any:
        from tests.support.rewriters.fake_server import Reply, completion

        if body["seed"] or BAD not in body["messages"][0]["content"]:
            return None
        return Reply(content=json.dumps(completion('{"general": "a la', {}, "length")).encode())

    llm.server.answer = cut
    nights.run("one")
    nights.replay("runs/small", "truncated")
    body = llm.server.bodies[-1]
    assert (body["seed"], body["max_tokens"], body["temperature"]) == (SEED, 2 * llm.server.bodies[0]["max_tokens"], 0.0)
    assert texts(runs_below(Path("runs"))[-1]) == {BAD: json.loads(good(BAD, 1))}


@pytest.mark.slow
def test_without_a_store_the_answers_are_those_of_the_run_that_is_replayed(nights: Nights, llm: Llm) -> None:
    llm.faulty = {BAD: [REFUSED], WORSE: [json.dumps({"general": "about the yeast of beer"})]}
    nights.run("one", "store=null")
    assert not Path("runs/store").exists()
    sent = nights.replay("runs/small", "refusal", "missing")
    assert [(one.query, one.replay) for one in sent] == [(BAD, 1), (WORSE, 1)]
    assert texts(runs_below(Path("runs"))[-1]) == {query: json.loads(good(query, 1)) for query in (BAD, WORSE)}


# ---------------------------------------------------------------- no answer, and another parser


@pytest.mark.slow
def test_what_had_no_answer_is_asked_again_as_it_was_and_nothing_else(nights: Nights, llm: Llm) -> None:
    def text(body: dict[str, Any]) -> str:
        return REFUSED if WORSE in body["messages"][0]["content"] and not body["seed"] else "a lamp by the sea"

    llm.server._text, llm.away = text, {BAD}
    settings = ["rewrite.calls=separate"]
    nights.run("one", *settings)
    (first,) = runs_below(Path("runs"))
    assert (BAD, "general", "bad_request") in errors(first)
    llm.away = set()
    sent = nights.replay(folder_of(first), "bad_request")
    assert [(one.query, one.replay, one.seed) for one in sent] == [(BAD, 0, 0)] * 2  # of two strategies
    again = runs_below(Path("runs"))[-1]
    assert texts(again).keys() == {BAD}
    assert not errors(again)
    assert {sample for sample, *_ in completions(folder_of(again))} == {0}
    assert nights.run("two", *settings) == []


@pytest.mark.slow
def test_one_strategy_is_at_fault_and_the_other_is_not_asked_for_again(nights: Nights, llm: Llm) -> None:
    def text(body: dict[str, Any]) -> str:
        return REFUSED if not body["seed"] and "keyword" in body["messages"][0]["content"].lower() else "a lamp by the sea"

    llm.server._text = text
    nights.run("one", "rewrite.calls=separate")
    failed = {component for _, component, _ in errors(runs_below(Path("runs"))[0])}
    assert failed == {"keyword"}
    sent = nights.replay("runs/small", "refusal")
    assert len(sent) == len(QUERIES)
    assert {one.seed for one in sent} == {SEED}


@pytest.mark.slow
def test_a_change_of_the_parser_costs_no_call(nights: Nights, llm: Llm, monkeypatch: pytest.MonkeyPatch) -> None:
    places = ("rewriters.rewriter.read_joint", "rewriters.outcome.retries.read_joint")
    from rewriters.reading.answers import read_joint

    def older(call: Any, answered: Any, query: Any, chosen: Any, known: Any) -> dict[str, Answers]:
        found = read_joint(call, answered, query, chosen, known)
        if query.text not in (BAD, WORSE):
            return found
        return {name: one._replace(texts=[], reason="unparsable") for name, one in found.items()}

    llm.faulty = {WORSE: [REFUSED]}
    with monkeypatch.context() as patch:
        for place in places:
            patch.setattr(place, older)
        nights.run("one")
    (first,) = runs_below(Path("runs"))
    assert {query for query, _, reason in errors(first) if reason == "unparsable"} == {BAD, WORSE}
    # what can be read now is not asked for; what the parser now calls a refusal is another fault than the one to be mended
    assert nights.replay(folder_of(first), "unparsable") == []
    again = runs_below(Path("runs"))[-1]
    assert texts(again) == {BAD: json.loads(good(BAD))}
    assert {(query, reason) for query, _, reason in errors(again)} == {(WORSE, "refusal")}
    assert reused(folder_of(again)) == [1, 1]


@pytest.mark.slow
def test_a_recording_is_read_anew_and_asked_once(nights: Nights, llm: Llm) -> None:
    lines = [{"query": query, "completions": {"dmqr": REFUSED if query == BAD else good(query)}} for query in QUERIES]
    Path("recorded.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    engine = "rewrite.engine={kind: recorded, path: recorded.jsonl}"
    nights.run("one", engine)
    assert nights.replay("runs/small", "refusal") == []
    again = runs_below(Path("runs"))[-1]
    assert {(query, reason) for query, _, reason in errors(again)} == {(BAD, "refusal")}


# ---------------------------------------------------------------- with other features


@pytest.mark.slow
def test_a_killed_replay_goes_on_and_asks_nothing_twice(
    nights: Nights, llm: Llm, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    llm.faulty = {query: [REFUSED, REFUSED] if query == WORSE else [REFUSED] for query in QUERIES[1:]}
    nights.run("one")
    (first,) = runs_below(Path("runs"))
    order, broken = Order.__call__, [1]

    def ordered(self: Order, table: pa.Table) -> pa.Table:
        if broken and shard_of(table) == broken[0]:
            broken.pop()
            raise MemoryError("no room")
        return order(self, table)

    monkeypatch.setattr(Order, "__call__", ordered)
    began = nights.replay(folder_of(first), "refusal", code=1)
    assert f"replay {folder_of(first)} --reason refusal" in capfd.readouterr().err.splitlines()[-1]
    went_on = nights.replay(folder_of(first), "refusal")
    assert {one.replay for one in began + went_on} == {1}
    assert sorted(one.query for one in began + went_on) == sorted(QUERIES[1:])
    assert began
    assert went_on
    again = runs_below(Path("runs"))[-1]
    check_files(folder_of(again), 3)
    assert texts(again) == {query: json.loads(good(query, 1)) for query in QUERIES[1:] if query != WORSE}
    assert requests(folder_of(again)) == len(QUERIES) - 1
    assert {start for sample, start, _ in completions(folder_of(again)) if sample} == {1, 2}


@pytest.mark.slow
def test_a_replay_stays_within_its_budget_and_goes_on_with_more(nights: Nights, llm: Llm) -> None:
    Path("prices.yaml").write_text("tokens: {tiny: {completion: 1000000}}\n")  # 3 USD an answer, 4 at most
    llm.faulty = {query: [REFUSED] for query in QUERIES}
    nights.run("one", "rewrite.decoding.max_tokens=4")
    (first,) = runs_below(Path("runs"))
    paid = nights.replay(folder_of(first), "refusal", settings=["limits.max_cost_usd=10"], code=1)
    assert 0 < len(paid) <= 3
    more = nights.replay(folder_of(first), "refusal", settings=["limits.max_cost_usd=100000"])
    assert sorted(one.query for one in paid + more) == sorted(QUERIES)
    assert {one.replay for one in paid + more} == {1}
    assert texts(runs_below(Path("runs"))[-1]) == {query: json.loads(good(query, 1)) for query in QUERIES}


@pytest.mark.slow
def test_tries_of_a_request_and_replays_of_it_are_answers_beside_each_other(nights: Nights, llm: Llm) -> None:
    llm.faulty = {BAD: [REFUSED]}  # the seeds of tries are below those of a replay
    settings = ["rewrite.retries=2"]
    assert len(nights.run("one", *settings)) == len(QUERIES) + 2
    sent = nights.replay("runs/small", "refusal")
    assert [(one.query, one.replay) for one in sent] == [(BAD, 1)]
    again = runs_below(Path("runs"))[-1]
    assert texts(again) == {BAD: json.loads(good(BAD, 1))}
    assert nights.run("two", *settings) == []
    assert nights.run("three") == []  # without tries
    for run in runs_below(Path("runs"))[-2:]:
        assert texts(run)[BAD] == json.loads(good(BAD, 1))
        assert {reason for query, _, reason in errors(run) if query == BAD} == {"replayed"}


@pytest.mark.slow
def test_answers_from_documents_are_asked_for_anew_alone(nights: Nights, llm: Llm) -> None:
    def text(body: dict[str, Any]) -> str:
        asked = body["messages"][-1]["content"]
        if not asked.startswith("Documents:"):
            return good(asked.rpartition("Query: ")[2])
        question = asked.rpartition("Question:")[2]
        if body["seed"] or not (BAD in question or WORSE in question):
            return "It is so [1]."
        return "It is so [9]." if BAD in question else ""

    llm.server._text = text
    settings = ["answer={documents: 2}"]
    nights.run("one", *settings)
    (first,) = runs_below(Path("runs"))
    assert {(query, reason) for query, _, reason in errors(first)} == {(BAD, "wrong_citation"), (WORSE, "empty")}
    assert len(nights.replay(folder_of(first), "empty", "wrong_citation")) == 2
    assert all(body["messages"][-1]["content"].startswith("Documents:") for body in llm.server.bodies[-2:])
    again = runs_below(Path("runs"))[-1]
    assert not errors(again)
    assert [one["text"] for one in rows(folder_of(again), "answers")] == ["It is so [1]."] * 2
    assert nights.run("two", *settings) == []
    assert len(rows(folder_of(runs_below(Path("runs"))[-1]), "answers")) == len(QUERIES)


@pytest.mark.slow
def test_the_log_may_be_gone_and_the_output_may_have_moved(nights: Nights, llm: Llm) -> None:
    llm.faulty = {BAD: [REFUSED]}
    nights.run("one")
    Path("log.parquet").unlink()
    Path("runs").rename("moved")
    assert len(nights.replay("moved/small", "refusal")) == 1
    assert not Path("runs").exists()
    assert texts(runs_below(Path("moved"))[-1]) == {BAD: json.loads(good(BAD, 1))}


@pytest.mark.slow
def test_try_shows_what_a_replay_was_answered(nights: Nights, llm: Llm, capfd: pytest.CaptureFixture[str]) -> None:
    llm.faulty = {BAD: [REFUSED]}
    nights.run("one")
    nights.replay("runs/small", "refusal")
    capfd.readouterr()
    assert nights.command("try", nights.path, BAD, "--json") == []
    (trial,) = json.loads(capfd.readouterr().out)
    assert {one["strategy"]: one["text"] for one in trial["rewrites"]} == json.loads(good(BAD, 1))
    assert [one["answer"] for one in trial["requests"]] == [good(BAD, 1)]


@pytest.mark.slow
def test_an_ablation_reads_what_a_replay_was_answered_and_is_none_to_replay(
    nights: Nights, llm: Llm, capfd: pytest.CaptureFixture[str]
) -> None:
    llm.faulty = {BAD: [REFUSED]}
    nights.run("one")
    nights.replay("runs/small", "refusal")
    capfd.readouterr()
    assert nights.command("ablate", nights.path) == []
    folder = Path(capfd.readouterr().out.splitlines()[-1])
    shown = {one["query_id"]: one["query"] for one in rows(folder, "queries")}
    found = {one["strategy"]: one["text"] for one in rows(folder, "rewrites") if shown[one["query_id"]] == BAD}
    assert found == json.loads(good(BAD, 1))
    assert nights.replay(folder, "replayed", code=2) == []
    assert "is an ablation, whose arms share their answers" in capfd.readouterr().err


# ---------------------------------------------------------------- what is refused, and what is shown


def test_a_reason_that_no_query_has_is_refused_with_those_that_are_there(
    nights: Nights, llm: Llm, capfd: pytest.CaptureFixture[str]
) -> None:
    llm.faulty = {BAD: [REFUSED]}
    nights.run("one")
    capfd.readouterr()
    assert nights.replay("runs/small", "refused", code=2) == []
    said = capfd.readouterr().err.splitlines()[-1]
    assert "--reason refused: no query of" in said
    assert "(known: refusal (1))" in said


@pytest.mark.slow
def test_the_reason_of_rejected_rows_is_refused(nights: Nights, llm: Llm, capfd: pytest.CaptureFixture[str]) -> None:
    """They are no queries; of a reason that queries have, too, these are replayed."""
    pq.write_table(pa.table({"query": [*QUERIES, " ", None]}), "log.parquet")
    nights.run("one")
    capfd.readouterr()
    assert nights.replay("runs/small", "empty", code=2) == []
    said = capfd.readouterr().err.splitlines()[-1]
    assert "--reason empty: 2 rows of the log of " in said
    assert "were rejected so, and are no queries; correct the log, and run it anew" in said
    llm.faulty = {BAD: [""]}
    nights.run("two", "store=null")
    again = nights.replay(folder_of(runs_below(Path("runs"))[-1]), "empty")
    assert [(one.query, one.replay) for one in again] == [(BAD, 1)]


@pytest.mark.slow
def test_the_list_tells_replays_from_nights(nights: Nights, llm: Llm, capfd: pytest.CaptureFixture[str]) -> None:
    llm.faulty = {BAD: [REFUSED]}
    nights.run("one")
    nights.replay("runs/small", "refusal")
    capfd.readouterr()
    assert main(["runs", "runs", "--json"]) == 0
    night, replay = json.loads(capfd.readouterr().out)["runs"]
    assert night["replays"] is None
    assert (replay["replays"]["of"], replay["replays"]["reasons"]) == (night["run_id"], {"refusal": 1})
    assert main(["runs", "runs"]) == 0
    assert f"replayof{night['run_id']}:refusal" in "".join(capfd.readouterr().out.split())


def test_samples_of_replays_fit_their_column() -> None:
    highest = 3_999_999 + MOST_REPLAYS * FIRST_REPLAY
    assert highest < 2**31
    assert (first_sample(highest), replays_so_far(highest)) == (3_999_999, MOST_REPLAYS)
