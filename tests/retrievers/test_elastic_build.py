"""Building an index in Elasticsearch: alias, resuming, what is never made twice, what is turned away."""

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cluster.errors import RetrieverError
from retrievers.corpora.builds import BuildInputs
from retrievers.corpora.corpus import Built
from retrievers.elastic import bulk
from retrievers.elastic.build import ElasticBuild, build_elastic_index, elastic_indexes
from retrievers.retriever import SearchText, open_documents, open_retriever, retriever_identity
from tests.support.processes import check_killed
from tests.support.retrievers.blocks import typed
from tests.support.retrievers.elastic_server import ask
from tests.support.retrievers.proxy import Proxy, Request

# Slow: the killed night builds an index, too.
pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("short_pauses")]
SEA = [SearchText("sea")]
Write = Callable[..., Path]


@pytest.fixture
def alias(elasticsearch: str, new_name: Callable[[], str]) -> str:
    return new_name()


def block(alias: str, **more: Any) -> dict[str, Any]:
    return {"kind": "elastic", "index": alias} | more


def build(corpus: Any, *blocks: dict[str, Any], **more: Any) -> Built:
    (fields,) = elastic_indexes({f"r{place}": typed(one) for place, one in enumerate(blocks)}).values()
    return build_elastic_index(fields, BuildInputs([corpus], **more))


def generations(alias: str) -> set[str]:
    return set(ask("GET", f"/{alias}-*"))


def test_built_then_nothing_to_do_but_to_set_what_is_otherwise(alias: str, corpus: Path) -> None:
    told: list[tuple[str, int, int]] = []
    first = build(corpus, block(alias), progress=lambda *step: told.append(step))
    assert first.built
    assert (first.documents, first.counts) == (13, Counter(loaded=13))
    assert told[-1] == ("load", 13, 13)
    uuid = retriever_identity("bm25", typed(block(alias)))["uuid"]
    ask("PUT", f"/{first.concrete}/_settings", {"index": {"blocks.write": False, "refresh_interval": "-1"}})
    again = build(corpus, block(alias))
    assert again == replace(first, built=False, counts=Counter())
    assert retriever_identity("bm25", typed(block(alias)))["uuid"] == uuid
    assert served(first.concrete) == ("1", None, "true")


def test_what_an_index_is_made_of(alias: str, corpus: Path, encoder_block: dict[str, Any]) -> None:
    vector = {"type": "hnsw"}
    made = build(
        corpus,
        block(alias, analyzer="standard", similarity={"k1": 0.9, "b": 0.4}),
        block(alias, encoder=encoder_block, vector=vector),
    )
    found = ask("GET", f"/{alias}")[made.concrete]
    fields, settings = found["mappings"]["properties"], found["settings"]["index"]
    assert fields["text"] == {"type": "text", "analyzer": "standard"}
    assert fields["doc_id"] == {"type": "keyword"}
    assert fields["vector"]["index_options"] == {"type": "hnsw", "m": 16, "ef_construction": 100}
    assert (fields["vector"]["dims"], fields["vector"]["similarity"]) == (384, "dot_product")
    assert settings["similarity"]["default"] == {"type": "BM25", "k1": "0.9", "b": "0.4"}
    assert settings["blocks"] == {"write": "true"}
    assert "refresh_interval" not in settings
    assert found["mappings"]["dynamic"] == "false"


def served(name: str) -> tuple[str, str | None, str | None]:
    """Replicas, refresh and write block of an index."""
    found = ask("GET", f"/{name}")[name]["settings"]["index"]
    return found["number_of_replicas"], found.get("refresh_interval"), (found.get("blocks") or {}).get("write")


@pytest.mark.parametrize("step", [1, 2])
def test_a_kill_at_the_end_leaves_no_index_that_seems_done(
    alias: str, corpus: Path, monkeypatch: pytest.MonkeyPatch, step: int
) -> None:
    asked, last = ElasticBuild._request, [0]

    def killed(self: ElasticBuild, method: str, path: str, body: Any = None) -> Any:
        last[0] += method == "PUT" and path.endswith(("/_settings", "/_mapping"))
        if last[0] == step:
            raise KeyboardInterrupt
        return asked(self, method, path, body)

    monkeypatch.setattr(ElasticBuild, "_request", killed)
    with pytest.raises(KeyboardInterrupt):
        build(corpus, block(alias))
    monkeypatch.setattr(ElasticBuild, "_request", asked)
    made = build(corpus, block(alias))
    assert (made.built, made.counts) == (True, Counter(present=13))
    assert served(made.concrete) == ("1", None, "true")


