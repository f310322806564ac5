"""From a config that names its corpus to the table in one line: `run`, `plan`, `try` and `ablate` build what is missing."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from jobs.__main__ import main
from retrievers.local.index import read_index
from tests.support.jobs.in_process_runs import QUERIES, job_in_process
from tests.support.jobs.whole_runs import rows

ROWS = [
    ("d1", "Sourdough rises because wild yeast is in no hurry."),
    ("d2", "A keeper trimmed the lamp of the lighthouse."),
    ("d3", "The moon pulls the sea, and spring tides come with the new moon."),
]
OTHER = [*ROWS, ("d4", "Bread and yeast.")]


def write(path: Path, documents: list[tuple[str, str]]) -> str:
    pq.write_table(pa.table({"doc_id": [one for one, _ in documents], "text": [text for _, text in documents]}), path)
    return str(path)


@pytest.fixture
def config(tmp_path: Path, values: dict[str, Any], config_file: Callable[[Any], str], monkeypatch: pytest.MonkeyPatch) -> str:
    """A job whose index is not there."""
    monkeypatch.chdir(tmp_path)
    values["corpus"] = {"path": write(tmp_path / "corpus.parquet", ROWS), "title_column": None}
    return job_in_process(tmp_path, values, {"kind": "local", "index": "index/small", "analyzer": "english"}, config_file)


def typed(capfd: pytest.CaptureFixture[str], *words: str, code: int = 0) -> tuple[str, str]:
    """Standard output and error of a verb."""
    capfd.readouterr()
    assert main([*words]) == code, capfd.readouterr().err
    said = capfd.readouterr()
    return said.out, said.err


def events(said: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in said.splitlines() if line.startswith("{")]


def documents(index: str) -> int:
    found: int = read_index(Path(index))["documents"]
    return found


def test_one_line_from_nothing_to_the_table(config: str, capfd: pytest.CaptureFixture[str]) -> None:
    out, said = typed(capfd, "run", config)
    folder = Path(out.splitlines()[-1])
    assert {row["doc_id"] for row in rows(folder, "results")} == {"d1", "d2", "d3"}
    told = [one["message"] for one in events(said) if one["event"] == "index"]
    assert told[0].startswith("index index/small: there is none yet; it is built from ")
    assert told[0].endswith("corpus.parquet (corpus.path)")
    assert told[1] == "index index/small: 3 documents, built"
    again, said = typed(capfd, "run", config)
    assert again == out
    assert not [one for one in events(said) if one["event"] == "index"]
    built, _ = typed(capfd, "index", config)
    assert built == "index/small: 3 documents, exists already, nothing to do\n"


@pytest.mark.slow
def test_it_is_the_run_of_an_index_that_was_built_before(config: str, capfd: pytest.CaptureFixture[str]) -> None:
    typed(capfd, "index", config, "--set", "retrieve.retrievers.bm25.index=index/before")
    before, _ = typed(capfd, "run", config, "--json", "--set", "retrieve.retrievers.bm25.index=index/before")
    after, _ = typed(capfd, "run", config, "--json")
    assert json.loads(after)["folder"] == json.loads(before)["folder"]  # the place of an index is no part of a run


@pytest.mark.slow
def test_json_has_values_alone_on_standard_output(config: str, capfd: pytest.CaptureFixture[str]) -> None:
    for verb in (["plan"], ["run"], ["ablate"], ["try", QUERIES[1]]):
        at = f"retrieve.retrievers.bm25.index=index/{verb[0]}"
        out, _ = typed(capfd, verb[0], config, *verb[1:], "--set", at, "--json")
        assert json.loads(out)
        assert documents(f"index/{verb[0]}") == 3


def test_what_is_cheaper_is_refused_before_anything_is_built(config: str, capfd: pytest.CaptureFixture[str]) -> None:
    pq.write_table(pa.table({"query": pa.array([], pa.string())}), "empty.parquet")
    for settings in ("log.path=lag.parquet", "log.query_column=querry", "evaluate.qrels=none.tsv", "log.path=empty.parquet"):
        typed(capfd, "run", config, "--set", settings, code=2)
    _, said = typed(capfd, "run", config, "--set", "log.path=empty.parquet", "--set", "log.allow_empty=true")
    assert said == "dmqr run: the log is empty: there is nothing to do (log.allow_empty) [log-empty]\n"
    assert not Path("index").exists()
    assert not Path("runs").exists()


def test_a_killed_run_goes_on_with_the_index_of_its_first_start(
    config: str, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def pulled(*_: Any, **__: Any) -> None:
        raise OSError(5, "the plug was pulled")

    with monkeypatch.context() as patch:
        patch.setattr("jobs.run.run.finish", pulled)
        typed(capfd, "run", config, code=1)
    before = Path("index/small/index.json").read_bytes()
    out, _ = typed(capfd, "run", config)
    assert Path("index/small/index.json").read_bytes() == before
    assert len(rows(Path(out.splitlines()[-1]), "queries")) == len(QUERIES)


@pytest.mark.slow
def test_a_corpus_that_has_changed_between_two_nights_is_refused(config: str, capfd: pytest.CaptureFixture[str]) -> None:
    typed(capfd, "run", config)
    write(Path("corpus.parquet"), OTHER)
    for verb in ("run", "plan", "ablate"):
        _, said = typed(capfd, verb, config, "--set", "label=next", code=2)
        assert "was built from another corpus (3 documents) than " in said.splitlines()[-1]
        remedy = f"name another index, or replace it: dmqr index {config} --set label=next --replace"
        assert said.splitlines()[-1].endswith(f"; corpus.path); {remedy} [index-other]")
    assert documents("index/small") == 3
    typed(capfd, "index", config, "--replace")
    typed(capfd, "run", config, "--set", "label=next")
    assert documents("index/small") == 4
