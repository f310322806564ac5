"""Results of the functions hold what lies in the run's folder; the command line prints the same values."""

import csv
import json
import shutil
from pathlib import Path
from typing import Any

import ir_measures
import pyarrow.parquet as pq
import pytest

import dmqr
from jobs.__main__ import main
from jobs.config.load import load_config
from jobs.runs.documents import results_with_texts
from jobs.runs.folder import open_run
from rewriters.normalise import query_id
from tests.support.jobs.whole_runs import in_order

IN_PROCESS = {"cluster.address": "none", "evaluate.qrels": "qrels.tsv"}
ARMS = {"ablate": {"arms": {"rrf": {"fuse.method": "rrf"}}}}


def printed(capfd: pytest.CaptureFixture[str], *arguments: str) -> Any:
    capfd.readouterr()
    assert main([*arguments, "--json"]) == 0
    return json.loads(capfd.readouterr().out)


def as_json(values: Any) -> Any:
    return json.loads(json.dumps(values))


@pytest.mark.slow
def test_a_run_that_is_opened_measures_what_the_call_did(here: Path, capfd: pytest.CaptureFixture[str]) -> None:
    run = dmqr.run("job.yaml", **IN_PROCESS)
    assert isinstance(run, dmqr.Run)
    opened = dmqr.open(run.folder)
    assert as_json(opened.values) == as_json(run.values)
    shown = printed(capfd, "evaluate", run.folder)
    assert (as_json(opened.quality().values), shown["counted"]) == (shown, 3)
    rows = {row["measure"]: (row["results"], row["original"]) for row in run.quality().table.to_pylist()}
    assert rows == {name: (one["results"], one["original"]) for name, one in shown["measures"].items()}


def test_judgements_and_measures_that_are_given(here: Path, capfd: pytest.CaptureFixture[str]) -> None:
    run = dmqr.run("job.yaml", cluster__address="none")
    with pytest.raises(dmqr.ConfigError, match="has no judgements of its own; name a file with qrels"):
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

    for name, words in (("no/results.csv", "its folder does not exist"), ("results.txt", "is neither Parquet nor CSV")):
        with pytest.raises(dmqr.ConfigError, match=words):
            dmqr.run("job.yaml", csv=name, **IN_PROCESS)
    assert not Path("runs").exists()
    run = dmqr.run("job.yaml", csv="results.csv", **IN_PROCESS)
    queries = dict(zip(*run.table("queries", ["query_id", "query"]).to_pydict().values(), strict=True))
    texts = dict(zip(*pq.read_table("corpus.parquet", columns=["doc_id", "text"]).to_pydict().values(), strict=True))
    rows = sorted((queries[row["query_id"]], row["rank"], row["doc_id"], row["score"], texts[row["doc_id"]])
                  for row in run.table("results").to_pylist())  # fmt: skip
    written = read("results.csv")
    assert [(row["query"], int(row["rank"]), row["doc_id"], float(row["score"]), row["text"]) for row in written] == rows
    measured = dmqr.evaluate(run.folder, csv="measures.csv")
    figures = [(row["measure"], row["results"], row["original"]) for row in measured.table.to_pylist()]
    assert [(row["measure"], float(row["results"]), float(row["original"])) for row in read("measures.csv")] == figures
    Path("prices.yaml").rename("runs/prices.yaml")
    assert dmqr.run(shutil.copy("job.yaml", "runs"), **IN_PROCESS).usd == run.usd is not None
    shutil.rmtree("index")
    reasons: list[str] = []
    (table,) = results_with_texts(open_run(run.folder), reasons.append)
    assert ("index" in reasons[0], set(table.column("text").to_pylist())) == (True, {""})


@pytest.mark.slow
def test_tables_and_costs_are_those_of_the_folder(here: Path) -> None:
    run = dmqr.run("job.yaml", **IN_PROCESS)
    folder = Path(run.folder)
    assert sorted(run.tables) == sorted(json.loads((folder / "_SUCCESS.json").read_text())["tables"])
    for name in run.tables:
        table, files = run.table(name), [pq.read_table(path) for path in sorted((folder / name).glob("*.parquet"))]
        assert table.schema.equals(files[0].schema), name
        assert in_order(table.to_pylist()) == in_order([row for one in files for row in one.to_pylist()]), name
        assert run.relation(name).aggregate("count(*)").fetchall() == [(table.num_rows,)]
    assert run.table("results", ["doc_id", "rank"]).column_names == ["doc_id", "rank"]
    with pytest.raises(dmqr.ConfigError, match="no table 'result'; did you mean 'results'"):
        run.table("result")
    with pytest.raises(dmqr.ConfigError, match="results: no column 'doc'; did you mean 'doc_id'"):
        run.table("results", ["doc"])
    rows = run.costs.to_pylist()
    spent = {(row["stage"], f"{row['component']}@{row['model'] or ''}", name): row[name]
             for row in rows for name in {*row} - {"stage", "component", "model", "usd"} if row[name] is not None}  # fmt: skip
    wanted = {
        (stage, key, name): amount
        for stage, of in run.values["costs"].items()
        for key in of
        for name, amount in of[key].items()
    }
    assert spent == wanted
    assert run.usd == run.values["usd"] == pytest.approx(sum(row["usd"] for row in rows))


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


