"""Arms and runs are measured as deep as the measures read; where lists are cut above that, it is said."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from jobs.config.load import load_config
from jobs.job.prepare import prepare
from jobs.log.judgements import Judgements, read_qrels
from jobs.measure.comparison import Comparison, compare
from jobs.measure.evaluate import evaluate
from jobs.measure.exports import write_trec
from jobs.pages.ablation import ComparedArms, ablation_report, closing_page, closing_values, compared, write_pages
from jobs.pages.comparison import MeasuredRun
from jobs.pages.summary import closing_table
from jobs.run.ablation import prepare_ablation
from jobs.runs.folder import RunFolder
from tests.support.jobs.in_process_runs import QUERIES, finished, job_in_process, run_in_process
from tests.support.jobs.run_folders import Query, RunMaker, query_id
from tests.support.jobs.terminals import printed
from tests.support.jobs.whole_runs import rows

READS, CANDIDATES, RESULTS = 8, 4, 2
JUDGED = {query: [f"d0{1 + (place + step) % 8}" for step in range(3)] for place, query in enumerate(QUERIES)}
ARMS = {
    "shallow": {"retrieve.depth": 3, "rerank.kind": "none"},
    "twice": {"fuse.duplicates": "drop"},
    "fused": {"rerank.kind": "none"},
    "replace": {"rerank.combine": "replace"},
}
Lists = dict[str, list[str]]


@pytest.fixture
def done(
    tmp_path: Path, values: dict[str, Any], served_dense: dict[str, Any], config_file: Callable[[Any], str],
    monkeypatch: pytest.MonkeyPatch,
) -> Callable[..., ComparedArms]:  # fmt: skip
    """Runs and compares an ablation; every list of the retriever has all eight documents."""
    monkeypatch.chdir(tmp_path)
    judged = [f"{query}\t{doc}\t{1 + place % 2}\n" for query, of in JUDGED.items() for place, doc in enumerate(of)]
    Path("qrels.tsv").write_text("".join(judged))
    values |= {
        "fuse": {"keep": CANDIDATES},
        "evaluate": {"qrels": "qrels.tsv", "key": "query", "measures": [f"R@{READS}", f"nDCG@{RESULTS}", "P@5"]},
        "ablate": {"arms": ARMS},
    }
    path = job_in_process(tmp_path, values, served_dense, config_file)

    def made(*settings: str) -> ComparedArms:
        given = [f"rerank={{kind: bi_encoder, keep: {RESULTS}}}", *settings]
        folder = finished(prepare_ablation(load_config(path, given), path))
        by = folder.config.evaluate
        return compared(folder, read_qrels("qrels.tsv", key=by.key), by, None)

    return made


def lists(folder: Path, arm: str, *tables: str) -> Lists:
    found: Lists = {}
    for row in sorted((row for table in tables for row in rows(folder, table)), key=lambda row: int(row["rank"])):
        if row["arm"] == arm:
            found.setdefault(row["query_id"], []).append(row["doc_id"])
    return found


def a_run(arm: Any, name: str, **sections: Any) -> Lists:
    """The results of a run with the config of an arm, and other values in some sections."""
    changed = {section: getattr(arm, section).model_copy(update=values) for section, values in sections.items()}
    alone = prepare(arm.model_copy(update={"output": name, **changed}), "config.yaml")
    run_in_process(alone)
    return lists(Path(alone.storage.root), "run", "results")


@pytest.mark.slow
def test_behind_the_results_stand_the_other_candidates_then_the_fused_rest(done: Callable[..., ComparedArms]) -> None:
    found = done()
    folder = Path(found.folder.storage.root)
    configs = {arm.name: arm.config for arm in prepare_ablation(found.folder.config, "config.yaml").compiled.arms}
    for arm in ("full", "original", "replace"):
        config = configs[arm]
        whole = lists(folder, arm, "results", "tails")
        assert {len(one) for one in whole.values()} == {READS}
        assert lists(folder, arm, "results") == a_run(config, arm)
        reranked = a_run(config, f"{arm}-deep", rerank={"keep": CANDIDATES})
        fused = a_run(config, f"{arm}-fused", rerank={"kind": "none"}, fuse={"keep": READS})
        for query, ranked in whole.items():
            assert ranked == reranked[query] + fused[query][CANDIDATES:]
    pairs = {(row["query_id"], row["doc_id"]) for row in rows(folder, "scores")}
    assert len(pairs) < len(QUERIES) * READS  # what stands behind the candidates is not scored


@pytest.mark.slow
def test_an_arm_whose_lists_end_above_the_first_measure_is_left_out(done: Callable[..., ComparedArms], tmp_path: Path) -> None:
    found = done('ablate.arms={"twice": {"fuse.duplicates": "drop"}}')
    comparison = found.comparisons.every[0]
    assert comparison.frame.measures == (f"R@{READS}", f"nDCG@{RESULTS}", "P@5")
    assert "twice" not in comparison.frame.arms  # duplicates are looked for among the candidates, where its lists end
    all_judged = f"(twice; {len(QUERIES)} of {len(QUERIES)} judged)"
    remedy = f"raise fuse.keep ({CANDIDATES}) to {READS}, or measure R@{CANDIDATES}"  # results go on behind rerank.keep
    note = f"twice: R@{READS}: left out: reads {READS} documents, lists end at {CANDIDATES} {all_judged}; {remedy}"
    assert note in comparison.notes
    assert "twice" in comparison_of(found, "P@4").frame.arms
    other = comparison_of(found, f"nDCG@{RESULTS}", "P@5").frame
    assert ("twice" in other.arms, other.measures) == (True, (f"nDCG@{RESULTS}",))  # another than the first is left out itself
    write_pages(found, texts=True)
    assert note in printed(closing_page(found), 300)
    assert note in ablation_report(found, texts=True)
    values = json.loads(json.dumps(closing_values(found)))["comparison"]
    assert [arm["arm"] for arm in values["arms"]] == list(comparison.frame.arms)
    exported = write_trec(str(tmp_path / "trec"), found.folder, comparison.frame)
    assert len(Path(exported["full"]).read_text().splitlines()) == READS * len(QUERIES)


def comparison_of(found: ComparedArms, *measures: str) -> Comparison:
    judgements = read_qrels(str(found.folder.config.evaluate.qrels), key="query")
    return compare(found.folder, judgements, found.folder.config.evaluate.model_copy(update={"measures": list(measures)}))


def test_lists_that_are_whole_have_every_measure_and_ends_of_all_lists_leave_deeper_ones_out(
    done: Callable[..., ComparedArms],
) -> None:
    comparison = done('ablate.arms={"fused": {"rerank.kind": "none"}}').comparisons.every[0]
    assert comparison.frame.left_out == ()
    assert comparison.by_arm["full", f"R@{READS}"].mean == comparison.by_arm["original", f"R@{READS}"].mean == 1
    kept = done("ablate.keep=3").comparisons.every[0]
    assert kept.frame.measures == (f"nDCG@{RESULTS}",)
    assert any(f"R@{READS}: left out: reads {READS} documents, lists end at 3 (every arm" in note for note in kept.notes)
    assert any(note.endswith(f"; raise ablate.keep (3) to {READS}, or measure R@3") for note in kept.notes)


# ---------------------------------------------------------------- runs

Side = Callable[..., RunFolder]
DOCS = [f"d{n:02}" for n in range(30)]
GRADES = {query_id(n): {"d08": 1, "d25": 1} for n in range(2)}
QRELS = Judgements("", GRADES, "query_id")


@pytest.fixture
def side(tmp_path: Path) -> Side:
    """A run of two queries: one finds thirty documents, one three."""

    def make(name: str, keep: int, measures: list[str] | None = None, **settings: Any) -> RunFolder:
        queries = [Query("many", hits={("original", "bm25"): DOCS}), Query("few", hits={("original", "bm25"): DOCS[7:10]})]
        given = {"fuse": {"keep": keep}} | ({"evaluate": {"measures": measures}} if measures else {}) | settings
        return RunMaker(tmp_path / name)(queries, (), **given)

    return make


def shown(part: Any) -> str:
    return " ".join(printed(part).split())


def test_a_run_is_measured_by_the_measures_of_its_config(side: Side) -> None:
    run = side("a", 50, ["R@20", "AP@20"])
    found = evaluate(run, QRELS)
    assert tuple(found.pairs) == ("R@20", "AP@20")
    assert found.pairs["R@20"].b == 0.5
    assert "R@20 0.5000" in shown(MeasuredRun(found).page())
    assert "R@20 0.5000" in shown(closing_table(run, None, MeasuredRun(found)))
    assert list(found.values()["measures"]) == ["R@20", "AP@20"]
    assert tuple(evaluate(run, QRELS, ["RR@10"]).pairs) == ("RR@10",)


def test_a_measure_that_looks_deeper_than_the_results_is_left_out(side: Side) -> None:
    found = evaluate(side("a", 5, ["R@20", "P@5"]), QRELS)
    assert tuple(found.pairs) == ("P@5",)
    note = "lists end at 5 (run, original; 1 of 2 judged); raise fuse.keep (5) to 20, or measure R@5"
    words = shown(MeasuredRun(found).page())
    assert note in words  # the list of three is whole
    assert "results' first 5" in words
    values = found.values()
    assert list(values["measures"]) == ["P@5"]
    assert any(note in one for one in values["notes"])
    assert evaluate(side("b", 50, ["R@20"]), QRELS).frame.left_out == ()
    (deep,) = evaluate(
        side("c", 5, ["AP", "RR(rel=2)", "Bpref", "P@5"]), QRELS
    ).frame.left_out  # without a cutoff they read 1,000
    assert deep.startswith("AP, RR(rel=2), Bpref: left out: reads 1,000 documents, lists end at 5")
    assert deep.endswith(" to 1,000, or measure AP@5, RR(rel=2)@5, nDCG@5 in place of Bpref")


def test_the_original_alone_ends_at_the_fuse_depth(side: Side) -> None:
    run = side("a", 50, ["R@20", "P@5"], fuse={"keep": 50, "depth": 15})
    assert tuple(evaluate(run, QRELS).pairs) == ("P@5",)
