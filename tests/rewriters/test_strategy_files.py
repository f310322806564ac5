"""What a file of the user may hold, and what a wrong one says: one line with the file, the key and what to do."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from cluster.errors import RewriterError
from rewriters.pool import load, read_local, shipped
from rewriters.strategy import EXAMPLE_QUERY

PATH = "domains/sub_query.yaml"
GOOD: dict[str, Any] = {
    "label": "Sub-Query Rewriting",
    "definition": "the first question to answer",
    "example": "which licence is accepted in Iceland",
    "prompt": "Ask the first question to answer.\n\nQuery: {query}",
    "joint": True,
}


def refused(text: str, entry: Any = PATH) -> str:
    with pytest.raises(RewriterError) as error:
        load(entry, read=lambda _: text)
    assert error.value.code == "strategy"
    assert "\n" not in str(error.value)
    return str(error.value)


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"prompt": "Rewrite {question}"}, "prompt must have {query} once, as its last word"),
        ({"prompt": "Rewrite {query} again: {query}"}, "prompt must have {query} once"),
        ({"prompt": "Rewrite the query."}, "prompt must have {query} once"),
        ({"prompt": "Rewrite {query} briefly."}, "as its last word"),
        ({"prompt": "Rewrite { query }"}, "prompt must have {query} once"),
        ({"prompt": None}, "prompt: "),
        ({"label": "Sub: Query"}, "label and aliases must have a letter and no colon"),
        ({"label": "Sub {query}"}, "label and aliases must have a letter and no colon"),
        ({"label": "123"}, "label and aliases must have a letter"),
        ({"aliases": ["SQ:"]}, "label and aliases must have a letter and no colon"),
        ({"search_as": "document"}, "search_as: input should be 'query' or 'passage', found 'document'"),
        ({"output": "json"}, "output: input should be 'text', 'lines', 'array' or 'object', found 'json'"),
        ({"max_chars": 0}, "max_chars: input should be greater than or equal to 1, found 0"),
        ({"weight": -1.0}, "weight: input should be greater than or equal to 0, found -1.0"),
        ({"weight": float("nan")}, "weight: "),
        ({"weight": float("inf")}, "weight: "),
        ({"position_weights": [1.0, -1.0]}, "position_weights.1: input should be greater than or equal to 0, found -1.0"),
        ({"definition": ""}, "definition must be one line without placeholders"),
        ({"definition": "what {query} is after"}, "definition must be one line without placeholders"),
        ({"example": "a\nb"}, "example must be one line without placeholders"),
        (
            {"example": "why is the sky blue at noon"},
            "example must rewrite the one query that the joint prompt shows, and so share a number or a word of five "
            f"letters or more with it: {EXAMPLE_QUERY!r}; found: 'why is the sky blue at noon'; correct it",
        ),
        ({"keys": ["a"]}, "keys are of output array and object"),
        ({"output": "object"}, "output object needs keys, one per text"),
        ({"labl": "x"}, "labl: unknown key; did you mean 'label'?"),
        ({"words": {"mots": 3}}, "words.mots: unknown key; did you mean 'most'? (known: least, most, guide)"),
        ({"decoding": {"temperature": "hot"}}, "decoding.temperature: input should be a valid number"),
        ({"decoding": {"tempertaure": 1}}, "decoding.tempertaure: unknown key"),
        ({"name": "other"}, "name is not a field of a file, whose name is the strategy's; remove it"),
        ({"own_file": False}, "own_file is not a field of a file"),
        ({"variables": ["a"]}, "variables: should hold names with their values, found ['a']"),
        ({"variables": {"n": 1}}, "variables: n has a meaning of its own; take another name"),
        ({"variants": {"short": 1}}, "variants: should hold names with the fields that they replace"),
        ({"engine": {"kind": "openai"}}, "engine"),
    ],
    ids=lambda one: None if isinstance(one, str) else str(one)[:60],
)
def test_a_wrong_field_is_refused(wrong: dict[str, Any], said: str) -> None:
    line = refused(yaml.safe_dump(GOOD | wrong))
    assert line.startswith(f"{PATH}: ")
    assert said in line


@pytest.mark.parametrize("key", ["label", "prompt"])
def test_a_missing_field_is_named(key: str) -> None:
    line = refused(yaml.safe_dump({name: value for name, value in GOOD.items() if name != key}))
    assert line == f"{PATH}: {key}: is missing; add it"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "should hold the fields of a strategy, found NoneType"),
        ("- a", "should hold the fields of a strategy, found list"),
        ("3", "should hold the fields of a strategy, found int"),
        ("label: [", "is not YAML: while parsing a flow node"),
        ("label: a: b", "is not YAML: mapping values are not allowed here"),
        ("label: \x00", "is not YAML: "),
        ("1: 2\nlabel: a b\nprompt: '{query}'", "1: keys should be strings, found 1"),
    ],
)
def test_a_file_that_is_no_strategy_says_so(text: str, said: str) -> None:
    line = refused(text)
    assert line.startswith(f"{PATH}: ")
    assert said in line


@pytest.mark.parametrize("file", ["Sub-Query.yaml", "2nd.yaml", "original.yaml", "dmqr.yaml", "a b.yml", "reason.yaml"])
def test_the_file_s_name_is_the_strategy_s_and_checked(file: str) -> None:
    line = refused(yaml.safe_dump(GOOD), f"./{file}")
    assert line.startswith(f"./{file}: name must be a letter, then letters, digits and _, in lower case, and none of ")


def test_a_file_that_is_not_there_or_no_text_is_named(tmp_path: Path) -> None:
    (tmp_path / "latin.yaml").write_bytes(b"label: caf\xe9\n")
    for file, said in (("none.yaml", "No such file or directory"), ("latin.yaml", "is not UTF-8"), ("", "Is a directory")):
        path = f"{tmp_path}/{file}"
        with pytest.raises(RewriterError) as error:
            load(path)
        assert str(error.value) == f"{path}: cannot be read: {said}; correct the path, or the file"


def test_a_file_on_this_machine_is_read_and_has_its_name(tmp_path: Path) -> None:
    path = tmp_path / "medical.yaml"
    path.write_text(yaml.safe_dump(GOOD | {"label": "Fachwörter"}, allow_unicode=True), encoding="utf-8")
    strategy = load(str(path))
    assert (strategy.name, strategy.label, strategy.own_file) == ("medical", "Fachwörter", True)
    assert load({str(path): {"weight": 0.5}}).name == "medical(weight=0.5)"


def test_a_strategy_outside_the_joint_request_needs_no_definition() -> None:
    fields = GOOD | {"definition": "", "example": "", "joint": False}
    assert not load(PATH, read=lambda _: yaml.safe_dump(fields)).is_joint


@pytest.mark.parametrize("name", shipped())
def test_a_copy_of_ours_under_another_name_asks_for_the_same(name: str, tmp_path: Path) -> None:
    ours = Path(__file__).parents[2] / "rewriters" / "strategies" / f"{name}.yaml"
    (tmp_path / "mine.yaml").write_text(read_local(str(ours)))
    mine = load(f"{tmp_path}/mine.yaml")
    assert mine.model_copy(update={"name": name, "base": name, "own_file": False}) == load(name)
