"""Whole jobs in this process with strategies that are Python files beside the config."""

from __future__ import annotations

import io
import json
import math
import re
import shutil
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from cluster.errors import ConfigError
from jobs.chain.stages.gate import Gating
from jobs.chain.stages.order import Order
from jobs.config.load import load_config
from jobs.pages.try_one import page
from jobs.plan.plan import plan
from jobs.runs.folder import RunFolder
from jobs.terminal.live_display import LiveDisplay
from jobs.try_one.stages import LoadedConfig
from retrievers.local.build import build_local_index
from tests.support.jobs.in_process_runs import (
    QUERIES,
    finished,
    job_in_process,
    prepared_job,
    prepared_work,
    rows,
    run_in_process,
)
from tests.support.retrievers.blocks import index_fields

RM3 = Path(__file__).resolve().parents[3] / "configs" / "plugins" / "rm3.py"
RULE = '''
"""Rules of these tests."""

from pathlib import Path
from typing import ClassVar

from rewriters.python.given import Reads
from rewriters.python.strategy import PythonStrategy


class Rule(PythonStrategy):
    fields: ClassVar = {"n": 2, "search_as": "passage", "weight": 0.8}
    suffix: str = "moon"
    calls: str = "calls.txt"

    def rewrite(self, query):
        with Path(self.calls).open("a") as file:
            file.write(query.text + "\\n")
        if query.text == "zzz":
            raise LookupError(f"no rule for {query.text}")
        return [f"{query.text} {self.suffix}", (f"{self.suffix} lamp", 0.5)]


class Titles(PythonStrategy):
    by: tuple[str, ...] = ()
    documents: int = 2
    calls: str = "calls.txt"

    @property
    def reads(self):
        return Reads(documents=self.documents, by=self.by)

    def rewrite(self, query, lists):
        with Path(self.calls).open("a") as file:
            file.write(query.text + "\\n")
        found = [f"{name} {hit.doc_id} {hit.text}" for name, hits in lists.items() for hit in hits]
        return [" ".join(found) or query.text]


class Batches(Titles):
    """The same texts, in batches."""

    def many(self, queries, lists):
        with Path("batches.txt").open("a") as file:
            file.write(f"{len(queries)}\\n")
        return [self.rewrite(query, read) for query, read in zip(queries, lists, strict=True)]


class Many(PythonStrategy):
    def rewrite(self, query):
        return ["one", "two"]


class Numbers(PythonStrategy):
    def rewrite(self, query):
        return [1]


class NotOne:
    pass
'''


@pytest.fixture
def job(
    tmp_path: Path, values: dict[str, Any], bm25: dict[str, Any], config_file: Callable[[Any], str],
    monkeypatch: pytest.MonkeyPatch,
) -> str:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    path = job_in_process(tmp_path, values, bm25, config_file)
    (tmp_path / "rule.py").write_text(RULE)
    shutil.copy(RM3, tmp_path)
    values["rewrite"]["strategies"] = ["rule.py:Rule"]
    return config_file(values) and path


def called(place: Path = Path()) -> Counter[str]:
    file = place / "calls.txt"
    return Counter(file.read_text().splitlines()) if file.exists() else Counter()


def by_query(run: RunFolder, table: str, *columns: str, **where: str) -> dict[str, list[tuple[Any, ...]]]:
    texts = {one["query_id"]: one["query"] for one in rows(run, "queries")}
    found: dict[str, list[tuple[Any, ...]]] = {}
    for one in rows(run, table):
        if all(one[name] == value for name, value in where.items()):
            found.setdefault(texts[one["query_id"]], []).append(tuple(one[name] for name in columns))
    return {query: sorted(of) for query, of in found.items()}


def strategies(*entries: Any) -> str:
    return f"rewrite.strategies={json.dumps(entries)}"


