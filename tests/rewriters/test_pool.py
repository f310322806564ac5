"""Strategies by their names, with parameters, beside each other. Files that are refused are in tests/refusals.yaml."""

from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from cluster.errors import RewriterError
from rewriters.pool import CONTEXT_BLOCK, Entry, load, load_pool
from rewriters.query import Query
from rewriters.reading.ladder import Parsed, parse_texts, prepared
from rewriters.rewriter import Rewriter, Rewriting
from rewriters.settings import SelectAdaptive
from rewriters.strategy import variables
from tests.support.plugins import installed
from tests.support.rewriters.pools import FOUR, TRAINED, a_file, answered, asked, rewriter

JOINT = {"joint": True, "definition": "the first question", "example": "which licence is accepted in Iceland"}
ENGLISH: Entry = {"general": {"language": "English"}}
RUSSIAN = "как отправить посылку"


@given(st.permutations(["n", "temperature", "weight", "min_chars"]))
def test_the_order_of_parameters_does_not_matter(keys: list[str]) -> None:
    values = {"n": 3, "temperature": 0.7, "weight": 0.8, "min_chars": 4}
    one = load({"rag_fusion": {key: values[key] for key in keys}})
    assert one == load({"rag_fusion": values})
    assert one.name == "rag_fusion(min_chars=4,n=3,temperature=0.7,weight=0.8)"


def test_parameters_are_fields_decoding_variables_and_variants() -> None:
    one = load({"multi_query": {"n": 2, "temperature": 0.2, "weight": 0.8, "position_weights": [1, 0.5], "domain": "law"}})
    assert (one.n, one.weight, one.position_weights) == (2, 0.8, (1.0, 0.5))
    assert one.decoding == {"temperature": 0.2, "max_tokens": 300}  # of the file, but for what is replaced
    assert "Reply with 2 lines" in one.prompt
    assert "The field is: law." in one.prompt
    assert "The field is: any." in load("multi_query").prompt


def test_a_variant_replaces_fields_and_false_is_as_without() -> None:
    plain, varied = load("decompose"), load({"decompose": {"interpret": True}})
    assert (plain.output, varied.output, varied.keys) == ("lines", "array", ("query", "interpretation"))
    assert varied.decoding["max_tokens"] == 700
    assert (varied.n, varied.base) == (plain.n, "decompose")
    assert load({"decompose": {"interpret": False}}).prompt == plain.prompt
    assert load({"decompose": {"interpret": True, "max_tokens": 10}}).decoding["max_tokens"] == 10


def test_samples_at_temperature_0_are_refused_for_they_are_all_the_same() -> None:
    message = "strategy 'rewrite(n=3)': its 3 samples at temperature 0 are all the same; raise temperature, or n: 1"
    with pytest.raises(RewriterError) as refused:
        rewriter([{"rewrite": {"n": 3}}], decoding={"temperature": 0.0})
    assert str(refused.value) == message
    with pytest.raises(RewriterError, match="at temperature 0 are all the same"):
        rewriter([{"rewrite": {"n": 3, "temperature": 0}}], decoding={"temperature": 0.7})
    for entry, common in (({"rewrite": {"n": 3}}, 0.7), ({"rewrite": {"n": 3, "temperature": 0.7}}, 0.0), ("clarify", 0.0)):
        rewriter([entry], decoding={"temperature": common})


# ---------------------------------------------------------------- a language of its own


def test_its_request_is_its_own_and_names_the_language() -> None:
    _, (joint, own) = asked(rewriter(["general", "keyword", ENGLISH]), RUSSIAN)
    assert (joint.name, own.name, own.recorded_as) == ("dmqr", "general(language=English)", "general")
    assert ["the language of the query" in one.prompt for one in (joint, own)] == [True, False]
    assert ["English" in one.prompt for one in (joint, own)] == [False, True]
    _, alone = asked(rewriter(["general", "keyword"]), RUSSIAN)
    assert [one.prompt_hash for one in alone] == [joint.prompt_hash]  # the others ask what they asked before
    _, (adaptive,) = asked(rewriter(["keyword", ENGLISH], select=SelectAdaptive(kind="adaptive")), RUSSIAN)
    (line,) = [line for line in adaptive.prompt.splitlines() if "Write it in English" in line]
    assert line.startswith("- General")


def test_only_its_texts_may_be_in_another_script() -> None:
    found = answered(rewriter(["keyword", ENGLISH, "core_content"], "separate"), RUSSIAN, *["how to send a parcel"] * 3)
    assert {(one.strategy, one.text) for one in found.rewrites} == {("general(language=English)", "how to send a parcel")}
    assert {(one.strategy, one.reason) for one in found.failures} == {
        ("keyword", "wrong_language"), ("core_content", "wrong_language")
    }  # fmt: skip


