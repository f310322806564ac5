"""Each gate says its figure, which is counted here apart, and refuses once with its exact line."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import ir_measures
import pytest

import dmqr
from jobs.__main__ import main
from jobs.config.publish import PublishGates
from jobs.log.judgements import JudgedBy, Judgements
from jobs.publish.gates.gate import GateResult
from jobs.publish.promote import promote
from jobs.publish.target import open_target
from jobs.runs.folder import RunFolder
from tests.support.jobs.look_up_rows import expected_rows
from tests.support.jobs.report_runs import Query, RunMaker, query_id

Night = Callable[..., Path]
END = "look at the run, or set another bound [publish-gate]"


def run_of(place: Path, lists: Sequence[Sequence[str]], asked: Sequence[int] = (3, 2, 1), **more: Any) -> RunFolder:
    """A run whose queries have these documents, by a rewrite; the original has the last of them alone."""
    queries = [
        Query(
            f"query {n}", {"general": f"text {n}"}, {},
            {("general", "bm25"): list(docs), ("original", "bm25"): list(docs)[-1:]}, times,
        )
        for n, (docs, times) in enumerate(zip(lists, asked, strict=True))
    ]  # fmt: skip
    for n, failed in enumerate(more.pop("failed", ())):
        queries[n].failed = {"keyword": failed}
    return RunMaker(place)(queries, **more)


def served(run: RunFolder) -> dict[str, list[str]]:
    """key -> documents, by the run's Parquet files."""
    rows = expected_rows(Path(run.storage.root))[0]
    return {key: [hit["doc_id"] for hit in row["hits"]] for key, row in rows.items()}


def typed(capfd: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, list[str]]:
    capfd.readouterr()
    code = main(list(words))
    said = capfd.readouterr()
    return code, said.out, [line for line in said.err.splitlines() if line.startswith("dmqr")]


LISTS = [["d1", "d2"], ["d3", "d1"], ["d2", "d4"]]
LOOSE = ("--set", "publish.gates.quality={floor: null, below_original: null, below_promoted: null}")


