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
from jobs.run.ablation import prepare_ablation
from rewriters.normalise import query_id
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


def test_the_paper_s_four_in_one_call(job: Run) -> None:
    folder, _ = job("paper")
    assert sorted(texts(folder)) == FOUR
    assert calls(folder) == {"dmqr": 3}


@pytest.mark.slow
def test_in_the_paper_s_setting_each_text_retrieves_ten_documents(job: Run) -> None:
    folder, config = job("paper", "retrieve.depth=3", "fuse.depth=3")  # of a corpus of eight
    lists = Counter((row["query_id"], row["strategy"], row["retriever"]) for row in rows(folder, "runs"))
    assert {retriever for _, _, retriever in lists} == {"hybrid"}
    assert {strategy for _, strategy, _ in lists} == {"original", *FOUR}
    assert set(lists.values()) == {3}
    of_query = Counter(row["query_id"] for row in rows(folder, "results"))
    found = {query: len({row["doc_id"] for row in rows(folder, "runs") if row["query_id"] == query}) for query in of_query}
    assert of_query == found  # the whole union
    searches = Counter[str]()
    for row in rows(folder, "costs"):
        if row["stage"] == "retrieve" and row["query_id"]:
            searches[row["component"]] += row["searches"]
            assert (row["model"] is not None) == (row["component"] == "hybrid/dense")
    assert searches["hybrid/bm25"] == searches["hybrid/dense"] > 3
    index = json.loads((folder / "run.json").read_text())["indexes"]["hybrid"]
    assert {name: one["documents"] for name, one in index["of"].items()} == {"bm25": 8, "dense": 8}
    assert config.fuse.keep == 50


def test_the_two_nights_differ_in_their_strategies_alone() -> None:
    four, two = (yaml.safe_load((ROOT / f"configs/{name}.yaml").read_text()) for name in ("nightly", "nightly-two"))
    assert (four.pop("name"), two.pop("name")) == ("nightly", "nightly-two")
    first, second = four.pop("rewrite"), two.pop("rewrite")
    assert (sorted(first.pop("strategies")), first.pop("calls")) == (FOUR, "joint")
    assert second.pop("strategies") == ["rag_fusion", "hyde"]
    assert (four, first) == (two, second)


@pytest.mark.slow
def test_adaptive_selection_keeps_what_the_llm_chose_and_why(job: Run) -> None:
    folder, _ = job("adaptive")
    assert texts(folder) == {"keyword": ["bread, rise, yeast"], "pseudo_answer": ["Yeast makes gas."]}
    assert {row["selected_reason"] for row in rows(folder, "rewrites")} == {"it is a short question"}
    assert [(row["strategies"], row["reason"]) for row in rows(folder, "selections")] == [
        (["keyword", "pseudo_answer"], "it is a short question")
    ] * 3


@pytest.mark.slow
def test_rag_fusion_gives_each_variant_a_list(job: Run) -> None:
    folder, _ = job("rag_fusion")
    assert texts(folder) == {"rag_fusion": ["yeast in dough", "sourdough fermentation", "gas in bread", "rye bread rising"]}
    positions = {row["position"] for row in rows(folder, "runs") if row["strategy"] == "rag_fusion"}
    assert positions == {1, 2, 3, 4}


@pytest.mark.slow
def test_two_variants_stand_beside_four(job: Run) -> None:
    folder, _ = job("rag_fusion", "rewrite.strategies=[rag_fusion, {rag_fusion: {n: 2}}]")
    assert {name: len(found) for name, found in texts(folder).items()} == {"rag_fusion": 4, "rag_fusion(n=2)": 2}


@pytest.mark.slow
def test_classified_selection_by_rules(job: Run) -> None:
    folder, _ = job("classified")
    assert list(texts(folder, RISE)) == ["step_back"]
    assert list(texts(folder, LAMP)) == ["decompose"]
    assert texts(folder, YEAST) == {}
    types = {row["query_id"]: row["query_type"] for row in rows(folder, "selections")}
    assert sorted(types.values()) == ["comparison", "conceptual", "keywords"]
    assert calls(folder) == {
        "step_back": 1, "decompose": 1,
    }  # fmt: skip