# ---------------------------------------------------------------- context


def test_the_earlier_turns_stand_before_the_query_and_after_what_can_be_cached() -> None:
    plain, turned = load("rag_fusion"), load("rag_fusion", context=True)
    assert turned.prompt == plain.prompt.replace("Query: {query}", f"{CONTEXT_BLOCK}Query: {{query}}")
    (request,) = rewriter_with_context(["rag_fusion"]).requests(Query("id1", "and there?", "what is a fjord\nin Norway"))
    assert request.prompt.endswith(
        "is found there:\nwhat is a fjord\nin Norway\nWhere the query depends on them, let what you write be understandable "
        "without them.\n\nQuery: and there?"
    )


def test_a_query_without_earlier_turns_has_the_same_hash() -> None:
    one = rewriter_with_context(FOUR)
    (first,), (second,) = one.requests(Query("id1", "tea", "milk?")), one.requests(Query("id2", "coffee"))
    assert "is found there:\n(none)\n" in second.prompt
    assert first.prompt_hash == second.prompt_hash != rewriter(FOUR).requests(Query("id1", "tea"))[0].prompt_hash


def test_a_prompt_with_a_place_for_the_turns_keeps_it() -> None:
    prompt = "Turns: {context}\nAsk.\nQuery: {query}"
    assert load("./a.yaml", context=True, read=lambda _: yaml.safe_dump({"label": "A b", "prompt": prompt})).prompt == prompt
    with pytest.raises(RewriterError, match=r"\./sub_query.yaml: prompt has \{context\}, and log.context_column is not set"):
        a_file(prompt=prompt)


def rewriter_with_context(entries: list[Entry]) -> Any:
    return Rewriter(Rewriting(load_pool(entries, context=True), context=True))


# ---------------------------------------------------------------- columns of the log


def test_a_variable_that_no_file_declares_is_a_column_of_the_log() -> None:
    strategy = a_file(prompt="For {role} in {market}.\n{query}", variables={"market": "Europe"})
    assert variables(strategy.prompt) == {"role", "query"}
    rewriting = Rewriting((strategy,))
    assert rewriting.columns == ("role",)
    one, same, other, none, braces = (
        Rewriter(rewriting).requests(Query(f"id{number}", text, None, values))[0]
        for number, (text, values) in enumerate([
            ("tea", {"role": "nurses", "age": "3"}), ("tea", {"role": "nurses"}), ("tea", {"role": "cooks"}), ("tea", {}),
            ("{role}", {"role": "{query}"}),
        ])
    )  # fmt: skip
    assert (one.prompt, none.prompt) == ("For nurses in Europe.\ntea", "For (unknown) in Europe.\ntea")
    assert braces.prompt == "For {query} in Europe.\n{role}"
    assert one.prompt_hash == same.prompt_hash == other.prompt_hash
    assert one.variables == same.variables
    assert len({one.variables, other.variables, none.variables}) == 3
    assert len(one.variables) == 16


# ---------------------------------------------------------------- names and files


def test_a_block_of_yaml_may_end_a_prompt_with_line_breaks() -> None:
    prompts = {end: a_file(prompt=f"Ask.\n\nQuery: {{query}}{end}").prompt for end in ("", "\n", " \n\n")}
    assert set(prompts.values()) == {prompts[""]}
    assert a_file(prompt="{query} =>\n", prompt_as="text").prompt == "{query} =>\n"  # as the rewriter was trained


def test_a_prompt_of_one_s_own_that_no_request_sends_is_told() -> None:
    general, joint = load("general"), a_file(**JOINT, usage="long ones")
    assert Rewriter(Rewriting((general, joint))).unsent_prompts() == ["sub_query"]
    assert Rewriter(Rewriting((general, joint), "separate")).unsent_prompts() == []
    assert Rewriter(Rewriting((general, a_file()))).unsent_prompts() == []
    assert Rewriter(Rewriting((general, joint), select=SelectAdaptive(kind="adaptive"))).unsent_prompts() == ["sub_query"]
    assert rewriter(["general", "keyword"]).unsent_prompts() == []


