"""Nuggets of whole jobs in this process, against a computation from the fake judge's own rules apart."""

from __future__ import annotations

import html
import io
import json
import re
import zlib
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from rich.console import Console

from cluster.errors import ConfigError
from jobs.cli.command_line.arguments import parser
from jobs.cli.evaluate import evaluate
from jobs.config.load import load_config
from jobs.measure.answers.comparison import compare_judged
from jobs.measure.answers.quality import measured_answers
from jobs.measure.diff.diff import diff
from jobs.measure.judged.relevance import judged_relevance
from jobs.measure.notes import OWN_NUGGETS
from jobs.pages.ablation import ablation_report
from jobs.pages.closing import compared
from jobs.pages.report import report
from jobs.pages.report.judged_queries import measured
from jobs.pages.try_one import page as try_page
from jobs.runs.folder import RunFolder
from jobs.runs.sums import arm_needs
from jobs.try_one.stages import LoadedConfig
from retrievers.local.build import build_local_index
from rewriters import steps
from tests.support.jobs.in_process_runs import QUERIES, finished, job_in_process, prepared_work, rows
from tests.support.retrievers.blocks import index_fields
from tests.support.rewriters.fake_server import FakeServer

NO_LIST, NO_LABELS, NO_SUPPORT = QUERIES[0], QUERIES[2], QUERIES[3]  # of these something cannot be read
FAULTS = {NO_LIST, NO_LABELS, NO_SUPPORT}
IMPORTANCE, SUPPORT = ("okay", "vital"), ("not_support", "partial_support", "support")
MEASURES = ("strict_vital", "vital", "strict_all", "all")


def prompt_of(body: dict[str, Any]) -> str:
    return str(body["messages"][-1]["content"])


def chance(text: str, of: int) -> int:
    return zlib.crc32(text.encode()) % of


def listed(text: str) -> list[str]:
    return [line.partition(". ")[2] for line in text.splitlines() if re.match(r"\d+\. ", line)]


def grade(query: str, text: str) -> int:
    return 1 + chance(f"{query}|{text}", 3)


def facts(text: str) -> list[str]:
    """What the fake judge finds in a document: two runs of words."""
    words = text.split()
    return [" ".join(words[:3]), " ".join(words[3:6])]


def longer(nuggets: list[str], texts: list[str], most: int) -> list[str]:
    """The list that the fake judge makes of a list and some documents; it repeats itself and exceeds what is allowed."""
    found = [*nuggets, *(fact for text in texts for fact in facts(text))]
    return [*found, found[0].upper()] if most else found


def said(body: dict[str, Any]) -> str:
    prompt = prompt_of(body)
    if "Nuggets so far:" in prompt:
        return made(prompt)
    if "Statements:" in prompt:
        return labelled(prompt, body["seed"])
    if prompt.startswith("Query: "):
        query, _, text = prompt.removeprefix("Query: ").partition("\n\nDocument:\n")
        return json.dumps({"match": 0, "trust": 0, "overall": grade(query, text)})
    question, cited = prompt.rpartition("Question: ")[2], " ".join(re.findall(r"\[\d+\]", prompt))
    return f"On {question}: {chance(prompt, 1000)} {cited}"


def made(prompt: str) -> str:
    """The list of nuggets that a prompt asks for."""
    documents, _, rest = prompt.removeprefix("Documents:\n\n").partition("\n\nNuggets so far:\n")
    before, _, question = rest.partition("\n\nQuestion, for which ")
    if any(question.endswith(one) for one in FAULTS & {NO_LIST}):
        return "I found none."
    texts = [text.strip() for text in re.split(r"\[\d+\]\n", documents) if text.strip()]
    return json.dumps({"nuggets": longer(listed(before), texts, int(question.split()[0]))})


