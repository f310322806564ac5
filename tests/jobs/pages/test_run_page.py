"""The page of a run: its figures against the tables, what it leaves out, and what strangers' texts do to it."""

import re
from html import escape
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import stats

from cluster.errors import ConfigError
from cluster.run.shards import manifests
from dmqr.results import Stored
from jobs.measure.evaluate import Evaluation
from jobs.measure.strategies import comparable, contributions
from jobs.pages.comparison import MeasuredRun
from jobs.pages.run import cost_section, report, verdict
from jobs.pages.sections import slowest_words, stage_times, time_section
from jobs.runs.folder import RunFolder
from jobs.terminal.formats import masked, shown
from tests.support.jobs.run_folders import PRICES, QUERIES, Make, Page, Query, Row, RunMaker, frame_of, page, query_id, stored

# ---------------------------------------------------------------- figures


def test_figures_of_the_page_are_those_of_the_tables(make: Make) -> None:
    run = make(rejected=[{"log_id": "r1", "stage": "log", "reason": "empty", "message": "it is empty", "attempts": 1}])
    found = page(run)
    assert found.row("strategies", "general")[:3] == ["3", "0", f"{sum_of(run, 'general') / 3:.2f}"]
    assert found.row("strategies", "keyword")[:2] == ["2", "1"]
    assert found.row("errors", "truncated") == ["rewrite", "1", "33.3 %", "keyword 1"]
    assert found.row("errors", "no_hits (a note, no failure)")[:2] == ["fuse", "1"]
    assert found.row("errors", "empty") == ["1"]
    first = re.sub(r"\s+", " ", found.sections["verdict"])
    assert "distinct queries3of 6 log rows, 1 rejected" in first
    assert "rewrites5of 6 planned" in first
    assert "queries with errors133.3 %, limit 50.0 %" in first
    assert "Redundancy weights are by overlap: for cosine a retriever must be dense." in first
    assert "1 of 6 log rows were rejected" in found.sections["errors"]
    assert "✓ finished" in found.sections[""]


def sum_of(run: RunFolder, strategy: str) -> int:
    return sum(strategy in {source["strategy"] for source in row["sources"]} for row in stored(run, "results"))


@pytest.mark.parametrize("calls", ["joint", "separate"])
def test_costs_by_stage_add_up_to_the_tables(make: Make, calls: str) -> None:
    run = make(calls=calls)
    (table,) = cost_section(run, PRICES).parts
    names = [column.label for column in table.columns]  # type: ignore[union-attr]
    *lines, total = [dict(zip(names, row, strict=True)) for row in table.rows if not row[0].startswith("  ")]  # type: ignore[union-attr]
    rows = stored(run, "costs")
    written = sum(sum(manifest.seconds.values()) for manifest in manifests(run.storage))
    requests = sum(row["requests"] for row in rows)
    usd = sum((row["device_seconds"] * 360 or row["seconds"] * 36) / 3600 for row in rows) + written * 36 / 3600
    usd += requests * (60 * 10 + 40 * 1 + 7 * 100) / 1e6
    wanted = {"USD": usd, "share": 1, "requests": requests, "searches": 18, "start-up": 4}
    for name, value in wanted.items():
        assert sum(line[name] or 0 for line in lines) == pytest.approx(value)
        assert total[name] == pytest.approx(value)
    seconds = sum(row["seconds"] for row in rows) + written
    assert sum((line["busy time"] or 0) + (line["start-up"] or 0) for line in lines) == pytest.approx(seconds)
    assert "Quantities only" in cost_section(run, None).sentence


def test_a_run_in_folders_that_look_like_partitions_has_the_same_figures(tmp_path: Path) -> None:
    """By itself DuckDB takes `stage=prod` in a path for a column, in place of the file's own."""
    found = []
    for folder in (tmp_path / "plain", tmp_path / "stage=prod" / "strategy=none" / "query_id=x" / "model=m" / "reason=r"):
        folder.mkdir(parents=True)
        run = RunMaker(folder)(QUERIES)
        tables = [Stored(run).relation(name).order("ALL").fetchall() for name in ("costs", "errors", "rewrites", "results")]
        rows = page(run).rows
        found.append((rows["strategies"], rows["errors"], contributions(run), tables))
    assert found[0] == found[1]


