"""Answers of a fake LLM to the prompts of corrective RAG, by hashes of what it is asked: any test can tell it beforehand."""

import hashlib
import json
import re
from typing import Any

VERDICTS = ("irrelevant", "ambiguous", "relevant")


def drawn(*of: str) -> int:
    """A number that these texts decide."""
    return int(hashlib.sha256("|".join(of).encode()).hexdigest()[:8], 16)


def question_of(typed: str, rewrites: list[str]) -> str:
    return f"What of {typed}, or {' or '.join(rewrites)}?"


def verdict_of(question: str, document: str) -> str:
    return VERDICTS[drawn(question, document) % 3]


def kept_of(question: str, sentences: list[str]) -> list[int]:
    """The numbers of the sentences that help, from 1."""
    return [n for n, one in enumerate(sentences, start=1) if drawn(question, one) % 2]


def web_query_of(question: str) -> str:
    return "yeast " + question.removeprefix("What of ").rstrip("?")


def prompt_of(body: dict[str, Any]) -> str:
    return str(body["messages"][-1]["content"])


def kind_of(prompt: str) -> str:
    """Returns the step that a prompt is of."""
    if prompt.startswith("Typed: "):
        return "question"
    if prompt.startswith("Documents:"):
        return "answer"
    if "\n\nDocument:\n" in prompt:
        return "strips" if prompt.partition("\n\nDocument:\n")[2].startswith("[1] ") else "grade"
    return "web" if prompt.startswith("Question: ") else "other"


def said(body: dict[str, Any]) -> str:
    prompt = prompt_of(body)
    kind = kind_of(prompt)
    if kind == "question":
        typed, _, rewrites = prompt.removeprefix("Typed: ").partition("\n\nRewrites:\n")
        return json.dumps({"question": question_of(typed, [one.removeprefix("- ") for one in rewrites.splitlines()])})
    if kind == "answer":
        return "It is so [1]."
    question, _, document = prompt.removeprefix("Question: ").partition("\n\nDocument:\n")
    if kind == "grade":
        return verdict_of(question, document.partition("\n\nOne word:")[0]).capitalize() + "."
    if kind == "strips":
        kept = kept_of(question, [re.sub(r"^\[\d+\] ", "", one) for one in document.splitlines()])
        return json.dumps({"sentences": ", ".join(map(str, kept)) or "none"})
    return json.dumps({"query": web_query_of(question)}) if kind == "web" else "?"