def test_the_error_rate(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    run, to = run_of(tmp_path, LISTS, failed=[("cut off", "raw")]), str(tmp_path / "to")
    assert typed(capfd, "export", run.storage.root, "--to", to)[0] == 0
    command = ["promote", run.storage.root, "--to", to, *LOOSE]
    line = "publish.gates.error_rate: 33.3 % of the queries failed (1 of 3), at most 1.0 %"
    assert typed(capfd, *command) == (1, "", [f"dmqr promote: {line}; nothing is promoted; {END}"])
    code, out, lines = typed(capfd, *command, "--check")
    assert (code, lines) == (1, [f"dmqr promote: {line}; it would not be promoted; {END}"])
    assert "FAILS: 33.3 % of the queries failed (1 of 3), at most 1.0 %" in out
    assert not Path(to, "current.json").exists()
    code, out, lines = typed(capfd, *command, "--set", "publish.gates.error_rate=0.34", "--json")
    assert (code, lines, json.loads(out)["done"]) == (0, [], True)


def test_coverage_by_traffic(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    queries = [Query("a", {"general": "b"}, {}, {("general", "bm25"): ["d1"]}, 6), Query("c", asked=3)]
    rejected = [{"log_id": "7", "stage": "dedup", "reason": "empty", "message": "empty", "attempts": 1}]
    run, to = RunMaker(tmp_path)(queries, rejected=rejected), str(tmp_path / "to")
    typed(capfd, "export", run.storage.root, "--to", to)
    command = ["promote", run.storage.root, "--to", to, *LOOSE, "--set", "publish.gates.error_rate=null"]
    line = "publish.gates.coverage: 60.0 % of the log's traffic has a row with rewrites or hits (6 of 10), at least 95.0 %"
    assert typed(capfd, *command) == (1, "", [f"dmqr promote: {line}; nothing is promoted; {END}"])
    assert typed(capfd, *command, "--set", "publish.gates.coverage=0.6")[0] == 0


def test_coverage_counts_how_often_rejected_rows_were_asked(night: Night, capfd: pytest.CaptureFixture[str]) -> None:
    """With a column of counts; the share is computed of the log's rows, apart."""
    asked = {"lamp of a lighthouse": 2, "moon and tides": 3, "   ": 40, "spring tide": 1}
    run = night("a", list(asked), counts=list(asked.values()))
    typed(capfd, "export", str(run), "--to", "to")
    rejected = sum(n for query, n in asked.items() if not query.strip())
    every = sum(asked.values())
    share = (every - rejected) / every
    words = f"{100 * share:.1f} % of the log's traffic has a row with rewrites or hits ({every - rejected} of {every})"
    command = ["promote", str(run), "--to", "to", *LOOSE, "--set", "publish.gates.error_rate=null"]
    line = f"publish.gates.coverage: {words}, at least 95.0 %"
    assert typed(capfd, *command) == (1, "", [f"dmqr promote: {line}; nothing is promoted; {END}"])
    assert typed(capfd, *command, "--set", f"publish.gates.coverage={share}")[0] == 0


def test_changed_first_documents_by_traffic(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    to = str(tmp_path / "to")
    first = run_of(tmp_path / "first", LISTS)
    second = run_of(tmp_path / "second", [["d2", "d1"], ["d3", "d9"], ["d2", "d4"], ["d8"]], (5, 3, 1, 100))
    for run, version in ((first, "one"), (second, "two")):
        typed(capfd, "export", run.storage.root, "--to", to, "--version", version)
    assert typed(capfd, "promote", first.storage.root, "--to", to, "--version", "one", *LOOSE)[0] == 0
    command = ["promote", second.storage.root, "--to", to, "--version", "two", *LOOSE]
    old, new = served(first), served(second)
    asked = dict(zip(new, (5, 3, 1, 100), strict=True))
    share = sum(asked[key] for key in old if old[key][0] != new[key][0]) / sum(asked[key] for key in old)
    assert 0.3 < share < 1
    words = f"{100 * share:.1f} % of the traffic of 3 queries has another first document than in one"
    line = f"publish.gates.changed_first: {words}"
    assert typed(capfd, *command) == (1, "", [f"dmqr promote: {line}, at most 30.0 %; nothing is promoted; {END}"])
    assert typed(capfd, *command, "--set", f"publish.gates.changed_first={share}")[0] == 0


def ndcg(judged: dict[str, dict[str, int]], served: dict[str, list[str]]) -> float:
    run = {key: {doc: 1.0 / rank for rank, doc in enumerate(docs, start=1)} for key, docs in served.items()}
    measure = ir_measures.parse_measure("nDCG@10")
    values = {one.query_id: one.value for one in ir_measures.iter_calc([measure], judged, run)}
    return sum(values.get(key, 0.0) for key in judged) / len(judged)


@pytest.mark.slow
def test_quality_by_judgements(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    to, qrels = str(tmp_path / "to"), tmp_path / "qrels.tsv"
    first, second = run_of(tmp_path / "first", LISTS), run_of(tmp_path / "second", [["d7", "d1"], ["d8", "d9"], ["d9", "d4"]])
    judged = {query_id(0): {"d1": 1}, query_id(1): {"d3": 2, "d1": 1}, query_id(2): {"d2": 1}}
    qrels.write_text("".join(f"{key}\t{doc}\t{grade}\n" for key, of in judged.items() for doc, grade in of.items()))
    for run, version in ((first, "one"), (second, "two")):
        typed(capfd, "export", run.storage.root, "--to", to, "--version", version)
    bounds = [word for name in ("error_rate", "coverage", "changed_first") for word in ("--set", f"publish.gates.{name}=null")]
    judging = ["--qrels", str(qrels), "--key", "query_id", *bounds]
    command = ["promote", first.storage.root, "--to", to, "--version", "one", *judging]
    now, then = ndcg(judged, served(second)), ndcg(judged, served(first))
    code, out, _ = typed(capfd, *command, "--check", "--json")
    (found,) = (one for one in json.loads(out)["gates"] if one["name"] == "quality")
    assert (code, found["figure"]) == (0, pytest.approx(then))
    line = f"publish.gates.quality: nDCG@10 of the served hits is {then:.4f} over 3 judged keys, at least 0.9990"
    floor = ["--set", "publish.gates.quality={floor: 0.999, below_original: null}"]
    assert typed(capfd, *command, *floor) == (1, "", [f"dmqr promote: {line}; nothing is promoted; {END}"])
    assert typed(capfd, *command)[0] == 0
    command = ["promote", second.storage.root, "--to", to, "--version", "two", *judging]
    command += ["--set", "publish.gates.quality.below_original=null"]
    line = (
        f"publish.gates.quality: nDCG@10 of the served hits is {now:.4f} over 3 judged keys, {now:.4f} on the 3 of them that "
        f"one has, too, at least {then - 0.02:.4f}, as that has 0.0200 more"
    )
    assert typed(capfd, *command) == (1, "", [f"dmqr promote: {line}; nothing is promoted; {END}"])
    assert typed(capfd, *command, "--set", "publish.gates.quality.below_promoted=0.9")[0] == 0
    assert json.loads(Path(to, "current.json").read_text())["version"] == "two"


def test_quality_by_the_original_alone(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    to, qrels = str(tmp_path / "to"), tmp_path / "qrels.tsv"
    run = run_of(tmp_path, [["d1", "d2", "d3"]], (1,))  # the original has d3 alone, and the served hits do not begin with it
    judged = {query_id(0): {"d3": 1}}
    qrels.write_text(f"{query_id(0)}\td3\t1\n")
    typed(capfd, "export", run.storage.root, "--to", to)
    mean = ndcg(judged, served(run))
    assert (mean < 0.98, ndcg(judged, {query_id(0): ["d3"]})) == (True, 1.0)
    command = ["promote", run.storage.root, "--to", to, "--qrels", str(qrels), "--key", "query_id"]
    line = f"publish.gates.quality: nDCG@10 of the served hits is {mean:.4f} over 1 judged keys, at least 0.9800"
    words = f"{line}, as the original alone has 0.0200 more; nothing is promoted; {END}"
    assert typed(capfd, *command) == (1, "", [f"dmqr promote: {words}"])


def test_the_original_is_cut_as_the_served_hits_are(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """With weights of rewrites of 0 both lists are one, so the gate holds at any number of hits."""
    docs = ["d1", "d2", "d3"]
    run = RunMaker(tmp_path)(
        [Query("a", {"general": "b"}, {}, {("original", "bm25"): docs, ("general", "bm25"): docs})],
        fuse={"weights": {"general": 0}},
    )
    qrels = tmp_path / "qrels.tsv"
    judged = {query_id(0): {"d1": 1, "d2": 1, "d3": 1}}
    qrels.write_text("".join(f"{query_id(0)}\t{doc}\t1\n" for doc in docs))
    for hits in (3, 1):
        to = str(tmp_path / f"to{hits}")
        typed(capfd, "export", run.storage.root, "--to", to, "--hits", str(hits))
        code, out, _ = typed(
            capfd, "promote", run.storage.root, "--to", to, "--qrels", str(qrels), "--key", "query_id", "--json"
        )
        (gate,) = (one for one in json.loads(out)["gates"] if one["name"] == "quality")
        mean = ndcg(judged, {query_id(0): docs[:hits]})
        assert (code, gate["passed"], gate["figure"]) == (0, True, pytest.approx(mean))
        assert f"at least {mean - 0.02:.4f}, as the original alone has 0.0200 more" in gate["said"]


@pytest.mark.parametrize("rerank", [{"kind": "none"}, {"kind": "cross_encoder", "model": "m"}])
def test_a_floor_that_cannot_be_measured_does_not_hold(
    rerank: dict[str, Any], tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    other = tmp_path / "other.tsv"
    other.write_text("nowhere\td1\t1\n")
    run, to = run_of(tmp_path, LISTS, rerank=rerank), str(tmp_path / "to")
    typed(capfd, "export", run.storage.root, "--to", to)
    command = ["promote", run.storage.root, "--to", to]
    floor = ["--set", "publish.gates.quality.floor=0.9"]
    why = "there are no judgements to measure it by"
    if rerank["kind"] == "none":
        why = "there are no judgements and no reranker's scores to measure it by"
    line = f"publish.gates.quality: {why}, and it must be at least 0.9000 (floor)"
    assert typed(capfd, *command, *floor) == (1, "", [f"dmqr promote: {line}; nothing is promoted; {END}"])
    # judgements of another log are refused as `evaluate` refuses them
    code, out, lines = typed(capfd, *command, "--qrels", str(other), "--key", "query_id")
    assert (code, out) == (2, "")
    _, _, said = typed(capfd, "evaluate", run.storage.root, str(other), "--key", "query_id")
    plain = [[re.sub(r"[0-9a-f]{32}|^dmqr [a-z]+", "", one) for one in of] for of in (lines, said)]  # any query is the example
    assert plain[0] == plain[1]
    assert "none of 1 judged query_ids is in the log" in lines[0]
    assert typed(capfd, *command)[0] == 0


def test_judgements_of_the_config_that_are_of_another_log_do_not_reach_a_floor(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    other = tmp_path / "other.tsv"
    other.write_text("nowhere\td1\t1\n")
    run, to = run_of(tmp_path, LISTS, evaluate={"qrels": str(other), "key": "query_id"}), str(tmp_path / "to")
    typed(capfd, "export", run.storage.root, "--to", to)
    command = ["promote", run.storage.root, "--to", to, "--check"]
    code, out, _ = typed(capfd, *command)
    assert (code, "holds: no judged query is in the log" in out) == (0, True)
    line = "publish.gates.quality: no judged query is in the log, and it must be at least 0.5000 (floor)"
    found = typed(capfd, *command, "--set", "publish.gates.quality.floor=0.5")
    assert (found[0], found[2]) == (1, [f"dmqr promote: {line}; it would not be promoted; {END}"])


@pytest.mark.parametrize("rerank", [{"kind": "none"}, {"kind": "cross_encoder", "model": "m"}])
def test_judgements_of_the_config_that_are_not_here_are_not_replaced(
    rerank: dict[str, Any], tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    qrels, to = tmp_path / "qrels.tsv", str(tmp_path / "to")
    run = run_of(tmp_path, LISTS, evaluate={"qrels": str(qrels), "key": "query_id"}, rerank=rerank)
    typed(capfd, "export", run.storage.root, "--to", to)
    command = ["promote", run.storage.root, "--to", to]
    words = f"evaluate.qrels {qrels}: is not here, so that publish.gates.quality would be measured by something else"
    for more in ([], ["--check"]):
        line = f"dmqr promote: {words}; give --qrels FILE [judgements]"
        assert typed(capfd, *command, *more) == (2, "", [line])
        with pytest.raises(dmqr.ConfigError) as error:
            dmqr.promote(run.storage.root, to, check=bool(more))
        assert (error.value.code, str(error.value)) == ("judgements", f"{words}; give qrels FILE")
    assert not Path(to, "current.json").exists()
    other = tmp_path / "other.tsv"
    other.write_text(f"{query_id(0)}\td1\t1\n")
    gates = dmqr.promote(run.storage.root, to, check=True, qrels=other)["gates"]
    assert gates[-1]["said"].startswith("nDCG@10 of the served hits is ")
    assert typed(capfd, *command, *LOOSE)[0] == 0  # where nothing is held against a bound, nothing is replaced


def test_a_judge_is_held_against_what_it_graded(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """It graded the results of its own night: of two queries the promoted version has documents that it has not seen."""
    to = str(tmp_path / "to")
    first = run_of(tmp_path / "first", [["d1", "d2"], ["d3"], ["d2", "d4"], ["d6", "d5"]], (4, 3, 2, 1))
    second = run_of(tmp_path / "second", [["d9", "d1"], ["d1", "d3"], ["d8", "d7"], ["d6", "d5"]], (4, 3, 2, 1))
    for run, version in ((first, "one"), (second, "two")):
        typed(capfd, "export", run.storage.root, "--to", to, "--version", version)
    assert typed(capfd, "promote", first.storage.root, "--to", to, "--version", "one", *LOOSE)[0] == 0
    new, old = served(second), served(first)
    relevant = {"d3", "d6", "d5"}
    grades = {key: {doc: int(doc in relevant) for doc in docs} for key, docs in new.items()}
    judge = Judgements("judge", grades, "query_id", JudgedBy("m", ("nDCG@10",)))
    told = {key: grades[key] for key in grades if set(old[key]) <= set(grades[key])}
    assert sorted(told) == [query_id(1), query_id(3)]
    now, then = ndcg(told, {key: new[key] for key in told}), ndcg(told, {key: old[key] for key in told})
    assert then - now > 0.02

    def gate(below: float) -> GateResult:
        gates = PublishGates.model_validate({"quality": {"below_promoted": below}})
        return promote(open_target(to), second, "two", gates, judge, check=True).gates[-1]

    found = gate(0.02)
    assert (found.name, found.passed, found.figure) == ("quality", False, pytest.approx(ndcg(grades, new)))
    assert found.said == (
        f"nDCG@10 of the served hits is {found.figure:.4f} over 4 judged keys, not held against the original alone, whose list "
        "no judge has graded, not held against one on 2 of 4 queries that both have: the judge has not graded all documents "
        f"there, {now:.4f} on the other 2, at least {then - 0.02:.4f}, as that has 0.0200 more"
    )
    assert gate(0.9).passed
    # where it graded nothing of what is promoted, it says that, and compares nothing
    judge = judge._replace(grades={key: of for key, of in grades.items() if key not in told})
    found = gate(0.02)
    assert found.passed
    assert found.said.endswith("has not graded all documents there, and there is nothing to hold it against")


def test_quality_by_the_reranker(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """The reranker of these runs gives the first candidate -1.5, so all versions have that mean."""
    to = str(tmp_path / "to")
    rerank = {"rerank": {"kind": "cross_encoder", "model": "m"}}
    run = run_of(tmp_path, LISTS, **rerank)
    typed(capfd, "export", run.storage.root, "--to", to, "--version", "one")
    record = json.loads(Path(to, "one", "export.json").read_text())
    assert (record["best_scores"]["mean"], record["best_scores"]["queries"]) == (-1.5, 3)
    assert typed(capfd, "promote", run.storage.root, "--to", to, "--version", "one")[0] == 0
    typed(capfd, "export", run.storage.root, "--to", to, "--version", "two")
    path = Path(to, "one", "export.json")
    record["best_scores"]["mean"] = -1.0  # as of a night whose documents were better
    path.write_text(json.dumps(record))
    line = "publish.gates.quality: the mean of the best reranker scores is -1.5000 over 3 queries"
    line += ", at least -1.0200, as one has 0.0200 more"
    command = ["promote", run.storage.root, "--to", to, "--version", "two"]
    assert typed(capfd, *command) == (1, "", [f"dmqr promote: {line}; nothing is promoted; {END}"])
    assert typed(capfd, *command, "--set", "publish.gates.quality.below_promoted=0.5")[0] == 0


@pytest.mark.parametrize(("old", "new"), [(1, 2), (2, 1)])
def test_scores_of_other_numbers_of_hits_are_not_compared(
    old: int, new: int, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """The best of more hits is never worse; the promoted version looks better here, and worse."""
    run, to = run_of(tmp_path, LISTS, rerank={"kind": "cross_encoder", "model": "m"}), str(tmp_path / "to")
    for version, hits in (("one", old), ("two", new), ("three", old)):
        typed(capfd, "export", run.storage.root, "--to", to, "--version", version, "--hits", str(hits))
    assert typed(capfd, "promote", run.storage.root, "--to", to, "--version", "one")[0] == 0
    path = Path(to, "one", "export.json")
    record = json.loads(path.read_text())
    words = "the mean of the best reranker scores is -1.5000 over 3 queries, not held against one, which has "
    words += f"{old} hits of a query in place of {new}, and there is nothing to hold it against"
    for mean in (-1.0, -9.0):
        path.write_text(json.dumps(record | {"best_scores": record["best_scores"] | {"mean": mean}}))
        gates = {}
        for version in ("two", "three"):
            command = ["promote", run.storage.root, "--to", to, "--version", version, "--check", "--json"]
            gates[version] = json.loads(typed(capfd, *command)[1])["gates"][-1]
        assert (gates["two"]["passed"], gates["two"]["said"]) == (True, words)
        assert gates["three"]["passed"] == (mean == -9.0)


def test_several_gates_say_a_line_each(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    run, to = RunMaker(tmp_path)([Query("a", {}, {"general": ("cut", "raw")})]), str(tmp_path / "to")
    typed(capfd, "export", run.storage.root, "--to", to)
    code, _, lines = typed(capfd, "promote", run.storage.root, "--to", to)
    assert (code, [line.split(":")[1].strip() for line in lines]) == (1, ["publish.gates.error_rate", "publish.gates.coverage"])
    assert typed(capfd, "promote", run.storage.root, "--to", to, "--set", "fuse.k=1")[2] == [
        "dmqr promote: --set fuse.k=1: is no bound; give one like publish.gates.coverage=0.9 [argument]"
    ]


def test_a_promoted_version_without_rows_is_not_compared(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    run, to = run_of(tmp_path, LISTS), str(tmp_path / "to")
    for version in ("one", "two"):
        typed(capfd, "export", run.storage.root, "--to", to, "--version", version)
    typed(capfd, "promote", run.storage.root, "--to", to, "--version", "one")
    path = Path(to, "one", "export.json")
    record = json.loads(path.read_text())
    path.write_text(json.dumps(record | {"formats": {"querqy": {}}, "files": []}))  # as of rules alone
    code, out, lines = typed(capfd, "promote", run.storage.root, "--to", to, "--version", "two", "--json")
    (gate,) = (one for one in json.loads(out)["gates"] if one["name"] == "changed_first")
    assert (code, lines, gate["passed"]) == (0, [], True)
    assert gate["said"] == "one is gone, or was exported without rows that it could be compared with"