def test_what_each_strategy_added(make: Make) -> None:
    run = make(shard_size=2)
    found = contributions(run)
    by_hand = {}
    for name in ("original", "general", "keyword"):
        sets = [{source["strategy"] for source in row["sources"]} for row in stored(run, "results")]
        mine = [of for of in sets if name in of]
        by_hand[name] = len(mine), sum("original" not in of for of in mine), sum(of == {name} for of in mine)
    assert {name for _, name in found} == {"", *by_hand}
    assert {name: tuple(found[figure, name] for figure in ("found", "new", "alone")) for name in by_hand} == by_hand
    assert found["found", ""] == len(stored(run, "results"))
    for figure in ("found", "new"):  # lists shorter than ten
        assert all(found[f"top_{figure}", name] == found[figure, name] for name in by_hand)


def test_what_lists_of_no_weight_found_is_not_compared(make: Make) -> None:
    run = make(fuse={"weights": {"original": 0}})
    found = contributions(run)
    assert not comparable(run)
    assert (found["found", "original"], found["new", "general"]) == (0, found["found", "general"])
    text = page(run).sections
    assert "not by the original" not in text["strategies"]
    assert "were found by rewrites only" not in text["verdict"]


# ---------------------------------------------------------------- the verdict


def evaluation(run: RunFolder, difference: float, half: float) -> Evaluation:
    """Of results that are better than the original alone by a difference, with half the width of its interval."""
    spread = half * np.sqrt(19) / stats.t.ppf(0.975, 19) * np.resize([1, -1], 20)
    return Evaluation(frame_of([0.5 + difference + spread, [0.5] * 20]), run.config)


@pytest.mark.parametrize(
    ("moved", "words"),
    [
        ((0.2, 0.1), "Rewriting helps: nDCG@10 +0.2000 over the original alone, 95 % interval +0.1000 to +0.3000."),
        ((0.2, 0.25), "It is not clear whether rewriting helps: nDCG@10 +0.2000"),
        ((-0.2, 0.1), "Rewriting does harm: nDCG@10 -0.2000"),
        (None, "Whether rewriting helps is not known: nothing is measured. Of the first 10 results of a query "),
    ],
)
def test_the_verdict_claims_no_more_than_the_figures_hold(make: Make, moved: tuple[float, float] | None, words: str) -> None:
    run = make()
    measured = None if moved is None else evaluation(run, *moved)
    assert verdict(run, measured, contributions(run)).startswith(words)
    assert Page(report(run, None, MeasuredRun(measured))).sections["verdict"].strip().startswith(words)


def test_quality_is_a_row_for_each_measure(make: Make) -> None:
    run = make()
    found = page(run, measured=MeasuredRun(evaluation(run, 0.2, 0.1)))
    assert found.row("quality", "nDCG@10") == ["0.7000", "0.5000", "+0.2000", "+0.1000 to +0.3000", "better"]


# ---------------------------------------------------------------- time and workers

POOLS = {
    "rewrite": {"workers": 2, "cpus": 1, "gpus": 0.0, "most": None},
    "rewrite_2": {"workers": 1, "cpus": 1, "gpus": 0.0, "most": None},
    "retrieve": {"workers": 1, "cpus": 1, "gpus": 0.0, "most": None},
}
# Of the maker's three shards: 1.5 s of rewriting each, 4 s of start-up once, 2.25 s of retrieval each.
REWRITE, RETRIEVE, UP = 3 * 1.5, 3 * 2.25, 4.0


def with_starts(run: RunFolder, *starts: dict[str, Any]) -> RunFolder:
    """The run with its start, or several, by other keys."""
    (first,) = run.record["starts"]
    run.record["starts"] = [first | {"pools": POOLS, "start": n} | one for n, one in enumerate(starts, start=1)]
    return run


def test_workers_worked_started_and_waited_all_of_their_time(make: Make) -> None:
    times = {one.name: one for one in stage_times(with_starts(make(), {"wall_seconds": 10.0}))}
    rewrite, retrieve = times["rewrite"], times["retrieve"]
    assert rewrite.workers == 3  # of both engines
    assert (rewrite.attributed, rewrite.start_up, rewrite.lost) == pytest.approx((REWRITE, UP, 0.0))
    assert rewrite.idle == pytest.approx(30.0 - REWRITE - UP)
    assert (retrieve.attributed, retrieve.idle) == pytest.approx((RETRIEVE, 10.0 - RETRIEVE))
    assert rewrite.busy == pytest.approx(REWRITE / (30.0 - UP))
    assert retrieve.busy == pytest.approx(RETRIEVE / 10.0)
    assert times["fuse"].workers == 0


