"""The contract of the files of trained rewriters in configs/strategies/, and answers in their forms, invented by us."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from cluster.errors import RewriterError
from rewriters.pool import Entry, load, load_pool
from rewriters.rewriter import Rewriter, Rewriting
from rewriters.settings import SelectAdaptive
from tests.support.rewriters.pools import answered, asked, cut, rewriter, said

FOLDER = Path("configs/strategies")
QUERY = "is the keeper of the old lighthouse older than its lamp?"
Read = list[tuple[int, str]]


def path(name: str) -> str:
    return str(FOLDER / f"{name}.yaml")


def rq_rag(action: str, **more: Any) -> Entry:
    return {path("rq_rag"): {"action": action, "name": "of_a_kind", **more}}


TRAINED: dict[str, Entry] = {
    "rrr": path("rrr"),
    "rq_rag": path("rq_rag"),
    "rq_rag_decompose": rq_rag("[S_Decomposed_Query]"),
    "rq_rag_chooses": rq_rag(""),
    "qmd": path("qmd"),
    "qmd_passage": {path("qmd"): {"passage": True, "name": "qmd_passage"}},
    "deep_retrieval": path("deep_retrieval"),
}
QMD = "hyde: Keepers lived beside the lamp, which was built in 1850.\nlex: lighthouse keeper age\nlex: lamp of a lighthouse\n"
QMD += "vec: how old is the keeper of the old lighthouse\n"
FORMS: list[tuple[str, str, Read]] = [
    ("rrr", "age of the lighthouse keeper; age of the lighthouse lamp",
     [(1, "age of the lighthouse keeper"), (2, "age of the lighthouse lamp")]),
    ("rrr", "old lighthouse keeper and lamp", [(1, "old lighthouse keeper and lamp")]),
    ("rq_rag", "age of the keeper of the old lighthouse", [(1, "age of the keeper of the old lighthouse")]),
    ("rq_rag", "age of the keeper[EOS][R_Evidences]Title: Lighthouses", [(1, "age of the keeper")]),
    ("rq_rag_decompose", " How old is the keeper?[EOS]", [(1, "How old is the keeper?")]),
    ("rq_rag_chooses", "[S_Disambiguated_Query]Which old lighthouse is meant?[EOS]", [(1, "Which old lighthouse is meant?")]),
    ("rq_rag_chooses", "[A_Response]Yes, by ten years.[EOS]</s>", []),
    ("rq_rag_chooses", "Yes, by ten years.</s>", []),
    ("qmd", QMD,
     [(1, "lighthouse keeper age"), (2, "lamp of a lighthouse"), (3, "how old is the keeper of the old lighthouse")]),
    ("qmd_passage", QMD, [(1, "Keepers lived beside the lamp, which was built in 1850.")]),
    ("qmd_passage", "lex: lighthouse keeper age", []),
    ("deep_retrieval",
     f"<think>Compare ages.</think>\n<answer>\n{json.dumps({'query': '(keeper OR warden) AND lamp'})}\n</answer>",
     [(1, "(keeper OR warden) AND lamp")]),
    ("deep_retrieval", "<think>Compare ages, and then", []),
]  # fmt: skip


def own(entry: Entry) -> Rewriter:
    return Rewriter(Rewriting(load_pool([entry]), decoding={"temperature": 0.0, "max_tokens": 512}))


@pytest.mark.parametrize(("name", "answer", "read"), FORMS)
def test_answers_of_its_form_are_read(name: str, answer: str, read: Read) -> None:
    made = answered(own(TRAINED[name]), QUERY, answer)
    assert [(one.position, one.text) for one in made.rewrites] == read
    assert bool(made.failures) == (not read)


def test_every_file_with_an_engine_is_here() -> None:
    with_engine = {one.stem for one in FOLDER.glob("*.yaml") if load(str(one)).engine is not None}
    assert with_engine == {load(entry).base for entry in TRAINED.values()}


@pytest.mark.parametrize("name", TRAINED)
class TestEveryFile:
    def test_its_own_engine_is_asked_once_for_it_alone(self, name: str) -> None:
        strategy = load(TRAINED[name])
        one = rewriter(["general", TRAINED[name]], "joint")
        _, requests = asked(one, QUERY)
        (request,) = [one for one in requests if one.engine == strategy.name]
        assert len(requests) == 2
        assert request.prompt.count(QUERY) == 1
        assert "{" not in request.prompt.replace('{"query": "..."}', "")
        assert (request.as_text, request.name) == (strategy.prompt_as == "text", strategy.name)
        assert set(strategy.marks.all if strategy.marks else ()) <= set(request.marks)

    def test_what_ends_its_answer_is_visible(self, name: str) -> None:
        _, (request,) = asked(own(TRAINED[name]), QUERY)
        assert set(request.decoding.get("stop", ())) <= set(request.marks)

    def test_refusals_and_nothing_are_no_texts(self, name: str) -> None:
        for answer in ("", "   ", "I'm sorry, but I can't help with that.", "</s>"):
            made = answered(own(TRAINED[name]), QUERY, said(answer))
            assert not made.rewrites
            assert len(made.failures) == 1

    def test_adaptive_selection_refuses_it(self, name: str) -> None:
        with pytest.raises(RewriterError, match="has an engine or a form of its own"):
            rewriter(["general", TRAINED[name]], select=SelectAdaptive(kind="adaptive"))


CUT = [
    ("rrr", "age of the keeper; age of the lam", ["age of the keeper"]),
    ("rq_rag", "age of the kee", []),
    ("qmd", "hyde: It is old.\nlex: lighthouse keeper age\nlex: lamp of a li", ["lighthouse keeper age"]),
    ("qmd_passage", "hyde: Keepers lived beside the lamp. It was", ["Keepers lived beside the lamp."]),
    ("deep_retrieval", '<think>Hm.</think>\n<answer>\n{"query": "(keeper OR', []),
]


@pytest.mark.parametrize(("name", "answer", "read"), CUT)
def test_a_text_that_the_token_limit_cut_is_not_searched(name: str, answer: str, read: list[str]) -> None:
    made = answered(own(TRAINED[name]), QUERY, cut(answer))
    assert [one.text for one in made.rewrites] == read
    assert [one.reason for one in made.failures] == (
        [] if name == "qmd_passage" else ["texts_dropped" if read else "truncated"]
    )
