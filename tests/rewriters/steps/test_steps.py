"""Steps of LLMs: their files, the requests that they make, and how answers are read."""

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cluster.errors import RewriterError
from rewriters.engines import Completion
from rewriters.guards.mask import Mask
from rewriters.query import Query
from rewriters.steps.results import MESSAGES, read_step
from rewriters.steps.settings import AnswerSettings, LabelSettings, RoundLabelSettings
from rewriters.steps.step import LlmStep, load_step, shipped_steps
from rewriters.strategy import told_hash

KNOWN = frozenset({"query", "context", "documents", "tried"})
JUDGED = frozenset({"query", "context", "document"})
GRADED = LlmStep(name="grade", prompt="{query}", output="grade", grades={"relevant": 2, "ambiguous": 1, "irrelevant": 0})
GRADES = LlmStep(name="rate", prompt="{query}", output="grades", keys=("a", "b"), grades={str(n): n for n in range(4)})
REFINED = LlmStep(name="refined", prompt="{query}", output="object", keys=("missing", "query"), optional=("missing",))
OBJECT = LlmStep(name="parts", prompt="{query}", output="object", keys=("question", "why"))


def said(text: str | None, finish_reason: str = "stop") -> Completion:
    return Completion(text, finish_reason, "tiny")


@pytest.mark.parametrize("name", ["answer", "iterate", "short_answer"])
def test_a_built_in_step_fills_its_prompt(name: str) -> None:
    step = load_step(name, KNOWN, "answer.prompt", {}, "German")
    request = step.request(
        Query("id", "why {text}?"), {"documents": "[1] {query}", "tried": "-"}, Mask(()), {"seed": 0}, "engine"
    )
    assert "German" in step.system
    assert "[1] {query}" in request.prompt
    assert request.prompt.endswith("why {text}?")
    assert request.system == step.system
    assert request.prompt[: request.shared] == "Documents:\n\n"


def test_the_prompt_of_relevance_asks_for_three_grades() -> None:
    built_in = {"accuracy", "answer", "criteria", "iterate", "refine", "relevance", "short_answer", "three_grades"}
    assert built_in <= {*shipped_steps()}
    step = load_step("relevance", JUDGED, "judge.relevance.prompt", {}, None)
    request = step.request(Query("id", "why {document}?"), {"document": "for {query}"}, Mask(()), {}, "engine")
    assert request.prompt == "Query: why {document}?\n\nDocument:\nfor {query}"
    assert request.schema is not None
    assert request.schema["required"] == ["match", "trust", "overall"]
    assert request.schema["properties"]["trust"] == {"type": "integer", "enum": [0, 1, 2, 3]}


def test_the_prompt_of_criteria_asks_for_eight_grades_and_that_of_accuracy_for_a_word() -> None:
    criteria = load_step("criteria", frozenset({"query", "context", "answer", "documents"}), "judge.criteria.prompt", {}, None)
    grades = {name: place % 6 for place, name in enumerate(criteria.keys)}
    assert len(grades) == 8
    assert dict(read_step(criteria, said(json.dumps(grades)), "q").grades) == grades
    assert read_step(criteria, said(json.dumps(grades | {"creativity": 6})), "q").reason == "unparsable"
    accuracy = load_step("accuracy", frozenset({"query", "context", "answer", "gold"}), "judge.accuracy.prompt", {}, None)
    found = [read_step(accuracy, said(text), "q").grade for text in ("Correct.", "**incorrect**", "partly correct", "1")]
    assert found == [1, 0, None, None]


def test_requests_are_told_apart_by_what_they_show() -> None:
    step, query = load_step("answer", KNOWN, "answer.prompt", {}, None), Query("id", "q")
    first, other = (step.request(query, {"documents": text}, Mask(()), {}, "e") for text in ("a", "b"))
    assert first.variables != other.variables
    assert first.prompt_hash == other.prompt_hash


def test_personal_data_of_the_query_are_masked() -> None:
    mask = Mask(["mail"])
    step, query = load_step("answer", KNOWN, "a", {}, None), Query("id", "mail of joe@corp.org")
    request = step.request(query, {"documents": "x"}, mask, {}, "e")
    assert "joe@corp.org" not in request.prompt
    assert mask.values
    unmasked = step.request(query, {"documents": "x"}, Mask(()), {}, "e")
    assert request.variables == told_hash({"documents": "x"}, ["mail"]) != unmasked.variables == told_hash({"documents": "x"})
    plain, masking = (step.request(Query("id", "q"), {"documents": "x"}, one, {}, "e") for one in (Mask(()), Mask(["mail"])))
    assert plain == masking