def test_several_starts_add_up_and_recorded_times_count(make: Make) -> None:
    killed = {"status": "killed", "wall_seconds": 4.0, "busy": {"retrieve": 3.0}, "queued": {"retrieve": 1.5}}
    run = with_starts(make(), killed, {"wall_seconds": 10.0, "queued": {"retrieve": 2.0, "rewrite": 0.5}})
    found = {one.name: one for one in stage_times(run)}
    # The manifests say that start 1 has done what is committed: retrieval beyond its 4 s is over, and not lost.
    assert (found["retrieve"].lost, found["retrieve"].idle) == pytest.approx((0.0, 10.0))
    assert [found[name].queued for name in ("retrieve", "rewrite", "fuse")] == pytest.approx([3.5, 0.5, 0.0])
    of = {"attributed": 6.0, "start_up": 1.0, "lost": 2.0, "idle": 1.0}
    run.record["node_time"] = [{"start": 1, "stages": {"retrieve": of}}, {"start": 2, "stages": {"retrieve": of}}]
    (retrieve,) = stage_times(run)
    assert (retrieve.attributed, retrieve.lost, retrieve.busy) == pytest.approx((12.0, 4.0, 16 / 18))


def test_the_slowest_stage_works_more_than_half_of_its_time(make: Make, tmp_path: Path) -> None:
    run = with_starts(make(), {"wall_seconds": 10.0, "queued": {"rewrite": 0.25, "retrieve": 5.0}})
    busy = "Of their time, workers worked: retrieve 67.5 %, rewrite 17.3 %."  # 6.75 of 10 s; 4.5 of 3 x 10 - 4
    words = f"The others wait for retrieve. {busy} Shards waited longest before retrieve: 5.0 s in all."
    assert slowest_words(stage_times(run)) == words
    assert words in page(run).sections["time"]
    idle = with_starts(RunMaker(tmp_path / "longer")(), {"wall_seconds": 20.0, "queued": {}})
    assert slowest_words(stage_times(idle)).startswith("No stage holds up the others.")
    assert time_section(RunMaker(tmp_path / "empty")(commit=0, finished=False)) is None


# ---------------------------------------------------------------- the page as such, privacy, strangers' texts


def test_the_page_is_whole_in_itself(make: Make) -> None:
    run = make()
    html = report(run, PRICES, MeasuredRun(evaluation(run, 0.2, 0.1)))
    found = Page(html)
    assert not {tag for tag, _ in found.tags} & {"link", "img", "iframe", "object", "embed", "base", "form", "script"}
    for tag, attributes in found.tags:
        assert not {name for name in attributes if name.startswith("on") or name in {"src", "action", "srcset"}}, tag
    assert not re.search(r"@import|url\(|https?://", html)
    ids = [attributes["id"] for _, attributes in found.tags if "id" in attributes]
    assert len(ids) == len(set(ids))
    assert {attributes["href"] for _, attributes in found.tags if "href" in attributes} <= {f"#{name}" for name in ids}
    assert all(attributes.get("scope") in {"row", "col"} for tag, attributes in found.tags if tag == "th")
    policy = next(attributes["content"] for _, attributes in found.tags if "http-equiv" in attributes)
    assert policy == "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'"
    assert {"name": "viewport", "content": "width=device-width, initial-scale=1"} in [each for _, each in found.tags]
    order = [attributes["id"] for tag, attributes in found.tags if tag == "section"]
    assert order == ["verdict", "quality", "strategies", "samples", "cost", "errors", "time", "config"]