@pytest.mark.slow
def test_an_adaptive_number_of_rewrites(job: Run, tmp_path: Path) -> None:
    rules = yaml.safe_load((ROOT / "rewriters/rules/english.yaml").read_text())
    rules["strategies"] = dict.fromkeys(rules["strategies"], 2) | {"keywords": "none", "comparison": 5}
    (tmp_path / "rules.yaml").write_text(yaml.safe_dump(rules))
    folder, _ = job(
        "classified", "rewrite.strategies=[rag_fusion, step_back]",
        f"rewrite.select={{kind: classified, rules: {tmp_path}/rules.yaml}}", "fuse.weights={}",
    )  # fmt: skip
    counts = {query: sum(map(len, texts(folder, query).values())) for query in (RISE, LAMP, YEAST)}
    assert counts == {RISE: 2, LAMP: 5, YEAST: 0}


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


@pytest.mark.slow
def test_three_views_of_one_book_in_one_call(job: Run) -> None:
    folder, _ = job("book")
    assert texts(folder) == {"book_views": VIEWS}
    assert fused_lists(folder) == {"book_views"}
    best = {row["doc_id"]: row for row in rows(folder, "results")}
    assert all(row["score"] == pytest.approx(max(one["score"] for one in row["sources"])) for row in best.values())


@pytest.mark.slow
@pytest.mark.parametrize(
    ("answer", "parsed_as", "found"),
    [
        ("\n".join(f"{number}. {view}" for number, view in enumerate(VIEWS, start=1)), "numbered", VIEWS),
        ("I cannot help with that.", "original", [RISE]),
        (
            json.dumps([VIEWS[0], "too short", "this chapter of the book explains why the bread that we eat can rise"]),
            "json",
            [VIEWS[0], "too short"],  # the range of words only guides; a banned word does not pass
        ),
    ],
)
def test_a_view_that_is_no_json_falls_back_to_lines_then_to_the_original(
    job: Run, answer: str, parsed_as: str, found: list[str]
) -> None:
    folder, _ = job("book", answers={"book_views": answer})
    assert texts(folder) == {"book_views": found}
    assert {row["parsed_as"] for row in rows(folder, "rewrites")} == {parsed_as}


def test_the_book_s_second_trio(job: Run) -> None:
    strategy = "book_views(style=true)"
    folder, _ = job(
        "book", "rewrite.strategies=[{configs/strategies/book_views.yaml: {style: true}}]",
        answers={"book_views": json.dumps(STYLES)},
    )  # fmt: skip
    assert texts(folder) == {strategy: STYLES}


@pytest.mark.slow
def test_a_cheap_night_searches_once_per_retriever(job: Run) -> None:
    folder, _ = job("cheap")
    assert {(row["strategy"], row["position"]) for row in rows(folder, "runs")} == {("together", 1)}
    searches = Counter({row["component"]: 0 for row in rows(folder, "costs")})
    for row in rows(folder, "costs"):
        searches[row["component"]] += row["searches"]
    assert searches["bm25"] == searches["dense"] == 3


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
def test_step_back_takes_the_place_of_the_original(job: Run) -> None:
    folder, _ = job("rag_fusion", "rewrite.strategies=[step_back]", "fuse.weights={original: 0}")
    assert fused_lists(folder) == {"step_back"}


@pytest.mark.slow
def test_a_passage_with_the_original_is_one_text(job: Run) -> None:
    folder, _ = job(
        "rag_fusion",
        "rewrite.strategies=[{hyde: {include_original: 1}}, {query2doc: {include_original: 5}}, expand]",
        "retrieve.routes={'query2doc(include_original=5)': [bm25]}",
    )
    found = texts(folder)
    assert found["hyde(include_original=1)"] == [f"{RISE} {ANSWERS['hyde']}"]
    assert found["query2doc(include_original=5)"] == [" ".join([RISE] * 5 + [ANSWERS["query2doc"]])]
    assert found["expand"] == [f"{RISE} {ANSWERS['expand']}"]


