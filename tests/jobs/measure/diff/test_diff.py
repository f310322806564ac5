"""Two runs compared: what they were given, which queries moved, what they cost, and what a person is shown."""

import json
import random
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from jobs.__main__ import main
from jobs.job.steps import VARIABLES
from jobs.log.judgements import JudgedBy
from jobs.measure.diff import changed_queries
from jobs.measure.diff.changed_queries import MovedQuery, Share, moves
from jobs.measure.diff.diff import Change, Cost, changes, diff, diff_values
from jobs.measure.diff.quality import judge_of_both
from jobs.pages.diff import diff_page
from jobs.runs.folder import RunFolder, open_run
from jobs.runs.sums import selected
from jobs.runs.tables import database
from rewriters.steps.step import LlmStep
from rewriters.strategy import template_hash
from tests.support.jobs.run_folders import PRICES, QUERIES, Query, RunMaker, query_id
from tests.support.jobs.terminals import printed

Side = Callable[..., RunFolder]
ORIGINAL = ("original", "bm25")


@pytest.fixture
def side(tmp_path: Path) -> Side:
    """Makes a run under a name."""

    def make(name: str, *arguments: Any, **settings: Any) -> RunFolder:
        return RunMaker(tmp_path / name)(*arguments, **settings)

    return make


def recorded(run: RunFolder, **values: Any) -> RunFolder:
    """The run with other values in run.json."""
    run.storage.put("run.json", json.dumps(run.record | values).encode())
    return open_run(run.storage.root)


def asks(template: str, *strategies: str, weight: float = 1.0) -> dict[str, Any]:
    """An identity whose joint request has this template."""
    requests = [{"name": "dmqr", "prompt_hash": template_hash(template), "schema_hash": "s" + str(len(strategies))}]
    settings = [{"name": name, "weight": weight, "search_as": "query"} for name in strategies]
    return {"rewrite": {"rewriter": {"strategies": settings, "requests": requests}, "engine": {"model": "m"}}}


def shown(a: RunFolder, b: RunFolder, count: int = 10, **more: Any) -> str:
    return printed(diff_page(diff(a, b, more.get("judgements"), more.get("prices"), count)))


# ---------------------------------------------------------------- what they were given


def test_one_run_beside_itself_has_no_difference(side: Side) -> None:
    run = side("a")
    assert not any(changes(run, run).values())
    found = moves(run, run, 10)
    assert (found.both, found.rewrites, found.documents) == (Share(3, 5), Share(0, 0), Share(0, 0))
    assert (found.overlap, found.listed) == (1, [])
    page = shown(run, run)
    assert "A and B are the same run" in page
    assert [" ".join(line.split()[1:]) for line in page.splitlines()].count("the same") == 6


def test_keys_of_the_config_by_dotted_path(side: Side) -> None:
    a = side("a", retrieve={"retrievers": {"bm25": {"kind": "local", "index": "i"}}, "routes": {"general": ["bm25"]}})
    b = side("b", fuse={"method": "rrf", "k": 7}, strategies=("general", "keyword"))
    found = changes(a, b)["config"]
    assert Change("fuse.method", "minmax", "rrf") in found
    assert Change("retrieve.routes.general", ["bm25"], None) in found
    assert Change("retrieve.retrievers.dense.kind", None, "local") in found
    assert "retrieve.routes.general bm25 -" in " ".join(shown(a, b).split())
    assert not [one for one in found if one.a == one.b or one.path.startswith("log")]


def test_a_key_that_is_newer_than_a_run_is_at_its_default(side: Side) -> None:
    a, b = side("a"), side("b")
    config = json.loads(json.dumps(b.record["config"]))
    del config["limits"]["stall_minutes"]
    assert changes(a, recorded(b, config=config))["config"] == []


def test_models_indexes_versions_and_log(side: Side) -> None:
    more = {"versions": {"python": "3.11", "vllm": "0.9"}, "indexes": {"bm25": {"corpus": "c2"}}}
    b = recorded(side("b", [*QUERIES, Query("delta")]), identity=asks("p") | {"rerank": {"model": "r", "weights": "w"}}, **more)
    found = changes(recorded(side("a"), identity=asks("p")), b)
    assert found["models"] == [Change("rerank.model", None, "r"), Change("rerank.weights", None, "w")]
    assert found["indexes"] == [Change("bm25.corpus", None, "c2")]
    assert found["versions"] == [Change("vllm", None, "0.9")]
    assert sorted(found["log"]) == [Change("rows.log_rows", 5, 6), Change("rows.queries", 3, 4)]


