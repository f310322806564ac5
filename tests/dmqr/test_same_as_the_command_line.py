"""What a program gets is what the command line prints and what lies in the folder."""

from __future__ import annotations

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
from tests.support.jobs.whole_runs import in_order

IN_PROCESS = {"cluster.address": "none", "evaluate.qrels": "qrels.tsv"}
FLAGS = [word for key, value in IN_PROCESS.items() for word in ("--set", f"{key}={value}")]


def printed(capfd: pytest.CaptureFixture[str], *arguments: str) -> Any:
    capfd.readouterr()
    assert main([*arguments, "--json"]) == 0
    return json.loads(capfd.readouterr().out)


def as_json(values: Any) -> Any:
    return json.loads(json.dumps(values))


@pytest.mark.slow
def test_the_quality_of_a_run(here: Path, capfd: pytest.CaptureFixture[str]) -> None:
    run = dmqr.run("job.yaml", IN_PROCESS)
    assert run.finished
    assert isinstance(run, dmqr.Run)
    shown = printed(capfd, "evaluate", run.folder)
    assert as_json(run.quality().values) == shown
    assert shown["counted"] == 3
    rows = {row["measure"]: row for row in run.quality().table.to_pylist()}
    assert {name: (row["results"], row["original"]) for name, row in rows.items()} == {
        name: (one["results"], one["original"]) for name, one in shown["measures"].items()
    }
    assert main(["evaluate", run.folder, "--per-query", "keys.parquet"]) == 0
    assert run.quality().per_query.equals(pq.read_table("keys.parquet"))
    assert as_json(run.values) == printed(capfd, "run", "job.yaml", *FLAGS)
    opened = dmqr.open(run.folder)
    assert as_json(opened.quality().values) == shown
    assert as_json(opened.values) == as_json(run.values)


def test_judgements_and_measures_that_are_given(here: Path, capfd: pytest.CaptureFixture[str]) -> None:
    run = dmqr.run("job.yaml", cluster__address="none")
    with pytest.raises(dmqr.ConfigError, match="has no judgements of its own; name a file: qrels"):
        run.quality()
    shown = printed(capfd, "evaluate", run.folder, "qrels.tsv", "--measures", "R@1,AP")
    assert as_json(run.quality("qrels.tsv", measures=["R@1", "AP"]).values) == shown
    grades = {"a": {"d1": 1}, "b": {"d2": 2}, "c": {"d2": 1}}
    assert as_json(run.quality(grades, measures=["R@1", "AP"]).values) == shown
    by_text = {"How to boil  EGGS": {"d2": 2}}
    assert run.quality(by_text, key="query").values["counted"] == 1
    for wrong in ({"x": {"d1": 1}}, {}, {"a": {"d1": 0.5}}):
        with pytest.raises(dmqr.ConfigError) as refused:
            run.quality(wrong)  # type: ignore[arg-type]
        assert refused.value.code == "judgements"


@pytest.mark.slow
def test_tables_are_those_of_the_folder(here: Path) -> None:
    run = dmqr.run("job.yaml", IN_PROCESS)
    folder = Path(run.folder)
    assert sorted(run.tables) == sorted(json.loads((folder / "_SUCCESS.json").read_text())["tables"])
    for name, table in run.tables.items():
        files = [pq.read_table(path) for path in sorted((folder / name).glob("*.parquet"))]
        assert table.schema.equals(files[0].schema), name
        assert in_order(table.to_pylist()) == in_order([row for one in files for row in one.to_pylist()]), name
        assert run.relation(name).aggregate("count(*)").fetchall() == [(table.num_rows,)]
    assert run.table("results", ["doc_id", "rank"]).column_names == ["doc_id", "rank"]
    assert run.to_pandas("results")["doc_id"].tolist() == run.table("results")["doc_id"].to_pylist()
    with pytest.raises(dmqr.ConfigError, match="no table 'result'; did you mean 'results'"):
        run.table("result")
    with pytest.raises(dmqr.ConfigError, match="results: no column 'doc'; did you mean 'doc_id'"):
        run.table("results", ["doc"])


@pytest.mark.slow
def test_costs_are_those_of_the_record(here: Path) -> None:
    run = dmqr.run("job.yaml", IN_PROCESS)
    rows = run.costs.to_pylist()
    by_key = {(row["stage"], f"{row['component']}@{row['model'] or ''}"): row for row in rows}
    assert set(by_key) == {(stage, key) for stage, of in run.values["costs"].items() for key in of}
    for (stage, key), row in by_key.items():
        for quantity, amount in run.values["costs"][stage][key].items():
            assert row[quantity] == amount
    assert run.usd == run.values["usd"]
    assert sum(row["usd"] for row in rows) == pytest.approx(run.usd)


@pytest.mark.slow
def test_a_config_as_a_mapping_or_a_model_is_the_same_run(here: Path) -> None:
    run = dmqr.run("job.yaml", cluster__address="none")
    config = load_config("job.yaml")
    assert isinstance(config, dmqr.Config)
    values = {key: value for key, value in run.record["config"].items() if key in ("name", "log", "rewrite", "retrieve")}
    values |= {"rerank": {"kind": "none"}, "output": Path("runs")}
    for source in (config, values, Path("job.yaml")):
        assert dmqr.run(source, {"cluster.address": "none"}).folder == run.folder
    other = dmqr.run(config, cluster__address="none", fuse__k=9, fuse__method="rrf", label="other")
    assert Path(other.folder).name.startswith("job-other-")
    assert (other.config.fuse.k, other.config.fuse.method) == (9, "rrf")
    assert config.fuse.k == 60  # what was given is as it was


