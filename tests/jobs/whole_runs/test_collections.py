"""Several collections in whole jobs: what a run finds is what runs of each collection alone find, merged by hand."""

from __future__ import annotations

import io
import json
import shutil
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml
from rich.console import Console

from cluster.errors import ConfigError
from jobs.__main__ import main
from jobs.config.load import load_config
from jobs.job.judged_ids import qualified_judgements
from jobs.job.keys import identity_fields
from jobs.job.prepare import prepare
from jobs.log.judgements import Judgements
from jobs.measure.diff.diff import diff
from jobs.measure.evaluate.evaluate import evaluate
from jobs.measure.frame import measure
from jobs.measure.judged.relevance import judged_relevance
from jobs.pages.ablation import ablation_report
from jobs.pages.closing import compared
from jobs.pages.diff import diff_page
from jobs.pages.try_one import page as try_page
from jobs.plan.plan import plan
from jobs.plan.table import plan_table
from jobs.run.ablation import prepare_ablation
from jobs.runs.folder import open_run
from jobs.submit.sent_config import sent_config
from jobs.terminal.live_display import LiveDisplay
from jobs.try_one.stages import LoadedConfig
from jobs.try_one.trial import trial_values
from jobs.tune.judged_lists import gather
from jobs.tune.objective import Objective, equal_weights
from tests.support.jobs.in_process_runs import prepared_job, run_in_process
from tests.support.jobs.report_runs import Page, page
from tests.support.jobs.whole_runs import rows
from tests.support.retrievers.fake_models import FakeModels
from tests.support.rewriters.fake_server import FakeServer

QUERIES = ["why does bread rise", "lamp of a lighthouse", "moon and tides", "yeast", "zzz"]
LAW = {
    "d1": "A keeper trimmed the wick of the lighthouse lamp every four hours.",
    "d2": "Whoever sells bread by weight must bake it so that it can rise.",
    "d3": "The moon pulls the sea twice a day and the harbours fill.",
    "d4": "Wild yeast is in no hurry.",
    "d5": "A lens threw the light of a lamp far across the sea.",
}
MED = {  # the ids of LAW, and other documents, but for one text that is in both
    "d1": "Bread and yeast may cause a rise of the blood sugar.",
    "d2": "The lamp of the surgeon is cleaned after each patient.",
    "d3": "Tides of fever come with the moon, says the almanac.",
    "d4": "Yeast of beer helps the skin.",
    "twin": "The moon pulls  the sea twice a day and the harbours fill.",
}
TEXTS = {f"law:{doc_id}": text for doc_id, text in LAW.items()} | {f"med:{doc_id}": text for doc_id, text in MED.items()}
BOTH = {"law": {"retrievers": ["words", "titles"]}, "med": {"retrievers": ["pills"], "strategies": ["keyword"]}}
Values = dict[str, Any]
Ranked = dict[str, list[tuple[str, float]]]


def overlap(query: str, texts: Sequence[str]) -> list[float]:
    """The reranker of these tests: words in common, and the longer text first."""
    return [sum(word in text.lower() for word in query.split()) + len(text) / 1000 for text in texts]


@pytest.fixture(scope="module")
def reranker() -> Iterator[FakeModels]:
    with FakeModels("tei", score=overlap) as server:
        yield server