STEPS = list(VARIABLES)


def of_step(**changed: Any) -> dict[str, Any]:
    """Returns the entry of `run.json` for a step after retrieval."""
    values: dict[str, Any] = {
        "system": "You read.\nYou judge.",
        "prompt": "Query: {query}",
        "output": "grade",
        "grades": {"0": 0, "1": 1},
    }
    step = LlmStep(name="step", **values | {name: value for name, value in changed.items() if name in LlmStep.model_fields})
    engine = {"kind": "openai", "model": changed.get("model", "m"), "weights": changed.get("weights", "w")}
    decoding = {"temperature": changed.get("temperature", 0.0), "max_tokens": 64}
    return {"step": step.identity(), "engine": engine, "decoding": decoding, "reading": 1}


def with_steps(run: RunFolder, steps: dict[str, dict[str, Any]], **more: Any) -> RunFolder:
    """The run with steps after retrieval, by key of the config."""
    of_results = {key: one for key, one in steps.items() if not key.startswith("judge.")}
    judge = {key.removeprefix("judge."): one for key, one in steps.items() if key.startswith("judge.")}
    return replace(run, record=run.record | {"identity": asks("p") | of_results | {"judge": judge} | more})


PLANTED: dict[str, tuple[str, Any, str]] = {  # field -> section, value, path below the step
    "system": ("prompts", "You read.\nYou grade.", "prompt"),
    "prompt": ("prompts", "Query: {query}\nBriefly.", "prompt"),
    "document": ("prompts", "[{number}] {text}", "prompt"),
    "grades": ("prompts", {"0": 0, "1": 2}, "grades.1"),
    "max_chars": ("prompts", 100, "max_chars"),
    "temperature": ("prompts", 0.5, "decoding.temperature"),
    "model": ("models", "n", "model"),
    "weights": ("models", "v", "weights"),
}


def test_what_later_steps_are_asked_is_compared(side: Side) -> None:
    """Steps and changes are drawn: of all that may be planted in a step, just what is planted is shown."""
    run, drawn = side("a"), random.Random(3)
    for _ in range(60):
        steps = drawn.sample(STEPS, drawn.randint(1, len(STEPS)))
        planted = {key: drawn.choice(list(PLANTED)) for key in drawn.sample(steps, drawn.randint(0, len(steps)))}
        b = {key: of_step(**({of: PLANTED[of][1]} if (of := planted.get(key)) else {})) for key in steps}
        a, b_run = with_steps(run, {key: of_step() for key in steps}), with_steps(run, b)
        found = changes(a, b_run)
        for section in found:
            expected = {f"{key}.{PLANTED[of][2]}" for key, of in planted.items() if PLANTED[of][0] == section}
            assert {one.path for one in found[section]} == expected


@pytest.mark.parametrize(("other", "said"), [("n", [True]), ("m", [])])
def test_two_judges_are_warned_of(other: str, said: list[bool]) -> None:
    judge = judge_of_both(JudgedBy("m", ()), JudgedBy(other, ()))
    assert judge is not None
    assert [note.startswith("warning: m judged A, n B") for note in judge.notes] == said


# ---------------------------------------------------------------- what moved


