"""What becomes of each published format: log, corpus, answers, judgements, slices, and a config that is ready."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
import yaml

from cluster.errors import ConfigError
from jobs.__main__ import main
from jobs.cli.command_line.import_arguments import SETS as NAMED
from jobs.config.load import load_config
from jobs.importers.written import SETS, ImportedSet, import_set
from jobs.log.judgements import read_answers, read_qrels
from tests.support.jobs.data_sets import FILES, LETTERS, LIGHT, ROOM, STRAIT, ambignq, hotpotqa, musique, musique_record
from tests.support.rewriters.fake_server import FakeServer

Import = Callable[..., ImportedSet]


@pytest.fixture
def imported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Import:
    """Imports a set's file, or another text in its form."""
    monkeypatch.chdir(tmp_path)

    def call(name: str, text: str | None = None, to: str = "set", corpus: tuple[str, ...] = ()) -> ImportedSet:
        Path("file").write_text(FILES[name] if text is None else text, encoding="utf-8")
        return import_set(name, "file", to, corpus)

    return call


def log() -> list[dict[str, Any]]:
    return pq.read_table("set/log.parquet").to_pylist()


def corpus() -> dict[str, tuple[str, str]]:
    rows = pq.read_table("set/corpus.parquet").to_pylist()
    found = {row["doc_id"]: (row["title"], row["text"]) for row in rows}
    assert len(found) == len(rows)
    return found


def judged_texts() -> dict[str, set[tuple[str, str]]]:
    of = corpus()
    return {key: {of[doc_id] for doc_id in grades} for key, grades in read_qrels("set/qrels.tsv").grades.items()}


def passage(paragraph: list[Any]) -> tuple[str, str]:
    title, sentences = paragraph
    return title, " ".join(one.strip() for one in sentences)


def test_the_command_line_names_the_sets() -> None:
    assert tuple(SETS) == NAMED


def test_hotpotqa(imported: Import) -> None:
    found = imported("hotpotqa")
    assert set(corpus().values()) == {passage(one) for one in (STRAIT, LIGHT, LETTERS, ROOM)}
    assert judged_texts() == {
        "a1": {passage(LIGHT), passage(STRAIT)}, "a2": {passage(LETTERS), passage(STRAIT)}, "a3": {passage(LETTERS)}
    }  # fmt: skip
    assert read_answers("set/answers.tsv", "log_id") == {"a1": ["no"], "a2": ["1902"], "a3": ["a drum lens"]}
    assert log() == [
        {"id": one["_id"], "query": one["question"], "type": one["type"], "level": one["level"]} for one in hotpotqa()
    ]
    assert (found.questions, found.passages, found.repeated, found.judgements) == (3, 4, 5, 5)
    assert list(found.notes.values()) == [1]
    assert yaml.safe_load(Path(found.config).read_text())["evaluate"]["slices"] == ["type", "level"]


def test_a_test_file_of_hotpotqa_has_no_answers_and_no_judgements(imported: Import) -> None:
    hidden = [{name: one[name] for name in ("_id", "question", "context")} for one in hotpotqa()]
    found = imported("hotpotqa", json.dumps(hidden))
    assert found.files == ("set/log.parquet", "set/corpus.parquet")
    assert (found.answered, found.judged) == (0, 0)
    config = load_config(found.config)
    assert (config.evaluate.qrels, config.evaluate.answers, config.evaluate.slices, config.answer) == (None, None, [], None)


def test_ids_of_passages_are_those_of_their_content_alone(imported: Import) -> None:
    imported("hotpotqa")
    first = corpus()
    imported("hotpotqa", json.dumps(hotpotqa()[::-1]), to="again")
    again = pq.read_table("again/corpus.parquet").to_pylist()
    assert {row["doc_id"]: (row["title"], row["text"]) for row in again} == first
    assert all(len(doc_id) == 32 for doc_id in first)


def test_musique(imported: Import) -> None:
    found = imported("musique")
    keeper, lamp = ("Keepers", "Ada Renn kept it."), ("Lamps", "It burned oil.")
    assert set(corpus().values()) == {keeper, lamp, ("Sea", "It is deep."), ("Sea", "It is wide.")}
    assert judged_texts() == {"2hop__1_2": {keeper, lamp}, "3hop1__1_2_3": {lamp}}
    assert read_answers("set/answers.tsv", "log_id") == {"2hop__1_2": ["Ada Renn", "A. Renn"], "3hop1__1_2_3": ["Ada Renn"]}
    columns = {row["id"]: (row["type"], row["hops"], row["answerable"]) for row in log()}
    assert columns == {
        "2hop__1_2": ("2hop", 2, True), "3hop1__1_2_3": ("3hop1", 3, True), "4hop2__4_5_6_7": ("4hop2", 4, False)
    }  # fmt: skip
    assert (found.questions, found.answered, found.judged, found.judgements) == (3, 2, 2, 3)
    assert sorted(found.notes.values()) == [1, 1]


