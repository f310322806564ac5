"""Each arm reads the texts of its own corpus, and none of another ablation's."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from cluster.errors import ConfigError, RetrieverError
from jobs.config.load import load_config
from jobs.job.prepare import prepare
from jobs.measure.compare.worth import worth
from jobs.plan.work import saved
from jobs.run.ablation import prepare_ablation
from jobs.run.job import Job
from jobs.runs.folder import open_run
from retrievers.local.build import build_local_index
from retrievers.local.fields import local_indexes
from retrievers.local.settings import LocalSettings
from retrievers.settings import FieldWeights
from tests.support.jobs.in_process_runs import run_in_process
from tests.support.jobs.whole_runs import rows
from tests.support.retrievers.blocks import index_fields
from tests.support.retrievers.fake_models import FakeModels

QUERIES = ["why does bread rise", "lamp of a lighthouse", "moon and tides", "yeast of bread", "rye in a linen bag"]
SHORT = {"bm25": "short"}
Texts = Mapping[str, str]


def overlap(query: str, texts: Sequence[str]) -> list[float]:
    """The reranker of these tests: words in common, and the longer text first."""
    return [sum(word in text for word in query.split()) + len(text) / 1000 for text in texts]


@pytest.fixture(scope="module")
def reranker() -> Iterator[FakeModels]:
    with FakeModels("tei", score=overlap) as server:
        yield server


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, passages: Texts) -> Path:
    """A folder with a log, recorded answers and the corpora `long`, `short` (the same ids) and `other` (other ids)."""
    monkeypatch.chdir(tmp_path)
    pq.write_table(pa.table({"query": QUERIES}), "log.parquet")
    lines = [{"query": query, "completions": {"dmqr": json.dumps({"general": f"about {query}"})}} for query in QUERIES]
    (tmp_path / "recorded.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    build("long", passages)
    build("short", {doc_id: " ".join(text.split()[:5]) for doc_id, text in passages.items()})
    build("other", {f"x-{doc_id}": text.replace("bread", "loaf") for doc_id, text in passages.items()})
    return tmp_path


def build(index: str, texts: Texts) -> None:
    pq.write_table(pa.table({"doc_id": list(texts), "text": list(texts.values())}), f"{index}.parquet")
    build_local_index(Path(index), Path(f"{index}.parquet"), index_fields("english"))


@pytest.fixture
def make(place: Path, values: dict[str, Any], config_file: Callable[[Any], str], reranker: FakeModels) -> Callable[..., Job]:
    values["rewrite"]["strategies"] = ["general"]
    values["retrieve"]["retrievers"]["bm25"]["index"] = "long"
    values |= {
        "rerank": {"kind": "server", "model": reranker.model, "base_url": reranker.address, "combine": "replace"},
        "cluster": {"address": "none"},
    }
    path = config_file(values)

    def made(arms: dict[str, Any], *settings: str) -> Job:
        return prepare_ablation(load_config(path, [*settings, f"ablate={json.dumps({'arms': arms})}"]), path)

    return made


def done(ablation: Job) -> Path:
    return run_in_process(ablation)


def listed(folder: Path, arm: str) -> list[tuple[Any, ...]]:
    found = [row for row in rows(folder, "results") if row["arm"] == arm and row["rank"] <= 10]
    return sorted((row["query_id"], row["rank"], row["doc_id"], row["rerank_score"]) for row in found)


def alone(ablation: Job, arm: str) -> list[tuple[Any, ...]]:
    """What a run of an arm's config gives."""
    config = next(one.config for one in ablation.compiled.arms if one.name == arm)
    prepared = prepare(config.model_copy(update={"output": "alone"}), "config.yaml")
    run_in_process(prepared)
    return listed(Path(prepared.storage.root), "run")


@pytest.mark.slow
@pytest.mark.parametrize("index", ["short", "other"])
def test_a_reranked_arm_over_another_corpus_is_the_run_of_it(make: Callable[..., Job], index: str) -> None:
    ablation = make({"else": {"retrieve.retrievers.bm25.index": index}})
    folder = done(ablation)
    for arm in ("full", "original", "general", "else"):
        assert listed(folder, arm) == alone(ablation, arm), arm
    assert listed(folder, "else") != listed(folder, "full")


@pytest.mark.slow
def test_an_arm_with_other_weights_of_fields_is_the_run_of_it(make: Callable[..., Job], passages: Texts) -> None:
    titles, _, texts = zip(*(text.partition(". ") for text in passages.values()), strict=True)
    columns = {"doc_id": list(passages), "title": titles, "text": texts}
    pq.write_table(pa.table(columns), "titled.parquet")
    weighted = {"retrieve.retrievers.bm25.index": "titled", "retrieve.retrievers.bm25.fields": {"text": 0}}
    settings = LocalSettings(kind="local", index="titled", fields=FieldWeights(text=0))
    ((_, fields),) = local_indexes({"bm25": settings}).items()
    build_local_index(Path("titled"), Path("titled.parquet"), fields)
    ablation = make({"titles": weighted}, "rerank.kind=none")
    folder = done(ablation)
    for arm in ("full", "titles"):
        assert listed(folder, arm) == alone(ablation, arm), arm
    assert listed(folder, "titles") != listed(folder, "full")
    with pytest.raises(RetrieverError, match=r"arm 'other'.*built with fields .*; give the arm an index of its own") as refused:
        make({"other": weighted | {"retrieve.retrievers.bm25.fields": {"title": 2}}}, "rerank.kind=none")
    assert refused.value.code == "index-other"