@pytest.mark.slow
def test_rewrites_that_moved_by_traffic(side: Side) -> None:
    base = [
        Query("alpha", {"general": "a", "keyword": "k"}, asked=5),
        Query("bravo", {"general": "b"}, asked=3),
        Query("charlie", {"general": "c"}),
    ]
    other = [
        Query("alpha", {"general": "a", "core_content": "x"}, asked=50),
        Query("bravo", {"general": "B", "core_content": "x"}, asked=30),
        Query("charlie", asked=10),
    ]
    a, b = side("a", base), side("b", other, ("general", "core_content"))
    found = moves(a, b, 10)
    assert found.both == Share(3, 90)  # by B's log
    assert found.rewrites == Share(2, 40)  # other words; no text at all
    general, keyword, core = found.strategies
    assert (general.strategy, general.a, general.b, general.moved) == ("general", Share(3, 90), Share(2, 80), Share(2, 40))
    assert (keyword.strategy, keyword.a, keyword.b) == ("keyword", Share(1, 50), Share(0, 0))
    assert (core.strategy, core.a, core.b) == ("core_content", Share(0, 0), Share(2, 80))
    assert found.listed == [  # of strategies that both have; most often asked first
        MovedQuery(query_id(1), "bravo", 30, False, 1.0, (None, None), {"general": ("b", "B")}),
        MovedQuery(query_id(2), "charlie", 10, False, 1.0, (None, None), {"general": ("c", None)}),
    ]
    assert [one.query for one in moves(a, b, 1).listed] == ["bravo"]
    page = shown(a, b)
    assert "core_content, only in B 2 66.7 % 80 88.9 %" in " ".join(page.split())
    assert "general: b -> B" in page
    assert "general: c -> -" in page


def test_documents_that_moved_by_traffic(side: Side) -> None:
    def query(name: str, asked: int, *doc_ids: str) -> Query:
        return Query(name, hits={ORIGINAL: list(doc_ids)} if doc_ids else {}, asked=asked)

    long = [f"d{n:02}" for n in range(12)]
    base = [query("same", 1, *long), query("below", 1, *long), query("order", 2, *long), query("some", 4, "x", "y"),
            query("none", 8), query("gone", 16, "x"), query("turn", 32, "x", "y", "z")]  # fmt: skip
    other = [query("same", 1, *long), query("below", 1, *long[:11], "new"), query("order", 2, *long[:8], *long[:7:-1]),
             query("some", 4, "z", "x", "y", "v"), query("none", 8), query("gone", 16),
             query("turn", 32, "x", "z", "y")]  # fmt: skip
    found = moves(side("a", base, ()), side("b", other, ()), 10)
    assert found.depth == 10
    assert found.both == Share(7, 64)
    assert found.documents == Share(4, 54)  # not the one that moved below the tenth
    assert [(one.query, one.overlap, one.first) for one in found.listed] == [
        ("turn", 1.0, ("x", "x")),
        ("gone", 0.0, ("x", None)),
        ("some", 0.5, ("x", "z")),
        ("order", 0.8, ("d00", "d00")),
    ]
    assert found.overlap == pytest.approx((1 + 1 + 2 * 0.8 + 4 * 0.5 + 8 + 0 + 32) / 64)


