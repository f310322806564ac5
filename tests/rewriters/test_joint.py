"""The joint prompt and its schema, put together from the strategies' own definitions."""

from __future__ import annotations

import json

from rewriters.joint import joint_schema, joint_template
from rewriters.pool import load_pool
from rewriters.strategy import EXAMPLE_QUERY, Strategy, render

FOUR = load_pool(["general", "keyword", "pseudo_answer", "core_content"])


def test_every_strategy_is_named_once_with_its_definition_in_the_order_given() -> None:
    template = joint_template(FOUR[::-1])
    places = [template.index(f"- {s.name} ({s.label}): {s.definition}.") for s in FOUR]
    assert places == sorted(places, reverse=True)


def test_the_query_comes_last_and_nothing_before_it_depends_on_it() -> None:
    template = joint_template(FOUR)
    rendered = [render(template, {"query": query}) for query in ("tea", "{query} {keyword}")]
    assert rendered[0].removesuffix("tea") == rendered[1].removesuffix("{query} {keyword}") == template[: -len("{query}")]


def test_the_worked_example_is_an_answer_by_the_schema() -> None:
    (line,) = [line for line in joint_template(FOUR).split("\n") if line.startswith("{")]
    example = json.loads(line)
    schema = joint_schema(FOUR)
    assert list(example) == schema["required"] == [s.name for s in FOUR]
    for name, text in example.items():
        assert 0 < len(text) <= schema["properties"][name]["maxLength"]  # type: ignore[index]
    assert EXAMPLE_QUERY in joint_template(FOUR)


def test_the_schema_is_an_object_of_exactly_these_strings() -> None:
    schema = joint_schema(FOUR[:2])
    assert schema == {
        "type": "object",
        "properties": {
            "general": {"type": "string", "maxLength": FOUR[0].max_chars + 1},
            "keyword": {"type": "string", "maxLength": FOUR[1].max_chars + 1},
        },
        "required": ["general", "keyword"],
        "additionalProperties": False,
    }


def test_one_strategy_alone_can_be_asked_for_jointly() -> None:
    assert isinstance(FOUR[0], Strategy)
    assert FOUR[1].definition not in joint_template(FOUR[:1])


# ---------------------------------------------------------------- a prompt of the user's own


def test_a_prompt_of_one_s_own_is_filled_with_the_strategies() -> None:
    template = joint_template(
        FOUR[:2], 'Do:\n{methods}\nA {"json": {}} with {}.\n{example_query}\n{example}\n{methods}\n{query}'
    )
    methods = "\n".join(f"- {s.name} ({s.label}): {s.definition}." for s in FOUR[:2])
    example = json.dumps({s.name: s.example for s in FOUR[:2]})
    assert template == f'Do:\n{methods}\nA {{"json": {{}}}} with {{}}.\n{EXAMPLE_QUERY}\n{example}\n{methods}\n{{query}}'