CONFIG = {
    "name": "small",
    "log": {"path": "log.parquet", "query_column": "query"},
    "rewrite": {"engine": {"kind": "recorded", "path": "recorded.jsonl"}, "strategies": ["general", "keyword"]},
    "retrieve": {
        "retrievers": {
            "words": {"kind": "local", "analyzer": "english", "index": "law"},
            "titles": {"kind": "local", "analyzer": "unicode", "index": "law-unicode"},
            "pills": {"kind": "local", "analyzer": "english", "index": "med"},
        },
        "collections": BOTH,
    },
    "rerank": {"kind": "none"},
    "limits": {"error_rate": 1},
    "cluster": {"address": "none", "shard_size": 2},
    "output": "runs",
}


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a log, recorded answers, the corpora of two collections, their config, and indexes built by the verb."""
    folder = tmp_path_factory.mktemp("collections")
    pq.write_table(pa.table({"query": QUERIES}), folder / "log.parquet")
    lines = [
        {"query": query, "completions": {"dmqr": json.dumps({"general": f"more on {query}", "keyword": query.split()[-1]})}}
        for query in QUERIES
    ]
    (folder / "recorded.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    for name, texts in (("law", LAW), ("med", MED)):
        cited = {"source": [f"{name}.pdf"] * len(texts), "page": list(range(1, len(texts) + 1))}
        pq.write_table(pa.table({"doc_id": list(texts), "text": list(texts.values())} | cited), folder / f"{name}.parquet")
    (folder / "config.yaml").write_text(yaml.safe_dump(CONFIG, sort_keys=False))
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        assert main(["index", "config.yaml", "--corpus", "law=law.parquet", "med=med.parquet"]) == 0
    return folder


@pytest.fixture
def place(built: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of that folder, which is the current one."""
    shutil.copytree(built, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def path(place: Path) -> str:
    """The config of both collections."""
    return str(place / "config.yaml")


def printed(shown: Any) -> str:
    text = io.StringIO()
    Console(file=text, width=160, highlight=False, markup=False, emoji=False).print(shown)
    return text.getvalue()


def reranked(server: FakeModels, **more: Any) -> list[str]:
    return [f"rerank={json.dumps({'kind': 'server', 'model': server.model, 'base_url': server.address} | more)}"]


def ranking(folder: Path, arm: str = "run") -> Ranked:
    """Query -> its results, best first."""
    words = {row["query_id"]: row["query"] for row in rows(folder, "queries")}
    found: Ranked = {words[query_id]: [] for query_id in words}
    for row in sorted(rows(folder, "results"), key=lambda row: row["rank"]):
        if row["arm"] == arm:
            found[words[row["query_id"]]].append((row["doc_id"], row["score"]))
    return found


def alone(path: str, collection: str, *settings: str) -> Ranked:
    """What a run finds that has the retrievers of one collection, and no collections."""
    config = load_config(path)
    retrievers = {name: config.retrieve.retrievers[name].model_dump() for name in BOTH[collection]["retrievers"]}
    routes = {"general": ["words", "titles"], "keyword": []} if collection == "law" else {"general": [], "keyword": ["pills"]}
    given = [
        f"retrieve.retrievers={json.dumps(retrievers)}",
        "retrieve.collections={}",
        f"retrieve.routes={json.dumps(routes)}",
    ]
    return ranking(run_in_process(prepared_job(path, *given, f"name=only-{collection}", "fuse.keep=1000", *settings)))


def merged(parts: Mapping[str, Ranked], how: str, weights: Mapping[str, float], keep: int = 50) -> Ranked:
    found: Ranked = {}
    for query in QUERIES:
        of_query = []
        for name, part in parts.items():
            scores = [score for _, score in part[query]]
            low, high = min(scores, default=0.0), max(scores, default=0.0)
            for rank, (doc_id, score) in enumerate(part[query], start=1):
                share = (score - low) / (high - low) if high > low else 1.0
                value = {"rank": 1 / (60 + rank), "minmax": share, "score": score}[how]
                of_query.append((-round(weights.get(name, 1.0) * value, 12), f"{name}:{doc_id}"))
        found[query] = [(doc_id, -score) for score, doc_id in sorted(of_query)[:keep]]
    return found


@pytest.mark.slow
def test_a_run_is_the_runs_of_each_collection_merged(path: str) -> None:
    parts = {name: alone(path, name) for name in BOTH}
    weighted: list[tuple[str, dict[str, float], int]] = [
        ("rank", {}, 50), ("minmax", {"med": 0.5}, 50), ("score", {"law": 2.0}, 50), ("rank", {"med": 3.0}, 2)
    ]  # fmt: skip
    for how, weights, keep in weighted:
        settings = [f"fuse.collections={how}", f"fuse.collection_weights={json.dumps(weights)}", f"fuse.keep={keep}"]
        found = ranking(run_in_process(prepared_job(path, *settings)))
        assert found == merged(parts, how, weights, keep), how
        assert {doc_id for of in found.values() for doc_id, _ in of} >= {"law:d1", "med:d1"} or keep < 50


@pytest.mark.slow
def test_ids_are_qualified_in_every_table(path: str, reranker: FakeModels) -> None:
    folder = run_in_process(prepared_job(path, *reranked(reranker), "fuse.keep_candidates=true"))
    for table in ("runs", "candidates", "results", "scores"):
        found = {row["doc_id"] for row in rows(folder, table)}
        assert found <= TEXTS.keys(), table
        assert {"law:d1", "med:d1"} <= found, table
    collection_of = {"words": "law", "titles": "law", "pills": "med"}
    assert all(row["doc_id"].startswith(collection_of[row["retriever"]] + ":") for row in rows(folder, "runs"))
    for row in rows(folder, "results"):
        assert {collection_of[source["retriever"]] for source in row["sources"]} == {row["doc_id"].partition(":")[0]}
    strategies = {(row["strategy"], row["retriever"]) for row in rows(folder, "runs")}
    assert strategies <= {("original", name) for name in collection_of} | {
        ("general", "words"), ("general", "titles"), ("keyword", "pills")
    }  # fmt: skip


def test_the_reranker_reads_each_document_in_its_own_index(path: str, reranker: FakeModels) -> None:
    folder = run_in_process(prepared_job(path, *reranked(reranker)))
    words = {row["query_id"]: row["query"] for row in rows(folder, "queries")}
    scores = rows(folder, "scores")
    assert {row["doc_id"].partition(":")[0] for row in scores} == {"law", "med"}
    for row in scores:
        (wanted,) = overlap(words[row["query_id"]], [TEXTS[row["doc_id"]]])
        assert row["score"] == pytest.approx(wanted)


def refined(query: str) -> str:
    return f"{query} of the sea, a lamp at night"


@pytest.mark.slow
def test_rounds_search_all_collections(path: str) -> None:
    """A round is what a run finds that asks the refined queries themselves, and both rankings are fused by RRF."""
    below, queries = 1.0, dict[str, str]()

    def said(body: Values) -> str:
        query = body["messages"][-1]["content"].rpartition("Query: ")[2]
        queries[query] = body["messages"][-1]["content"]
        return json.dumps({"query": refined(query)})

    pq.write_table(pa.table({"query": [refined(query) for query in QUERIES]}), "refined.parquet")
    everywhere = {name: {"retrievers": of["retrievers"]} for name, of in BOTH.items()}
    plain = run_in_process(prepared_job(path, "name=plain"))
    own = ["log.path=refined.parquet", "rewrite.strategies=[]", f"retrieve.collections={json.dumps(everywhere)}"]
    again = ranking(run_in_process(prepared_job(path, *own, "name=again")))
    words = {row["query_id"]: row["query"] for row in rows(plain, "queries")}
    best = dict.fromkeys(QUERIES, 0.0)
    for row in rows(plain, "runs"):
        if (row["strategy"], row["retriever"]) == ("original", "words"):
            best[words[row["query_id"]]] = max(best[words[row["query_id"]]], row["score"])
    low = {query for query in QUERIES if best[query] < below}
    assert 0 < len(low) < len(QUERIES), best
    with FakeServer(["refiner-8b"], text=said) as server:
        engine = {"kind": "openai", "model": "refiner-8b", "base_url": server.address}
        iterate = {"by": "words", "below": below, "documents": 2, "merge": "fuse", "engine": engine}
        settings = [f"iterate={json.dumps(iterate)}"]
        folder = run_in_process(prepared_job(path, *settings))
        arms = {"score": {"fuse.collections": "score"}, "best": {"iterate.merge": "best"}}
        asks_of = [*settings, f"ablate={json.dumps({'arms': arms})}"]
        ablation = run_in_process(prepare_ablation(load_config(path, asks_of), path))
        alone = {
            arm: run_in_process(prepared_job(path, *settings, *(f"{key}={value}" for key, value in changes.items())))
            for arm, changes in arms.items()
        }
        sent = len(server.bodies)
        run_in_process(prepared_job(path, *settings, "label=again"))
        assert len(server.bodies) == sent
    assert queries.keys() == low
    first = ranking(plain)
    for query in QUERIES:
        scores: dict[str, float] = {}
        for part in (first[query], again[refined(query)] if query in low else []):
            for rank, (doc_id, _) in enumerate(part, start=1):
                scores[doc_id] = scores.get(doc_id, 0.0) + 1 / (60 + rank)
        wanted = sorted(scores, key=lambda doc_id: (-scores[doc_id], doc_id)) if query in low else list(dict(first[query]))
        assert [doc_id for doc_id, _ in ranking(folder)[query]] == wanted, query
        for doc_id, _ in first[query][:2] if query in low else ():
            assert TEXTS[doc_id] in queries[query]
    lists = {row["retriever"] for row in rows(folder, "runs") if row["strategy"] == "iterate"}
    assert lists == {"words", "titles", "pills"}
    for arm in arms:
        assert ranking(alone[arm]) == ranking(ablation, arm), arm


@pytest.mark.slow
def test_an_answer_cites_documents_of_both_by_their_own_places(path: str) -> None:
    def said(body: Values) -> str:
        return "It is so [2][1]."

    with FakeServer(["answerer-8b"], text=said) as server:
        engine = {"kind": "openai", "model": "answerer-8b", "base_url": server.address}
        answer = f"answer={json.dumps({'documents': 2, 'engine': engine})}"
        folder = run_in_process(prepared_job(path, answer))
        asked = [one["messages"][-1]["content"] for one in server.bodies]
    (prompt,) = (one for one in asked if one.endswith("Question: moon and tides"))
    first = [doc_id for doc_id, _ in ranking(folder)["moon and tides"][:2]]
    assert {doc_id.partition(":")[0] for doc_id in first} == {"law", "med"}
    for number, doc_id in enumerate(first, start=1):
        collection, own = doc_id.split(":")
        page_of = [*{"law": LAW, "med": MED}[collection]].index(own) + 1
        assert f"[{number}] (source: {collection}.pdf, page {page_of})\n{TEXTS[doc_id]}" in prompt
    (row,) = (one for one in rows(folder, "answers") if [each["doc_id"] for each in one["documents"]] == first)
    assert row["cited"] == first[::-1]


@pytest.mark.slow
def test_a_judge_reads_each_document_in_its_own_index(path: str) -> None:
    def said(body: Values) -> str:
        grade = len(body["messages"][-1]["content"].partition("Document:\n")[2]) % 4
        return json.dumps({"match": 0, "trust": 0, "overall": grade})

    with FakeServer(["judge-70b"], text=said) as server:
        judge = {"engine": {"kind": "openai", "model": "judge-70b", "base_url": server.address}, "relevance": {"documents": 3}}
        folder = run_in_process(prepared_job(path, f"judge={json.dumps(judge)}"))
    found = {(row["doc_id"], row["grade"]) for row in rows(folder, "judgements")}
    assert {doc_id.partition(":")[0] for doc_id, _ in found} == {"law", "med"}
    assert found == {(doc_id, len(TEXTS[doc_id]) % 4) for doc_id, _ in found}
    assert evaluate(open_run(str(folder)), judged_relevance(open_run(str(folder)))).results  # type: ignore[arg-type]
    # people may leave the collection out where one alone has the id
    log_ids = {row["query_id"]: row["log_id"] for row in rows(folder, "query_map")}
    of_people = [(log_ids[row["query_id"]], row["doc_id"].partition(":")[2]) for row in rows(folder, "judgements")]
    bare = {(log_id, doc_id) for log_id, doc_id in of_people if doc_id in {"d5", "twin"}}
    assert bare
    (folder / "people.tsv").write_text("".join(f"{log_id}\t{doc_id}\t1\n" for log_id, doc_id in bare))
    judged = judged_relevance(open_run(str(folder)), calibration=str(folder / "people.tsv"))
    assert judged is not None
    assert judged.judge is not None
    assert any(note.startswith(f"calibration: of {len(bare)} results") for note in judged.judge.notes)


@pytest.mark.slow
def test_refined_queries_are_searched_in_every_collection(path: str) -> None:
    """Also in those that name strategies: what was found there was shown to the LLM."""
    with FakeServer(["refiner-8b"], text=lambda body: json.dumps({"query": "wild yeast of bread and lamp"})) as server:
        engine = {"kind": "openai", "model": "refiner-8b", "base_url": server.address}
        iterate = {"by": "words", "below": 1000, "documents": 2, "engine": engine, "rounds": 1}
        folder = run_in_process(prepared_job(path, f"iterate={json.dumps(iterate)}"))
    lists = [row for row in rows(folder, "runs") if row["strategy"] == "iterate"]
    assert {row["retriever"] for row in lists} == {"words", "titles", "pills"}
    assert {row["doc_id"] for row in lists} <= TEXTS.keys()
    found = {doc_id for doc_id, _ in ranking(folder)["zzz"]}
    assert found == {row["doc_id"] for row in lists}


@pytest.mark.slow
def test_one_of_two_documents_with_one_text_is_dropped(path: str) -> None:
    kept = ranking(run_in_process(prepared_job(path)))["moon and tides"]
    dropped = ranking(run_in_process(prepared_job(path, "fuse.duplicates=drop")))["moon and tides"]
    twins = [doc_id for doc_id, _ in kept if doc_id in ("law:d3", "med:twin")]
    assert len(twins) == 2
    assert dropped == [one for one in kept if one[0] != twins[1]]


def test_strategies_without_a_collection_are_for_those_that_name_none(path: str) -> None:
    """`law` names no strategies, so that it has those that `med` does not name."""
    config = load_config(path)
    assert {name: config.retrieve.route(name) for name in ("original", "general", "keyword")} == {
        "original": ["words", "titles", "pills"],
        "general": ["words", "titles"],
        "keyword": ["pills"],
    }
    every = load_config(path, ['retrieve.collections.med={"retrievers": ["pills"]}'])
    assert every.retrieve.routed(every.rewrite.planned) == {}
    assert every.retrieve.route("keyword") == ["words", "titles", "pills"]


ARMS = {
    "no med": {"retrieve.collections.med": None},
    "scores": {"fuse.collections": "minmax"},
    "everywhere": {"retrieve.collections.med.strategies": None},
    "reranked": {"rerank.kind": "server", "rerank.combine": "replace"},
}
MORE_ARMS = {
    "no med, merged": {"fuse.collection_weights": {"med": 0}},
    "k": {"fuse.k": 1},
    "distinct": {"fuse.duplicates": "drop"},
    "two words": {"retrieve.collections.law.retrievers": ["words"]},
}


@pytest.mark.slow
@pytest.mark.parametrize("arms", [ARMS, ARMS | MORE_ARMS])
def test_arms_are_the_runs_of_them(path: str, reranker: FakeModels, arms: Values) -> None:
    settings = [*reranked(reranker), "rerank.kind=none"]
    ablation = prepare_ablation(load_config(path, [*settings, f"ablate={json.dumps({'arms': arms})}"]), path)
    folder = run_in_process(ablation)
    left = next(arm.config for arm in ablation.compiled.arms if arm.name == "no med")
    assert (list(left.retrieve.retrievers), left.rewrite.planned) == (["words", "titles"], ["general"])
    answers = {answer.arm: answer for answer in ablation.compiled.work.answers}
    for arm in (one for one in ablation.compiled.arms if one.name in {"full", *arms}):
        made = prepare(arm.config.model_copy(update={"output": "alone"}), path)
        wanted = ranking(run_in_process(made))
        found, keep = ranking(folder, arm.name), answers[arm.name].keep
        assert {query: of[:keep] for query, of in found.items()} == {query: of[:keep] for query, of in wanted.items()}, arm.name
    single = open_run(str(run_in_process(prepared_job(path, 'retrieve.collections.med={"retrievers": ["pills"]}'))))
    made = [open_run(str(folder)), single]
    searches = [{name: n for name, of in run.spent["retrieve"].items() if (n := of.get("searches"))} for run in made]
    assert searches[0] == searches[1]  # nothing is searched twice
    shown = Page(ablation_report(compared(made[0], None, made[0].config.evaluate, None)))
    assert [row[0] for row in shown.rows["collections"]] == ["arm", *(arm.name for arm in ablation.compiled.arms)]


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"retrieve.collections": {}}, "an arm may leave out some, not all"),
        ({"retrieve.collections": {"lax": {"retrievers": ["words"]}}}, "no collection 'lax'; did you mean 'law'"),
        ({"retrieve.collections.law.retrievers": []}, "should list at least 1"),
        ({"fuse.collection_weights": {"law": 0, "med": 0}}, "all are 0"),
    ],
)
def test_an_arm_cannot_call_documents_otherwise(path: str, changes: Values, words: str) -> None:
    config = load_config(path, [f"ablate={json.dumps({'arms': {'wrong': changes}})}"])
    with pytest.raises(ConfigError, match=words):
        prepare_ablation(config, path)


