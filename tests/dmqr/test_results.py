"""Results of the functions hold what lies in the run's folder; the command line prints the same values."""

import csv
import json
import shutil
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

import dmqr
from jobs.__main__ import main
from jobs.config.load import load_config
from jobs.runs.documents import results_with_texts
from jobs.runs.folder import open_run
from rewriters.normalise import query_id

IN_PROCESS = {"cluster.address": "none", "evaluate.qrels": "qrels.tsv"}


def printed(capfd: pytest.CaptureFixture[str], *arguments: str) -> Any:
    capfd.readouterr()
    assert main([*arguments, "--json"]) == 0
    return json.loads(capfd.readouterr().out)


def as_json(values: Any) -> Any:
    return json.loads(json.dumps(values))


def test_judgements_and_measures_that_are_given(here: Path, capfd: pytest.CaptureFixture[str]) -> None:
    run = dmqr.run("job.yaml", cluster__address="none")
    with pytest.raises(dmqr.ConfigError, match="has no judgements of its own; name a file: qrels"):
        run.quality()
    shown = printed(capfd, "evaluate", run.folder, "qrels.tsv", "--measures", "R@1,AP")
    grades = {"a": {"d1": 1}, "b": {"d2": 2}, "c": {"d2": 1}}
    assert as_json(run.quality(grades, measures=["R@1", "AP"]).values) == shown
    by_text = {"How to boil  EGGS": {"d2": 2}}
    assert run.quality(by_text, key="query").values["counted"] == 1
    for wrong in ({"x": {"d1": 1}}, {}, {"a": {"d1": 0.5}}):
        with pytest.raises(dmqr.ConfigError) as refused:
            run.quality(wrong)  # type: ignore[arg-type]
        assert refused.value.code == "judgements"


def test_results_and_measures_as_csv(here: Path) -> None:
    def read(path: str) -> list[dict[str, str]]:
        with open(path, newline="", encoding="utf-8") as file:
            return list(csv.DictReader(file))

    for name, words in (("no/results.csv", "its folder is not there"), ("results.txt", "is neither Parquet nor CSV")):
        with pytest.raises(dmqr.ConfigError, match=words):
            dmqr.run("job.yaml", csv=name, **IN_PROCESS)
    assert not Path("runs").exists()
    run = dmqr.run("job.yaml", csv="results.csv", **IN_PROCESS)
    queries = dict(zip(*run.table("queries", ["query_id", "query"]).to_pydict().values(), strict=True))
    texts = dict(zip(*pq.read_table("corpus.parquet", columns=["doc_id", "text"]).to_pydict().values(), strict=True))
    rows = [(queries[row["query_id"]], row["rank"], row["doc_id"], row["score"], texts[row["doc_id"]])
            for row in run.table("results").to_pylist()]  # fmt: skip
    written = read("results.csv")
    assert [(row["query"], int(row["rank"]), row["doc_id"], float(row["score"]), row["text"]) for row in written] == sorted(
        rows
    )
    measured = dmqr.evaluate(run.folder, csv="measures.csv")
    figures = [(row["measure"], row["results"], row["original"]) for row in measured.table.to_pylist()]
    assert [(row["measure"], float(row["results"]), float(row["original"])) for row in read("measures.csv")] == figures
    shutil.rmtree("index")
    reasons: list[str] = []
    (table,) = results_with_texts(open_run(run.folder), reasons.append)
    assert ("index" in reasons[0], set(table.column("text").to_pylist())) == (True, {""})


@pytest.mark.slow
def test_a_config_as_a_mapping_or_a_model_is_the_same_run(here: Path) -> None:
    run = dmqr.run("job.yaml", cluster__address="none")
    config = load_config("job.yaml")
    assert isinstance(config, dmqr.Config)
    values = {key: value for key, value in run.record["config"].items() if key in ("name", "log", "rewrite", "retrieve")}
    values |= {"rerank": {"kind": "none"}, "output": Path("runs")}
    for source in (config, values, Path("job.yaml")):
        assert dmqr.run(source, **{"cluster.address": "none"}).folder == run.folder
    other = dmqr.run(config, cluster__address="none", fuse__k=9, fuse__method="rrf", label="other")
    assert Path(other.folder).name.startswith("job-other-")
    assert (other.config.fuse.k, other.config.fuse.method) == (9, "rrf")
    assert config.fuse.k == 60  # what was given is as it was


def test_a_plan_and_an_index_leave_a_finished_job_alone(here: Path) -> None:
    planned = dmqr.plan("job.yaml", **IN_PROCESS)
    assert not Path(planned.folder).exists()
    assert "requests" in planned._repr_html_()
    (built,) = dmqr.index("job.yaml", "corpus.parquet", retrieve__retrievers__bm25__index="another").values
    assert built["documents"] == 2
    (again,) = dmqr.index("job.yaml", ["corpus.parquet"], retrieve__retrievers__bm25__index=Path("another")).values
    assert again["done"] != built["done"]


def test_it_is_the_query_id_of_the_tables() -> None:
    assert dmqr.look_up_key("  Water on the ROAD ahead that isn't there ") == "bee42934aeb07bcbc440f344827289a3"
    turns = "any trains to the coast?"
    assert dmqr.look_up_key("And on Sundays?", turns) == query_id("And on Sundays?", turns)


def test_of_a_long_context_the_newest_characters_count() -> None:
    old, new = "b" * 30, "a" * 8000
    assert dmqr.look_up_key("q", old + new) == dmqr.look_up_key("q", new) != dmqr.look_up_key("q", "b" + new[1:])