@pytest.mark.slow
def test_rewrites_are_those_of_try(here: Path) -> None:
    queries = ["how to boil eggs", "why is the sky blue", "how to boil eggs", "nobody recorded this"]
    found = dmqr.rewrite(queries, "job.yaml", rewrite__calls="joint")
    shutil.move("index", "elsewhere")
    assert dmqr.rewrite(queries, "job.yaml", rewrite__calls="joint").table == found.table  # without the index, too
    shutil.move("elsewhere", "index")
    for query in queries[:2]:
        (shown,) = dmqr.try_query("job.yaml", query).values
        mine = [row for row in found if row["query"] == query]
        names = ("strategy", "position", "text", "weight", "search_as", "model", "prompt_hash", "parsed_as")
        of_query = [{name: row[name] for name in names} for row in shown["rewrites"]]
        assert [{name: row[name] for name in names} for row in mine] == of_query * (2 if query == queries[0] else 1)
        assert {row["query_id"] for row in mine} == {shown["query_id"]}
    assert {row["query"] for row in found.errors.to_pylist()} == {"nobody recorded this"}
    assert sum(row["requests"] or 0 for row in found.costs.to_pylist()) == 3
    assert len(dmqr.rewrite([], "job.yaml")) == 0
    assert dmqr.rewrite("how to boil eggs", "job.yaml").table.num_rows == len(list(found)) // 3


def test_a_plan_and_an_index_leave_a_finished_job_alone(here: Path) -> None:
    planned = dmqr.plan("job.yaml", **IN_PROCESS)
    assert not Path(planned.folder).exists()
    assert "requests" in planned._repr_html_()
    (built,) = dmqr.index("job.yaml", "corpus.parquet", retrieve__retrievers__bm25__index="another").values
    assert built["documents"] == 2
    (again,) = dmqr.index("job.yaml", ["corpus.parquet"], retrieve__retrievers__bm25__index=Path("another")).values
    assert again["done"] != built["done"]


@pytest.mark.slow
def test_an_ablation_and_run_files_that_ir_measures_reads(here: Path) -> None:
    ablation, run = dmqr.ablate("job.yaml", **ARMS, **IN_PROCESS), dmqr.run("job.yaml", **IN_PROCESS)
    opened = dmqr.open("runs/" + Path(ablation.folder).name)
    assert isinstance(opened, dmqr.Ablation)
    assert "rrf" in opened.arms
    assert as_json(opened.values) == as_json(ablation.values)
    assert "rrf" in opened._repr_html_()
    quality = dmqr.evaluate(ablation.folder, per_query="keys.parquet", trec="by_arm")
    assert quality.per_query.equals(pq.read_table("keys.parquet"))
    means = {(row["arm"], row["measure"]): row["mean"] for row in quality.table.to_pylist()}
    means |= {("run", row["measure"]): row["results"] for row in run.quality().table.to_pylist()}
    lines = (line.split("\t") for line in Path("qrels.tsv").read_text().splitlines())
    qrels = [ir_measures.Qrel(key, doc_id, int(grade)) for key, doc_id, grade in lines]
    measures = [ir_measures.parse_measure(name) for name in ("nDCG@10", "RR@10")]
    for path in (*Path("by_arm").iterdir(), Path(run.quality().write_trec("run.trec")[0])):
        found = ir_measures.calc_aggregate(measures, qrels, list(ir_measures.read_trec_run(str(path))))
        assert {str(name): value for name, value in found.items()} == pytest.approx(
            {str(name): means[path.stem, str(name)] for name in measures}
        )


def test_a_key_is_of_the_query_after_the_newest_characters_of_its_turns() -> None:
    turns = "any trains to the coast?"
    assert dmqr.look_up_key("And on Sundays?", turns) == query_id("And on Sundays?", turns)
    old, new = "b" * 30, "a" * 8000
    assert dmqr.look_up_key("q", old + new) == dmqr.look_up_key("q", new) != dmqr.look_up_key("q", "b" + new[1:])
