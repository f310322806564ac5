"""What `ablate.table` chooses is checked before any work, against what the finished ablation is really measured by."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from cluster.errors import ConfigError
from jobs.__main__ import main
from jobs.config.load import load_config
from jobs.run.ablation import prepare_ablation
from tests.support.jobs.drawn_sets import write_paper
from tests.support.jobs.in_process_runs import QUERIES, job_in_process
from tests.support.rewriters.fake_server import FakeServer

CRITERIA = """
prompt: |-
  Rate. {documents} Question: {query} Answer: {answer}
document: "[{number}] {text}"
output: grades
keys: [correctness, style]
grades: {"0": 0, "1": 1, "2": 2, "3": 3, "4": 4, "5": 5}
"""


@pytest.fixture
def paper(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    write_paper(tmp_path)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize("verb", ["plan", "ablate"])
@pytest.mark.parametrize(("table", "words"), [
    ({"measures": ["R@5", "R@6"]}, "ablate.table.measures: 'R@6' will not be measured; did you mean 'R@5'?"),
    ({"measures": ["F1"]}, "ablate.table.measures: 'F1' will not be measured"),  # no LLM answers
    ({"arms": ["ful"]}, "ablate.table.arms: no arm 'ful'; did you mean 'full'?"),
])  # fmt: skip
def test_what_no_table_can_have_is_refused_before_any_work(
    paper: Path, capsys: pytest.CaptureFixture[str], verb: str, table: dict[str, Any], words: str
) -> None:
    assert main([verb, "paper.yaml", "--set", f"ablate.table={json.dumps(table)}"]) == 2
    assert words in capsys.readouterr().err.splitlines()[-1]
    assert not (paper / "runs").exists()


@pytest.mark.slow
def test_measures_for_this_time_are_those_that_the_table_chooses_from(paper: Path, capsys: pytest.CaptureFixture[str]) -> None:
    table = ["--set", 'ablate.table={"measures": ["MAP@10"]}']  # ir_measures prints AP@10
    assert main(["ablate", "paper.yaml", *table]) == 2
    assert "'MAP@10' will not be measured" in capsys.readouterr().err
    assert not (paper / "runs").exists()
    assert main(["ablate", "paper.yaml", *table, "--measures", "AP@10,R@5"]) == 0
    (folder,) = paper.glob("runs/paper-*")
    latex = (folder / "table.tex").read_text()
    assert "AP@10" in latex
    assert "R@5" not in latex


def said(body: dict[str, Any]) -> str:
    prompt = str(body["messages"][-1]["content"])
    if prompt.startswith("Rate."):
        return '{"correctness": 3, "style": 2}'
    if "Reference answers:" in prompt:
        return "correct"
    return '{"match": 0, "trust": 0, "overall": 1}' if prompt.startswith("Query: ") else "An answer [1]"


@pytest.fixture
def server() -> Iterator[FakeServer]:
    with FakeServer(["judge-70b", "answerer-8b"], text=said) as one:
        yield one


@pytest.fixture
def judged(
    tmp_path: Path, values: dict[str, Any], bm25: dict[str, Any], config_file: Callable[[Any], str], server: FakeServer,
    monkeypatch: pytest.MonkeyPatch,
) -> str:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    Path("gold.tsv").write_text("".join(f"{query}\tx\n" for query in QUERIES[:4]))
    Path("criteria.yaml").write_text(CRITERIA)
    engine = {"kind": "openai", "base_url": server.address, "attempts": 1}
    values["answer"] = {"documents": 2, "engine": engine | {"model": "answerer-8b"}}
    values["judge"] = {"engine": engine | {"model": "judge-70b"}, "relevance": {"documents": 2}, "accuracy": {},
                       "criteria": {"prompt": "./criteria.yaml"}}  # fmt: skip
    values["evaluate"] = {"answers": "gold.tsv", "key": "query"}
    values["ablate"] = {"table": {"arms": ["full", "original"]}}
    return job_in_process(tmp_path, values, bm25, config_file)


def tables() -> list[str]:
    (table,) = Path("runs").glob("*/table.tex")
    return table.read_text().split(r"\end{table}")[:-1]


def test_an_arm_without_answers_is_chosen_for_the_table_of_lists(judged: str, capsys: pytest.CaptureFixture[str]) -> None:
    ablate = {"arms": {"silent": {"answer": None}}, "table": {"arms": ["full", "silent"]}}
    settings = ["--set", "judge.accuracy=null", "--set", "judge.criteria=null", "--set", f"ablate={json.dumps(ablate)}"]
    assert main(["ablate", judged, *settings]) == 0, capsys.readouterr().err
    of_lists, of_answers = (re.findall(r"^(full|silent|original) & ", one, re.MULTILINE) for one in tables())
    assert (of_lists, of_answers) == (["full", "silent"], ["full"])


@pytest.mark.slow
def test_every_measure_of_the_finished_ablation_is_taken_and_no_other(judged: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["ablate", judged, "--json"]) == 0
    assert set(json.loads(capsys.readouterr().out)["judged_answers"]) == {"accuracy", "criteria"}
    heads = [re.findall(r"^Arm & (.*) \\\\$", one, re.MULTILINE)[0].split(" & ") for one in tables()]
    assert heads == [["nDCG@2", "P(rel=2)@2", "Success(rel=2)@2"], ["F1", "EM"], ["accuracy"],
                     ["criteria", "correctness", "style"]]  # fmt: skip
    for name in (name for own in heads for name in own):
        prepare_ablation(load_config(judged, [f'ablate.table.measures=["{name}"]']), judged)
    for name in ("nDCG@10", "strict_vital", "completeness", "P@2"):
        with pytest.raises(ConfigError, match=re.escape(f"{name!r} will not be measured")):
            prepare_ablation(load_config(judged, [f'ablate.table.measures=["{name}"]']), judged)