def labelled(prompt: str, seed: int) -> str:
    """The labels of nuggets that a prompt asks for."""
    nuggets = listed(prompt.rpartition("Statements:\n")[2])
    question = prompt.removeprefix("Question: ").partition("\n")[0]
    if "Answer:" not in prompt:
        labels = [IMPORTANCE[chance(one, 2)] for one in nuggets]
        return json.dumps({"labels": labels[:-1] if question in FAULTS & {NO_LABELS} else labels})
    answer = prompt.partition("Answer:\n")[2].partition("\n\nStatements:")[0]
    if question in FAULTS & {NO_SUPPORT} and "[2]" not in answer:
        return "It is supported."
    return json.dumps({"labels": [SUPPORT[chance(f"{answer}|{one}|{seed}", 3)] for one in nuggets]})


@pytest.fixture
def server() -> Iterator[FakeServer]:
    with FakeServer(["judge-70b", "answerer-8b"], text=said) as one:
        yield one


@pytest.fixture
def job(
    tmp_path: Path, values: dict[str, Any], bm25: dict[str, Any], config_file: Callable[[Any], str], server: FakeServer,
    monkeypatch: pytest.MonkeyPatch,
) -> str:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    engine = {"kind": "openai", "base_url": server.address, "attempts": 1}
    values["answer"] = {"documents": 2, "engine": engine | {"model": "answerer-8b"}}
    nuggets = {"documents_at_once": 1, "nuggets_at_once": 2, "most": 3}
    values["judge"] = {"engine": engine | {"model": "judge-70b"}, "relevance": {"documents": 4}, "nuggets": nuggets}
    return job_in_process(tmp_path, values, bm25, config_file)


def wanted_nuggets(run: RunFolder, passages: dict[str, str], most: int = 3) -> dict[str, list[tuple[str, str]]]:
    """query_id -> (text, importance) of its nuggets, by the rules: from relevant documents, one at a time, each text once."""
    found: dict[str, list[tuple[str, str]]] = {}
    for one in rows(run, "queries"):
        judged = [of for of in rows(run, "judgements") if of["query_id"] == one["query_id"] and of["kind"] == "relevance"]
        relevant = sorted((-of["grade"], of["doc_id"]) for of in judged if of["grade"] >= 2)
        nuggets: list[str] = []
        for _, doc_id in relevant if one["query"] not in FAULTS - {NO_SUPPORT} else ():
            kept: dict[str, str] = {}
            for text in longer(nuggets, [passages[doc_id]], most):
                kept.setdefault(text.casefold(), text)
            nuggets = list(kept.values())[:most]
        labelled = [(text, IMPORTANCE[chance(text, 2)]) for text in nuggets]
        if labelled:
            found[one["query_id"]] = [of for kind in ("vital", "okay") for of in labelled if of[1] == kind]
    return found


def scores(nuggets: list[tuple[str, str]], assigned: list[str]) -> list[float]:
    """The four measures of one answer, as nuggetizer's metrics define them."""
    worth = {"support": 1.0, "partial_support": 0.5, "not_support": 0.0}
    found = []
    for chosen in ([n for n, (_, importance) in enumerate(nuggets) if importance == "vital"], list(range(len(nuggets)))):
        strict = [float(assigned[n] == "support") for n in chosen]
        part = [worth[assigned[n]] for n in chosen]
        found += [sum(of) / len(of) if of else 0.0 for of in (strict, part)]
    return found


def assigned_of(nuggets: list[tuple[str, str]], answer: str, seed: int = 0) -> list[str]:
    return [SUPPORT[chance(f"{answer}|{text}|{seed}", 3)] for text, _ in nuggets]


def asked(server: FakeServer) -> list[str]:
    return [prompt_of(one) for one in server.bodies if "Statements:" in prompt_of(one) or "Nuggets so far:" in prompt_of(one)]