def test_the_order_of_the_two_records_of_a_question_of_musique_does_not_matter(imported: Import) -> None:
    imported("musique")
    kept = read_qrels("set/qrels.tsv").grades, read_answers("set/answers.tsv", "log_id")
    imported("musique", "".join(json.dumps(one) + "\n" for one in musique()[::-1]), to="again")
    assert (read_qrels("again/qrels.tsv").grades, read_answers("again/answers.tsv", "log_id")) == kept


def test_a_test_file_of_musique_has_the_hops_of_its_ids(imported: Import) -> None:
    record = musique_record("3hop2__7_8_9", True, [("Sea", "It is deep.", False)])
    hidden = {name: record[name] for name in ("id", "question", "paragraphs")}
    for paragraph in hidden["paragraphs"]:
        del paragraph["is_supporting"]
    found = imported("musique", json.dumps(hidden))
    assert log() == [{"id": "3hop2__7_8_9", "query": record["question"], "type": "3hop2", "hops": 3, "answerable": None}]
    assert (found.answered, found.judged, found.notes) == (0, 0, {})


def test_ambignq(imported: Import) -> None:
    found = imported("ambignq")
    years = ["1871", "1902", "1911"]
    answers = {"-77": ["1902", "in 1902"], "78": years, "79": ["1902", "in 1902", "1871", "1911"]}
    assert read_answers("set/answers.tsv", "log_id") == answers
    shown = {row["id"]: (row["type"], row["readings"], row["viewed_doc_titles"]) for row in log()}
    assert shown == {"-77": ("singleAnswer", 1, ["Lamp"]), "78": ("multipleQAs", 3, []), "79": ("both", 3, ["Lamp", "Sea"])}
    assert found.searched.startswith("the web")
    light = [{name: one[name] for name in ("id", "question", "annotations")} for one in ambignq()]
    imported("ambignq", json.dumps(light), to="light")
    assert read_answers("light/answers.tsv", "log_id") == answers


def test_freshqa(imported: Import) -> None:
    found = imported("freshqa")
    assert read_answers("set/answers.tsv", "log_id") == {"0": ["Ada Renn", "A. Renn"], "1": ["She has not been on the moon."]}
    assert [row["query"] for row in log()] == [
        "Who keeps Marwick Light, now?", "When did Ada Renn walk on the moon?", 'What is a "drum lens"?'
    ]  # fmt: skip
    assert [(row["false_premise"], row["num_hops"], row["effective_year"], row["split"]) for row in log()] == [
        (False, "one-hop", "2026", "TEST"), (True, "multi-hop", "before 2022", "DEV"), (False, "one-hop", "2025", "TEST")
    ]  # fmt: skip
    assert found.notes == {"questions without answers": 1}
    slices = ["false_premise", "fact_type", "num_hops", "effective_year", "split"]
    assert load_config(found.config).evaluate.slices == slices


@pytest.fixture(scope="module")
def served() -> Iterator[list[str]]:
    """Flags that name an LLM in place of the one of the configs."""
    with FakeServer(["Qwen/Qwen3-8B"]) as server:
        yield ["--set", f"rewrite.engine.base_url={server.address}"]