def test_a_config_without_collections_has_no_arm_with_them(path: str) -> None:
    arms = {"arms": {"some": {"retrieve.collections": BOTH}}}
    config = load_config(path, ["retrieve.collections={}", f"ablate={json.dumps(arms)}"])
    with pytest.raises(ConfigError, match="the config has none, since arms are compared by what documents are called"):
        prepare_ablation(config, path)


def test_no_collections_leave_the_fingerprint_as_it_is(path: str) -> None:
    plain = prepared_job(path, "retrieve.collections={}").prepared
    fields = identity_fields(plain.config)
    assert "collections" not in fields["retrieve"]
    assert not {"collections", "collection_weights"} & fields.get("fuse", {}).keys()
    assert "merge" not in plain.identity["versions"]
    changes = (
        "fuse.collections=minmax",
        "fuse.collection_weights.med=2",
        "retrieve.collections.med.strategies=[general, keyword]",
        'retrieve.collections={"law": {"retrievers": ["words"]}, "med": {"retrievers": ["pills", "titles"]}}',
    )
    names = {plain.run_id, *(prepared_job(path, change).prepared.run_id for change in ("name=small", *changes))}
    assert len(names) == 2 + len(changes)
    corpus = prepared_job(path, 'retrieve.collections.med.corpus={"text_column": "words"}').prepared
    assert corpus.run_id == prepared_job(path).prepared.run_id


