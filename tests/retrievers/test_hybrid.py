"""Retrievers of retrievers: hybrids, unions, and texts of a query searched as one."""

from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cluster.errors import RetrieverError
from dmqr.testing import hits_of
from retrievers.analysis.words import split_words
from retrievers.elastic.query import MOST_CLAUSES, bm25_query
from retrievers.elastic.settings import QuerySettings
from retrievers.hybrid.retriever import Hybrid, UnionDocuments, all_documents, search_shares
from retrievers.join import joined_text, repetitions, search_vectors
from retrievers.kinds import all_indexed
from retrievers.local.build import build_local_index
from retrievers.local.index import LocalDocuments, read_index
from retrievers.retriever import (
    Alive,
    Embedder,
    JoinedText,
    RankedLists,
    SearchText,
    lists_of,
    no_heartbeat,
    open_retriever,
    retriever_identity,
)
from tests.support.retrievers.blocks import index_fields, typed
from tests.support.retrievers.fusion_oracle import RunList, plain

Ranking = list[tuple[str, float]]

TEXTS = [SearchText("light of a lamp at sea"), SearchText("bread and yeast", "passage"), SearchText("xyzzy")]


@pytest.fixture(scope="module")
def blocks(both_index: Path, encoder_block: dict[str, Any]) -> dict[str, dict[str, Any]]:
    bm25 = {"kind": "local", "index": str(both_index)}
    return {"bm25": bm25, "dense": bm25 | {"encoder": encoder_block}}


def hybrid(blocks: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"kind": "hybrid", "of": blocks} | more


@pytest.mark.slow
def test_it_has_vectors_and_an_encoder_only_with_a_dense_retriever(blocks: dict[str, Any], bm25_index: Path) -> None:
    opened = open_retriever("both", typed(hybrid(blocks)))
    assert isinstance(opened, Embedder)
    dense = open_retriever("dense", typed(blocks["dense"]))
    assert isinstance(dense, Embedder)
    np.testing.assert_allclose(opened.embed(TEXTS), dense.embed(TEXTS), atol=1e-6)
    two = hybrid({"one": blocks["bm25"], "two": {"kind": "local", "index": str(bm25_index)}})
    assert not isinstance(open_retriever("both", typed(two)), Embedder)
    assert typed(two).encoder is None


@pytest.mark.slow
def test_the_time_of_its_searches_is_shared_among_its_retrievers(blocks: dict[str, Any]) -> None:
    opened, names = open_retriever("both", typed(hybrid(blocks))), ["both/bm25", "both/dense"]
    assert search_shares(opened, names) == [0.5, 0.5]
    opened.search(TEXTS, 3)
    shares = search_shares(opened, names)
    assert sum(shares) == pytest.approx(1)
    assert shares[1] > shares[0]  # the encoder takes longer than BM25 over a dozen passages
    assert search_shares(open_retriever("bm25", typed(blocks["bm25"])), ["bm25"]) == [1.0]


def test_what_decides_its_hits_is_in_its_identity(blocks: dict[str, Any], bm25_index: Path) -> None:
    plain = retriever_identity("both", typed(hybrid(blocks)))
    assert plain["of"] == {name: retriever_identity(name, typed(one)) for name, one in blocks.items()}
    assert plain["encoder"] == plain["of"]["dense"]["encoder"]
    turned = dict(reversed(blocks.items()))  # another retriever has the texts
    others = [hybrid(blocks, k=1), hybrid(blocks, method="minmax"), hybrid(blocks, depth=7), hybrid(turned)]
    found = [retriever_identity("both", typed(one)) for one in others]
    assert all(one != plain for one in found)
    planned = plain | {"of": plain["of"] | {"bm25": plain["of"]["bm25"] | {"corpus": "sha256:of another time"}}}
    with pytest.raises(RetrieverError, match=r"retrieve\.retrievers\.both\.of\.bm25: index .* was replaced"):
        open_retriever("both", typed(hybrid(blocks)), expect_identity=planned)


def test_the_retrievers_of_a_config_are_named_one_by_one(blocks: dict[str, Any]) -> None:
    both, bm25 = typed(hybrid(blocks)), typed(blocks["bm25"])
    assert list(all_indexed({"both": both, "bm25": bm25})) == ["both.of.bm25", "both.of.dense", "bm25"]
    changed = both.with_indexed("both", lambda key, one: one.model_copy(update={"index": key}))
    assert [one.index for one in all_indexed({"both": changed}).values()] == ["both.of.bm25", "both.of.dense"]


