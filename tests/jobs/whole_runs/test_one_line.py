"""From a config that names its corpus to the table in one line: `run`, `plan`, `try` and `ablate` build what is missing."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from jobs.__main__ import main
from tests.support.jobs.in_process_runs import QUERIES, job_in_process
from tests.support.jobs.whole_runs import rows

ROWS = [
    ("d1", "Sourdough rises because wild yeast is in no hurry."),
    ("d2", "A keeper trimmed the lamp of the lighthouse."),
    ("d3", "The moon pulls the sea, and spring tides come with the new moon."),
]


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


def test_one_line_from_nothing_to_the_table(config: str, capfd: pytest.CaptureFixture[str]) -> None:
    out, said = typed(capfd, "run", config)
    folder = Path(out.splitlines()[-1])
    assert {row["doc_id"] for row in rows(folder, "results")} == {"d1", "d2", "d3"}
    told = [line for line in said.splitlines() if line.startswith("index index/small: ")]
    assert told[0].startswith("index index/small: there is none yet; it is built from ")
    assert told[0].endswith("corpus.parquet (corpus.path)")
    assert told[1] == "index index/small: 3 documents, built"
    again, said = typed(capfd, "run", config)
    assert again == out
    assert "index index/small: " not in said
    built, _ = typed(capfd, "index", config)
    assert built == "index/small: 3 documents, exists already, nothing to do\n"


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