@pytest.mark.slow
def test_a_second_start_does_nothing_and_lists_are_shared_by_index(path: str) -> None:
    stored = ["retrieve.store=true"]
    alone(path, "law", *stored)
    folder = run_in_process(prepared_job(path, *stored))
    spent = open_run(str(folder)).spent["retrieve"]
    assert spent["words@"].get("reused", 0) > 0
    assert not spent["words@"].get("searches", 0)  # a run without collections has searched the same index
    assert spent["pills@"]["searches"] > 0
    before = {one: one.stat().st_mtime_ns for one in folder.rglob("*.parquet")}
    assert run_in_process(prepared_job(path, *stored)) == folder
    assert {one: one.stat().st_mtime_ns for one in folder.rglob("*.parquet")} == before


def test_judgements_may_leave_out_the_collection_where_it_is_clear(path: str) -> None:
    run = open_run(str(run_in_process(prepared_job(path))))
    grades = {"moon and tides": {"law:d3": 1, "med:twin": 2, "law:nobody": 1}, "yeast": {"law:d4": 1}}
    named = Judgements("q.tsv", grades, "query")
    bare = named._replace(grades={"moon and tides": {"law:d3": 1, "twin": 2, "law:nobody": 1}, "yeast": {"law:d4": 1}})
    indexes = run.record["indexes"]
    assert qualified_judgements(bare, run.config, indexes) == named
    assert qualified_judgements(named, run.config, indexes) is named
    found = evaluate(run, named, ["R@10"])
    assert found.results["R@10"] == pytest.approx((2 / 3 + 1) / 2)
    assert found.unknown is not None
    assert (found.unknown.unknown, found.unknown.example) == (1, "law:nobody")
    for wrong, words in (
        ({"d3": 1}, "'d3' is a document of law and another of med; write law:d3 or med:d3"),
        ({"twin": 1, "med:twin": 0}, "med:twin has grades"),
    ):
        with pytest.raises(ConfigError, match=words):
            qualified_judgements(Judgements("q.tsv", {"yeast": wrong}, "query"), run.config, indexes)
    lost = qualified_judgements(Judgements("q.tsv", {"yeast": {"nowhere": 1}}, "query"), run.config, indexes)
    assert lost.grades == {"yeast": {"nowhere": 1}}