IDS = ["d1", "d2", "d10", "é", "", "law:d1"]  # of every index
OF = {name: {"kind": "local", "index": name} for name in ("med", "law", "notes")}
HYBRIDS = st.fixed_dictionaries(
    {
        "kind": st.just("hybrid"),
        "method": st.sampled_from(["rrf", "minmax"]),
        "k": st.sampled_from([1, 60]),
        "depth": st.integers(1, 6),
    }
)
UNIONS = st.fixed_dictionaries({"kind": st.just("union"), "merge": st.sampled_from(["rrf", "score"])})


class Listed:
    """A retriever with the same lists for any texts."""

    def __init__(self, lists: Sequence[Ranking]) -> None:
        self._lists = lists

    def search(self, texts: Sequence[SearchText | JoinedText], depth: int, alive: Alive = no_heartbeat) -> RankedLists:
        return lists_of(self._lists, depth)

    def identity(self) -> dict[str, Any]:
        return {}


def by_plain_loops(block: dict[str, Any], lists: dict[str, Ranking], depth: int) -> Ranking:
    """The list of one text, of those of its retrievers; a union's ids are qualified."""
    runs = []
    for position, (name, hits) in enumerate(lists.items()):
        ordered = sorted(hits, key=lambda hit: (-hit[1], hit[0]))
        qualifier = f"{name}:" if block["kind"] == "union" else ""
        ids, scores = [qualifier + doc_id for doc_id, _ in ordered], [score for _, score in ordered]
        runs.append(RunList("original", position, "", ids, scores))
    method = block.get("method") or {"score": "best", "rrf": "rrf"}[block["merge"]]
    k, deep = block.get("k", 60), block.get("depth", depth)
    return [one[:2] for one in plain(runs, method=method, k=k, depth=deep, keep=depth, redundancy="none").candidates]


@given(HYBRIDS | UNIONS, st.data(), st.integers(1, 9), st.integers(0, 3))
def test_the_lists_of_each_text_are_fused_as_by_plain_loops(
    block: dict[str, Any], data: st.DataObject, depth: int, texts: int
) -> None:
    hits = st.dictionaries(st.sampled_from(IDS), st.integers(-5, 9).map(float)).map(lambda found: list(found.items()))
    lists = {name: data.draw(st.lists(hits, min_size=texts, max_size=texts)) for name in OF}
    settings: Any = typed(block | {"of": OF})
    opened = Hybrid(settings, {name: Listed(one) for name, one in lists.items()}, {})
    found = hits_of(opened.search([SearchText("any")] * texts, depth))
    assert len(found) == texts
    for place, hits_of_text in enumerate(found):
        wanted = by_plain_loops(block, {name: one[place] for name, one in lists.items()}, depth)
        assert [doc_id for doc_id, _ in hits_of_text] == [doc_id for doc_id, _ in wanted]
        np.testing.assert_allclose([score for _, score in hits_of_text], [score for _, score in wanted], atol=1e-12)


def test_documents_are_read_from_their_index(write_corpus: Callable[..., Path], tmp_path: Path) -> None:
    law, med = (tmp_path / name for name in ("law", "med"))
    for folder in (law, med):
        rows = {"doc_id": ["d1", "a:b"], "text": [f"{folder.name} has d1", f"{folder.name} has a:b"]}
        build_local_index(folder, write_corpus(rows | {"source": [f"{folder.name}.pdf"] * 2}), index_fields("english"))
    both = all_documents({"law": LocalDocuments(law), "med": LocalDocuments(med)})
    assert isinstance(both, UnionDocuments)
    assert both.texts(["med:d1", "law:d1", "law:a:b"]) == ["med has d1", "law has d1", "law has a:b"]
    assert both.places(["med:d1", "law:d1"]) == ["med.pdf", "law.pdf"]
    assert both.known(["law:d1", "d1", "med:d2", "old:d1"]) == [True, False, False, False]
    assert sorted(both.some(2)) == ["law has a:b", "law has d1", "med has a:b", "med has d1"]
    assert both.entry["corpus"] == {name: read_index(tmp_path / name)["corpus"] for name in ("law", "med")}
    with pytest.raises(RetrieverError, match="no document 'd1': ids of this union begin with law: or med:"):
        both.texts(["law:d1", "d1"])
    assert isinstance(all_documents({"": LocalDocuments(law)}), LocalDocuments)