@pytest.mark.slow
def test_it_has_what_a_strategy_of_a_prompt_has(job: str) -> None:
    settings = [strategies("general", "rule.py:Rule"), "rewrite.select={kind: random_k, k: 2}"]
    run = finished(prepared_work(job, settings, None))
    columns = ("position", "text", "weight", "position_weight", "search_as", "model", "parsed_as", "selected_reason")
    found = by_query(run, "rewrites", *columns, strategy="rule")
    assert found.keys() == set(QUERIES) - {"zzz"}
    for query, of in found.items():
        common = ("passage", "Rule", "code", "2 by chance")
        assert of == [(1, f"{query} moon", 0.8, 1.0, *common), (2, "moon lamp", 0.8, 0.5, *common)]
    assert by_query(run, "rewrites", "text", strategy="general")["yeast"] == [("about yeast",)]
    (error,) = [one for one in rows(run, "errors") if one["component"] == "rule"]
    assert (error["stage"], error["reason"], error["attempts"]) == ("rewrite", "raised", 0)
    assert re.fullmatch(r"rule\.py, line \d+: LookupError: no rule for zzz", error["message"])
    costs = [one for one in rows(run, "costs") if one["component"] == "rule"]
    assert len(costs) == len(QUERIES)
    for one in costs:
        assert (one["stage"], one["engine"], one["model"], one["requests"], one["reused"]) == (
            "rewrite",
            "python",
            "Rule",
            0,
            0,
        )
        assert one["seconds"] > 0
        assert one["prompt_tokens"] == one["completion_tokens"] == 0
    lists = by_query(run, "runs", "position", "retriever", strategy="rule")
    assert {position for of in lists.values() for position, _ in of} == {1, 2}


def test_no_engine_is_needed_where_all_strategies_are_code(job: str) -> None:
    run = finished(prepared_work(job, ["rewrite.engine=null"], None))
    assert by_query(run, "rewrites", "text", strategy="rule").keys() == set(QUERIES) - {"zzz"}
    with pytest.raises(ConfigError, match="engine is missing"):
        prepared_work(job, ["rewrite.engine=null", strategies("general", "rule.py:Rule")], None)


def test_parameters_of_the_code_and_of_any_strategy_make_another_one(job: str) -> None:
    entries = ["rule.py:Rule", {"rule.py:Rule": {"suffix": "tide", "n": 1, "weight": 2}}, {"rule.py:Rule": {"name": "mine"}}]
    run = finished(prepared_work(job, [strategies(*entries)], None))
    found = by_query(run, "rewrites", "strategy", "position", "text", "weight")["yeast"]
    assert found == [
        ("mine", 1, "yeast moon", 0.8),
        ("mine", 2, "moon lamp", 0.8),
        ("rule", 1, "yeast moon", 0.8),
        ("rule", 2, "moon lamp", 0.8),
        ("rule(n=1,suffix=tide,weight=2)", 1, "yeast tide", 2.0),
    ]


SAY_LITTLE = frozenset(["a", "and", "are", "because", "does", "for", "in", "is", "no", "of", "the", "why", "with"])


def words(text: str) -> list[str]:
    return [one for one in re.findall("[a-z0-9]{2,}", text.lower()) if one not in SAY_LITTLE]


def rm3_by_hand(query: str, hits: list[tuple[str, float]], passages: dict[str, str], terms: int) -> dict[str, float]:
    """Returns word -> weight: half the query's own words, half those of a mixture of its first documents."""
    counts = [Counter(words(passages[doc_id])) for doc_id, _ in hits]
    vocabulary = sorted(set().union(*counts))
    priors = [score / math.fsum(score for _, score in hits) for _, score in hits]
    mixture = [
        math.fsum(prior * of[word] / of.total() for prior, of in zip(priors, counts, strict=True)) for word in vocabulary
    ]
    best = sorted(zip(mixture, vocabulary, strict=True), key=lambda one: (-one[0], one[1]))[:terms]
    own, whole = Counter(words(query)), math.fsum(weight for weight, _ in best)
    found = {word: 0.5 * count / own.total() for word, count in own.items()}
    for weight, word in best:
        found[word] = found.get(word, 0.0) + 0.5 * weight / whole
    return found


