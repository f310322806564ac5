"""The sample queries of a page: which, in which order, and what of them is shown."""

from dataclasses import replace

import pytest

from jobs.log.judgements import Judgements
from jobs.measure import judged_rows
from jobs.measure.evaluate import Evaluation
from jobs.pages.comparison import UNMEASURED, MeasuredRun, measured_run
from jobs.pages.run import examples
from jobs.pages.samples import SAMPLES, Sample, samples
from jobs.runs.folder import RunFolder
from jobs.runs.tables import database
from jobs.tables import NOTES
from tests.support.jobs.run_folders import QUERIES, Make, Query, Row, page, query_id, stored


def found_in(run: RunFolder, measured: MeasuredRun = UNMEASURED) -> list[Sample]:
    failed = [one["id"] for (_, reason), of in examples(run).items() if reason not in NOTES for one in of]
    return samples(run, failed, measured, texts=True)


def alpha(run: RunFolder) -> Sample:
    return next(one for one in found_in(run) if one.title == "alpha lighthouse")


# ---------------------------------------------------------------- which, and in which order


def test_samples_are_those_that_failed_gained_lost_and_were_asked_most(make: Make) -> None:
    queries = [Query(f"query {n}", {"general": "g"}, asked=9 if n == 17 else 1) for n in range(40)]
    queries[8] = Query("failing", {}, {"general": ("cut off", "raw")})
    run = make(queries, ("general",), shard_size=4)
    values: dict[str, tuple[float, float | None]] = {query_id(n): (0.5, 0.5) for n in range(40)}
    values |= {query_id(3): (0.9, 0.1), query_id(25): (0.1, 0.9)}
    measured = MeasuredRun()
    measured.__dict__["by_query"] = values
    chosen = found_in(run, measured)
    assert {one.title for one in chosen} >= {"query 3", "query 25", "query 17", "failing"}
    assert len(chosen) == SAMPLES
    assert (chosen[0].title, chosen[-1].title) == ("query 3", "query 25")  # the greatest gain first
    assert (chosen[0].gain_words, chosen[-1].gain_words) == ("▲ +0.80", "▼ −0.80")
    assert [one.title for one in chosen] == [one.title for one in found_in(run, measured)]


def test_without_judgements_the_most_asked_come_first(make: Make) -> None:
    run = make([Query(name, {"general": "g"}, asked=asked) for name, asked in (("a", 1), ("b", 7), ("c", 3))], ("general",))
    assert [one.title for one in found_in(run)] == ["b", "c", "a"]
    assert "asked 7 ×" in page(run).sections["samples"]


def test_the_samples_of_an_unfinished_run_are_committed_ones(make: Make) -> None:
    queries = [Query(f"query {n}", {"general": "g"}, asked=n + 1) for n in range(12)]
    run = make(queries, ("general",), shard_size=2, commit=2, finished=False)
    assert [one.title for one in found_in(run)] == ["query 3", "query 2", "query 1", "query 0"]


def test_judged_queries_have_the_mean_of_their_rows(make: Make) -> None:
    run = make()
    judgements = Judgements("qrels", {query_id(0): {"d01": 1, "d05": -1}, query_id(1): {"d04": 3}}, "query_id")
    found = measured_run(run, judgements, None)
    values = found.frame
    assert values is not None
    assert found.grades == judgements.grades
    assert found.by_query[query_id(0)] == (values.values[0, 0, 0], values.values[1, 0, 0])
    assert [name for name, _ in found.gains] == [query_id(1), query_id(0)]
    twice = Judgements("qrels", {"r1": {"d01": 1}, "r2": {"d01": 2, "d02": 0}})
    rows = replace(values, keys=("r1", "r2"), query_ids=(query_id(0),) * 2)
    assert MeasuredRun(Evaluation(rows, run.config), (), twice).grades == {query_id(0): {"d01": 2, "d02": 0}}
    text = page(run, measured=found).sections["samples"]
    assert "★ relevant 3" in text
    assert "judged not relevant" in text


# ---------------------------------------------------------------- what is shown


def test_samples_show_rewrites_requests_ranks_and_results(make: Make, bm25: Row, passages: dict[str, str]) -> None:
    one = alpha(make(index=bm25["index"]))
    assert one.lines == [*QUERIES[0].texts.items()]
    assert [hit.doc_id for hit in one.alone] == ["d01", "d02", "d03"]  # fused
    assert one.alone[0].found_by == "bm25 1, dense 1"
    assert {hit.doc_id for hit in one.hits if hit.is_new} == {"d04", "d05"}
    first = next(hit for hit in one.hits if hit.doc_id == "d01")
    assert first.found_by.endswith("; bm25: original 1, general 1; dense: original 1, keyword 1")
    assert next(hit.text for hit in one.hits if hit.doc_id == "d05") == passages["d05"]
    ((words, text),) = one.requests
    assert words == "Prompt and answer of dmqr: 100 prompt tokens, 7 completion tokens, stop"
    assert text == "prompt alpha lighthouse\n\n— answer of writer —\n\nanswer to alpha lighthouse"


def test_what_a_floor_keeps_out_is_not_among_the_documents_of_the_original_alone(make: Make) -> None:
    """Scores fall by one a rank: only the first of each list of the original is above its floor."""
    first = max(row["score"] for row in stored(make(), "runs") if row["strategy"] == "original")
    assert [hit.doc_id for hit in alpha(make(fuse={"original_floor": first})).alone] == ["d01"]


@pytest.mark.parametrize("fuse", [{}, {"method": "minmax"}, {"weights": {"original": 0}}])
def test_the_original_alone_is_the_one_that_is_measured(make: Make, fuse: dict[str, object]) -> None:
    run = make(fuse=fuse)
    with database(run) as connection:
        judged_rows.counted_keys(connection, run, Judgements("q", {query_id(n): {} for n in range(3)}, "query_id"))
        rows = [row for table in judged_rows.originals(connection, run, 10) for row in table.to_pylist()]
    measured: dict[str, list[str]] = {}
    for row in rows:
        measured.setdefault(row["query_id"], []).append(row["doc_id"])
    assert measured[query_id(0)] != []
    for one in found_in(run):
        assert [hit.doc_id for hit in one.alone] == measured.get(one.query_id, [])


TOGETHER = {"bm25": {"kind": "local", "index": "nowhere", "together": True}, "dense": {"kind": "local", "index": "nowhere"}}


@pytest.mark.parametrize("together", [True, False])
def test_where_the_original_alone_is_not_known_nothing_is_said_of_it(make: Make, together: bool) -> None:
    retrieve = {"keep_runs": together, "retrievers": TOGETHER if together else dict.fromkeys(TOGETHER, TOGETHER["dense"])}
    hits = {("together" if together and key[1] == "bm25" else key[0], key[1]): of for key, of in QUERIES[0].hits.items()}
    one = alpha(make([replace(QUERIES[0], hits=hits)], keep_runs=together, retrieve=retrieve))
    assert (one.alone, one.alone_title) == ([], "")
    assert {hit.doc_id for hit in one.hits if hit.is_new} == (set() if together else {"d04", "d05"})