def joined(original: str | None, *rewrites: str) -> JoinedText:
    return JoinedText(None if original is None else SearchText(original), tuple(SearchText(text) for text in rewrites))


@pytest.mark.parametrize(
    ("original", "rewrites", "times"),
    [
        ("sea lamp", ["sea lamp"], 1),
        ("sea lamp", ["word " * 19], 1),
        ("sea lamp", ["word " * 10, "word " * 10], 2),
        ("sea lamp", ["word " * 59], 5),
        ("C", ["word " * 50], 10),  # no word of two letters: counts as one
        ("東京タワー", ["東京タワーは夜に光る"], 1),
        (None, ["word"], 0),
    ],
)
def test_the_original_is_repeated_so_that_long_rewrites_do_not_drown_it(
    original: str | None, rewrites: list[str], times: int
) -> None:
    text = joined(original, *rewrites)
    assert repetitions(text) == times
    assert joined_text(text) == " ".join([original or ""] * times + rewrites)


VECTORS = {"a": [1.0, 0.0, 0.0], "b": [0.0, 1.0, 0.0], "not a": [-1.0, 0.0, 0.0], "c": [0.6, 0.8, 0.0]}


def encode(texts: object) -> np.ndarray:
    return np.array([VECTORS[text.text] for text in texts], dtype=np.float32)  # type: ignore[attr-defined]


def test_a_joined_vector_is_the_mean_scaled_to_length_1() -> None:
    found = search_vectors([SearchText("c"), joined("a", "b"), joined(None, "b", "c", "b")], encode)
    assert found.dtype == np.float32
    mean = np.array([0.2, 2.8 / 3, 0.0])
    np.testing.assert_allclose(found, [VECTORS["c"], [0.5**0.5, 0.5**0.5, 0], mean / np.linalg.norm(mean)], atol=1e-6)


def test_vectors_that_cancel_out_are_that_of_the_first() -> None:
    np.testing.assert_array_equal(search_vectors([joined("a", "not a")], encode), [VECTORS["a"]])


def clauses(query: dict[str, object]) -> Counter[str]:
    """Word -> boost, of a query of single words."""
    should = query["bool"]["should"]  # type: ignore[index]
    return Counter({one["match"]["text"]["query"]: one["match"]["text"]["boost"] for one in should})


@given(st.lists(st.text("abc 東é,", min_size=1, max_size=20), min_size=2, max_size=4))
def test_each_word_is_boosted_by_how_often_it_occurs(texts: list[str]) -> None:
    text = joined(*texts)
    assert clauses(bm25_query(text, "text", QuerySettings())) == Counter(joined_text(text).split())


def test_fields_have_their_boosts_and_are_searched_one_by_one() -> None:
    query = bm25_query(joined("sea", "sea lamp"), "text", QuerySettings(fields={"text": 1, "title": 2.5}))
    one, two = query["dis_max"]["queries"]
    assert clauses(one) == {"sea": 2, "lamp": 1}
    assert [each["match"]["title"]["boost"] for each in two["bool"]["should"]] == [5.0, 2.5]


def test_texts_with_too_many_words_keep_the_weight_of_the_original(monkeypatch: pytest.MonkeyPatch) -> None:
    rewrites = [" ".join(f"w{number}x{place}" for place in range(40)) for number in range(3)]
    text = joined("sea lamp", *rewrites)
    monkeypatch.setattr("retrievers.elastic.query.MAX_TERMS", 31)
    assert "should" in bm25_query(text, "text", QuerySettings())["bool"]
    monkeypatch.setattr("retrievers.elastic.query.MAX_TERMS", 30)
    original, others = bm25_query(text, "text", QuerySettings())["bool"]["should"]
    assert original["bool"] == {"must": bm25_query("sea lamp", "text", QuerySettings()), "boost": 12}
    assert others["more_like_this"]["max_query_terms"] == 30


@pytest.mark.parametrize("long", [" ".join(f"w{n}" for n in range(1100)), "東" * 1100, "a-" * 1100 + "b"])
def test_no_query_has_more_clauses_than_a_server_allows(long: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("retrievers.elastic.query.MAX_TERMS", 1024)
    query = bm25_query(joined("sea", long, "lamp"), "text", QuerySettings())
    assert len(split_words(long)) > MOST_CLAUSES or "-" in long
    assert [list(one) for one in query["bool"]["should"]] == [["bool"], list(bm25_query(f"{long} lamp", "text",
        QuerySettings()))]  # fmt: skip