def test_a_strategy_of_an_installed_package_is_found_by_its_entry_point(tmp_path: Path) -> None:
    again = "label: AGAIN\njoint: false\ndefinition: the query once more\nprompt: 'Say again: {query}'\n"
    files = {"own_package/__init__.py": "", "own_package/again.yaml": again}
    points = "[dmqr.strategies]\nagain = own_package\nlost = no_package\n"
    with installed(tmp_path, "own-package", files, points):
        assert (load("again").name, load("again").prompt) == ("again", "Say again: {query}")
        with pytest.raises(RewriterError, match="strategy 'lost': there is no module no_package"):
            load("lost")
        with pytest.raises(RewriterError, match="unknown strategy 'agian'; did you mean 'again'"):
            load("agian")


QUERY = "caffeine in green tea and coffee"
TOKENS = {"texts": ["[S_Query]", "[S_Sub]"], "others": ["[A_Response]", "[EOS]"]}
TEXT = {"prompt": "<|user|>{query}<|assistant|>", "prompt_as": "text"}


def test_samples_have_a_text_each() -> None:
    strategy = a_file(marks=TOKENS, n=3, decoding={"temperature": 0.7})
    answers = ["[S_Query]caffeine of tea[EOS]", "[A_Response]30 mg", "[S_Sub]coffee caffeine[EOS][S_Sub]tea[EOS]"]
    made = answered(Rewriter(Rewriting((strategy,))), QUERY, *answers)
    assert [(one.position, one.text) for one in made.rewrites] == [(1, "caffeine of tea"), (2, "coffee caffeine")]


def test_a_request_says_its_form_and_keeps_what_ends_an_answer() -> None:
    strategy = a_file(marks=TOKENS, decoding={"stop": ["###"]}, **TEXT)
    _, (request,) = asked(Rewriter(Rewriting((strategy,))), QUERY)
    assert (request.prompt, request.as_text) == (f"<|user|>{QUERY}<|assistant|>", True)
    assert request.marks == ("[S_Query]", "[S_Sub]", "[A_Response]", "[EOS]", "###")
    _, (usual,) = asked(Rewriter(Rewriting((load("hyde"),))), QUERY)
    assert (usual.as_text, usual.marks, usual.form) == (False, (), {})


def test_the_form_counts_for_the_identity_and_the_usual_one_for_nothing() -> None:
    usual = a_file()
    assert {"prompt_as", "marks", "separator"}.isdisjoint(usual.identity())
    forms = [usual, a_file(marks=TOKENS), a_file(separator=";", output="lines"), a_file(prompt_as="text")]
    assert len({str(one.identity()) for one in forms}) == len(forms)


PARTS = st.lists(st.tuples(st.sampled_from(["[S_Query]", "[S_Sub]", "[A_Response]", "[EOS]"]), st.sampled_from(
    ["", "tea", " tea with milk ", "coffee\n", "the caffeine of coffee", "a cup", "30 mg"])), max_size=8)  # fmt: skip


@given(parts=PARTS, before=st.sampled_from(["", "words ", "\n"]), truncated=st.booleans())
def test_the_texts_are_those_behind_marks_of_texts_whatever_stands_around(
    parts: list[tuple[str, str]], before: str, truncated: bool
) -> None:
    strategy = a_file(marks=TOKENS, output="lines", n=20)
    answer = before + "".join(mark + text for mark, text in parts)
    read = parse_texts(prepared(answer, QUERY, (strategy,), (), strategy.prompt, truncated))
    wanted = [text.strip() for mark, text in parts if mark in TOKENS["texts"] and text.strip()]
    if truncated and wanted and parts[-1][0] in TOKENS["texts"] and parts[-1][1].strip():
        wanted.pop()
    assert [one.text for one in read if isinstance(one, Parsed)] == wanted


# ---------------------------------------------------------------- files of trained rewriters


@pytest.mark.parametrize("name", TRAINED)
def test_its_own_engine_is_asked_once_for_it_alone_and_no_refusal_is_a_text(name: str) -> None:
    strategy = load(TRAINED[name])
    _, requests = asked(rewriter(["general", TRAINED[name]]), QUERY)
    (request,) = [request for request in requests if request.engine == strategy.name]
    assert len(requests) == 2
    assert request.prompt.count(QUERY) == 1
    assert "{" not in request.prompt.replace('{"query": "..."}', "")
    assert (request.as_text, request.name) == (strategy.prompt_as == "text", strategy.name)
    assert {*(strategy.marks.all if strategy.marks else ()), *request.decoding.get("stop", ())} <= set(request.marks)
    for answer in ("", "   ", "I'm sorry, but I can't help with that.", "</s>"):
        found = answered(rewriter([TRAINED[name]]), QUERY, answer)
        assert (found.rewrites, len(found.failures)) == ([], 1)
    with pytest.raises(RewriterError, match="has an engine or form of its own"):
        rewriter(["general", TRAINED[name]], select=SelectAdaptive(kind="adaptive"))
