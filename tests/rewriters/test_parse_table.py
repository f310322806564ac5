"""Malformed answers, and the outcome of each: a rewrite and the reader that found it, or a reason."""

from __future__ import annotations

import pytest

from rewriters.joint import joint_template
from rewriters.pool import load_pool
from rewriters.reading.ladder import Parsed, parse
from rewriters.reasons import MESSAGES
from tests.support.rewriters import cases_faults, cases_json, cases_lines, cases_single, cases_talk
from tests.support.rewriters.cases import FOUR, Case

CASES = [*cases_json.CASES, *cases_lines.CASES, *cases_faults.CASES, *cases_single.CASES, *cases_talk.CASES]


@pytest.mark.parametrize("case", [pytest.param(case, id=f"{len(case.asked)} {case.id}") for case in CASES])
def test_what_an_answer_becomes(case: Case) -> None:
    requested = load_pool(case.asked)
    known = load_pool(FOUR)
    instructions = joint_template(requested) if len(requested) > 1 else requested[0].prompt
    outcome = parse(case.answer, case.query, requested=requested, known=known, instructions=instructions, truncated=case.cut)
    shown = {name: one.text if isinstance(one, Parsed) else f"!{one.reason}" for name, one in outcome.items()}
    assert shown == case.expected
    readers = {one.parsed_as for one in outcome.values() if isinstance(one, Parsed)}
    assert readers == ({case.reader} if readers else set())


def test_the_table_meets_every_reason() -> None:
    met = {text[1:] for case in CASES for text in case.expected.values() if text.startswith("!")}
    assert met == set(MESSAGES) - {"content_filter"}  # told by how the answer ended