@pytest.mark.parametrize("name", SETS)
def test_every_config_is_ready_to_be_planned(
    name: str, imported: Import, served: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("SEARXNG_URL", "http://127.0.0.1:9")
    found = imported(name)
    assert main(["plan", found.config, "--json", *served]) == 0, capsys.readouterr().err
    planned = json.loads(capsys.readouterr().out)
    assert planned["left"]["queries"] == found.questions


def test_a_corpus_of_ones_own_is_searched_where_the_set_has_none(
    imported: Import, served: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    Path("wiki.jsonl").write_text('{"doc_id": "1", "title": "Lamp", "text": "It was lit in 1902."}\n')
    found = imported("ambignq", corpus=("wiki.jsonl",))
    assert found.searched == "wiki.jsonl: the set has no passages of its own, and so no judgements"
    assert main(["plan", found.config, *served]) == 0, capsys.readouterr().err
    with pytest.raises(ConfigError, match=r"--corpus: hotpotqa brings its own passages"):
        imported("hotpotqa", to="other", corpus=("wiki.jsonl",))


def changed(name: str, place: int, **fields: Any) -> str:
    records = {"hotpotqa": hotpotqa, "musique": musique, "ambignq": ambignq}[name]()
    records[place] |= fields
    return json.dumps(records)


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        ("hotpotqa", changed("hotpotqa", 1, _id="a1"), "record 2: its id 'a1' is that of record 1, too"),
        ("hotpotqa", changed("hotpotqa", 2, context=[["Sea"]]), "record 3: context has an item that is not a title"),
        ("hotpotqa", changed("hotpotqa", 0, context=[["Sea", [1]]]), "record 1: context has a paragraph whose"),
        ("hotpotqa", changed("hotpotqa", 0, supporting_facts=[["Sea", "0"]]), "record 1: supporting_facts has an item"),
        ("hotpotqa", changed("hotpotqa", 1, question=None), "record 2: question is not text"),
        ("musique", changed("musique", 1, question="other words"), "record 2: its id '2hop__1_2' is that of record 1, too"),
        ("musique", changed("musique", 2, id="2hop__1_2", question="what is 2hop__1_2"), "record 3: its id '2hop__1_2'"),
        ("musique", changed("musique", 3, paragraphs=[{"title": "Sea"}]), "record 4: paragraphs[0].paragraph_text is missing"),
        ("ambignq", changed("ambignq", 1, annotations=[{"type": "many"}]), "record 2: annotations[0].type 'many' is neither"),
        ("ambignq", changed("ambignq", 0, annotations=[{"type": "singleAnswer"}]), "record 1: annotations[0].answer is"),
        ("freshqa", FILES["freshqa"].replace("TRUE", "perhaps"), "record 2: false_premise 'perhaps' is neither TRUE nor FALSE"),
        ("freshqa", FILES["freshqa"].replace("\n1,DEV", "\n0,DEV"), "record 2: its id '0' is that of record 1, too"),
        ("freshqa", FILES["freshqa"].rstrip(",\r\n") + "," * 30 + "x\n", "record 3 (line"),
        ("freshqa", FILES["hotpotqa"], "none of its first 20 records is the header"),
        ("hotpotqa", FILES["freshqa"], "record 1: is no JSON"),
        ("hotpotqa", "[]", "holds no question"),
    ],
)  # fmt: skip
def test_what_is_not_as_published_is_one_line_and_leaves_nothing(
    name: str, text: str, words: str, imported: Import, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(ConfigError) as caught:
        imported(name, text)
    assert str(caught.value).startswith(f"file: {words}")
    assert "\n" not in str(caught.value)
    assert not Path("set").exists()
    Path("set").mkdir()
    Path("set/notes.txt").write_text("mine")
    assert main(["import", name, "file", "--to", "set"]) == 2
    assert capsys.readouterr().err.startswith(f"dmqr import: file: {words}")
    assert [one.name for one in Path("set").iterdir()] == ["notes.txt"]


def test_nothing_is_overwritten(imported: Import, capsys: pytest.CaptureFixture[str]) -> None:
    found = imported("hotpotqa")
    kept = {file: Path(file).read_bytes() for file in (found.config, *found.files)}
    assert main(["import", "hotpotqa", "file", "--to", "set"]) == 2
    assert "set/hotpotqa.yaml is there and is not overwritten" in capsys.readouterr().err
    assert {file: Path(file).read_bytes() for file in kept} == kept
    assert main(["import", "hotpotqa", "file", "--to", "file"]) == 2
    assert main(["import", "hotpotqa", "gone.json", "--to", "other"]) != 0
    assert not Path("other").exists()


def test_what_it_prints(imported: Import, capsys: pytest.CaptureFixture[str]) -> None:
    imported("musique", to="first")
    assert main(["import", "musique", "file", "--to", "set"]) == 0
    printed = capsys.readouterr().out
    assert printed.splitlines()[-1] == "set/musique.yaml"
    assert "searched: the set's own passages (corpus.parquet)" in printed
    assert main(["import", "musique", "file", "--to", "again", "--json"]) == 0
    values = json.loads(capsys.readouterr().out)
    assert values.keys() == {field.name for field in dataclasses.fields(ImportedSet)}
    assert (values["questions"], values["passages"]) == (3, 4)
