"""Malformed answers and the outcome of each, a rewrite with the reader that found it or a reason: the table answers.yaml."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from rewriters.calls import joint_template
from rewriters.pool import load_pool
from rewriters.reading.ladder import Parsed, parse
from rewriters.reasons import MESSAGES

TABLE = yaml.safe_load(Path(__file__).with_name("answers.yaml").read_text(encoding="utf-8"))
FOUR = list(TABLE["texts"])


def expected(case: dict[str, Any]) -> dict[str, str]:
    """Strategy -> the rewrite, or !reason; one reason stands for all that are asked."""
    found = case.get("expected", TABLE["texts"])
    return dict.fromkeys(case.get("asked", FOUR), found) if isinstance(found, str) else found


@pytest.mark.parametrize("case", [pytest.param(case, id=case["id"]) for case in TABLE["answers"]])
def test_what_an_answer_becomes(case: dict[str, Any]) -> None:
    requested = load_pool(case.get("asked", FOUR))
    outcome = parse(
        case["answer"],
        case.get("query", TABLE["query"]),
        requested=requested,
        known=load_pool(FOUR),
        instructions=joint_template(requested) if len(requested) > 1 else requested[0].prompt,
        truncated=case.get("cut", False),
    )
    shown = {name: one.text if isinstance(one, Parsed) else f"!{one.reason}" for name, one in outcome.items()}
    assert shown == expected(case)
    readers = {one.parsed_as for one in outcome.values() if isinstance(one, Parsed)}
    assert readers == ({case.get("reader")} if readers else set())


def test_the_table_meets_every_reason() -> None:
    met = {text[1:] for case in TABLE["answers"] for text in expected(case).values() if text.startswith("!")}
    assert met == set(MESSAGES) - {"content_filter"}  # told by how the answer ended