@pytest.mark.slow
def test_rewrites_are_those_of_try(here: Path, capfd: pytest.CaptureFixture[str]) -> None:
    queries = ["how to boil eggs", "why is the sky blue", "how to boil eggs", "nobody recorded this"]
    found = dmqr.rewrite(queries, "job.yaml", rewrite__calls="joint")
    assert capfd.readouterr() == ("", "")
    shutil.move("index", "elsewhere")
    assert dmqr.rewrite(queries, "job.yaml", rewrite__calls="joint").table == found.table  # without the index, too
    shutil.move("elsewhere", "index")
    for query in queries[:2]:
        (shown,) = printed(capfd, "try", "job.yaml", query)
        mine = [row for row in found if row["query"] == query]
        names = ("strategy", "position", "text", "weight", "search_as", "model", "prompt_hash", "parsed_as")
        of_query = [{name: row[name] for name in names} for row in shown["rewrites"]]
        assert [{name: row[name] for name in names} for row in mine] == of_query * (2 if query == queries[0] else 1)
        assert {row["query_id"] for row in mine} == {shown["query_id"]}
    assert {row["query"] for row in found.errors.to_pylist()} == {"nobody recorded this"}
    assert sum(row["requests"] or 0 for row in found.costs.to_pylist()) == 3
    assert len(dmqr.rewrite([], "job.yaml")) == 0
    assert dmqr.rewrite("how to boil eggs", "job.yaml").table.num_rows == len(list(found)) // 3


def test_a_plan_is_that_of_the_command_line(here: Path, capfd: pytest.CaptureFixture[str]) -> None:
    planned = dmqr.plan("job.yaml", IN_PROCESS)
    assert capfd.readouterr() == ("", "")
    assert as_json(planned.values) == printed(capfd, "plan", "job.yaml", *FLAGS)
    assert not Path(planned.folder).exists()
    assert "requests" in planned._repr_html_()


@pytest.mark.slow
def test_an_ablation(here: Path, capfd: pytest.CaptureFixture[str]) -> None:
    arms = {"ablate": {"arms": {"rrf": {"fuse.method": "rrf"}}}, **IN_PROCESS}
    ablation = dmqr.ablate("job.yaml", arms)
    assert capfd.readouterr() == ("", "")
    assert isinstance(ablation, dmqr.Ablation)
    assert "rrf" in ablation.arms
    flags = [word for key, value in arms.items() for word in ("--set", f"{key}={json.dumps(value)}")]
    assert as_json(ablation.values) == printed(capfd, "ablate", "job.yaml", *flags)
    shown = printed(capfd, "evaluate", ablation.folder)
    quality = ablation.quality()
    assert as_json(quality.values) == shown
    rows = quality.table.to_pylist()
    assert {(row["arm"], row["measure"]) for row in rows} == {
        (arm["arm"], measure) for arm in shown["arms"] for measure in arm["measures"]
    }
    assert main(["evaluate", ablation.folder, "--per-query", "keys.parquet"]) == 0
    assert quality.per_query.equals(pq.read_table("keys.parquet"))
    opened = dmqr.open("runs/" + Path(ablation.folder).name)
    assert isinstance(opened, dmqr.Ablation)
    assert as_json(opened.values) == as_json(ablation.values)
    assert "rrf" in opened._repr_html_()


@pytest.mark.slow
def test_run_files_are_read_by_ir_measures(here: Path, capfd: pytest.CaptureFixture[str]) -> None:
    arms = {"ablate": {"arms": {"rrf": {"fuse.method": "rrf"}}}, **IN_PROCESS}
    ablation, run = dmqr.ablate("job.yaml", arms), dmqr.run("job.yaml", IN_PROCESS)
    assert main(["evaluate", ablation.folder, "--trec", "by_cli"]) == 0
    paths = ablation.quality().write_trec(Path("by_python"))
    assert sorted(Path("by_cli").iterdir()) == sorted(Path("by_cli", Path(path).name) for path in paths)
    lines = (line.split("\t") for line in Path("qrels.tsv").read_text().splitlines())
    qrels = [ir_measures.Qrel(key, doc_id, int(grade)) for key, doc_id, grade in lines]
    measures = [ir_measures.parse_measure(name) for name in ("nDCG@10", "RR@10")]
    means = {(row["arm"], row["measure"]): row["mean"] for row in ablation.quality().table.to_pylist()}
    (of_run,) = run.quality().write_trec("run.trec")
    for path in (*paths, of_run):
        found = ir_measures.calc_aggregate(measures, qrels, list(ir_measures.read_trec_run(path)))
        if path == of_run:
            wanted = {row["measure"]: row["results"] for row in run.quality().table.to_pylist()}
        else:
            assert Path(path).read_bytes() == Path("by_cli", Path(path).name).read_bytes()
            wanted = {name: mean for (arm, name), mean in means.items() if arm == Path(path).stem}
        assert {str(name): value for name, value in found.items()} == pytest.approx(
            {str(name): wanted[str(name)] for name in measures}
        )
    capfd.readouterr()


def test_an_index_is_built_once(here: Path) -> None:
    (built,) = dmqr.index("job.yaml", "corpus.parquet", {"retrieve.retrievers.bm25.index": "another"}).values
    assert built["documents"] == 2
    (again,) = dmqr.index("job.yaml", ["corpus.parquet"], {"retrieve.retrievers.bm25.index": Path("another")}).values
    assert again["done"] != built["done"]
