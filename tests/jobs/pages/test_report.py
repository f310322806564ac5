"""The page of a report: its figures against the tables, what it leaves out, and what strangers' texts do to it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from cluster.errors import ConfigError
from jobs.pages.report import report
from jobs.terminal.formats import masked, shown
from tests.support.jobs.report_runs import PRICES, QUERIES, Make, Page, Query, Row, RunMaker, page, query_id, stored


@pytest.fixture
def make(tmp_path: Path) -> Make:
    return RunMaker(tmp_path)


def test_figures_of_the_page_are_those_of_the_tables(make: Make) -> None:
    run = make(rejected=[{"log_id": "r1", "stage": "log", "reason": "empty", "message": "it is empty", "attempts": 1}])
    found = page(run)
    rewrites, errors, results = (stored(run, table) for table in ("rewrites", "errors", "results"))
    assert found.row("rewrites", "general") == ["2", "1", "3", "0", "–"]
    assert found.row("rewrites", "keyword") == ["1", "1", "2", "1", "truncated"]
    assert len(rewrites) == 5
    assert found.row("errors", "truncated") == ["rewrite", "1", "1", "keyword\xa01"]
    assert found.row("errors", "empty") == ["1"]
    assert found.row("errors", "no_hits (a note, no failure)") == ["fuse", "1", "–", "–"]
    assert [row["reason"] for row in errors].count("truncated") == 1
    glance = re.sub(r"\s+", " ", found.sections["glance"])
    for words in ("of 6 log rows, 1 rejected", "distinct queries3", "rewrites5", "of 6 planned", f"results{len(results)}"):
        assert words in glance
    assert "queries with errors1" in glance
    assert "33.3 %, limit 50.0 %" in glance
    assert "Redundancy weights are by overlap (of the lists' first documents): for cosine a retriever must be dense." in glance
    assert "No list has a hit for 1 query" in glance
    assert found.row("stages", "retrieve")[:2] == ["8 texts", f"16 lists, 18 searches, {len(stored(run, 'runs'))} hits"]
    assert "finished" in found.sections[""]


def test_the_page_is_whole_in_itself(make: Make) -> None:
    html = report(make(), PRICES, None)
    found = Page(html)
    assert not {tag for tag, _ in found.tags} & {"link", "img", "iframe", "object", "embed", "base", "form"}
    for tag, attributes in found.tags:
        assert not {name for name in attributes if name.startswith("on") or name in {"src", "action", "srcset"}}, tag
        assert (attributes.get("href") or "#").startswith("#")
    assert not re.search(r"@import|url\(", html)
    assert set(re.findall(r"https?://[^\s\"<]+", html)) <= {"http://www.w3.org/2000/svg"}
    policy = next(attributes["content"] for _, attributes in found.tags if "http-equiv" in attributes)
    assert policy is not None
    assert policy.startswith("default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data:")
    assert {"name": "viewport", "content": "width=device-width, initial-scale=1"} in [each for _, each in found.tags]


# ---------------------------------------------------------------- privacy, and strangers' texts


def test_nothing_that_somebody_wrote_is_on_a_page_without_texts(make: Make, bm25: Row, passages: dict[str, str]) -> None:
    rejected = [{"log_id": "r1", "stage": "log", "reason": "too_long", "message": "zuluword is", "raw": "zulu", "attempts": 1}]
    run = make(index=bm25["index"], rejected=rejected)
    private = {row["query"] for row in stored(run, "queries")} | {row["text"] for row in stored(run, "rewrites")}
    private |= {words for row in stored(run, "errors") for words in (row["message"], row["raw"]) if words}
    private |= set(passages.values()) | {"prompt alpha lighthouse", "answer to alpha lighthouse"}
    open_page, closed_page = report(run, None, None), report(run, None, None, texts=False)
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
    html = report(make([query], rejected=rejected), PRICES, None)
    found = Page(html)
    assert [tag for tag, _ in found.tags].count("script") == 1
    assert [tag for tag, _ in found.tags].count("style") == 1
    assert "img" not in {tag for tag, _ in found.tags}
    assert not [code for code in (*range(9), *range(11, 32), 127, 0x202E, 0x2066) if chr(code) in html]
    shown_text = shown(HOSTILE)
    assert found.sections["samples"].count(shown_text) >= 4  # query, rewrite, two documents
    assert found.sections["errors"].count(shown_text) >= 3
    assert "{{ 7*7 }}" in html
    assert "x" * 3000 not in html


def test_passwords_in_addresses_are_masked(make: Make) -> None:
    engine = {"kind": "openai", "model": "m", "base_url": "http://person:sesame@host:8000/v1"}
    run = make(rewrite={"engine": engine, "strategies": ["general", "keyword"]})
    html = report(run, None, None)
    assert "sesame" not in html
    assert "http://***@host:8000/v1" in html
    assert masked({"a": ["s3://b/c", "x://u:p/w@h/d", "mail a@b"]}) == {"a": ["s3://b/c", "x://***@h/d", "mail a@b"]}


# ---------------------------------------------------------------- runs that lack something


def test_an_unfinished_run_says_so_and_counts_what_is_committed(make: Make) -> None:
    run = make(commit=2, finished=False)
    found = page(run)
    assert "not finished: running: 2 of 3 shards are committed" in found.sections[""]
    assert "All figures are of the committed shards only" in found.sections["glance"]
    assert found.row("rewrites", "general") == ["2", "2", "0", "–"]
    assert len(stored(run, "rewrites")) == 3


def test_a_run_of_which_nothing_is_committed(make: Make) -> None:
    found = page(make(commit=0, finished=False))
    assert "0 of 3 shards are committed" in found.sections[""]
    assert "nothing is committed" in found.sections["cost"].lower() + found.sections["samples"]
    assert "no results are committed" in found.sections["added"]


def test_a_run_without_results(make: Make) -> None:
    found = page(make([QUERIES[2]]))
    assert "no results are committed" in found.sections["added"]
    assert "No results." in found.sections["samples"]
    assert "No hits." in found.sections["samples"]
    assert "No list has a hit for 1 query" in found.sections["glance"]


def test_a_file_that_is_gone_is_one_line(make: Make) -> None:
    run = make()
    Path(run.tables["results"][0]).unlink()
    with pytest.raises(ConfigError, match="the run's tables cannot be read") as refused:
        report(run, None, None)
    assert "\n" not in str(refused.value)


# ---------------------------------------------------------------- quality, and words
