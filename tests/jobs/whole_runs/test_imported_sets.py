"""A published set from its file to figures: import, run, evaluate, ablate, against a count from file and tables apart."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from jobs.__main__ import main
from tests.support.jobs.data_sets import FILES, hotpotqa
from tests.support.jobs.whole_runs import rows
from tests.support.rewriters.fake_server import FakeServer

SAID = {"a1": "No.", "a2": "in 1902", "a3": "I do not know"}
F1 = {"a1": 1.0, "a2": 2 / 3, "a3": 0.0}  # by hand: one word of one; of two words one is wanted; none


def reply(body: dict[str, Any]) -> str:
    """Answers a question by SAID; rewrites what is to be rewritten."""
    prompt = body["messages"][-1]["content"]
    for one in hotpotqa():
        if prompt.endswith(f"Question: {one['question']}"):
            return SAID[one["_id"]]
    return json.dumps({"general": "lamp room of a lighthouse"})


@pytest.fixture
def flags(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    monkeypatch.chdir(tmp_path)
    Path("hotpot_dev.json").write_text(FILES["hotpotqa"])
    assert main(["import", "hotpotqa", "hotpot_dev.json", "--to", "set"]) == 0
    with FakeServer(["Qwen/Qwen3-8B"], text=reply) as server:
        values = (f"rewrite.engine.base_url={server.address}", "rewrite.strategies=[general]", "cluster.address=none")
        yield [word for value in values for word in ("--set", value)]


def relevant() -> dict[str, set[str]]:
    """Question -> beginnings of the texts of its supporting passages that are in the file."""
    found = {}
    for one in hotpotqa():
        texts = {title: "".join(sentences).strip() for title, sentences in one["context"]}
        found[one["_id"]] = {texts[title] for title, _ in one["supporting_facts"] if title in texts}
    return found


def recall(run: Path, arm: str) -> dict[str, float]:
    """Question -> share of its supporting passages among an arm's first two results, from the tables alone."""
    texts = {row["doc_id"]: row["text"] for row in pq.read_table("set/corpus.parquet").to_pylist()}
    ids = {row["query_id"]: row["log_id"] for row in rows(run, "query_map")}
    first: dict[str, set[str]] = {name: set() for name in SAID}
    for row in rows(run, "results"):
        if row["arm"] == arm and row["rank"] <= 2:
            first[ids[row["query_id"]]].add(texts[row["doc_id"]])
    return {name: len(first[name] & of) / len(of) for name, of in relevant().items()}


def mean(values: dict[str, float], names: list[str]) -> float:
    return sum(values[name] for name in names) / len(names)


@pytest.mark.slow
def test_a_run_over_an_imported_set_is_measured_by_its_answers_and_judgements(
    flags: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["run", "set/hotpotqa.yaml", *flags]) == 0, capsys.readouterr().err
    run = Path(capsys.readouterr().out.splitlines()[-1])
    assert main(["evaluate", str(run), "--measures", "R@2", "--json"]) == 0, capsys.readouterr().err
    values = json.loads(capsys.readouterr().out)
    found = values["measures"]
    assert found["R@2"]["results"] == pytest.approx(mean(recall(run, "run"), list(SAID)))
    of_answers = values["answers"]["measures"]
    assert of_answers["F1"]["answers"] == pytest.approx(mean(F1, list(SAID)))
    assert of_answers["EM"]["answers"] == pytest.approx(1 / 3)


def test_an_ablation_over_an_imported_set_has_slices_by_its_types(flags: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    measured = ["--set", "evaluate.measures=[R@2]", "--set", "ablate.arms={}"]
    assert main(["ablate", "set/hotpotqa.yaml", *flags, *measured, "--json"]) == 0, capsys.readouterr().err
    values = json.loads(capsys.readouterr().out)
    run = Path(values["folder"])
    parts, answers = (
        {(one["name"], one["value"]): one for one in of["slices"]} for of in (values["comparison"], values["answers"])
    )
    assert parts.keys() == {("type", "bridge"), ("type", "comparison"), ("level", "medium"), ("level", "hard")}
    types = {"bridge": ["a2", "a3"], "comparison": ["a1"]}
    for value, names in types.items():
        for arm in ("full", "original"):
            assert parts["type", value]["means"][arm][0] == pytest.approx(mean(recall(run, arm), names))
            assert answers["type", value]["means"][arm][0] == pytest.approx(mean(F1, names))