@pytest.mark.slow
def test_the_same_passage_under_two_ids_counts_once(job: Run, passages: dict[str, str]) -> None:
    settings = ["fuse.depth=100", "fuse.duplicates=drop"]
    whole, begun = job("rag_fusion", *settings)[0], job("rag_fusion", *settings, "fuse.duplicate_chars=5")[0]
    found = [
        [passages[row["doc_id"]][:5] for row in sorted(rows(folder, "results"), key=lambda row: row["rank"])
         if row["query_id"] == query_id(RISE)]
        for folder in (whole, begun)
    ]  # fmt: skip
    assert found[1] == list(dict.fromkeys(found[0]))  # of passages that begin alike the best alone
    assert len(found[1]) < len(found[0])


@pytest.mark.slow
def test_scores_are_divided_by_the_highest(job: Run) -> None:
    settings = ["fuse.method=weighted", "fuse.redundancy=none", "retrieve.routes={original: [bm25], step_back: [bm25]}"]
    folder, _ = job("rag_fusion", "rewrite.strategies=[step_back]", *settings, "fuse.divide=max")
    for row in rows(folder, "results"):
        assert row["score"] <= 2.0
        assert row["rank"] > 1 or row["score"] >= 1.0


@pytest.mark.slow
def test_a_domain_ends_in_an_answer_with_labels(job: Run) -> None:
    folder, _ = job("medical")
    answers = rows(folder, "answers")
    assert len(answers) == 3
    for one in answers:
        labels = [document["label"] for document in one["documents"]]
        assert labels == sorted(labels, key=["High", "Medium", "Low"].index)
        assert one["cited"] == [one["documents"][0]["doc_id"]]


@pytest.mark.slow
def test_a_book_answers_in_five_modes(job: Run) -> None:
    chosen = "hyde: Yeast makes gas.\nstep_back: How does fermentation work?\nreason: it is a short question"
    folder, _ = job("book", "ablate.sources=true", answers={"dmqr_adaptive": chosen}, prepare=prepare_ablation)
    searched: dict[str, set[str]] = defaultdict(set)
    for row in rows(folder, "results"):
        searched[row["arm"]] |= {source["strategy"] for source in row["sources"]}
    modes = {
        "full": {"book_views"},
        "hyde": {"hyde"},
        "multi_query": {"multi_query"},
        "adaptive": {"hyde", "step_back"},
        "none": {"original"},
    }
    assert {arm: searched[arm] for arm in modes} == modes
    answered = Counter((one["arm"], one["text"]) for one in rows(folder, "answers"))
    assert {arm: answered[arm, ANSWERS["answer"]] for arm in modes} == dict.fromkeys(modes, 3)


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
    folder, _ = job("gated")
    best: dict[str, float] = defaultdict(float)
    for row in rows(folder, "runs"):
        if row["retriever"] == "bm25" and row["strategy"] == "original":
            best[row["query_id"]] = max(best[row["query_id"]], row["score"])
    (worst,) = sorted(best, key=lambda query: best[query])[:1]  # half of three, whole queries
    assert {row["query_id"] for row in rows(folder, "rewrites")} == {worst}
    assert calls(folder) == {"dmqr": 1}
    (taken,) = json.loads((folder / "run.json").read_text())["thresholds"]
    assert (taken["queries"], taken["below"]) == (3, 1)


@pytest.mark.slow
def test_the_paper_s_table_has_answers_and_grades(job: Run) -> None:
    folder, config = job("paper-answers", "judge.engine=null")
    assert {one["text"] for one in rows(folder, "answers")} == {"yeast"}
    judged = rows(folder, "judgements")
    assert Counter(row["kind"].partition("/")[0] for row in judged if row["arm"]) == {"accuracy": 3, "criteria": 24}
    grades = [row for row in judged if row["doc_id"]]
    results = Counter(row["query_id"] for row in rows(folder, "results") if row["rank"] <= 5)
    assert Counter(row["query_id"] for row in grades) == results
    assert {row["grade"] for row in grades} == {2}
    assert set(config.ablate.arms) == {"rewrite", "hyde", "rag_fusion", "adaptive"}
