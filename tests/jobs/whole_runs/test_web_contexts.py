"""Pages of the web that several searches have found, each in its own words: files have those that the LLM was shown."""

from __future__ import annotations

import html
import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from jobs.__main__ import main
from jobs.config.load import load_config
from jobs.pages.report import report
from jobs.runs.folder import RunFolder
from jobs.try_one.stages import LoadedConfig
from tests.support.jobs.corrective_llm import kind_of, prompt_of, said
from tests.support.jobs.in_process_runs import QUERIES, finished, job_in_process, prepared_work, rows
from tests.support.retrievers.web_server import WebServer
from tests.support.rewriters.fake_server import FakeServer

HITS = 2
TEXTS = {
    "general": "a yeast of the sea",
    "keyword": "the moon and the lamp",
}  # `a ...` is before all queries in order of letters


@pytest.fixture
def server() -> Iterator[FakeServer]:
    with FakeServer(["answerer-8b"], text=said) as one:
        yield one


@pytest.fixture
def web() -> Iterator[WebServer]:
    with WebServer("searxng") as one:
        yield one


@pytest.fixture
def job(
    tmp_path: Path, values: dict[str, Any], config_file: Callable[[Any], str], server: FakeServer, web: WebServer,
    monkeypatch: pytest.MonkeyPatch,
) -> str:  # fmt: skip
    """Only the web is searched, for each query and two rewrites."""
    monkeypatch.chdir(tmp_path)
    engine = {"kind": "openai", "model": "answerer-8b", "base_url": server.address, "attempts": 1}
    values["answer"] = {"documents": 6, "engine": engine}
    path = job_in_process(tmp_path, values, {}, config_file)
    lines = [{"query": query, "completions": {"dmqr": json.dumps(TEXTS)}} for query in QUERIES]
    Path("recorded.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    values["rewrite"]["strategies"] = ["general", "keyword"]
    values["retrieve"]["retrievers"] = {"web": web.block(attempts=1, patience_minutes=0.01)}
    config_file(values)
    return path


def corrected(server: FakeServer, web: WebServer) -> list[str]:
    engine = {"kind": "openai", "model": "answerer-8b", "base_url": server.address, "attempts": 1}
    search = web.block(attempts=1, patience_minutes=0.01)
    return [
        f"grade={json.dumps({'documents': 2, 'engine': engine})}",
        f"web={json.dumps({'when': 'any', 'documents': HITS, 'search': search, 'engine': engine})}",
    ]


def contexts(run: RunFolder, arm: str | None = None) -> dict[str, list[str]]:
    """Query -> the contexts of its line."""
    more = [] if arm is None else ["--arm", arm]
    assert main(["evaluate", run.storage.root, "--rows", "answers.jsonl", *more]) == 0
    lines = [json.loads(line) for line in Path("answers.jsonl").read_text().splitlines()]
    return {line["query"]: [one["text"] for one in line["contexts"]] for line in lines}


def shown(server: FakeServer, since: int) -> dict[str, set[str]]:
    """Query -> the prompts of its answers, of requests after so many."""
    found: dict[str, set[str]] = {}
    for prompt in (prompt for body in server.bodies[since:] if kind_of(prompt := prompt_of(body)) == "answer"):
        found.setdefault(prompt.rpartition("Question: ")[2], set()).add(prompt)
    return found


def check(run: RunFolder, server: FakeServer, since: int = 0) -> None:
    """Checks that the prompt of each query has all of its contexts, in their order."""
    prompts, found = shown(server, since), contexts(run)
    assert len(found) == len(QUERIES)
    assert {len(of) for of in prompts.values()} == {1}
    for query, texts in found.items():
        placed = [[prompt.find(text) for text in texts] for prompt in prompts[query]]
        assert any(-1 not in of and of == sorted(of) for of in placed), (query, texts)


def test_contexts_have_the_words_of_the_search_that_the_llm_was_shown(job: str, server: FakeServer) -> None:
    run = finished(prepared_work(job, [], None))
    said_of: dict[tuple[str, str], set[str]] = {}
    for one in rows(run, "web"):
        said_of.setdefault((one["query_id"], one["doc_id"]), set()).add(one["text"])
    assert sum(len(of) > 1 for of in said_of.values()) > len(QUERIES)
    check(run, server)


@pytest.mark.slow
def test_contexts_of_arms_have_theirs(job: str, server: FakeServer) -> None:
    arms: dict[str, dict[str, Any]] = {
        "one": {"rewrite.strategies": ["keyword"]}, "light": {"fuse.weights": {"general": 0}},
    }  # fmt: skip
    ablation = finished(prepared_work(job, ["store=null"], {"arms": arms}))
    for arm, changes in {"full": {}, **arms}.items():
        since = len(server.bodies)
        settings = [f"{key}={json.dumps(value)}" for key, value in changes.items()]
        alone = finished(prepared_work(job, [*settings, "store=null", "name=alone"], None))
        check(alone, server, since)
        assert contexts(ablation, arm) == contexts(alone), arm


def test_a_graded_page_that_the_web_has_again_keeps_its_words_and_is_no_hit(
    job: str, server: FakeServer, web: WebServer
) -> None:
    run = finished(prepared_work(job, corrected(server, web), None))
    check(run, server)
    corrections = {one["query_id"]: one for one in rows(run, "corrections")}
    graded = {(one["query_id"], one["doc_id"]) for one in rows(run, "grades")}
    urls = {one["doc_id"]: one["url"] for one in rows(run, "web")}
    again = [
        (one["query_id"], one["doc_id"]) for one in rows(run, "web")
        if one["retriever"] == "web.search" and (one["query_id"], one["doc_id"]) in graded
    ]  # fmt: skip
    assert again, "some graded pages are found again"
    page = report(run, None, None)
    samples = {part.partition("query_id <code>")[2].partition("<")[0]: part for part in page.split('<details class="sample"')}
    for one in rows(run, "answers"):
        query_id = one["query_id"]
        hits = [of["doc_id"] for of in one["documents"] if (query_id, of["doc_id"]) not in graded]
        assert len(hits) == (corrections[query_id]["hits"] or 0)
        if hits:
            listed = samples[query_id].partition('<p class="said">web')[2].partition("</ol>")[0]
            assert [html.unescape(url) for url in re.findall(r"<small>(.*?)</small>", listed)] == [
                urls[doc_id] for doc_id in hits
            ]


def ranked(run: RunFolder) -> dict[str, list[str]]:
    """Query -> its results, best first."""
    texts = {one["query_id"]: one["query"] for one in rows(run, "queries")}
    found: dict[str, list[str]] = {query: [] for query in QUERIES}
    for one in sorted(rows(run, "results"), key=lambda one: one["rank"]):
        found[texts[one["query_id"]]].append(one["doc_id"])
    return found


@pytest.mark.slow
def test_the_web_is_a_collection_beside_an_index(job: str, server: FakeServer, web: WebServer, bm25: dict[str, Any]) -> None:
    """Results are those of either collection alone, merged by rank; texts, grades and hits are of pages by their own ids."""
    of_collections = {"law": bm25, "net": web.block(attempts=1, patience_minutes=0.01)}
    alone = {}
    for name, of in of_collections.items():
        settings = [f"retrieve.retrievers={json.dumps({name: of})}", f"name={name}", "answer=null"]
        alone[name] = ranked(finished(prepared_work(job, settings, None)))
    both = [
        f"retrieve.retrievers={json.dumps(of_collections)}",
        f"retrieve.collections={json.dumps({name: {'retrievers': [name]} for name in alone})}", "fuse.duplicates=drop",
    ]  # fmt: skip
    run = finished(prepared_work(job, [*both, *corrected(server, web)], None))
    for query, found in ranked(run).items():
        places = [
            (-1 / (60 + n), f"{name}:{doc_id}") for name, of in alone.items() for n, doc_id in enumerate(of[query], start=1)
        ]
        assert found == [doc_id for _, doc_id in sorted(places)], query
    check(run, server)
    graded = {(one["query_id"], one["doc_id"].partition(":")[2]) for one in rows(run, "grades")}
    again = [one for one in rows(run, "web") if one["retriever"] == "web.search" and (one["query_id"], one["doc_id"]) in graded]
    assert again, "some graded pages are found again"
    for one in rows(run, "answers"):
        pages = [of["doc_id"].removeprefix("net:") for of in one["documents"]]
        assert len(pages) == len(set(pages)), "a page that is a result is no hit"
    assert "https://" in report(run, None, None)
    settings = [*both, *corrected(server, web)]
    with LoadedConfig(load_config(job, settings), job, "both") as loaded:
        trial = loaded.try_query(QUERIES[0], lambda _: None)
    found = [one["doc_id"] for one in trial.row["hits"]]
    assert found == ranked(run)[QUERIES[0]][: len(found)]
    of_the_web = [doc_id for doc_id in found if doc_id.startswith("net:")]
    assert of_the_web
    assert all(trial.texts[doc_id] and trial.addresses[doc_id].startswith("https://") for doc_id in of_the_web)
