"""Several collections in whole jobs: what a run finds is what runs of each collection alone find, merged by hand."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml

from cluster.errors import ConfigError
from jobs.__main__ import main
from jobs.config.load import load_config
from jobs.job.judged_ids import checked_ids
from jobs.job.keys import identity_fields
from jobs.log.judgements import Judgements
from jobs.measure.evaluate import evaluate
from jobs.run.ablation import prepare_ablation
from jobs.runs.folder import open_run
from tests.support.jobs.in_process_runs import prepared_job, run_in_process
from tests.support.jobs.whole_runs import rows
from tests.support.retrievers.fake_models import FakeModels

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


def test_judgements_name_the_collection(path: str) -> None:
    run = open_run(str(run_in_process(prepared_job(path))))
    grades = {"moon and tides": {"law:d3": 1, "med:twin": 2, "law:nobody": 1}, "yeast": {"law:d4": 1}}
    named = Judgements("q.tsv", grades, "query")
    found = evaluate(run, checked_ids(named, run.config), ["R@10"])
    assert found.pairs["R@10"].b == pytest.approx((2 / 3 + 1) / 2)
    assert found.frame.unknown is not None
    assert (found.frame.unknown.unknown, found.frame.unknown.example) == (1, "law:nobody")
    for wrong in ("d3", "web:0123"):
        with pytest.raises(ConfigError, match=f"{wrong}' names no collection; write law:{wrong} or med:{wrong}"):
            checked_ids(Judgements("q.tsv", {"yeast": {wrong: 1}}, "query"), run.config)


def test_one_collection_is_indexed_at_a_time(path: str, place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    more = {"doc_id": ["d9"], "text": ["A pill a day."]}
    pq.write_table(pa.table(more), "more.parquet")
    capsys.readouterr()
    assert main(["index", path, "--corpus", "med=med.parquet", "med=more.parquet", "--replace"]) == 0
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
    assert main(["index", path, "--set", setting, "--replace", "--corpus", "med=pills.parquet", "law=law.parquet"]) == 0
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