@pytest.mark.slow
def test_nuggets_are_made_from_relevant_documents_and_found_in_the_answer(
    job: str, server: FakeServer, passages: dict[str, str]
) -> None:
    run = finished(prepared_work(job, [], None))
    texts = {one["query_id"]: one["query"] for one in rows(run, "queries")}
    wanted = wanted_nuggets(run, passages)
    assert len(wanted) >= 2
    found: dict[str, list[tuple[str, str]]] = {}
    for one in sorted(rows(run, "nuggets"), key=lambda one: one["nugget"]):
        found.setdefault(one["query_id"], []).append((one["text"], one["importance"]))
        relevant = {of["doc_id"] for of in rows(run, "judgements") if of["query_id"] == one["query_id"] and of["grade"] >= 2}
        assert set(one["documents"]) == relevant
    assert found == wanted
    assert any(len(of) == 3 for of in found.values())
    answers = {one["query_id"]: one["text"] for one in rows(run, "answers")}
    assignments: dict[str, list[str]] = {}
    for one in sorted(rows(run, "assignments"), key=lambda one: one["nugget"]):
        assert (one["arm"], one["sample"], one["model"]) == ("run", 0, "judge-70b")
        assignments.setdefault(one["query_id"], []).append(one["assignment"])
    readable = {key for key in wanted if texts[key] != NO_SUPPORT or "[2]" in answers[key]}
    assert assignments == {key: assigned_of(wanted[key], answers[key]) for key in readable}
    errors = {
        (texts[one["query_id"]], one["component"], one["reason"]) for one in rows(run, "errors") if one["stage"] == "judge"
    }
    assert errors <= {
        (NO_LIST, "nuggets", "unparsable"), (NO_LABELS, "nugget_importance", "unparsable"),
        (NO_SUPPORT, "nugget_support", "unparsable"),
    }  # fmt: skip
    assert (NO_LIST, "nuggets", "unparsable") in errors
    (quality,) = measured_answers(run, None)
    assert quality.frame.measures == MEASURES
    assert set(quality.frame.keys) == readable
    means = [sum(column) / len(readable) for column in zip(*(
        scores(wanted[key], assignments[key]) for key in readable), strict=True)]  # fmt: skip
    assert [one.mean for one in quality.measures.values()] == pytest.approx(means)
    without = len(texts) - len(wanted)
    assert any(f"left out: {without:,} queries without nuggets" in note for note in quality.notes)
    assert "judged by judge-70b, an LLM" in quality.notes[0]
    sent = len(asked(server))
    again = finished(prepared_work(job, ["fuse.keep=40"], None))
    assert again.storage.root != run.storage.root
    assert len(asked(server)) == sent
    for name in ("nuggets", "assignments"):
        assert rows(again, name) == rows(run, name)
    costs = [one for one in rows(run, "costs") if one["stage"] == "judge" and one["component"].startswith("nugget")]
    assert sum(one["requests"] for one in costs) == sent