def test_nothing_that_somebody_wrote_is_on_a_page_without_texts(make: Make, bm25: Row, passages: dict[str, str]) -> None:
    rejected = [{"log_id": "r1", "stage": "log", "reason": "too_long", "message": "zuluword is", "raw": "zulu", "attempts": 1}]
    run = make(index=bm25["index"], rejected=rejected)
    private = {row["query"] for row in stored(run, "queries")} | {row["text"] for row in stored(run, "rewrites")}
    private |= {words for row in stored(run, "errors") for words in (row["message"], row["raw"]) if words}
    private |= set(passages.values()) | {"prompt alpha lighthouse", "answer to alpha lighthouse"}
    open_page, closed_page = report(run, None), report(run, None, texts=False)
    assert sum(Page(open_page).sections["samples"].count(words) > 0 for words in private) > 8  # the test can fail
    plain = " ".join([*Page(closed_page).sections.values(), closed_page])
    assert [words for words in private if words in plain] == []
    for word in ("alphaword", "bravo", "zulu", "Lighthouse", "Sourdough"):
        assert word not in plain
    for name in (query_id(1), "d05", "truncated", "too_long", "r1", "keyword"):
        assert name in plain


HOSTILE = "</title></style></script><script>alert(1)</script><img src=x onerror=alert(2)>\"'`&lt;\u202egnp\u2066\x00\x1b[31m\U0001f9a0 {{ 7*7 }} {% raw %}"  # noqa: E501


def test_strangers_texts_stay_texts(make: Make) -> None:
    query = Query(
        HOSTILE,
        {"general": HOSTILE + "x" * 9000},
        {"keyword": (HOSTILE, HOSTILE)},
        {("original", "bm25"): [HOSTILE], ("general", "bm25"): [HOSTILE + "2"]},
    )
    rejected = [{"log_id": HOSTILE, "stage": "log", "reason": "empty", "message": HOSTILE, "raw": HOSTILE, "attempts": 1}]
    html = report(make([query], rejected=rejected), PRICES)
    found = Page(html)
    assert [tag for tag, _ in found.tags].count("style") == 1
    assert not {"img", "script"} & {tag for tag, _ in found.tags}
    assert not [code for code in (*range(9), *range(11, 32), 127, 0x202E, 0x2066) if chr(code) in html]
    shown_text = shown(HOSTILE)
    assert found.sections["samples"].count(shown_text) >= 4  # query, rewrite, two documents
    assert found.sections["errors"].count(shown_text) >= 3
    assert escape("{{ 7*7 }}") in html
    assert "x" * 3000 not in html


def test_passwords_in_addresses_are_masked(make: Make) -> None:
    engine = {"kind": "openai", "model": "m", "base_url": "http://person:sesame@host:8000/v1"}
    html = report(make(rewrite={"engine": engine, "strategies": ["general", "keyword"]}), None)
    assert "sesame" not in html
    assert "http://***@host:8000/v1" in html
    assert masked({"a": ["s3://b/c", "x://u:p/w@h/d", "mail a@b"]}) == {"a": ["s3://b/c", "x://***@h/d", "mail a@b"]}


# ---------------------------------------------------------------- runs that lack something


def test_an_unfinished_run_counts_what_is_committed(make: Make, tmp_path: Path) -> None:
    def box(run: RunFolder) -> str:
        return report(run, None).partition('<ul class="warns">')[2].partition("</ul>")[0]

    assert "33.3 % of the queries have errors, more than half of limits.error_rate." in box(make())
    run = RunMaker(tmp_path / "open")(commit=2, finished=False)
    assert "All figures are of the committed shards only" in box(run)
    found = page(run)
    assert "not finished: running: 2 of 3 shards are committed" in found.sections[""]
    assert found.row("strategies", "general")[:2] == ["2", "0"]
    nothing = page(RunMaker(tmp_path / "nothing")(commit=0, finished=False))
    assert "0 of 3 shards are committed" in nothing.sections[""]
    for section in ("verdict", "cost", "samples"):
        assert "othing is committed" in nothing.sections[section]


def test_a_run_without_results(make: Make) -> None:
    found = page(make([QUERIES[2]]))
    assert "No results are committed" in found.sections["strategies"]
    assert "No hits." in found.sections["samples"]


def test_a_file_that_is_gone_is_one_line(make: Make) -> None:
    run = make()
    Path(run.tables["results"][0]).unlink()
    with pytest.raises(ConfigError, match="the run's tables cannot be read") as refused:
        report(run, None)
    assert "\n" not in str(refused.value)