def test_rm3_is_what_an_independent_computation_says(job: str, passages: dict[str, str]) -> None:
    terms, documents = 4, 3
    entry = {"rm3.py:Rm3": {"terms": terms, "documents": documents}}
    run = finished(prepared_work(job, [strategies(entry), "rewrite.engine=null", "retrieve.depth=8"], None))
    name = f"rm3(documents={documents},terms={terms})"
    texts = by_query(run, "rewrites", "text", strategy=name)
    originals = by_query(run, "runs", "rank", "doc_id", "score", strategy="original")
    lists = by_query(run, "runs", "rank", "doc_id", "score", strategy=name)
    probes: dict[str, dict[str, float]] = {}
    largest = 0.0
    for query in [one for one in QUERIES if one in originals]:
        hits = [(doc_id, score) for _, doc_id, score in originals[query][:documents]]
        expected = rm3_by_hand(query, hits, passages, terms)
        ((text,),) = texts[query]
        counts = Counter(text.split())
        whole = sum(expected.values())
        assert set(counts) <= set(expected)
        for word, weight in expected.items():
            assert abs(counts[word] - 100 * weight / whole) <= 0.5 + 1e-9, (query, word)
            largest = max(largest, abs(counts[word] / 100 - weight / whole))
        for word in expected:
            if word not in probes:
                probes[word] = searched_alone(job, word)
        scores = {doc_id: math.fsum(counts[word] * probes[word].get(doc_id, 0.0) for word in expected) for doc_id in passages}
        ranked = sorted(((-score, doc_id) for doc_id, score in scores.items() if score > 0), key=lambda one: (one[0], one[1]))
        assert [doc_id for _, doc_id, _ in lists[query]] == [doc_id for _, doc_id in ranked]
        assert [score for *_, score in lists[query]] == pytest.approx([-score for score, _ in ranked], rel=1e-5)
    assert 0 < largest <= 0.005  # what rounding loses
    assert texts["zzz"] == [(" ".join(["zzz"] * 100),)]  # nothing is found for it


def searched_alone(job: str, word: str) -> dict[str, float]:
    """doc_id -> the BM25 score of one word."""
    from jobs.job.opening import open_retriever
    from retrievers.retriever import SearchText, single_lists

    (settings,) = load_config(job).retrieve.retrievers.values()
    (found,) = single_lists(open_retriever("bm25", settings).search([SearchText(word, "query")], 8))
    return dict(zip(found.doc_ids.to_pylist(), found.scores.tolist(), strict=True))


def test_lists_are_searched_once_and_read_as_they_are(job: str, passages: dict[str, str]) -> None:
    run = finished(prepared_work(job, [strategies("rule.py:Titles")], None))
    originals = by_query(run, "runs", "rank", "doc_id", strategy="original")
    for query, ((text,),) in by_query(run, "rewrites", "text", strategy="titles").items():
        hits = [doc_id for _, doc_id in originals.get(query, [])[:2]]
        assert text == (" ".join(f"bm25 {doc_id} {passages[doc_id]}" for doc_id in hits) or query)
    searches = Counter[str]()
    for one in rows(run, "costs"):
        searches[one["stage"]] += one["searches"]
    assert searches["gate"] == len(QUERIES)
    assert searches["retrieve"] == len(QUERIES) - 1  # the texts of the strategy, of which one is its query


def test_a_query_whose_lists_are_missing_has_an_error(job: str, monkeypatch: pytest.MonkeyPatch) -> None:
    searched = Gating.__call__

    def broken(self: Gating, table: Any) -> Any:
        if "yeast" in table.column("query").to_pylist():
            raise ValueError("the search fails")
        return searched(self, table)

    monkeypatch.setattr(Gating, "__call__", broken)
    run = finished(prepared_work(job, [strategies("rule.py:Titles", "rule.py:Rule")], None))
    texts = by_query(run, "rewrites", "text", strategy="titles")
    assert texts.keys() == set(QUERIES) - {"yeast"}
    messages = by_query(run, "errors", "stage", "reason", "message")["yeast"]
    assert ("gate", "failed", "the search fails") in messages or any(stage == "gate" for stage, *_ in messages)
    (raised,) = [message for stage, _, message in messages if stage == "rewrite"]
    assert "the lists of the original are missing" in raised
    assert by_query(run, "rewrites", "text", strategy="rule")["yeast"]