@pytest.mark.slow
@pytest.mark.parametrize("faults", [True, False])
def test_all_arms_have_the_same_nuggets_and_each_its_own_measures(
    job: str, server: FakeServer, passages: dict[str, str], faults: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not faults:
        monkeypatch.setitem(globals(), "FAULTS", set())
    arms = {"one": {"answer.documents": 1}, "rrf": {"fuse.method": "rrf"}, "short": {"fuse.depth": 2}}
    run = finished(prepared_work(job, [], {"arms": arms}))
    wanted = wanted_nuggets(run, passages)
    assert len(asked(server)) == len(set(asked(server)))
    texts = {one["query_id"]: one["query"] for one in rows(run, "queries")}
    answers = {(one["arm"], one["query_id"]): one["text"] for one in rows(run, "answers")}
    (found,) = compare_judged(run, run.config.evaluate)
    failed = {key for (_, key), answer in answers.items() if texts[key] in FAULTS & {NO_SUPPORT} and "[2]" not in answer}
    assert set(found.frame.keys) == set(wanted) - failed
    for arm in ("full", "original", "general", *arms):
        own = [scores(wanted[key], assigned_of(wanted[key], answers[arm, key])) for key in found.frame.keys]
        means = [sum(column) / len(own) for column in zip(*own, strict=True)]
        assert [found.by_arm[arm, name].mean for name in MEASURES] == pytest.approx(means), arm
    if not faults:
        one = found.by_arm["one", "all"]
        assert one.low < one.difference < one.high
        assert one.p_holm is not None


@pytest.mark.slow
def test_a_judge_that_is_asked_twice_looks_for_the_same_nuggets(job: str, passages: dict[str, str]) -> None:
    run = finished(prepared_work(job, ["judge.samples=2"], {"arms": {"one": {"answer.documents": 1}}}))
    wanted, (found,) = wanted_nuggets(run, passages), compare_judged(run, run.config.evaluate)
    answers = {(one["arm"], one["query_id"]): one["text"] for one in rows(run, "answers")}
    moved = []
    for arm in found.frame.arms:
        of = [[scores(wanted[key], assigned_of(wanted[key], answers[arm, key], seed)) for key in found.frame.keys]
              for seed in (0, 1)]  # fmt: skip
        first, second = ([sum(column) / len(one) for column in zip(*one, strict=True)] for one in of)
        moved.append([abs(a - b) for a, b in zip(first, second, strict=True)])
    assert found.frame.noise == pytest.approx([max(column) for column in zip(*moved, strict=True)])
    assert any(found.frame.noise)


def lines(path: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in Path(path).read_text(encoding="utf-8").splitlines()]


def command(run: RunFolder, *words: str) -> int:
    return evaluate(parser().parse_args(["evaluate", run.storage.root, *words]))


def test_nuggets_that_cannot_be_made_are_refused_in_one_line(job: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="nuggets are made from results that are judged relevant; set relevance"):
        prepared_work(job, ["judge.relevance=null"], None)
    (tmp_path / "own.yaml").write_text("prompt: 'List. {documents} {nuggets} {query}'\n")
    with pytest.raises(
        ConfigError, match=r"judge\.nuggets\.prompt: \./own\.yaml: output: text is not what it needs; make it texts"
    ):
        prepared_work(job, ["judge.nuggets.prompt=./own.yaml"], None)
    (tmp_path / "two.yaml").write_text("prompt: 'List. {query}'\noutput: texts\nkeys: [a, b]\n")
    with pytest.raises(ConfigError, match="output: texts has one key, found 2; give one"):
        prepared_work(job, ["judge.nuggets.prompt=./two.yaml"], None)
    with pytest.raises(ConfigError, match="accuracy, criteria and nuggets are of answers"):
        prepared_work(job, ["answer=null"], None)


@pytest.mark.slow
def test_a_shorter_list_and_another_threshold_make_another_run(job: str, server: FakeServer, passages: dict[str, str]) -> None:
    first = finished(prepared_work(job, [], None))
    for setting in ("judge.nuggets.most=2", "judge.nuggets.relevant=3"):
        other = finished(prepared_work(job, [setting], None))
        assert other.storage.root != first.storage.root
        by_query = [one["query_id"] for one in rows(other, "nuggets")]
        if setting.endswith("most=2"):
            assert max(map(by_query.count, by_query)) == 2
        else:
            grades = {(one["query_id"], one["doc_id"]): one["grade"] for one in rows(other, "judgements")}
            made_from = [(one["query_id"], doc_id) for one in rows(other, "nuggets") for doc_id in one["documents"]]
            assert all(grades[pair] == 3 for pair in made_from)


@pytest.mark.slow
def test_an_arm_differs_from_its_run_alone_by_the_documents_that_nuggets_are_made_from(
    job: str, passages: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(globals(), "FAULTS", set())
    arms = {"short": {"fuse.depth": 1}, "one": {"answer.documents": 1}}
    together = finished(prepared_work(job, ["judge.nuggets.relevant=3"], {"arms": arms}))
    (found,) = compare_judged(together, together.config.evaluate)
    assert f"nuggets: {OWN_NUGGETS}" in found.notes
    pool = {one["query_id"]: set(one["documents"]) for one in rows(together, "nuggets")}
    same, other = 0, 0
    for arm, changes in {"full": {}, **arms}.items():
        settings = [f"{key}={value}" for key, value in changes.items()]
        alone = finished(prepared_work(job, [*settings, "judge.nuggets.relevant=3", "name=alone"], None))
        (quality,) = measured_answers(alone, None)
        answers = [{one["query_id"]: one["text"] for one in rows(run, "answers") if one["arm"] == name}
                   for run, name in ((together, arm), (alone, "run"))]  # fmt: skip
        assert answers[0] == answers[1]
        own = {one["query_id"]: set(one["documents"]) for one in rows(alone, "nuggets")}
        for key in set(quality.frame.keys) & set(found.frame.keys):
            values = [frame.values[frame.arms.index(name), :, frame.keys.index(key)].tolist()
                      for frame, name in ((found.frame, arm), (quality.frame, "run"))]  # fmt: skip
            if own[key] == pool[key]:
                assert values[0] == values[1]
                same += 1
            else:
                assert own[key] < pool[key]
                other += 1
    assert same
    assert other


def test_a_list_that_is_emptied_stays_as_it_was(job: str, passages: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    def first_only(prompt: str) -> str:
        return whole(prompt) if "Nuggets so far:\n(none)" in prompt else json.dumps({"nuggets": []})

    whole = made
    monkeypatch.setitem(globals(), "made", first_only)
    monkeypatch.setitem(globals(), "FAULTS", set())
    run = finished(prepared_work(job, [], None))
    by_query: dict[str, list[str]] = {}
    for one in rows(run, "nuggets"):
        by_query.setdefault(one["query_id"], []).append(one["text"])
        several = len(one["documents"]) > 1
        of_query = [of for of in rows(run, "errors") if of["query_id"] == one["query_id"]]
        errors = [of["message"] for of in of_query if of["component"] == "nuggets"]
        assert bool(errors) == several
        assert all("the list has no nugget, and before these documents it had some" in message for message in errors)
    judged = {(one["query_id"], one["doc_id"]): one["grade"] for one in rows(run, "judgements") if one["doc_id"]}
    for query_id, texts in by_query.items():
        _, first = min((-grade, doc_id) for (of, doc_id), grade in judged.items() if of == query_id and grade >= 2)
        assert set(texts) == set(longer([], [passages[first]], 3)[:2])
    assert any(len({one["doc_id"] for one in rows(run, "judgements") if one["query_id"] == key}) > 1 for key in by_query)


def test_texts_are_shown_once_and_nuggets_beyond_the_most_are_counted(
    job: str, server: FakeServer, tmp_path: Path, passages: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(globals(), "FAULTS", set())
    twins = passages | {f"{doc_id}-again": text for doc_id, text in passages.items()}
    pq.write_table(pa.table({"doc_id": list(twins), "text": list(twins.values())}), tmp_path / "twins.parquet")
    build_local_index(tmp_path / "twins", tmp_path / "twins.parquet", index_fields("english"))
    settings = [f"retrieve.retrievers.bm25.index={tmp_path / 'twins'}", "judge.nuggets.documents_at_once=10"]
    run = finished(prepared_work(job, [*settings, "judge.nuggets.most=1"], None))
    shown = [prompt for prompt in asked(server) if "Nuggets so far:" in prompt]
    assert shown
    for prompt in shown:
        texts = [one.strip() for one in re.split(r"\[\d+\]\n", prompt.partition("\n\nNuggets so far:")[0])[1:]]
        assert len(texts) == len(set(texts))
    documents = {one["query_id"]: one["documents"] for one in rows(run, "nuggets")}
    assert any(f"{doc_id}-again" in of for of in documents.values() for doc_id in of)
    beyond = sum(len({text.casefold() for doc in of for text in facts(twins[doc])}) - 1 for of in documents.values())
    assert run.counts["nuggets_left_out"] == beyond > 0


MAIL = "keeper@sea.org"


@pytest.mark.slow
def test_a_document_of_a_low_grade_is_not_called_relevant(job: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(globals(), "FAULTS", set())
    run = finished(prepared_work(job, [], None))
    evaluation, judged = measured(run, judged_relevance(run))
    page = html.unescape(report(run, None, evaluation, judged=judged))
    assert {*re.findall(r"★ relevant (\d)", page)} == {"2", "3"}
    assert "judged 1, not relevant" in page
    together = finished(prepared_work(job, [], {"arms": {"short": {"fuse.depth": 1}}}))
    judgements = judged_relevance(together)
    assert judgements is not None
    settings = together.config.evaluate.model_copy(update={"measures": judgements.measures(())})
    arms = html.unescape(ablation_report(compared(together, judgements, settings, None)))
    assert "★ relevant 1" not in arms


def test_what_is_masked_in_the_query_is_masked_in_what_the_judge_compares(
    job: str, server: FakeServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(globals(), "FAULTS", set())
    monkeypatch.setitem(globals(), "grade", lambda query, text: 3)
    query = f"tides by {MAIL}"
    texts = {"a": f"{MAIL} knows the tides of the sea well", "b": "Spring tides come with the moon"}
    pq.write_table(pa.table({"query": [query]}), tmp_path / "log.parquet")
    pq.write_table(pa.table({"doc_id": list(texts), "text": list(texts.values())}), tmp_path / "mails.parquet")
    build_local_index(tmp_path / "mails", tmp_path / "mails.parquet", index_fields("english"))
    (tmp_path / "gold.tsv").write_text(f"{query}\tthe mail {MAIL}\n")
    settings = [f"retrieve.retrievers.bm25.index={tmp_path / 'mails'}", "rewrite.guards.mask=[mail]", "evaluate.key=query",
                "evaluate.answers=gold.tsv", "judge.accuracy={}", "judge.criteria={}"]  # fmt: skip
    run = finished(prepared_work(job, settings, None))
    (answer,) = rows(run, "answers")
    assert MAIL in answer["text"]
    nuggets = [one["text"] for one in rows(run, "nuggets")]
    assert f"{MAIL} knows the" in nuggets, "what is stored has what stood there"
    sent = [prompt_of(one) for one in server.bodies]
    compared = [one for one in sent if "Statements:" in one or "Answer of the system:" in one]
    assert {"Reference answers:" in one for one in compared} == {True, False}
    assert any("<MAIL_1> knows the" in one for one in compared if "Statements:" in one)
    assert any("the mail <MAIL_1>" in one for one in compared)
    assert not [one for one in compared if MAIL in one]
    before = [one.partition("Nuggets so far:")[2] for one in sent if "Nuggets so far:" in one]
    assert any("<MAIL_1> knows the" in one for one in before)
    assert not [one for one in before if MAIL in one]


@pytest.mark.slow
def test_answers_whose_nuggets_cannot_be_told_are_not_called_without_nuggets(
    job: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = labelled

    def silent(prompt: str, seed: int) -> str:
        return "It is supported." if "Answer:" in prompt else whole(prompt, seed)

    monkeypatch.setitem(globals(), "labelled", silent)
    monkeypatch.setitem(globals(), "FAULTS", set())
    run = finished(prepared_work(job, [], None))
    assert "assignments" not in run.tables


@pytest.mark.slow
def test_two_runs_with_other_nuggets_are_compared_with_a_warning(job: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(globals(), "FAULTS", set())
    a, b, c = (finished(prepared_work(job, [setting], None)) for setting in ("fuse.depth=1", "fuse.depth=30", "fuse.keep=40"))
    lists: list[dict[str, list[Any]]] = []
    for run in (a, b):
        lists.append({})
        for one in sorted(rows(run, "nuggets"), key=lambda one: one["nugget"]):
            lists[-1].setdefault(one["query_id"], []).append((one["text"], one["importance"]))
    both = lists[0].keys() & lists[1].keys()
    same = sum(lists[0][key] == lists[1][key] for key in both)
    assert same < len(both)
    of_nuggets = next(one for one in diff(a, b, None, None, 5).judged if one.kind == "nuggets")
    assert of_nuggets.judge is not None
    words = "queries with nuggets in both runs have the same"
    assert of_nuggets.judge.notes[0].startswith(f"warning: {same} of {len(both)} {words}")
    alike = next(one for one in diff(b, c, None, None, 5).judged if one.kind == "nuggets")
    assert alike.judge is not None
    assert alike.judge.notes[0].startswith(f"{len(lists[1])} of {len(lists[1])} {words}")


@pytest.mark.slow
def test_prompts_of_one_name_are_told_apart_in_costs_and_errors(job: str, server: FakeServer, tmp_path: Path) -> None:
    for folder, source in (("one", "nugget_importance"), ("two", "nugget_support")):
        (tmp_path / folder).mkdir()
        text = (Path(steps.__file__).parent / f"{source}.yaml").read_text()
        (tmp_path / folder / "labels.yaml").write_text(text)
    settings = ["judge.nuggets.importance.prompt=./one/labels.yaml", "judge.nuggets.support.prompt=./two/labels.yaml"]
    arms = {"one": {"answer.documents": 1}}
    run = finished(prepared_work(job, [*settings, "store=null"], {"arms": arms}))
    names = {one["component"] for one in rows(run, "costs") if one["stage"] == "judge" and one["requests"]}
    assert names == {"relevance", "nuggets", "labels of nuggets.importance", "labels of nuggets.support"}
    needs = arm_needs(run.counts, ["full", "one"])
    alone = finished(prepared_work(job, [*settings, "store=null", "name=alone"], None))
    executed = {key: int(sums["requests"]) for key, sums in alone.spent["judge"].items() if sums.get("requests")}
    found = {need.component: need.amount for need in needs["full"].whole if need.quantity == "judgements"}
    for component in ("relevance@judge-70b", "labels of nuggets.support@judge-70b"):
        assert found[component] == executed[component]


@pytest.mark.slow
def test_try_and_report_show_nuggets_and_judgements(job: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(globals(), "FAULTS", set())
    run = finished(prepared_work(job, ["judge.samples=2"], None))
    with_texts, without = (html.unescape(report(run, None, None, texts=texts)) for texts in (True, False))
    nuggets = rows(run, "nuggets")
    assert f"Nuggets {OWN_NUGGETS}" in re.sub(r"<[^>]+>", "", with_texts)
    for one in nuggets:
        assert one["text"] in with_texts
        assert one["text"] not in without
    said_of = Counter(one["assignment"].replace("_", " ") for one in rows(run, "assignments") if not one["sample"])
    for page in (with_texts, without):
        listed_in = page.partition('<section id="samples">')[2]
        assert Counter(re.findall(r'<b(?: class="new")?>(support|partial support|not support)</b>', listed_in)) == said_of
    first = [one for one in rows(run, "judgements") if not one["sample"]]
    assert with_texts.count("judged by judge-70b: ") == len({one["query_id"] for one in first})
    for one in first:
        assert f"{one['doc_id']} {one['grade']}" in with_texts
    query = next(one["query"] for one in rows(run, "queries") if one["query_id"] == nuggets[0]["query_id"])
    with LoadedConfig(load_config(job, ["judge.samples=2"]), job, "small") as loaded:
        trial = loaded.try_query(query, lambda _: None)
    console = Console(width=200, record=True, file=io.StringIO())
    console.print(try_page([trial], prompts=True))
    shown = console.export_text()
    for one in (of for of in first if of["query_id"] == nuggets[0]["query_id"]):
        assert f"{one['doc_id']} {one['grade']} (again {one['grade']})" in shown
        assert f"request relevance about {one['doc_id']} 2 of 2  judge-70b" in shown
    assert "request nugget_support 1 of " in shown


@pytest.mark.slow
def test_answers_that_are_judged_without_a_gold_answer_are_counted(job: str, tmp_path: Path) -> None:
    (tmp_path / "gold.tsv").write_text(f"{QUERIES[1]}\tx\n")
    settings = ["judge.accuracy={prompt: ./own.yaml}", "evaluate.key=query"]
    own = "prompt: 'Right? {gold} {query} {answer}'\noutput: grade\ngrades: {right: 1, wrong: 0}\n"
    (tmp_path / "own.yaml").write_text(own)
    for named, alone in (("gold.tsv", len(QUERIES) - 1), (None, len(QUERIES))):
        run = finished(prepared_work(job, [*settings, f"evaluate.answers={named or 'null'}"], None))
        assert run.counts["judged_without_gold"] == alone
