"""Every preset of configs/, and every rewriting method, in a whole run with recorded completions."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml

from jobs.config.load import load_config
from jobs.job.prepare import prepare
from tests.support.jobs.in_process_runs import run_in_process
from tests.support.jobs.whole_runs import ROOT, rows

RISE, LAMP, YEAST = "why does bread rise", "compare a lamp and a lens of a lighthouse", "yeast"
VIEWS = [
    "fermentation of dough by wild yeast and its effect on how bread rises over time",
    "what slow sourdough fermentation by yeast means for the planning of work in bakeries",
    "comparison of rising times of bread with wild yeast and with the yeast of beer",
]
STYLES = [
    "the idea behind leavening and how yeast in a dough makes the gas for bread to rise",
    "what a slow rise of bread with sourdough and wild yeast is good for in bakeries",
    "bread dough rise yeast sourdough leavening fermentation gas time warmth wild cousins beer rye bags",
]
ANSWERS: dict[str, Any] = {
    "dmqr": json.dumps({
        "general": "reason why bread rises", "keyword": "bread, rise, yeast", "core_content": "bread rise",
        "pseudo_answer": "Bread rises because yeast makes gas in the dough.",
    }),
    "dmqr_adaptive": "Keyword Rewriting: bread, rise, yeast\nPseudo-Answer Rewriting: Yeast makes gas.\n"
    "reason: it is a short question",
    "rag_fusion": "1. yeast in dough\n2. sourdough fermentation\n3. gas in bread\n4. rye bread rising",
    "hyde": "Yeast feeds on sugar and makes gas. The gas lifts the dough, so bread rises.",
    "step_back": "How does fermentation work?",
    "decompose": "1. What makes gas in dough?\n2. How does gas lift bread?",
    "multi_query": "1. how can bread rise\n2. leavening of bread by yeast\n3. which bread rises most",
    "expand": "yeast leavening fermentation dough",
    "query2doc": "Yeast makes gas in the dough, which lifts the bread.",
    "clarify": "1. rising of bread dough\n2. rising price of bread",
    "rewrite": "reason for the rise of bread",
    "pseudo_answer": ["Yeast makes gas.", "Gas lifts the dough.", "Sourdough is slow."],
    "medical_standalone": "why does bread dough rise", "medical_synonyms": "mechanism of leavening of dough",
    "medical_context": "why does bread rise, what does yeast do, and how long does it take",
    "book_views": json.dumps(VIEWS),
    "answer": "Yeast makes gas, which lifts the dough [1].", "short_answer": "yeast",
    "iterate": json.dumps({"query": "wild yeast of sourdough"}),
    "relevance": json.dumps({"match": 2, "trust": 3, "overall": 2}),
    "accuracy": "correct",
    "criteria": json.dumps(dict.fromkeys((
        "correctness", "faithfulness", "relevance", "thoroughness", "harmlessness", "readability", "logicality", "creativity",
    ), 4)),
}  # fmt: skip
Run = Callable[..., tuple[Path, Any]]


@pytest.fixture
def job(tmp_path: Path, bm25: dict[str, Any], served_dense: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> Run:
    """Runs a preset, or its ablation, over three queries with recorded completions, without a reranker; folder and config."""
    log, recorded = tmp_path / "log.parquet", tmp_path / "recorded.jsonl"
    monkeypatch.chdir(ROOT)
    pq.write_table(pa.table({"id": ["1", "2", "3"], "query": [RISE, LAMP, YEAST]}), log)

    def ran(
        preset: str, *settings: str, answers: dict[str, Any] | None = None, prepare: Callable[..., Any] = prepare
    ) -> tuple[Path, Any]:
        lines = [{"query": query, "completions": ANSWERS | (answers or {})} for query in (RISE, LAMP, YEAST)]
        recorded.write_text("".join(json.dumps(line) + "\n" for line in lines))
        path = f"configs/{preset}.yaml"
        named = yaml.safe_load(Path(path).read_text())["retrieve"]["retrievers"]
        named |= {f"{name}.of.{part}": one for name in list(named) for part, one in named[name].get("of", {}).items()}
        blocks = {name: served_dense if one.get("encoder") else bm25 for name, one in named.items() if one["kind"] != "hybrid"}
        indexes = [
            f"retrieve.retrievers.{name}.{key}={json.dumps(block[key])}"
            for name, block in blocks.items()
            for key in ("index", "encoder")
            if block[key]
        ]
        common = [
            f"log.path={log}", "log.query_column=query", "log.id_column=id", f"output={tmp_path}/runs", "cluster.address=none",
            f"rewrite.engine={{kind: recorded, path: {recorded}}}", "rerank={kind: none}", "evaluate.qrels=null", *indexes,
        ]  # fmt: skip
        config = load_config(path, [*common, *settings])
        prepared = prepare(config, path)
        return run_in_process(prepared), config

    return ran


def texts(folder: Path, query: str = RISE) -> dict[str, list[str]]:
    """Returns strategy -> its texts for a query, by position."""
    ids = {row["query"]: row["query_id"] for row in rows(folder, "queries")}
    found: dict[str, list[str]] = defaultdict(list)
    for row in sorted(rows(folder, "rewrites"), key=lambda row: row["position"]):
        if row["query_id"] == ids[query]:
            found[row["strategy"]].append(row["text"])
    return dict(found)


def fused_lists(folder: Path) -> set[str]:
    """Returns the strategies whose lists have results."""
    return {source["strategy"] for row in rows(folder, "results") for source in row["sources"]}


def calls(folder: Path) -> dict[str, int]:
    """Returns request -> how many queries it was made for."""
    return dict(Counter(row["component"] for row in rows(folder, "costs") if row["stage"] == "rewrite" and row["query_id"]))


FOUR = ["core_content", "general", "keyword", "pseudo_answer"]


def test_the_two_nights_differ_in_their_strategies_alone() -> None:
    four, two = (yaml.safe_load((ROOT / f"configs/{name}.yaml").read_text()) for name in ("nightly", "nightly-two"))
    assert (four.pop("name"), two.pop("name")) == ("nightly", "nightly-two")
    first, second = four.pop("rewrite"), two.pop("rewrite")
    assert (sorted(first.pop("strategies")), first.pop("calls")) == (FOUR, "joint")
    assert second.pop("strategies") == ["rag_fusion", "hyde"]
    assert (four, first) == (two, second)


@pytest.mark.slow
def test_three_medical_templates_weigh_less_the_more_they_guess(job: Run) -> None:
    folder, config = job("medical")
    weights = {row["strategy"]: row["weight"] for row in rows(folder, "rewrites")}
    assert weights == {"medical_standalone": 1.0, "medical_synonyms": 0.95, "medical_context": 0.9}
    assert fused_lists(folder) == set(weights)
    assert calls(folder) == dict.fromkeys(weights, 3)
    assert config.fuse.keep == 8
    ranks = [source["rank"] for row in rows(folder, "results") for source in row["sources"]]
    assert max(ranks) == 5
    assert min(source["score"] for row in rows(folder, "results") for source in row["sources"]) >= 0.05


def test_the_book_s_second_trio(job: Run) -> None:
    strategy = "book_views(style=true)"
    folder, _ = job(
        "book", "rewrite.strategies=[{configs/strategies/book_views.yaml: {style: true}}]",
        answers={"book_views": json.dumps(STYLES)},
    )  # fmt: skip
    assert texts(folder) == {strategy: STYLES}


@pytest.mark.parametrize(
    ("strategy", "count"),
    [("rewrite", 1), ("hyde", 1), ("step_back", 1), ("decompose", 2), ("multi_query", 3), ("expand", 1), ("query2doc", 1),
     ("clarify", 2), ("{pseudo_answer: {n: 3, temperature: 0.7}}", 3)],
)  # fmt: skip
def test_every_method_beside_the_original(job: Run, strategy: str, count: int) -> None:
    folder, config = job("rag_fusion", f"rewrite.strategies=[{strategy}]")
    (name,) = config.rewrite.planned
    assert {name: len(found) for name, found in texts(folder).items()} == {name: count}
    assert fused_lists(folder) == {"original", name}


@pytest.mark.slow
def test_only_queries_that_find_little_are_refined(job: Run) -> None:
    folder, _ = job("iterative", "iterate.below=0.6", "iterate.rounds=1")
    best: dict[str, float] = defaultdict(float)
    for row in rows(folder, "runs"):
        if row["retriever"] == "dense" and row["strategy"] == "original":
            best[row["query_id"]] = max(best[row["query_id"]], row["score"])
    refined = {row["query_id"] for row in rows(folder, "rounds")}
    assert refined == {query for query, score in best.items() if score < 0.6}
    assert calls(folder) == {}


@pytest.mark.slow
def test_the_better_half_of_the_queries_is_not_rewritten(job: Run) -> None:
    folder, _ = job("gated", "rewrite.gate.below=1")
    best: dict[str, float] = defaultdict(float)
    for row in rows(folder, "runs"):
        if row["retriever"] == "bm25" and row["strategy"] == "original":
            best[row["query_id"]] = max(best[row["query_id"]], row["score"])
    (worst,) = sorted(best, key=lambda query: best[query])[:1]  # half of three, whole queries
    assert {row["query_id"] for row in rows(folder, "rewrites")} == {worst}
    assert calls(folder) == {"dmqr": 1}
