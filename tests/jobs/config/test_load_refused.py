"""Unknown, missing and wrong values of a config, each refused by name in one line."""

from __future__ import annotations

import pytest

from tests.support.jobs.refusals import Values, Write, put, refusal

MESSAGES: list[tuple[str, object, str]] = [
    # unknown keys, at every depth, with the nearest and the keys of that very place
    ("rerang", {}, "rerang: unknown key; did you mean 'rerank'? (known: name, label, log, corpus, rewrite, retrieve, fuse, "),
    ("fuse.dept", 3, "fuse.dept: unknown key; did you mean 'depth'? (known: method, k, depth, keep, keep_candidates, "
     "weights, retriever_weights, original_floor, divide, duplicates, duplicate_chars, redundancy, "
     "collections, collection_weights)"),
    ("rewrite.decoding.temprature", 1, "rewrite.decoding.temprature: unknown key; did you mean 'temperature'? (known: temp"),
    ("rewrite.engine.paht", "x", "rewrite.engine.paht: unknown key; did you mean 'path'? (known: kind, path)"),
    ("rewrite.engine", {"kind": "vlm"}, "rewrite.engine.kind: no kind 'vlm'; did you mean 'vllm'? (known: vllm, op"),
    ("rewrite.engine", {"model": "m"}, "rewrite.engine.kind: is missing (known: vllm, openai, anthropic, recorded)"),
    ("rewrite.engine", {"kind": "vllm", "modle": "m"}, "rewrite.engine.modle: unknown key; did you mean 'model'? (known: kin"),
    ("rewrite.engine", {"kind": "openai", "model": "m"}, "rewrite.engine.base_url: is missing"),
    ("cluster.rerank.gpu", 1, "cluster.rerank.gpu: unknown key; did you mean 'gpus'? (known: workers, cpus, gpus)"),
    ("retrieve.retrievers.bm25.indx", 1, "retrieve.retrievers.bm25.indx: unknown key; did you mean 'index'? (known: kind, "),
    (
        "retrieve.retrievers.mine", {"kind": "local", "index": "i", "encoder": {"model": "m", "poling": "cls"}},
        "retrieve.retrievers.mine.encoder.poling: unknown key; did you mean 'pooling'? (known: kind, model, pooling, query_",
    ),
    (
        "retrieve.retrievers.mine", {"kind": "local", "index": "i", "encoder": {"kind": "tei", "model": "m"}},
        "retrieve.retrievers.mine.encoder.kind: no kind 'tei' (known: local, openai)",
    ),
    (
        "retrieve.retrievers.mine", {"kind": "local", "index": "i", "encoder": {"kind": "openai", "model": "m"}},
        "retrieve.retrievers.mine.encoder.base_url: is missing; add it",
    ),
    (
        "rerank.encoder", {"kind": "openai", "model": "m", "base_url": "http://h/v1", "pooling": "cls"},
        "rerank.encoder.pooling: unknown key (known: kind, model, base_url, ",
    ),
    ("rerank", {"kind": "server", "model": "m"}, "rerank: kind server needs base_url; give the server's address"),
    ("rerank.base_url", "http://me:secret@host/v1", "rerank.base_url: must not hold user and password (at host); put the key"),
    ("rerank.base_url", "host/v1", "rerank.base_url: must be like http://host:8000/v1, without ? or #, found: 'host/v1'"),
    ("rerank.base_url", "http://h?k=x", "rerank.base_url: must be like http://host:8000/v1, without ? or #, found: 'http://h?...'"),
    ("log.zzz", 1, "log.zzz: unknown key (known: path, query_column, id_column, count_column, context_column, "),
    # wrong values
    ("log.max_chars", "many", "log.max_chars: input should be a valid integer, unable to parse string as an integer, found "
                              "'many'"),
    ("log.max_chars", 0, "log.max_chars: input should be greater than 0, found 0"),
    ("log", 5, "log: should hold keys, found 5"),
    ("ablate.arms", {"a": "general"}, "ablate.arms.a: should hold keys, found 'general'"),
    ("ablate.grid", {"fuse.k": 10}, "ablate.grid.fuse.k: should be a list, found 10"),
    ("ablate.grid", {"fuse.k": []}, "ablate.grid.fuse.k: should list at least 1, found []; add it, or remove the key"),
    ("fuse.method", "rff", "fuse.method: input should be 'rrf', 'minmax', 'weighted' or 'best', found 'rff'"),
    ("fuse.weights", {"keyword": -1}, "fuse.weights.keyword: input should be greater than or equal to 0, found -1"),
    ("limits.error_rate", 2, "limits.error_rate: input should be less than or equal to 1, found 2"),
    ("cluster.shard_size", 5001, "cluster.shard_size: input should be less than or equal to 5000, found 5001"),
    ("cluster.rewrite.workers", 0, "cluster.rewrite.workers: input should be greater than 0, found 0"),
    ("cluster.rewrite.workers", "two", "cluster.rewrite.workers: input should be a valid integer, unable to parse string"),
    ("cluster.rewrite.workers", {"min": 0, "max": 2}, "cluster.rewrite.workers.min: input should be greater than 0, found 0"),
    ("cluster.rewrite.workers", {"min": 2}, "cluster.rewrite.workers.max: is missing; add it"),
    ("cluster.rewrite.workers", {"max": 2, "mim": 1}, "cluster.rewrite.workers.mim: unknown key; did you mean 'min'? (known: "),
    ("cluster.rewrite.workers", {"min": 3, "max": 1},
     "cluster.rewrite.workers: min 3 is more than max 1; lower min, or raise max"),
    ("name", "a/b", "name: string should match pattern"),
    ("retrieve.retrievers", {}, "retrieve: retrievers is empty; name at least one"),
    # what contradicts itself
    ("rewrite.strategies", ["general", "keyword", "general"], "rewrite: strategies: 'general' must not stand there twice"),
    ("rewrite.strategies", ["original"], "rewrite: strategies: 'original' must not stand there (the original is always"),
    ("rewrite.engine", None, "rewrite: engine is missing; name one, or set strategies: []"),
    ("rewrite", {"strategies": [], "calls": "separate", "joint_prompt": "p.txt"},
     "rewrite: joint_prompt: no joint prompt is sent with calls: separate; remove it, or set calls: joint"),
    ("retrieve.routes", {"keyword": ["bm2"]}, "retrieve: routes.keyword: no retriever 'bm2'; did you mean 'bm25'? (known: b"),
    ("retrieve.routes", {"keywrd": ["bm25"]}, "retrieve.routes: 'keywrd' is not among the strategies; did you mean 'keyword'"),
    ("fuse.weights", {"pseudo": 1}, "fuse.weights: 'pseudo' is not among the strategies; did you mean 'pseudo_answer'?"),
    ("fuse.weights", {"keyword/dense": 1}, "fuse.weights: no retriever 'dense' (known: bm25)"),
    ("fuse.weights", {"together": 1}, "fuse.weights: 'together' is not among the strategies"),
    ("fuse.retriever_weights", {"bm": 1}, "fuse.retriever_weights: no retriever 'bm'; did you mean 'bm25'?"),
    ("fuse.retriever_weights", {"bm25": -1}, "fuse.retriever_weights.bm25: input should be greater than or equal to 0, found "),
    ("rerank.kind", "bi_encoder", "rerank: bi_encoder needs rerank.encoder, since no retriever is dense"),
    (
        "retrieve.retrievers.x", {"kind": "local", "index": "i", "analyzer": "english", "encoder": {"model": "m"}},
        "retrieve.retrievers.x: has analyzer (BM25) and encoder (dense); make two retrievers of it",
    ),
    # strategies and their selection
    ("rewrite.select", "adaptiv", "rewrite.select.kind: no kind 'adaptiv'; did you mean 'adaptive'? (known: all, "),
    ("rewrite.select", {"kind": "random_k", "k": 0}, "rewrite.select.k: input should be greater than or equal to 1, found 0"),
    ("rewrite.select", {"kind": "random_k", "kk": 1}, "rewrite.select.kk: unknown key; did you mean 'k'?"),
    ("rewrite.select", "column", "rewrite.select.column: is missing; add it"),
    ("rewrite.select", {"k": 2}, "rewrite.select.kind: is missing (known: all, never, adaptive, "),
    ("rewrite.strategies", [3], "rewrite.strategies.0: should be a name, a path or {name: {parameter: value}}, found 3"),
    ("rewrite.strategies", [{"rag_fusion": 2}], "rewrite.strategies.0: should be a name, a path or {name: {parameter: value}}"),
    ("rewrite.strategies", ["hyde", {"rewrite": {"name": "hyde"}}], "rewrite: strategies: 'hyde' must not stand there twice"),
    # what is elsewhere
    ("rewrite.store", "s3://b/", "rewrite.store: s3://b/: the store is named by the key `store` of the whole config"),
]  # fmt: skip


