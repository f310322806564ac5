"""What determines the rewrites: `Rewriter.identity`, which is a part of a run's fingerprint."""

from __future__ import annotations

import json

import pytest

from rewriters.query import Query
from rewriters.settings import SelectAdaptive, SelectColumn, SelectRandom
from tests.support.rewriters.pools import DECODING, FOUR, rewriter

# Since the first release; a change of one renames every run of the four and asks the LLM for all its completions again.
JOINT_HASH = "3be4032057d0db4e"
SCHEMA_HASH = "2b1d354debcb152d"
OWN_HASHES = {
    "general": "f3d7a2aa638b2d46",
    "keyword": "bffbefffda9b2524",
    "pseudo_answer": "e8023ebfd851a976",
    "core_content": "f284664236da62df",
}
STRATEGIES = [
    {"name": "general", "search_as": "query", "weight": 1.0, "max_chars": 2000, "list_separator": None},
    {"name": "keyword", "search_as": "query", "weight": 1.0, "max_chars": 1000, "list_separator": ", "},
    {"name": "pseudo_answer", "search_as": "passage", "weight": 1.0, "max_chars": 1500, "list_separator": None},
    {"name": "core_content", "search_as": "query", "weight": 1.0, "max_chars": 500, "list_separator": None},
]


@pytest.mark.parametrize(
    ("calls", "requests"),
    [
        ("joint", [{"name": "dmqr", "prompt_hash": JOINT_HASH, "schema_hash": SCHEMA_HASH}]),
        ("separate", [{"name": name, "prompt_hash": one, "schema_hash": None} for name, one in OWN_HASHES.items()]),
    ],
)
def test_the_four_are_what_they_were(calls: str, requests: list[dict[str, object]]) -> None:
    four = rewriter(FOUR, calls)
    assert four.identity() == {
        "calls": calls,
        "decoding": DECODING,
        "parser": 5,
        "strategies": STRATEGIES,
        "requests": requests,
    }
    sent = four.requests(Query("id1", "tea"))
    assert [(one.name, one.prompt_hash) for one in sent] == [(one["name"], one["prompt_hash"]) for one in requests]
    assert [(one.sample, one.engine, one.variables) for one in sent] == [(0, "", "")] * len(sent)


def test_it_is_json_and_the_same_for_the_same() -> None:
    identity = rewriter(FOUR).identity()
    assert json.loads(json.dumps(identity)) == identity == rewriter(FOUR).identity()


def test_whatever_decides_the_rewrites_changes_it() -> None:
    variants = [
        rewriter(FOUR),
        rewriter(FOUR, "separate"),
        rewriter(FOUR[:3]),
        rewriter(FOUR, decoding=DECODING | {"temperature": 0.7}),
        rewriter([]),
        rewriter(FOUR, select=SelectAdaptive(kind="adaptive")),
        rewriter(FOUR, select=SelectRandom(kind="random_k")),
        rewriter(FOUR, select=SelectRandom(kind="random_k", seed=1)),
        rewriter(FOUR, select=SelectColumn(kind="column", column="a")),
        *(
            rewriter([*FOUR[1:], {"general": parameters}])
            for parameters in (
                {"weight": 0.5},
                {"min_chars": 5},
                {"banned": ["tea"]},
                {"words": {"least": 2}},
                {"any_language": True},
                {"language": "English"},
                {"language": "German"},
                {"fallback": "original"},
                {"include_original": 1},
                {"as_one": "texts"},
                {"as_one": "with_original"},
                {"position_weights": [1.0, 0.5]},
                {"depth": 10},
                {"score_floor": 0.1},
                {"max_chars": 10},
                {"name": "another"},
            )
        ),
    ]
    assert len({json.dumps(variant.identity(), sort_keys=True) for variant in variants}) == len(variants)