def test_a_file_of_the_user_may_declare_variables(tmp_path: Path) -> None:
    path = tmp_path / "own.yaml"
    path.write_text("variables: {domain: law}\nsystem: About {domain}.\nprompt: '{documents} {query}'\n")
    assert load_step(str(path), KNOWN, "answer.prompt", {}, None).system == "About law."
    assert load_step(str(path), KNOWN, "answer.prompt", {"domain": "bread"}, None).system == "About bread."
    path.write_text("variables: [domain]\nprompt: '{documents} {query}'\n")
    with pytest.raises(RewriterError, match="variables: should hold names with their values"):
        load_step(str(path), KNOWN, "answer.prompt", {}, None)


def test_reasoning_is_no_part_of_an_answer() -> None:
    step = load_step("answer", KNOWN, "a", {}, None)
    assert read_step(step, said("<think>hm</think> It is 4 [1]."), "q").text == "It is 4 [1]."
    assert read_step(step, said("<think>hm"), "q").reason == "empty"
    assert read_step(step, said("<think>hm", "length"), "q").reason == "truncated"
    assert read_step(step, said("It is", "length"), "q").cut
    assert read_step(step, said("no", "refusal"), "q").reason == "refusal"
    assert read_step(step, said("a" * 8001), "q").reason == "too_long"
    failed = read_step(step, Completion(None, None, "tiny", error_reason="timeout", error_message="late"), "q")
    assert (failed.reason, failed.message) == ("timeout", "late")


@given(
    st.text(max_size=300),
    st.sampled_from(["stop", "length", "refusal"]),
    st.sampled_from([GRADED, OBJECT, GRADES]),
)
def test_nothing_that_a_model_writes_raises(text: str, ended: str, step: LlmStep) -> None:
    result = read_step(step, said(text, ended), "q")
    assert (result.reason is None) == (result.text is not None)
    assert result.reason is None or result.message == MESSAGES[result.reason]


def test_an_optional_key_may_be_empty_and_the_others_not() -> None:
    assert dict(read_step(REFINED, said('{"missing": "", "query": "moon"}'), "q").fields) == {"query": "moon"}
    assert dict(read_step(REFINED, said('{"missing": "tides", "query": "moon"}'), "q").fields) == {
        "missing": "tides",
        "query": "moon",
    }
    assert read_step(REFINED, said('{"missing": "tides", "query": ""}'), "q").reason == "unparsable"
    with pytest.raises(ValueError, match="optional belongs to output: object"):
        LlmStep(name="x", prompt="{query}", optional=("missing",))


def test_labels_go_by_thirds_or_thresholds() -> None:
    by_rank = LabelSettings()
    assert [by_rank.label(rank, 7, 0.0) for rank in range(1, 8)] == ["High"] * 3 + ["Medium"] * 2 + ["Low"] * 2
    assert [by_rank.label(rank, 2, 0.0) for rank in (1, 2)] == ["High", "Medium"]
    by_score = LabelSettings(by="score", high=3, medium=1)
    assert [by_score.label(1, 9, score) for score in (3, 2.9, 1, 0.9)] == ["High", "Medium", "Medium", "Low"]
    by_reranker = LabelSettings(by="rerank", high=3, medium=1)
    assert [by_reranker.label(1, 9, 9.0, score) for score in (3, 1, 0.9, None)] == ["High", "Medium", "Low", "Low"]
    for wrong in (
        {"by": "score"},
        {"high": 1},
        {"by": "score", "high": 1, "medium": 2},
        {"by": "rank", "high": 2, "medium": 1},
    ):
        with pytest.raises(ValueError, match=r"high|medium"):
            LabelSettings(**wrong)
    by_grade = RoundLabelSettings(by="llm")
    assert [by_grade.label(1, 9, 9.0, 9.0, grade) for grade in (2, 1, 0, None)] == ["High", "Medium", "Low", ""]
    assert [RoundLabelSettings(by="llm", high=3, medium=2).label(1, 9, 0.0, None, grade) for grade in (3, 2, 1)] == [
        "High", "Medium", "Low"
    ]  # fmt: skip
    for wrong in ({"by": "llm", "high": 2}, {"by": "rank", "grades": {}}):
        with pytest.raises(ValueError, match=r"high|grades"):
            RoundLabelSettings(**wrong)
    assert AnswerSettings().prompt == "answer"