@pytest.mark.slow
def test_the_next_ablation_reads_no_score_of_another_corpus(make: Callable[..., Job]) -> None:
    done(make({"else": {"retrieve.retrievers.bm25.index": "short"}}))
    second = make({}, "retrieve.retrievers.bm25.index=short")
    folder = done(second)
    assert listed(folder, "full") == alone(second, "full")
    spent = open_run(str(folder)).spent["rerank"]
    assert sum(one.get("reused", 0) for one in spent.values()) > 0  # of the arm over the same texts


@pytest.mark.slow
def test_the_next_ablation_reads_no_list_that_was_joined_by_another_count_of_words(
    make: Callable[..., Job], monkeypatch: pytest.MonkeyPatch
) -> None:
    together = ["retrieve.retrievers.bm25.together=true", "rerank={kind: none}"]

    def lists(folder: Path) -> list[tuple[Any, ...]]:
        return sorted((row["query_id"], row["strategy"], row["rank"], row["score"]) for row in rows(folder, "runs"))

    first = lists(done(make({}, *together)))
    assert {strategy for _, strategy, *_ in first} == {"together"}
    known = lists(done(make({}, *together, "fuse.method=rrf")))
    assert known == first
    monkeypatch.setattr("retrievers.joined.words", lambda text: text.split() * (10 if text.startswith("about") else 1))
    monkeypatch.setattr("jobs.chain.arms.shared_work.ANALYZE_VERSION", 3, raising=False)
    assert lists(done(make({}, *together, "fuse.method=best"))) != first


@pytest.mark.slow
@pytest.mark.parametrize("index", ["twins", "short twins"])
def test_duplicates_are_found_by_the_texts_of_the_arms_corpus(make: Callable[..., Job], passages: Texts, index: str) -> None:
    build("twins", passages | {f"z-{doc_id}": text for doc_id, text in passages.items()})
    build("short twins", passages | dict.fromkeys(("d03", "d04", "d05"), "Bread and more bread of yeast."))
    ablation = make(
        {"else": {"retrieve.retrievers.bm25.index": index, "fuse.duplicates": "drop"}, "drops": {"fuse.duplicates": "drop"}},
        "rerank.kind=none",
    )
    folder = done(ablation)
    for arm in ("full", "else", "drops"):
        assert listed(folder, arm) == alone(ablation, arm), arm


def test_an_arm_of_two_corpora_is_refused_by_its_name(make: Callable[..., Job]) -> None:
    two = {"retrieve.retrievers.more": {"kind": "local", "index": "short"}}
    make({"fused": two | {"rerank.kind": "none"}})
    with pytest.raises(ConfigError, match=r"arm 'two'.*different corpora") as refused:
        make({"two": two})
    assert refused.value.code == "index-other"


def test_a_fault_of_an_arm_names_it_and_leaves_the_config_as_it_is(make: Callable[..., Job]) -> None:
    with pytest.raises(RetrieverError) as refused:
        make({"plain words": {"retrieve.retrievers.bm25.analyzer": "unicode"}})
    assert refused.value.code == "index-other"
    assert "ablate: arm 'plain words': retrieve.retrievers.bm25: index long was built with analyzer" in str(refused.value)
    assert "; give the arm an index of its own" in str(refused.value)
    with pytest.raises(RetrieverError, match=r"^retrieve\.retrievers\.bm25: index long was built.*build it again"):
        make({}, "retrieve.retrievers.bm25.analyzer=unicode")


@pytest.mark.slow
def test_scores_of_rerankers_with_one_model_are_told_apart(make: Callable[..., Job]) -> None:
    arms = {
        "short": {"retrieve.retrievers.bm25.index": "short"},
        "asked": {"rerank.query_instruction": "Q: "},
        "faster": {"rerank.batch": 2},
        "rrf": {"fuse.method": "rrf"},
    }
    alone_folder, folder = done(make({})), done(make(arms, "name=several"))
    found = rows(folder, "scores")
    pairs = [(row["query_id"], row["doc_id"], row["reranker"]) for row in found]
    assert len(pairs) == len(set(pairs))
    assert len({row["model"] for row in found}) == 1
    noted = {arm["name"]: arm["reranker"] for arm in open_run(str(folder)).record["ablation"]["arms"]}
    assert len(set(noted.values())) == 3
    assert noted["rrf"] == noted["full"] == noted["original"]
    gains = [{one.strategy: one.reranker_gain for one in worth(open_run(str(one))) or ()} for one in (alone_folder, folder)]
    assert gains[0] == gains[1]
    reused = saved(open_run(str(folder))).reused
    assert {name: n for name, n in reused.items() if n} == {"pairs": len(rows(alone_folder, "scores"))}


@pytest.mark.slow
def test_what_an_earlier_ablation_has_scored_counts_as_such_once(make: Callable[..., Job]) -> None:
    first = done(make({}))
    again = saved(open_run(str(done(make({"few": {"rerank.keep": 3}})))))
    assert again.reused["pairs"] == len(rows(first, "scores"))
