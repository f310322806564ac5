"""The keys of counts: what is stored is read back as it was, whatever a name holds."""

from __future__ import annotations

from collections import Counter
from dataclasses import fields
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobs import counts
from jobs.counts import CountKey, FlaggedTexts, RungTexts, Work, arm_key, by_arm, counts_of

KINDS = [one for one in vars(counts).values() if isinstance(one, type) and issubclass(one, CountKey) and one is not CountKey]
PARSED = [one for one in KINDS if one is not counts.SelectedQueries]
NAMES = st.text(st.sampled_from("ab/(=1, )"), max_size=8)
PLAIN = st.text(st.sampled_from("ab_"), max_size=4)


@st.composite
def keys(draw: st.DrawFn) -> CountKey:
    kind = draw(st.sampled_from(PARSED))
    values: list[Any] = []
    for place, field in enumerate(fields(kind)):
        values.append(draw(st.integers(0, 99) if field.type == "int" else NAMES if place == kind.WIDE else PLAIN))
    if kind is Work:
        values[0] = draw(st.sampled_from(list(counts.QUANTITIES)))
    return kind(*values)


@given(keys())
def test_a_key_is_read_back_as_it_was_and_by_no_other_kind(of: CountKey) -> None:
    assert type(of).parse(of.key) == of
    assert [kind for kind in PARSED if kind.parse(of.key) is not None] == [type(of)]


@given(st.dictionaries(NAMES, st.dictionaries(keys(), st.integers(1, 9), max_size=3), max_size=3))
def test_each_arm_has_its_own_counts(arms: dict[str, dict[CountKey, int]]) -> None:
    # an arm "a" may count what an arm "a/requests" seems to: such names are told apart by no stored key
    apart = not any(other.startswith(f"{one}/") for one in arms for other in arms)
    stored = {arm_key(arm, of.key): n for arm, own in arms.items() for of, n in own.items()}
    found = by_arm(stored | {"queries": 7}, arms)
    assert sum(map(Counter.total, found.values())) == sum(stored.values())
    if apart:
        assert found == {arm: {of.key: n for of, n in own.items()} for arm, own in arms.items()}


def test_the_stored_keys_are_what_they_were() -> None:
    assert FlaggedTexts("a(x=1/2)", "drift").key == "guard/a(x=1/2)/drift"
    assert arm_key("a/b", Work("pairs", "cross_encoder@org/model").key) == "arm/a/b/pairs/cross_encoder@org/model"
    assert counts.ErrorCount("retrieve", "", "failed").key == "error/retrieve//failed"
    assert dict(counts_of({"rung/a/b/json": 2, "rung": 1, "queries": 3}, RungTexts)) == {RungTexts("a/b", "json"): 2}


@pytest.mark.parametrize("key", ["queries", "guard/x", "guarded/a/b", "arm/a/guard/b/c", "requests"])
def test_other_keys_are_of_no_kind(key: str) -> None:
    assert not [kind for kind in PARSED if kind.parse(key) is not None]