def test_lists_of_the_original_alone_are_needed(job: str) -> None:
    with pytest.raises(ConfigError, match="reads lists of the original, and no retriever has one of it alone"):
        prepared_work(job, [strategies("rule.py:Titles"), "retrieve.retrievers.bm25.together=true"], None)
    named = strategies({"rule.py:Titles": {"by": ["bm25"]}})
    with pytest.raises(ConfigError, match=r"reads\.by: bm25 has no list of the original alone"):
        prepared_work(job, [named, "retrieve.retrievers.bm25.together=true"], None)


def test_further_samples_of_code_are_refused(job: str) -> None:
    with pytest.raises(ConfigError, match="code gives the same texts each time"):
        prepared_work(job, [], {"samples": 2})


def test_a_gate_and_a_strategy_that_reads_lists(job: str) -> None:
    run = finished(prepared_work(job, [strategies("rule.py:Titles"), "rewrite.gate={by: bm25, below: 1.2}"], None))
    reasons = by_query(run, "selections", "reason")
    unsure = {query for query, ((reason,),) in reasons.items() if "is sure" not in reason}
    assert by_query(run, "rewrites", "text").keys() == unsure
    assert called() == Counter(unsure)


@pytest.mark.slow
def test_a_second_night_calls_nothing_and_other_code_is_another_run(job: str, tmp_path: Path) -> None:
    first = finished(prepared_work(job, ["name=first"], None))
    assert called() == Counter(QUERIES)
    second = finished(prepared_work(job, ["name=second", "rewrite.decoding.temperature=0.5"], None))
    again = Counter(QUERIES) + Counter(["zzz"])  # what raised is called again
    assert called() == again
    assert by_query(second, "rewrites", "strategy", "text") == by_query(first, "rewrites", "strategy", "text")
    assert sum(one["reused"] for one in rows(second, "costs") if one["component"] == "rule") == len(QUERIES) - 1
    (tmp_path / "rule.py").write_text(RULE.replace("{query.text} {self.suffix}", "{self.suffix} {query.text}"))
    third = finished(prepared_work(job, ["name=first"], None))
    assert third.record["run_id"] != first.record["run_id"]
    assert by_query(third, "rewrites", "text")["yeast"] == [("moon lamp",), ("moon yeast",)]
    assert called() == again + Counter(QUERIES)
    Path("elsewhere").mkdir()
    shutil.move("rule.py", "elsewhere")
    finished(prepared_work(job, [strategies("elsewhere/rule.py:Rule"), "name=moved"], None))
    assert called() == again + Counter(QUERIES) + Counter(["zzz"])


@pytest.mark.slow
def test_texts_made_from_other_lists_are_made_again(
    job: str, bm25: dict[str, Any], tmp_path: Path, corpus: Path, config_file: Callable[[Any], str]
) -> None:
    finished(prepared_work(job, [strategies("rule.py:Titles"), "name=first"], None))
    finished(prepared_work(job, [strategies("rule.py:Titles"), "name=deeper", "retrieve.depth=50"], None))
    assert called() == Counter(QUERIES)  # a deeper list begins alike
    other = tmp_path / "other"
    build_local_index(other, corpus, index_fields("unicode"))
    block = json.dumps(bm25 | {"index": str(other), "analyzer": "unicode"})
    finished(prepared_work(job, [strategies("rule.py:Titles"), "name=other", f"retrieve.retrievers.bm25={block}"], None))
    assert called() == Counter(2 * QUERIES)
    finished(prepared_work(job, [strategies({"rule.py:Titles": {"documents": 1}}), "name=fewer"], None))
    assert called() == Counter(3 * QUERIES)


