"""Arms compared by judged answers: accuracy and criteria as columns of an ablation, against a computation apart."""

import json
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from jobs.__main__ import main
from jobs.measure.comparison import comparisons
from jobs.pages.ablation import ablation_report, closing_page, compared
from tests.support.jobs.corrective_llm import prompt_of
from tests.support.jobs.in_process_runs import QUERIES, finished, prepared_work
from tests.support.jobs.terminals import printed
from tests.support.rewriters.fake_server import FakeServer

KEYS = ("correctness", "style")
GOLD = QUERIES[:4]

OWN_CRITERIA = """
prompt: |-
  Rate. {documents} Question: {query} Answer: {answer}
document: "[{number}] {text}"
output: grades
keys: [correctness, style]
grades: {"0": 0, "1": 1, "2": 2, "3": 3, "4": 4, "5": 5}
"""


def chance(text: str, of: int) -> int:
    return zlib.crc32(text.encode()) % of


def said(body: dict[str, Any]) -> str:
    """Answers by the documents; judges by chance of the answer."""
    prompt = prompt_of(body)
    if prompt.startswith("Rate."):
        answer = prompt.rpartition("Answer: ")[2]
        return json.dumps({name: chance(name + answer, 6) for name in KEYS})
    if "Reference answers:" in prompt:
        return "correct" if chance(prompt, 2) else "incorrect"
    if prompt.startswith("Query: "):
        return json.dumps({"match": 0, "trust": 0, "overall": chance(prompt, 4)})
    question = prompt.rpartition("Question: ")[2]
    return f"On {question} from {prompt.count('[')} {chance(prompt, 1000)} [1]"


@pytest.fixture
def server() -> Iterator[FakeServer]:
    with FakeServer(["judge-70b", "answerer-8b"], text=said) as one:
        yield one


@pytest.fixture
def job(small_job: Callable[..., str], values: dict[str, Any], server: FakeServer) -> str:
    Path("gold.tsv").write_text("".join(f"{query}\t{answer}\n" for query in GOLD for answer in ("x", "y")))
    Path("criteria.yaml").write_text(OWN_CRITERIA)
    engine = {"kind": "openai", "base_url": server.address}
    values["answer"] = {"documents": 2, "engine": engine | {"model": "answerer-8b"}}
    values["judge"] = {"engine": engine | {"model": "judge-70b"}, "relevance": {"documents": 2}, "accuracy": {},
                       "criteria": {"prompt": "./criteria.yaml"}}  # fmt: skip
    values["evaluate"] = {"answers": "gold.tsv", "key": "query", "slices": ["words"]}
    return small_job()


@pytest.mark.slow
def test_a_run_shows_and_stores_what_its_answers_are_worth(
    job: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["run", job]) == 0
    folder = capsys.readouterr().out.splitlines()[-1]
    stored = json.loads(Path(folder, "evaluation.json").read_text())
    assert main(["evaluate", folder, "--json", "--per-query", "wide.parquet"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert stored["judged_answers"].keys() == {"accuracy", "criteria"}
    assert {kind: one["measures"] for kind, one in stored["judged_answers"].items()} == {
        kind: one["measures"] for kind, one in found["judged_answers"].items()
    }
    assert stored["answers"]["measures"] == found["answers"]["measures"]
    wide = pq.read_table("wide.parquet").to_pylist()
    assert len(wide) == len(QUERIES)
    graded = [one["accuracy"] for one in wide if one["accuracy"] is not None]
    assert sum(graded) / len(graded) == pytest.approx(found["judged_answers"]["accuracy"]["measures"]["accuracy"]["answers"])
    assert sum(one["F1"] is not None for one in wide) == len(GOLD)
    assert main(["runs", job]) == 0
    listed = capsys.readouterr().out
    assert {"F1", "EM", "accuracy", "criteria"} <= set(listed.split())
    assert "judged by judge-70b, an LLM" in " ".join(listed.split())
    page = Path(folder, "report.html").read_text()
    assert "answers, judged by criteria" in page
    assert "judged by judge-70b" in page


def test_answers_of_which_none_can_be_graded_are_a_warning(
    job: str, server: FakeServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    def silent(body: dict[str, Any]) -> str:
        return "hm" if "Reference answers:" in prompt_of(body) else said(body)

    monkeypatch.setattr(server, "text", silent)
    run = finished(prepared_work(job, [f"log.path={one_query()}"], {"arms": {"one": {"answer.documents": 1}}}))
    accuracy, criteria = comparisons(run, None, run.config.evaluate, None)
    assert accuracy.frame.warning == (
        "nothing is measured: no query is committed whose answers could be judged (accuracy); errors/ says why"
    )
    assert criteria.frame.warning is None
    found = compared(run, None, run.config.evaluate, None)
    assert accuracy.frame.warning in printed(closing_page(found)).replace("\n", " ")
    assert 'id="accuracy"' in ablation_report(found)


def one_query() -> str:
    """A log of one query that has hits."""
    pq.write_table(pa.table({"query": [QUERIES[0]]}), "one.parquet")
    return "one.parquet"
