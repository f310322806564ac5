"""`rewrite.select: {kind: qpp}`: one text of each query is searched, the one that is predicted to do best."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from cluster.errors import ConfigError
from jobs.chain.search_texts import Text
from jobs.chain.stages.choices import choose
from jobs.config.load import load_config
from jobs.log.judgements import read_qrels
from jobs.measure.evaluate.evaluate import evaluate
from jobs.pages.closing import arm_choices, arm_guards, closing_page, closing_values, compared
from jobs.pages.report import report
from jobs.pages.summary import closing_table
from jobs.pages.try_one import page
from jobs.plan.work import all_searches, planned_saving
from jobs.runs.folder import RunFolder
from jobs.try_one.stages import LoadedConfig
from jobs.try_one.trial import trial_values
from jobs.tune.tune import tune
from retrievers.predictors import predicted, statistics_of
from retrievers.retriever import SearchText, open_retriever
from retrievers.settings import FuseSettings
from tests.support.jobs.in_process_runs import finished, prepared_work
from tests.support.jobs.whole_runs import rows
from tests.support.retrievers.blocks import typed

STRATEGIES = ["general", "keyword", "pseudo_answer"]
ANSWERS = {  # query -> the texts of the strategies
    "why does sourdough bread rise": ("bread", "sourdough", "Sourdough rises slowly because wild yeast is in no hurry."),
    "light of a lamp": ("wick", "lamp, sea", "A lamp at the sea."),
    "moon and tides": ("moon and tides", "moon, tides", "The sea."),
    "qqq": ("www", "moon", "zzz"),
    "the": ("of", "zzz", "vvv"),
    "sea": ("sea", "moon", "Harbours fill."),
}
QPP = "rewrite.select={kind: qpp}"
Make = Callable[..., Any]


@pytest.fixture
def make(
    tmp_path: Path, values: dict[str, Any], bm25: dict[str, Any], config_file: Callable[[Any], str],
    monkeypatch: pytest.MonkeyPatch,
) -> Make:  # fmt: skip
    """Checks a job of two shards with these settings, or an ablation of it."""
    monkeypatch.chdir(tmp_path)
    pq.write_table(pa.table({"id": [f"q{i}" for i in range(len(ANSWERS))], "query": list(ANSWERS)}), "log.parquet")
    said = {one: {"dmqr": json.dumps(dict(zip(STRATEGIES, texts, strict=True)))} for one, texts in ANSWERS.items()}
    Path("recorded.jsonl").write_text("".join(json.dumps({"query": q, "completions": one}) + "\n" for q, one in said.items()))
    Path("qrels.tsv").write_text("q0\td03\t1\nq1\td01\t1\n")
    values["log"]["id_column"] = "id"
    values["rewrite"]["strategies"] = STRATEGIES
    values["retrieve"] |= {"retrievers": {"bm25": bm25}}
    values |= {"rerank": {"kind": "none"}, "cluster": {"address": "none", "shard_size": 3}, "limits": {"error_rate": 1}}

    def made(*settings: str, ablate: dict[str, Any] | None = None) -> Any:
        return prepared_work(config_file(values), settings, ablate)

    return made


def results(folder: RunFolder, arm: str = "run", keep: int = 10) -> list[tuple[Any, ...]]:
    found = (one for one in rows(Path(folder.storage.root), "results") if one["arm"] == arm and one["rank"] <= keep)
    return sorted((one["query_id"], one["rank"], one["doc_id"], round(one["score"], 6)) for one in found)


def texts_of(query: str) -> dict[str, str]:
    return {"original": query, **dict(zip(STRATEGIES, ANSWERS[query], strict=True))}


def best(bm25: dict[str, Any], query: str, predictor: str = "avg_idf") -> str:
    """The strategy that should be chosen, by hand."""
    statistics = statistics_of(open_retriever("bm25", typed(bm25)))
    texts = texts_of(query)
    scores = predicted([SearchText(text) for text in texts.values()], predictor, statistics)
    return list(texts)[int(np.argmax(scores))]  # of equal ones the first


def shown(renderable: Any) -> str:
    console = Console(width=200, file=io.StringIO(), record=True)
    console.print(renderable)
    return console.export_text()


@pytest.mark.slow
@pytest.mark.parametrize("predictor", ["avg_idf", "max_idf"])
def test_the_results_are_those_of_the_best_text_alone(make: Make, bm25: dict[str, Any], predictor: str) -> None:
    folder = finished(make(f"rewrite.select={{kind: qpp, predictor: {predictor}}}"))
    names = {row["query_id"]: row["query"] for row in rows(Path(folder.storage.root), "queries")}
    wanted = {query: best(bm25, query, predictor) for query in ANSWERS}
    assert len(set(wanted.values())) > 2
    assert wanted["the"] == wanted["moon and tides"] == "original"  # no known term; the same terms as the rewrites
    retriever, found = open_retriever("bm25", typed(bm25)), dict[str, list[str]]()
    for row in sorted(rows(Path(folder.storage.root), "results"), key=lambda one: int(one["rank"])):
        found.setdefault(names[row["query_id"]], []).append(row["doc_id"])
        assert {source["strategy"] for source in row["sources"]} == {wanted[names[row["query_id"]]]}
    for query, strategy in wanted.items():
        hits = retriever.search([SearchText(texts_of(query)[strategy])], 10).doc_ids.to_pylist()
        assert found.get(query, []) == hits


@pytest.mark.slow
def test_what_is_not_chosen_is_made_flagged_and_not_searched(make: Make, bm25: dict[str, Any]) -> None:
    folder = finished(make(QPP))
    place, counts = Path(folder.storage.root), folder.counts
    names = {row["query_id"]: row["query"] for row in rows(place, "queries")}
    wanted = {query: best(bm25, query) for query in ANSWERS}
    flagged = {(names[row["query_id"]], row["strategy"]): "not_chosen" in row["guards"] for row in rows(place, "rewrites")}
    assert flagged == {(query, name): wanted[query] != name for query in ANSWERS for name in STRATEGIES}
    searched = {(names[row["query_id"]], row["strategy"]) for row in rows(place, "runs")}
    assert searched <= {(query, name) for query in ANSWERS for name in ("original", wanted[query])}
    assert {("light of a lamp", "original"), ("sea", "original")} <= searched  # whatever was chosen
    assert counts["planned"] == counts["rewrites"] == 3 * len(ANSWERS)
    assert counts["not_selected"] == 0
    assert "selections" not in folder.tables
    chosen = {name: sum(one == name for one in wanted.values()) for name in ("original", *STRATEGIES)}
    assert {key: n for key, n in counts.items() if key.startswith("chosen/")} == {
        f"chosen/{k}": n for k, n in chosen.items() if n
    }
    for name in STRATEGIES:
        assert counts.get(f"guard/{name}/not_chosen", 0) == len(ANSWERS) - chosen[name]
    words = shown(closing_table(folder, None, None))
    for name, n in chosen.items():
        assert f"chosen for {n} quer" in next(line for line in words.splitlines() if line.split()[:1] == [name])
    assert f"by avg_idf: {', '.join(f'{k} for {n}' for k, n in sorted(chosen.items()))}." in report(folder, None, None)
    assert sum(row["searches"] or 0 for row in rows(place, "costs") if row["stage"] == "retrieve") <= 2 * len(ANSWERS)


@pytest.mark.slow
def test_the_original_alone_is_measured_as_in_any_run(make: Make) -> None:
    judged = read_qrels("qrels.tsv")
    mine, plain = (evaluate(finished(make(*settings)), judged) for settings in ([QPP], []))
    assert mine.original == plain.original
    assert mine.results != plain.results


@pytest.mark.slow
def test_a_text_of_weight_0_does_not_compete(make: Make, bm25: dict[str, Any]) -> None:
    none = finished(make(QPP, "fuse.weights={general: 0, keyword: 0, pseudo_answer: 0}", "output=a"))
    assert results(none) == results(finished(make("rewrite.select=never", "output=b")))
    assert none.counts["chosen/original"] == len(ANSWERS)
    assert "chosen/original" not in finished(make(QPP, "fuse.weights={original: 0}", "output=c")).counts


def test_it_renames_the_runs_that_ask_for_it_alone(make: Make) -> None:
    names = [
        make(*one).prepared.run_id
        for one in ([], ["rewrite.select=all"], [QPP], ["rewrite.select={kind: qpp, predictor: max_idf}"])
    ]
    assert names[0] == names[1]
    assert len(set(names)) == 3
    assert make(QPP).prepared.identity["versions"] == make().prepared.identity["versions"] | {"predictors": 1}
    assert make(QPP).prepared.identity["rewrite"] == make().prepared.identity["rewrite"]


def test_try_shows_the_choice_and_why(make: Make, tmp_path: Path, bm25: dict[str, Any]) -> None:
    make(QPP)
    path = str(tmp_path / "config.yaml")
    query = "why does sourdough bread rise"
    with LoadedConfig(load_config(path, [QPP]), path, "mine") as loaded:
        trial = loaded.try_query(query, lambda _: None)
        nothing = loaded.try_query("the", lambda _: None)
    strategy = best(bm25, query)
    assert strategy != "original"
    assert trial.why_chosen.startswith(f"{strategy}, by avg_idf: {strategy} ")
    assert nothing.why_chosen.startswith("original, by avg_idf: original no known term")
    words = shown(page([trial]))
    assert trial.why_chosen in words
    assert "minmax over 1 list, not reranked" in words
    assert [one["strategy"] for one in trial.row["lists"]] == ["original", strategy]
    assert trial_values(trial)["chosen"]["strategy"] == strategy
    assert sum(n for name, n in trial.document_counts.items() if name != "found") == trial.document_counts["found"]
    with LoadedConfig(load_config(path), path, "all") as loaded:
        every = loaded.try_query(query, lambda _: None)
    assert every.why_chosen == ""
    assert trial_values(every)["chosen"] is None
    side_by_side = shown(page([trial, every]))
    assert "searched" in side_by_side


def test_it_is_planned_with_two_searches_of_a_query(make: Make) -> None:
    texts = {"original": 1, "general": 1, "keyword": 1, "pseudo_answer": 1}
    assert all_searches(make().prepared.config, texts) == {"bm25": 4}
    assert all_searches(make(QPP).prepared.config, texts) == {"bm25": 2}
    assert all_searches(make(QPP, "retrieve.routes={keyword: []}").prepared.config, {"original": 1}) == {"bm25": 1}


@pytest.mark.slow
def test_arms_share_texts_and_lists_and_each_is_its_run(make: Make) -> None:
    arms = {"one": {"rewrite.select": {"kind": "qpp"}}, "two": {"rewrite.select": {"kind": "qpp", "predictor": "max_idf"}}}
    ablation = make(ablate={"arms": arms})
    assert len(ablation.compiled.work.readings) == 2  # none, and the texts of all others
    assert len({answer.search for answer in ablation.compiled.work.answers if answer.arm != "original"}) == 1
    assert planned_saving(ablation.compiled, 1).executed["searches"] == 4
    folder = finished(ablation)
    for arm, settings in (("one", QPP), ("two", "rewrite.select={kind: qpp, predictor: max_idf}"), ("full", "output=all")):
        alone = finished(make(settings, "output=alone"))
        assert results(folder, arm) == results(alone)
        mine = {key.removeprefix(f"arm/{arm}/"): n for key, n in folder.counts.items() if key.startswith(f"arm/{arm}/")}
        kinds = ("guard/", "chosen/")
        counted = [
            {key: n for key, n in of.items() if key.startswith(kinds) and "near_dup" not in key} for of in (mine, alone.counts)
        ]
        assert counted[0] == counted[1]
        made = sum(row["searches"] or 0 for row in rows(Path(alone.storage.root), "costs") if row["stage"] == "retrieve")
        assert mine["searches/bm25@"] == made
    assert arm_choices(folder).keys() == {"one", "two"}
    assert sum(arm_choices(folder)["one"].values()) == len(ANSWERS)
    assert "not_chosen" not in arm_guards(folder).get("full", {})
    found = compared(folder, None, ablation.prepared.config.evaluate, None)
    assert closing_values(found)["chosen"] == arm_choices(folder)
    assert "one: general" in shown(closing_page(found)) or "one: keyword" in shown(closing_page(found))


@pytest.mark.slow
def test_an_arm_that_alone_has_its_lists_searches_what_it_chooses(make: Make) -> None:
    changes = {"rewrite.select": {"kind": "qpp"}, "fuse.depth": 3}
    ablation = make("retrieve.store=true", ablate={"arms": {"one": changes}})
    folder = finished(ablation)
    assert results(folder, "one") == results(finished(make(QPP, "fuse.depth=3", "output=alone")))
    again = make("retrieve.store=true", ablate={"arms": {"other": {"rewrite.select": {"kind": "qpp", "predictor": "max_idf"}}}})
    second = finished(again)  # over the lists that the first has stored
    assert results(second, "other") == results(finished(make("rewrite.select={kind: qpp, predictor: max_idf}", "output=alone")))
    assert sum(row["searches"] or 0 for row in rows(Path(second.storage.root), "costs")) == 0


@pytest.mark.slow
def test_texts_of_a_strategy_as_one_are_one_variant(make: Make, values: dict[str, Any]) -> None:
    lines = [
        {"query": query, "completions": {"rag_fusion": "\n".join(f"{i}. {text}" for i, text in enumerate(texts, 1))}}
        for query, texts in ANSWERS.items()
    ]
    Path("recorded.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    values["rewrite"]["strategies"] = [{"rag_fusion": {"n": 3, "as_one": "texts", "name": "three"}}]
    folder = finished(make(QPP))
    by_query: dict[str, set[bool]] = {}
    for row in rows(Path(folder.storage.root), "rewrites"):
        by_query.setdefault(row["query_id"], set()).add("not_chosen" in row["guards"])
    assert all(len(flags) == 1 for flags in by_query.values())  # all of its texts, or none
    assert folder.counts["chosen/three"] == sum(flags == {False} for flags in by_query.values()) > 0
    del values["rewrite"]["strategies"][0]["rag_fusion"]["as_one"]
    apart = finished(make(QPP, "output=apart"))
    flags = [row for row in rows(Path(apart.storage.root), "rewrites") if "not_chosen" not in row["guards"]]
    assert len(flags) == apart.counts["chosen/three"] > 0


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ("retrieve.retrievers.bm25.together=true", "qpp searches one text of each query; remove together: true"),
        ("retrieve.retrievers={d: {kind: local, index: i, encoder: {model: m}}}", "qpp needs the terms of a local BM25 index"),
        ("retrieve.retrievers={e: {kind: elastic, index: i}}", "qpp needs the terms of a local BM25 index"),
        ("rewrite.select={kind: qpp, predictor: scq}", "predictor"),
    ],
)
def test_what_makes_no_sense_is_refused_in_one_line(make: Make, tmp_path: Path, settings: str, words: str) -> None:
    make(QPP)
    with pytest.raises(ConfigError, match=words) as refused:
        load_config(str(tmp_path / "config.yaml"), [QPP, settings])
    assert "\n" not in str(refused.value)


def test_its_lists_are_no_run_to_tune(make: Make) -> None:
    judged = read_qrels("qrels.tsv")
    with pytest.raises(ConfigError, match="tune a run with"):
        tune(finished(make(QPP)), judged)


TEXTS = st.lists(
    st.tuples(st.integers(0, 2), st.sampled_from([0.0, 1.0, 2.0, -np.inf]), st.sampled_from([0.0, 1.0])), max_size=9
)


@given(more=TEXTS)
def test_the_first_of_the_best_that_compete_is_chosen(more: list[tuple[int, float, float]]) -> None:
    texts, scores = list[Text](), list[float]()
    for row in range(3):
        texts.append(Text(row, 0, "original", 1, 1.0, 1.0, SearchText("q")))
        scores.append(1.0)
        for number, (_, score, weight) in enumerate((one for one in more if one[0] == row), 1):
            texts.append(Text(row, number, f"s{number}", 1, weight, 1.0, SearchText("t")))
            scores.append(score)
    found = choose(texts, np.array(scores), 3, FuseSettings(), lambda _: ["bm25"])
    for row in range(3):
        of_row = [(score, text) for score, text in zip(scores, texts, strict=True) if text.row == row and text.weight]
        highest = max(score for score, _ in of_row)
        assert found[row] == next(text.number for score, text in of_row if score == highest)