@pytest.mark.slow
def test_a_run_that_failed_goes_on_with_what_was_made(job: str, monkeypatch: pytest.MonkeyPatch) -> None:
    made = strategies("general", "rule.py:Rule", "rule.py:Titles")
    whole = finished(prepared_work(job, ["name=whole", "store=null", made], None))
    Path("calls.txt").unlink()
    order, blocks = Order.__call__, Counter[str]()

    def broken(self: Order, table: Any) -> Any:
        blocks["seen"] += 1
        if blocks["seen"] == 2:
            raise OSError(28, "No space left on device")
        return order(self, table)

    monkeypatch.setattr(Order, "__call__", broken)
    with pytest.raises(OSError, match="No space"):
        run_in_process(prepared_job(job, "store=null", made))
    monkeypatch.setattr(Order, "__call__", order)
    run = finished(prepared_work(job, ["store=null", made], None))
    assert {query: times for query, times in called().items() if query != "zzz"} == dict.fromkeys(QUERIES[:-1], 2)
    for table in ("rewrites", "results", "runs"):
        assert sorted(map(repr, rows(run, table))) == sorted(map(repr, rows(whole, table))), table


@pytest.mark.slow
def test_arms_are_their_runs(job: str, bm25: dict[str, Any], tmp_path: Path, corpus: Path) -> None:
    other = tmp_path / "other"
    build_local_index(other, corpus, index_fields("unicode"))
    made = strategies("general", "rule.py:Rule", "rule.py:Titles")
    arms = {
        "one text": {"rewrite.strategies": ["general", {"rule.py:Rule": {"n": 1}}]},
        "unicode": {"retrieve.retrievers.bm25": bm25 | {"index": str(other), "analyzer": "unicode"}},
        "gated": {"rewrite.gate": {"by": "bm25", "below": 1.2}},
        "typos": {"retrieve.typos": {"rate": 0.5}},
    }
    ablation = finished(prepared_work(job, [made], {"arms": arms, "subsets": "leave_one_out"}))
    asked = called()
    assert asked == Counter(5 * QUERIES)  # Rule, Rule(n=1), Titles over each index and of the originals with typos
    names = [one["name"] for one in ablation.record["ablation"]["arms"]]
    assert {"full", "original", "general", "rule", "titles", "without rule", "without titles", *arms} <= set(names)
    alone_off = {"fuse.weights.original": 0}
    known: dict[str, dict[str, Any]] = {
        "full": {}, "rule": {"rewrite.strategies": ["rule.py:Rule"], **alone_off},
        "titles": {"rewrite.strategies": ["rule.py:Titles"], **alone_off},
        "without rule": {"rewrite.strategies": ["general", "rule.py:Titles"]}, **arms,
    }  # fmt: skip
    for arm, changes in known.items():
        settings = [made, *(f"{key}={json.dumps(value)}" for key, value in changes.items())]
        alone = finished(prepared_work(job, [*settings, "name=alone"], None))
        columns = ("rank", "doc_id", "score", "fused_score")
        assert by_query(alone, "results", *columns) == by_query(ablation, "results", *columns, arm=arm), arm
    needs = {key: count for key, count in ablation.counts.items() if key.startswith("arm/rule/")}
    assert needs["arm/rule/computed/rule@Rule"] == len(QUERIES)
    assert not any("requests" in key for key in needs)


def test_an_arm_whose_lists_are_too_short_for_what_a_strategy_reads_is_refused(job: str, tmp_path: Path, corpus: Path) -> None:
    """The pool is read once for all arms; the lists are each arm's own."""
    made = strategies({"rule.py:Titles": {"documents": 7}})
    with pytest.raises(ConfigError, match=r"arm 'short': .*'titles.*': reads 7 documents of a list, and retrieve\.depth is 5"):
        prepared_work(job, [made], {"arms": {"short": {"retrieve.depth": 5}}})


