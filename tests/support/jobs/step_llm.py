"""What a fake LLM says to the requests of every stage of a run, and with which answers at fault."""

from __future__ import annotations

import json
from typing import Any

from rewriters.outcome.replays import FIRST_REPLAY
from tests.support.jobs import corrective_llm
from tests.support.jobs.replayed_runs import REFUSED, good, query_of

Body = dict[str, Any]
AT_FAULT = {
    "iterate": "I know no better query.", "repeated": "", "round_grade": "Who can say?", "question": "That is not clear to me.",
    "grade": "", "strips": json.dumps({"sentences": "99"}), "web": REFUSED, "answer": "", "citation": "It is so [9].",
    "relevance": "It is a fine document.", "accuracy": "Who can say?", "nuggets": "I found none.",
    "importance": json.dumps({"labels": ["vital"]}), "support": json.dumps({"labels": ["of course", "no"]}),
}  # fmt: skip
"""Kind of request -> an answer to it that does not serve; `repeated` and `citation`: it can be read, and is wrong."""
ASKED = {
    "repeated": "iterate",
    "round_grade": "grade",
    "citation": "answer",
}  # of which request they are; the others of their own


def prompt_of(body: Body) -> str:
    return str(body["messages"][-1]["content"])


def replay_of(body: Body) -> int:
    """How many replays had asked for an answer before."""
    return int(body.get("seed", 0)) // FIRST_REPLAY


def kind_of(body: Body) -> str:
    """Of which step a request is."""
    prompt = prompt_of(body)
    if len(body["messages"]) == 1:
        return "rewrite"
    if prompt.startswith("Query: "):
        return "relevance"
    marks = {"Tried before": "iterate", "Nuggets so far:": "nuggets", "Reference answers:": "accuracy"}
    if "Statements:" in prompt:
        return "support" if "Answer:" in prompt else "importance"
    return next((kind for mark, kind in marks.items() if mark in prompt), corrective_llm.kind_of(prompt))


def said(body: Body) -> str:
    """An answer that serves."""
    kind, prompt = kind_of(body), prompt_of(body)
    fixed = {
        "relevance": json.dumps({"match": 2, "trust": 2, "overall": 2}),
        "nuggets": json.dumps({"nuggets": ["yeast makes gas", "the moon pulls the sea"]}),
        "importance": json.dumps({"labels": ["vital", "okay"]}),
        "support": json.dumps({"labels": ["support", "not_support"]}),
        "accuracy": "Correct",
    }
    if kind == "rewrite":
        return good(query_of(body))
    if kind == "iterate":
        return json.dumps({"query": f"{prompt.rpartition('Query: ')[2]} moon yeast lamp"})
    return fixed.get(kind) or corrective_llm.said(body)


def at_fault(fault: str, body: Body) -> str:
    """The answer that does not serve."""
    if fault == "repeated":
        return json.dumps({"query": prompt_of(body).rpartition("Query: ")[2]})
    return AT_FAULT[fault]