@pytest.mark.parametrize(("key", "value", "words"), MESSAGES, ids=[f"{key}={value}"[:50] for key, value, _ in MESSAGES])
def test_refused_by_name(config_file: Write, values: Values, key: str, value: object, words: str) -> None:
    put(values, key, value)
    assert refusal(config_file, values).startswith(words)


@pytest.mark.parametrize("key", ["name", "log", "log.path", "log.query_column", "rewrite", "retrieve.retrievers", "output"])
def test_what_is_required(config_file: Write, values: Values, key: str) -> None:
    *parents, last = key.split(".")
    place = values
    for parent in parents:
        place = place[parent]
    del place[last]
    assert refusal(config_file, values) == f"{key}: is missing; add it"


def test_several_problems_are_named(config_file: Write, values: Values) -> None:
    values |= {"a": 1, "b": 2}
    del values["output"]
    said = refusal(config_file, values)
    assert said.startswith("a: unknown key (known: name, label, log, corpus, rewrite, ")
    assert said.endswith(" (wrong, too: output, b)")


def test_a_path_of_a_wrong_type_is_named_as_it_stands_in_the_file(config_file: Write, values: Values) -> None:
    put(values, "log.path", 5)
    assert refusal(config_file, values).startswith("log.path: ")


def test_the_keys_of_a_retriever_that_is_called_encoder(config_file: Write, values: Values) -> None:
    put(values, "retrieve.retrievers.encoder", {"kind": "local", "index": "i", "analyser": "english"})
    assert "did you mean 'analyzer'?" in refusal(config_file, values)