@pytest.mark.slow
def test_a_plan_tells_what_is_missing_and_that_it_costs_no_token(job: str, tmp_path: Path) -> None:
    (tmp_path / "prices.yaml").write_text("tokens: {tiny: {prompt: 2.0, completion: 8.0}}\n")
    made = [strategies("rule.py:Rule", "rule.py:Titles"), "rewrite.engine=null"]
    before = plan(prepared_job(job, *made).prepared, LiveDisplay(io.StringIO()))
    generations = before["missing"]["kinds"]["generations"]
    assert generations["number"] == {"low": 12, "expected": 12, "high": 12}
    assert generations["usd"] == {"low": 0, "expected": 0, "high": 0}
    assert before["left"]["requests"] == 0
    assert not called()
    finished(prepared_work(job, [*made, "name=first"], None))
    after = plan(prepared_job(job, *made).prepared, LiveDisplay(io.StringIO()))["missing"]["kinds"]["generations"]
    assert (after["number"]["expected"], after["reused"]) == (1, 11)  # what raised


def test_try_shows_its_texts_and_asks_nothing(job: str) -> None:
    made = [strategies("rule.py:Rule", "rule.py:Titles"), "rewrite.engine=null"]
    with LoadedConfig(load_config(job, made), job, "config") as loaded:
        trial = loaded.try_query("yeast", lambda _: None)
    assert [one["text"] for one in trial.row["rewrites"]][:2] == ["yeast moon", "moon lamp"]
    assert trial.requests == []
    shown = io.StringIO()
    Console(file=shown, width=120).print(page([trial], prompts=True))
    assert re.search(r"rule.*yeast moon +code", shown.getvalue())
    assert "titles" in shown.getvalue()


@pytest.mark.parametrize(
    ("entry", "words"),
    [
        ("rule.py:Rules", "no Rules; did you mean 'Rule'"),
        ("none.py:Rule", "there is no file"),
        ("rule.py:NotOne", "is not a strategy"),
        ({"rule.py:Rule": {"sufix": "x"}}, "no parameter 'sufix'.*did you mean 'suffix'"),
        ({"rule.py:Rule": {"suffix": 1}}, "suffix: .*valid string"),
        ({"rule.py:Rule": {"weight": -1}}, "weight: .*greater than or equal to 0"),
        ({"rule.py:Titles": {"by": ["dense"]}}, "reads.by: no retriever 'dense'"),
        ({"rule.py:Titles": {"documents": 500}}, "reads 500 documents of a list, and retrieve.depth is 100"),
        ({"rm3.py:Rm3": {"terms": 0}}, "terms: .*greater than or equal to 1"),
    ],
)
def test_code_that_cannot_be_used_is_refused(job: str, entry: Any, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        prepared_work(job, [strategies(entry)], None)


def test_what_is_no_text_is_an_error_of_its_query(job: str) -> None:
    run = finished(prepared_work(job, [strategies("rule.py:Many", "rule.py:Numbers")], None))
    messages = {(one["component"], one["reason"], one["message"]) for one in rows(run, "errors") if one["stage"] == "rewrite"}
    assert messages == {
        ("many", "raised", "ValueError: rewrite gives 2 texts, and its n says 1 at most; raise n in its fields"),
        ("numbers", "raised", "TypeError: rewrite gives a list with 1, which is no text and no (text, weight)"),
    }
    assert by_query(run, "results", "rank").keys() == set(QUERIES) - {"zzz"}


@pytest.mark.slow
def test_batches_give_what_single_queries_give(job: str) -> None:
    of = {}
    for name in ("Titles", "Batches"):
        entry = json.dumps([{f"rule.py:{name}": {"name": "titles"}}])
        run = finished(prepared_work(job, [f"name={name.lower()}", "store=null", f"rewrite.strategies={entry}"], None))
        kept = [(one["query_id"], one["strategy"], one["text"], one["weight"]) for one in rows(run, "rewrites")]
        results = [(one["query_id"], one["rank"], one["doc_id"], one["score"]) for one in rows(run, "results")]
        of[name] = sorted(kept), sorted(results)
        assert kept
    assert of["Titles"] == of["Batches"]
    assert max(map(int, Path("batches.txt").read_text().split())) > 1