def test_each_shard_is_one_segment_in_the_end(alias: str, write_corpus: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("retrievers.elastic.bulk._DOCUMENTS", 50)
    merged, sent = ElasticBuild._merge, bulk._send
    before: list[int] = []

    def send(connection: Any, index: str, left: Any) -> None:
        sent(connection, index, left)
        segments(index)  # what was sent is a segment now

    def look(self: ElasticBuild) -> None:
        before.append(segments(self._index))
        merged(self)

    def segments(name: str) -> int:
        ask("POST", f"/{name}/_refresh")
        return int(ask("GET", f"/{name}/_stats/segments")["_all"]["primaries"]["segments"]["count"])

    monkeypatch.setattr(ElasticBuild, "_merge", look)
    monkeypatch.setattr(bulk, "_send", send)
    made = build(many(write_corpus), block(alias, shards=2))
    assert before[0] > 2
    assert segments(made.concrete) == 2


def test_another_corpus_moves_the_alias_and_the_one_before_stays(alias: str, corpus: Path, write_corpus: Write) -> None:
    first = build(corpus, block(alias))
    reader, documents = open_retriever("bm25", typed(block(alias))), open_documents("bm25", typed(block(alias)))
    identity = reader.identity()
    second = build(write_corpus({"doc_id": ["z"], "text": ["another sea"]}), block(alias))
    assert open_retriever("bm25", typed(block(alias))).search(SEA, 5).doc_ids.to_pylist() == ["z"]
    assert len(reader.search(SEA, 5).doc_ids) == 3
    assert documents.texts(["d04"]) == ["Rye bread keeps for a week in a linen bag."]
    late = open_retriever("bm25", typed(block(alias)), expect_identity=identity)  # a worker that starts after the switch
    assert len(late.search(SEA, 5).doc_ids) == 3
    third = build(write_corpus({"doc_id": ["y"], "text": ["a third sea"]}), block(alias))
    assert generations(alias) == {second.concrete, third.concrete}
    with pytest.raises(RetrieverError, match=f"index {first.concrete} at .* there is none; build it with"):
        open_retriever("bm25", typed(block(alias)), expect_identity=identity)
    back = build(write_corpus({"doc_id": ["z"], "text": ["another sea"]}), block(alias))
    assert (back.built, back.concrete, back.counts) == (True, second.concrete, Counter())


def test_texts_that_were_encoded_once_are_not_again(
    alias: str, write_corpus: Write, encoder_block: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    dense = block(alias, encoder=encoder_block | {"passage_prefix": "text: "}, vector={"type": "flat"})
    texts = ["the sea", "the moon", "the sea", "bread", "bread"]
    first = build(write_corpus({"doc_id": list("abcde"), "text": texts}), dense)
    assert first.counts == Counter(loaded=5, encoded=3)
    more = write_corpus({"doc_id": list("bcdefg"), "text": [*texts[1:], "yeast", "the sea"]})
    second = build(more, dense, block(alias))  # with BM25 now, too: another mapping, the same vectors
    assert second.counts == Counter(loaded=6, encoded=1, reused=3)
    retriever = open_retriever("dense", typed(dense))
    for text, wanted in (("the moon", ["b"]), ("the sea", ["c", "g"]), ("bread", ["d", "e"])):
        found = retriever.search([SearchText(text, "passage")], len(wanted))
        assert found.doc_ids.to_pylist() == wanted
        np.testing.assert_allclose(found.scores, 1.0, atol=2e-6)
    other = block(alias, encoder=encoder_block | {"passage_prefix": "passage: "}, vector={"type": "flat"})
    assert build(more, other).counts["encoded"] == 4  # another encoder: none of those vectors is of use


@pytest.mark.parametrize("dense", [False, True])
def test_a_killed_build_goes_on(
    alias: str, write_corpus: Write, encoder_block: dict[str, Any], dense: bool, elasticsearch: str
) -> None:
    ids = [f"d{i:04d}" for i in range(3000)]
    texts = [f"{'sea' if i % 2 else 'moon'} {i % 40}" for i in range(3000)]
    corpus = write_corpus({"doc_id": ids, "text": texts})
    wanted = block(alias, encoder=encoder_block, vector={"type": "flat"}) if dense else block(alias)
    script = f"""
        import os, signal
        from retrievers.corpora.builds import BuildInputs
        from retrievers.elastic import build as elastic_build
        from retrievers.elastic import bulk
        from retrievers.elastic.settings import ElasticSettings
        send = bulk._send
        def sent(connection, index, left):
            last = {dense} or max(left) >= "d1500"
            send(connection, index, left)
            if last:
                os.kill(os.getpid(), signal.SIGKILL)
        bulk._send = sent
        (fields,) = elastic_build.elastic_indexes({{"r": ElasticSettings(**{wanted!r})}}).values()
        elastic_build.build_elastic_index(fields, BuildInputs([{str(corpus)!r}]))
    """
    check_killed(script)
    with pytest.raises(RetrieverError, match="there is none; build it with"):
        open_retriever("bm25", typed(wanted))
    (unfinished,) = generations(alias)
    with pytest.raises(RetrieverError, match="is not fully built; resume with: dmqr index"):
        open_retriever("bm25", typed(wanted | {"index": unfinished}))
    made = build(corpus, wanted)
    assert made.concrete == unfinished
    assert made.counts["loaded"] + made.counts["present"] == 3000
    assert made.counts["present"] >= (40 if dense else 500)
    if dense:
        assert made.counts["encoded"] == 0  # all 40 texts were loaded before the kill
    docs = ask("GET", f"/{unfinished}/_stats/docs")["_all"]["primaries"]["docs"]
    assert (docs["count"], docs["deleted"]) == (3000, 0)


def many(write_corpus: Write) -> Path:
    return write_corpus({"doc_id": [f"d{i:04d}" for i in range(1200)], "text": [f"sea {i}" for i in range(1200)]})


def test_a_build_that_another_process_has_finished_meanwhile(
    alias: str, write_corpus: Write, elasticsearch: str, serve: Callable[..., Proxy]
) -> None:
    corpus = many(write_corpus)

    def meddle(request: Request) -> None:
        if request.kind == "_bulk" and request.number == 1:
            build(corpus, block(alias))

    serve(meddle, elasticsearch)
    with pytest.raises(RetrieverError, match="another process has finished it meanwhile; run the same command again"):
        build(corpus, block(alias, url_env="PROXY_URL"))
    assert not build(corpus, block(alias, url_env="PROXY_URL")).built


def test_too_few_documents_are_not_shown_to_anybody(alias: str, corpus: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("retrievers.elastic.bulk.load_documents", lambda *_: None)
    with pytest.raises(
        RetrieverError, match=r"holds 0 documents, the corpus 13; .* is unchanged; delete .* and build it again"
    ):
        build(corpus, block(alias))
    assert ask("GET", f"/{alias}") is None


@pytest.mark.parametrize("only", [None, {"match_all": {}}])
def test_places_of_an_index_of_others_have_a_page(alias: str, only: dict[str, Any] | None) -> None:
    for doc_id, more in {"1": {"source": "a.pdf", "page": 4}, "2": {"source": "b.md"}, "3": {}}.items():
        ask("PUT", f"/{alias}/_doc/{doc_id}?refresh=true", {"text": "sea"} | more)
    places = open_documents("r", typed({"kind": "elastic", "index": alias, "filter": only})).places(["3", "1", "2"])
    assert places == ["", "a.pdf, page 4", "b.md"]


@pytest.mark.parametrize(
    ("more", "doc_id", "words"),
    [
        ({"analyzer": "klingon"}, "x", r"refuses index .*analyzer \[klingon\] has not been configured"),
        ({"index": "Upper"}, "x", "refuses index Upper-.*must be lowercase"),
        ({}, "", "a doc_id is empty; Elasticsearch takes 1 to 512 bytes"),
        ({}, "ü" * 300, "has 600 bytes; Elasticsearch takes 1 to 512 bytes"),
    ],
)
def test_what_the_server_does_not_take_is_one_line(
    alias: str, write_corpus: Write, more: dict[str, Any], doc_id: str, words: str
) -> None:
    with pytest.raises(RetrieverError, match=words) as refusal:
        build(write_corpus({"doc_id": [doc_id], "text": ["x"]}), block(alias) | more)
    assert "\n" not in str(refusal.value)


def test_an_index_of_that_name_is_not_overwritten(alias: str, corpus: Path) -> None:
    ask("PUT", f"/{alias}", {"settings": {"number_of_replicas": 0}})
    with pytest.raises(RetrieverError, match="is an index, so it cannot be the alias of one; give the config another name"):
        build(corpus, block(alias))
    assert set(ask("GET", f"/{alias}")) == {alias}


def test_another_analyzer_field_encoder_or_type_is_refused(elastic_blocks: dict[str, dict[str, Any]]) -> None:
    bm25, dense = elastic_blocks["bm25"], elastic_blocks["dense"]
    for wrong, words in (
        (
            bm25 | {"analyzer": "standard"},
            "built with analyzer 'english', the config asks for 'standard'; set analyzer: english",
        ),
        (bm25 | {"field": "body"}, "has no field 'body', where text should be"),
        (bm25 | {"field": "vector"}, "has dense_vector in the field 'vector', where text should be"),
        (bm25 | {"query": {"fields": {"headline": 2}}}, "has no field 'headline'; it has: columns, doc_id, passage, text, ti"),
        (dense | {"encoder": dense["encoder"] | {"pooling": "cls"}}, "pooling 'mean' against 'cls'"),
        (
            dense | {"vector": {"type": "hnsw"}},
            "built with vector.type 'flat', the config asks for 'hnsw'; set vector.type: flat",
        ),
        (bm25 | {"similarity": {"k1": 0.4}}, "built with similarity.k1 1.2, the config asks for 0.4; set similarity.k1: 1.2"),
        (bm25 | {"shards": 7}, "built with shards 1, the config asks for 7; set shards: 1, or build it again"),
        (bm25 | {"query": {"fields": {"text": 1, "columns": 1}}}, "has object in the field 'columns', no text or keyword"),
        (bm25 | {"query": {"fields": {"vector": 1}}}, "has dense_vector in the field 'vector'"),
    ):
        with pytest.raises(RetrieverError) as refusal:
            retriever_identity("r", typed(wrong))
        assert words in str(refusal.value)


def test_an_index_that_others_have_built(alias: str) -> None:
    fields = {"body": {"type": "text"}, "v": {"type": "dense_vector", "dims": 3, "index_options": {"type": "flat"}}}
    ask("PUT", f"/{alias}", {"settings": {"number_of_replicas": 0}, "mappings": {"properties": fields}})
    for doc_id in ("b", "c", "a"):
        ask("PUT", f"/{alias}/_doc/{doc_id}?refresh=true", {"body": "the wide sea"})
    foreign = block(alias, field="body")
    found = open_retriever("bm25", typed(foreign)).search(SEA, 2)
    assert found.doc_ids.to_pylist() == ["a", "b"]
    assert open_documents("bm25", typed(foreign)).texts(["c"]) == ["the wide sea"]
    assert retriever_identity("bm25", typed(foreign))["corpus"].startswith("elastic:")


def test_an_alias_of_several_indexes_is_refused(alias: str) -> None:
    for name in ("x", "y"):
        ask("PUT", f"/{alias}-{name}", {"settings": {"number_of_replicas": 0}, "aliases": {alias: {}}})
    with pytest.raises(RetrieverError, match=f"index {alias} stands for 2 indexes"):
        retriever_identity("bm25", typed(block(alias)))


def test_indexes_of_a_config() -> None:
    def indexes(**more: dict[str, Any]) -> Any:
        retrievers = {
            "bm25": block("docs"),
            "dense": block("docs", encoder={"model": "m"}),
            "other": block("docs", url_env="OTHER_URL"),
            "local": {"kind": "local", "index": "docs"},
        }
        return elastic_indexes({name: typed(one) for name, one in (retrievers | more).items()})

    assert {place: [one and one[0] for one in fields] for place, fields in indexes().items()} == {
        ("ELASTICSEARCH_URL", "docs"): ["bm25", "dense"],
        ("OTHER_URL", "docs"): ["other", None],
    }
    for key, value in (("analyzer", "german"), ("shards", 3), ("api_key_env", "KEY")):
        words = rf"second\.{key}: another retriever wants index docs otherwise: bm25 and second"
        with pytest.raises(RetrieverError, match=words):
            indexes(second=block("docs", **{key: value}))
    indexes(second=block("docs", query={"fields": {"title": 2}}))  # searches otherwise, that is all


@pytest.mark.parametrize("kind", ["int8_flat", "bbq_flat", "hnsw", "int8_hnsw", "int4_hnsw", "bbq_hnsw"])
def test_every_type_of_vectors(alias: str, corpus: Path, encoder_block: dict[str, Any], kind: str) -> None:
    dense = block(alias, encoder=encoder_block, vector={"type": kind})
    build(corpus, dense)
    found = open_retriever("dense", typed(dense)).search([SearchText("light of a lamp at sea"), SearchText("東京タワー")], 3)
    assert found.doc_ids.to_pylist()[0] == "d02"
    assert found.doc_ids.to_pylist()[3] == "d09"