@pytest.mark.parametrize("size", [1, 2])
def test_what_is_not_committed_is_not_compared(side: Side, size: int) -> None:
    queries = [Query(name, {"general": name}, asked=n) for n, name in enumerate("abcd", start=1)]
    a = side("a", queries[:3], shard_size=size)
    b = side("b", queries, shard_size=size, commit=2 // size, finished=False)
    found = moves(a, b, 10)
    assert (found.both, found.only_a, found.only_b) == (Share(2, 3), Share(1, 3), Share(0, 0))
    assert moves(b, a, 10).only_b == Share(1, 3)
    assert f"(running: {2 // size} of {4 // size} shards are committed)" in " ".join(shown(a, b).split())
    nothing = side("c", queries, commit=0, finished=False)
    assert (moves(a, nothing, 10).both, moves(a, nothing, 10).overlap) == (Share(0, 0), None)
    assert "queries in both" in shown(a, nothing)


# ---------------------------------------------------------------- several texts of a strategy, and selected strategies

FUSION = "rag_fusion(n=3)"
POOL = ("keyword", FUSION, "hyde")
HITS = {("original", "bm25"): ["d01"]}
CHOSEN = [
    Query(
        "alpha",
        {"keyword": "alphakey", FUSION: ["alphaone", "alphatwo", "alphathree"]},
        hits=HITS | {(FUSION, "bm25"): ["d02"]},
        selected=("simple", ["keyword", FUSION], "why alphareason"),
    ),
    Query("bravo", {FUSION: ["bravoone"]}, {"hyde": ("cut", "raw")}, HITS, selected=("simple", [FUSION, "hyde"], "because")),
    Query("charlie", hits=HITS, selected=("keywords", [], "clear enough")),
]


def test_what_was_selected_is_of_queries_of_all_types() -> None:
    counts = {"selections/a/b/2": 3, "selections/a/0": 1, "selected/a/b/x": 3, "selected/a/x": 1}
    assert selected(counts, ["x"]) == ({"x": 4}, 4)


def test_texts_of_strategies_that_only_one_run_selected_are_shown(side: Side) -> None:
    every = [Query(one.name, dict.fromkeys(POOL, "text"), hits=HITS) for one in CHOSEN]
    pair = side("a", every, POOL), side("b", CHOSEN, POOL, select="adaptive")
    found = moves(*pair, 10)
    alpha = next(one for one in found.listed if one.query == "alpha")
    assert list(alpha.rewrites) == ["keyword", f"{FUSION} 1", f"{FUSION} 2", f"{FUSION} 3", "hyde"]
    assert alpha.rewrites[f"{FUSION} 2"] == (None, "alphatwo")
    text = " ".join(shown(*pair).split())
    assert "keyword 3 100.0 % 3 100.0 %" in text
    assert "rewrites of a query, on average: A 3.00, B 1.67" in text
    assert diff_values(diff(*pair, None, None, 10))["rewrites"]["per_query"] == {"a": 3.0, "b": pytest.approx(5 / 3)}
    same = moves(pair[1], pair[1], 10)
    assert all(one.moved == Share(0, 0) for one in same.strategies)
    assert same.listed == []


# ---------------------------------------------------------------- costs, and what is shown


def test_costs_are_of_a_thousand_queries(side: Side) -> None:
    a, b = side("a"), side("b", [QUERIES[0], Query("sent to nobody")])
    found = diff(a, b, None, PRICES, 0).costs
    total = {one.quantity: one for one in found if one.stage == "total"}
    assert total["prompt_tokens"] == Cost("total", "prompt_tokens", 100_000, 50_000)
    assert total["usd"].a == pytest.approx(PRICES.usd(a.spent) / 3 * 1000)
    rewrite = {one.quantity: one for one in found if one.stage == "rewrite"}
    assert rewrite["usd"].b == pytest.approx(PRICES.usd({"rewrite": b.spent["rewrite"]}) / 2 * 1000)
    assert not [one for one in diff(a, b, None, None, 0).costs if one.quantity == "usd"]
    assert not [one for one in found if not one.a and not one.b]


def test_the_verb(side: Side, capfd: pytest.CaptureFixture[str]) -> None:
    a, b = side("a"), side("b", evaluate={"qrels": "nowhere.tsv"})
    assert main(["diff", a.storage.root, b.storage.root]) == 0
    printed = capfd.readouterr()
    assert printed.out.startswith(f"A  {a.storage.root} (finished)\nB  {b.storage.root} (finished)\n")
    assert printed.err == "dmqr diff: judgements nowhere.tsv are missing; nothing is measured (name a file with qrels)\n"
    assert main(["diff", a.storage.root, b.storage.root, "--json", "--samples", "0"]) == 0
    assert json.loads(capfd.readouterr().out)["moved"] == []


@pytest.mark.slow
def test_portions_find_what_one_pass_finds(side: Side, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of logs whose shards begin at other queries, some not committed: every query is compared once."""
    queries = [Query(str(n), {"general": str(n)}, hits={ORIGINAL: ["x", "y"]}, asked=n + 1) for n in range(40)]
    others = [Query(one.name, {"general": one.name * (1 + n % 3)}, hits={ORIGINAL: ["x", "yz"[n % 2]]}, asked=n + 2)
              for n, one in enumerate(queries[:30])]  # fmt: skip
    a, b = side("a", queries, shard_size=7), side("b", others, shard_size=4, commit=6, finished=False)
    whole = moves(a, b, 5)
    assert (whole.both.queries, whole.only_a.queries, whole.rewrites.queries) == (24, 16, 16)
    steps = []
    for size in (1, 4, 9, 14):
        monkeypatch.setattr(changed_queries, "QUERIES", size)
        for left, right in ((a, b), (b, a)):
            with database(left, right) as connection:
                steps.append(sum(1 for _ in changed_queries.portions(connection, left, right)))
        found = moves(a, b, 5)
        assert found.overlap == pytest.approx(whole.overlap)
        assert found._replace(overlap=whole.overlap) == whole
    assert steps == [40, 40, 10, 10, 5, 5, 3, 3]