def test_unqualified_judgements_need_the_indexes(path: str, place: Path) -> None:
    run = open_run(str(run_in_process(prepared_job(path))))
    (place / "med").rename(place / "gone")
    bare = Judgements("q.tsv", {"yeast": {"twin": 1}}, "query")
    with pytest.raises(ConfigError, match="'twin' names no collection, and the index of med cannot be read") as refused:
        qualified_judgements(bare, run.config, run.record["indexes"])
    assert refused.value.line.endswith("write ids as med:ID")


@pytest.mark.slow
def test_verbs_read_bare_judgements(path: str, place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (place / "qrels.tsv").write_text("moon and tides\ttwin\t1\nyeast\tlaw:d4\t1\n")
    assert main(["run", path, "--set", "evaluate.qrels=qrels.tsv", "--set", "evaluate.key=query"]) == 0
    folder = capsys.readouterr().out.splitlines()[-1]
    assert json.loads((Path(folder) / "evaluation.json").read_text())["measures"]["R@10"]["results"] == 1
    assert main(["evaluate", folder, "qrels.tsv", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["measures"]["R@10"]["results"] == 1
    (place / "both.tsv").write_text("yeast\td4\t1\n")
    assert main(["evaluate", folder, "both.tsv", "--key", "query"]) == 2
    assert "write law:d4 or med:d4" in capsys.readouterr().err
    assert main(["run", path, "--set", "evaluate.qrels=both.tsv", "--set", "evaluate.key=query", "--label", "b"]) == 2


@pytest.mark.slow
def test_the_original_alone_is_merged_as_the_run_is(path: str) -> None:
    run = open_run(str(run_in_process(prepared_job(path))))
    original = prepared_job(path, "rewrite.strategies=[]", "retrieve.collections.med.strategies=null")
    only = open_run(str(run_in_process(original)))
    judged = Judgements("", {query: {"law:d1": 1, "med:d2": 2, "law:d4": 1, "med:d3": 1} for query in QUERIES}, "query")
    names = ["nDCG@10", "RR@10"]
    both = measure(run, judged, names)
    assert both.arms == ("run", "original")
    assert both.values[1].tolist() == measure(only, judged, names, alone=False).values[0].tolist()


@pytest.mark.slow
def test_tuning_computes_the_run(path: str) -> None:
    judged = Judgements("", {query: {"law:d1": 1, "med:d2": 1, "law:d4": 1} for query in QUERIES}, "query")
    for how in ("rank", "minmax"):
        run = open_run(str(run_in_process(prepared_job(path, f"fuse.collections={how}"))))
        gathered = gather(run, judged, None, "no encoder", 0)
        objective = Objective(run.config, gathered, judged)
        values = objective.values(equal_weights(run.config, gathered))
        wanted = measure(run, judged, [objective.name], alone=False)
        by_query = dict(zip(wanted.query_ids, wanted.values[0, 0].tolist(), strict=True))
        assert dict(zip(gathered.query_ids, values.tolist(), strict=True)) == pytest.approx(by_query)


@pytest.mark.slow
def test_a_trial_shows_each_collection(path: str) -> None:
    prepared = prepared_job(path).prepared
    wanted = ranking(run_in_process(prepared))["moon and tides"]
    with LoadedConfig(prepared.config, path, "small") as loaded:
        tried = loaded.try_query("moon and tides", lambda words: None)
    assert [(one["doc_id"], one["score"]) for one in tried.row["hits"]] == wanted
    counts = Counter(doc_id.partition(":")[0] for doc_id, _ in wanted)
    values = trial_values(tried)
    assert values["results_by_collection"] == counts
    assert {(one["retriever"], one["collection"]) for one in values["lists"]} == {
        ("words", "law"), ("titles", "law"), ("pills", "med")
    }  # fmt: skip
    assert all(one["text"] == TEXTS[one["doc_id"]] for one in values["results"])
    shown = printed(try_page([tried]))
    for name, count in counts.items():
        assert f"{name}  {count} of {len(wanted)} results" in shown
    assert "2 collections merged by rank" in shown
    without = load_config(path, ["fuse.collection_weights.med=0"])
    with LoadedConfig(without, path, "small") as loaded:
        tried = loaded.try_query("moon and tides", lambda words: None)
    assert tried.results_of == {"law": len(tried.row["hits"]), "med": 0}
    left_out = {hit["doc_id"] for one in tried.row["lists"] if one["collection"] == "med" for hit in one["hits"]}
    assert tried.document_counts["only in lists of weight 0 (fuse.weights, fuse.collection_weights)"] == len(left_out) > 0


@pytest.mark.slow
def test_a_report_has_a_table_of_collections(path: str) -> None:
    folder = run_in_process(prepared_job(path))
    results, lists = rows(folder, "results"), rows(folder, "runs")
    report = page(open_run(str(folder)))
    head, *found = report.rows["collections"]
    assert len(found) == 2
    for row in found:
        mine = [one for one in results if one["doc_id"].startswith(f"{row[0]}:")]
        hits = {one["query_id"] for one in lists if one["doc_id"].startswith(f"{row[0]}:")}
        cells = dict(zip(head, row, strict=True))
        assert cells["queries with hits"] == str(len(hits))
        assert cells["queries with results"] == str(len({one["query_id"] for one in mine}))
        assert cells["results"] == str(len(mine))
        assert cells["ranked first"] == str(sum(one["rank"] == 1 for one in mine))
        assert cells["strategies"] == {"law": "general", "med": "keyword"}[row[0]]
    assert "Wild yeast is in no hurry" in report.sections["samples"]
    assert "Yeast of beer" in report.sections["samples"]
    assert "collections" not in page(open_run(str(run_in_process(prepared_job(path, *PLAIN))))).rows


PLAIN = ("retrieve.collections={}", 'retrieve.retrievers={"words": {"kind": "local", "index": "law"}}', "name=plain")


@pytest.mark.slow
def test_a_diff_says_that_documents_have_other_names(path: str) -> None:
    a, b = (open_run(str(run_in_process(prepared_job(path, *settings)))) for settings in (PLAIN, ()))
    judged = Judgements("", {"yeast": {"law:d4": 1}}, "query")
    shown = printed(diff_page(diff(a, b, judged, None, 5, ["RR@10"])))
    assert "B alone has collections, which stand in its documents' ids: no document is in both" in shown
    same = printed(diff_page(diff(b, b, judged, None, 5, ["RR@10"])))
    assert "alone has collections" not in same


def test_a_plan_and_what_is_sent(path: str) -> None:
    prepared = prepared_job(path).prepared
    planned = plan(prepared, LiveDisplay(io.StringIO()))
    assert planned["collections"] == {
        "law": {"retrievers": ["words", "titles"], "strategies": ["general"]},
        "med": {"retrievers": ["pills"], "strategies": ["keyword"]},
    }
    assert planned["left"]["searches"] == len(QUERIES) * (2 + 2 + 2)
    assert "words, titles for the original and general" in printed(plan_table(planned))
    sent = sent_config(prepared.config).values
    assert sent["retrieve"]["collections"] == BOTH
    assert load_config(path).retrieve.collections == prepared.config.retrieve.collections


def test_one_collection_is_indexed_at_a_time(path: str, place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    more = {"doc_id": ["d9"], "text": ["A pill a day."]}
    pq.write_table(pa.table(more), "more.parquet")
    capsys.readouterr()
    assert main(["index", path, "--corpus", "med=med.parquet", "med=more.parquet"]) == 0
    said = capsys.readouterr()
    assert said.out.startswith("med: ")
    assert "6 documents, built" in said.out
    assert "left as they are, without a corpus: law" in said.err
    assert main(["index", path, "--corpus", "law=law.parquet", "--json"]) == 0
    built = json.loads(capsys.readouterr().out)
    assert [(one["collection"], one["documents"]) for one in built] == [("law", 5), ("law", 5)]
    assert all("exists already" in one["done"] for one in built)


def test_a_collection_may_have_columns_of_its_own(path: str, place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pq.write_table(pa.table({"number": [1, 2], "words": ["A pill a day.", "Two pills a day."]}), "pills.parquet")
    columns = {"id_column": "number", "text_column": "words", "title_column": None}
    setting = f"retrieve.collections.med.corpus={json.dumps(columns)}"
    assert main(["index", path, "--set", setting, "--corpus", "med=pills.parquet", "law=law.parquet"]) == 0
    assert "2 documents, built" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("corpus", "words"),
    [
        ("med.parquet", "--corpus med.parquet: names no collection of the config; write it as law=PATH (known: law, med)"),
        ("mad=med.parquet", "--corpus mad=med.parquet: names no collection of the config; write it as law=PATH; did you mean"),
        ("med=", "--corpus med=: names no collection of the config"),
    ],
)
def test_a_corpus_without_a_collection_is_refused(
    path: str, corpus: str, words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    capsys.readouterr()
    assert main(["index", path, "--corpus", corpus]) == 2
    assert words in capsys.readouterr().err


def test_an_index_is_of_one_collection(path: str, capsys: pytest.CaptureFixture[str]) -> None:
    capsys.readouterr()
    assert main(["index", path, "--set", "retrieve.retrievers.pills.index=law", "--corpus", "law=law.parquet"]) == 2
    assert (
        "is of two corpora, law.parquet of collection law and that of collection med, and is built of one;"
        in capsys.readouterr().err
    )


def test_texts_are_of_one_corpus_inside_a_collection(path: str) -> None:
    swapped = {"law": {"retrievers": ["words", "pills"]}, "med": {"retrievers": ["titles"]}}
    setting = f"retrieve.collections={json.dumps(swapped)}"
    assert prepared_job(path, setting)  # no stage reads texts
    with pytest.raises(ConfigError, match=r"retrieve\.collections\.law: words, pills search indexes of different corpora"):
        prepared_job(path, setting, "fuse.duplicates=drop")


REFUSED = [
    ({"law": {"retrievers": ["words", "titels"]}}, {}, "collections.law: no retriever 'titels'; did you mean 'titles'"),
    ({"law": {"retrievers": ["words", "titles"]}}, {}, "collections: pills is in none"),
    ({"law": {"retrievers": ["words", "titles", "words"]}}, {}, "words is in law twice"),
    (BOTH | {"med": {"retrievers": ["pills", "words"]}}, {}, "words is in law and med"),
    (BOTH | {"a.b": {"retrievers": ["pills"]}}, {}, "should match pattern"),
    (BOTH | {"med": {"retrievers": ["pills"], "strategies": ["keywort"]}}, {}, "'keywort' is not among the strategies"),
    (
        {name: one | {"strategies": ["keyword"]} for name, one in BOTH.items()},
        {},
        "rewrite.strategies: 'general' is searched in no collection",
    ),
    (BOTH, {"retrieve.routes": {"keyword": ["words"]}}, "routes.keyword: words is of collection law, which is not searched"),
    (BOTH, {"fuse.collection_weights": {"lav": 1}}, "no collection 'lav'; did you mean 'law'"),
    ({}, {"fuse.collections": "score"}, "fuse.collections: there are no retrieve.collections to merge"),
    ({}, {"fuse.collection_weights": {"law": 1}}, "fuse.collection_weights: there are no retrieve.collections"),
]


@pytest.mark.parametrize(("collections", "more", "words"), REFUSED)
def test_what_cannot_be_is_refused(path: str, collections: Values, more: Values, words: str) -> None:
    settings = [f"retrieve.collections={json.dumps(collections)}", *(f"{key}={json.dumps(one)}" for key, one in more.items())]
    with pytest.raises(ConfigError) as refused:
        load_config(path, settings)
    assert words in refused.value.line
    assert "\n" not in refused.value.line
