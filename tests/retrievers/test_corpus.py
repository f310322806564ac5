"""Forms of a corpus, and what is refused with which words."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cluster.errors import RetrieverError
from retrievers.corpora import corpus as corpus_module
from retrievers.corpora.corpus import DOCUMENTS, ReadCorpus, open_arrow, read_corpus
from retrievers.local.build import build_local_index
from retrievers.local.index import LocalDocuments, read_index
from retrievers.retriever import RankedList, SearchText, joined_lists, open_retriever
from retrievers.settings import CorpusSettings
from tests.support.retrievers.blocks import index_fields, typed

Write = Callable[..., Path]
doc_ids = st.text(st.characters(codec="utf-8"), max_size=4)


def written(folder: Path, paths: Any) -> ReadCorpus:
    folder.mkdir(parents=True)
    return read_corpus(paths, folder, lambda what, done, total: None)


@settings(max_examples=30, deadline=None)
@given(ids=st.lists(doc_ids, min_size=1, max_size=40, unique=True), batch=st.integers(1, 9), data=st.data())
def test_rows_come_in_code_point_order_and_every_document_is_found_again(
    tmp_path_factory: pytest.TempPathFactory, write_corpus: Write, ids: list[str], batch: int, data: st.DataObject
) -> None:
    folder = tmp_path_factory.mktemp("index") / "index"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(corpus_module, "_ROWS", batch)
        patch.setattr(corpus_module, "_GATHER_ROWS", 2 * batch)
        corpus = write_corpus({"doc_id": ids, "text": [f"<{doc_id}>" for doc_id in ids]})
        build_local_index(folder, corpus, index_fields("english"))
    documents = LocalDocuments(folder)
    assert documents.doc_ids.to_pylist() == sorted(ids)
    wanted = data.draw(st.lists(st.sampled_from(ids)))
    assert documents.texts(wanted) == [f"<{doc_id}>" for doc_id in wanted]


def test_more_ids_than_strings_hold(write_corpus: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two gigabytes of them are, for this test, ten bytes."""
    rows = {"doc_id": ["b", "ä", "a", "c"], "text": ["sea", "moon", "a wide sea", "Sea"]}
    build_local_index(tmp_path / "some", write_corpus(rows), index_fields("english"))
    monkeypatch.setattr(corpus_module, "_MAX_STRING_BYTES", 10)
    build_local_index(tmp_path / "many", write_corpus(rows), index_fields("english"))
    assert LocalDocuments(tmp_path / "many").doc_ids.type == pa.large_string()
    assert LocalDocuments(tmp_path / "many").texts(["ä", "a"]) == ["moon", "a wide sea"]
    some, many = (
        open_retriever("r", typed({"kind": "local", "index": str(tmp_path / name)})).search([SearchText("sea")], 3)
        for name in ("some", "many")
    )
    assert some.doc_ids.equals(many.doc_ids)
    assert len(joined_lists([RankedList(some.doc_ids.cast(pa.large_string()), some.scores)]).doc_ids) == 3  # of a plug-in


def test_the_same_rows_in_other_files_are_the_same_corpus(write_corpus: Write, tmp_path: Path) -> None:
    rows = pa.table({"doc_id": ["b", "a", "c"], "text": ["1", "2", "3"], "title": ["x", None, ""]})
    whole = written(tmp_path / "1", write_corpus(rows))
    parts = [write_corpus(rows.slice(2, 1).select(["text", "title", "doc_id"])), write_corpus(rows.slice(0, 2))]
    assert written(tmp_path / "2", parts) == replace(whole, folder=tmp_path / "2")
    moved = rows.set_column(1, "text", pa.array(["2", "1", "3"]))
    assert written(tmp_path / "3", write_corpus(moved)).content != whole.content


def test_types_and_further_columns(write_corpus: Write, tmp_path: Path) -> None:
    table = pa.table(
        {
            "page": pa.array([3, None], pa.int16()),
            "doc_id": pa.array([20, 7], pa.uint32()),
            "text": pa.array(["one", None], pa.large_string()),
            "source": pa.array(["web", "web"]).dictionary_encode(),
            "where": pa.array([{"chapter": 1}, None]),
        }
    )
    written(tmp_path / "out", write_corpus(table))
    rows = pa.Table.from_batches(open_arrow(tmp_path / "out" / DOCUMENTS)).to_pylist()
    assert rows == [
        {"doc_id": "20", "title": None, "text": "one", "page": 3, "source": "web", "where": {"chapter": 1}},
        {"doc_id": "7", "title": None, "text": None, "page": None, "source": "web", "where": None},
    ]


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"id": ["1"], "text": ["t"]}, "no column 'doc_id'; it has: id, text; name one of them in the config: corpus.id_"),
        ({"doc_id": ["1"], "body": ["t"]}, "no column 'text'; it has: doc_id, body; name one of them in the config: corpus."),
        ({"doc_id": [1.5], "text": ["t"]}, "column 'doc_id' must be string or integer, found double"),
        ({"doc_id": ["1"], "text": [b"t"]}, "column 'text' must be string, found binary"),
        ({"doc_id": ["1"], "text": ["t"], "title": [7]}, "column 'title' must be string, found int64"),
        ({"doc_id": ["1", None], "text": ["t", "u"]}, "a null doc_id in row 1"),
        ({"doc_id": ["1", "2", "1"], "text": ["t", "u", "v"]}, "doc_id '1' appears twice"),
        ({"doc_id": pa.array([], pa.string()), "text": pa.array([], pa.string())}, "no documents in it"),
        ({"doc_id": ["1"], "text": pa.array([b"caf\xe9"]).cast(pa.string(), safe=False)}, "Invalid UTF8"),
    ],
)
def test_refused(write_corpus: Write, tmp_path: Path, columns: dict[str, Any], message: str) -> None:
    check_refused(tmp_path, write_corpus(columns), message)


def check_refused(folder: Path, file: Path, message: str) -> None:
    with pytest.raises(RetrieverError) as refusal:
        build_local_index(folder / "index", file, index_fields("english"))
    assert message in str(refusal.value)
    assert str(file) in str(refusal.value)
    assert "\n" not in str(refusal.value)
    assert not (folder / "index").exists()


def test_the_config_may_name_the_columns(tmp_path: Path, write_corpus: Write) -> None:
    table = {"id": [20, 7], "heading": ["A", None], "body": ["one", "two"], "title": ["left", "out"], "page": [1, 2]}
    columns = CorpusSettings(id_column="id", title_column="heading", text_column="body")
    build_local_index(tmp_path / "mine", write_corpus(table), index_fields("english"), columns=columns)
    same = {"doc_id": ["20", "7"], "title": ["A", None], "text": ["one", "two"], "page": [1, 2]}
    build_local_index(tmp_path / "usual", write_corpus(same), index_fields("english"))
    assert read_index(tmp_path / "mine")["corpus"] == read_index(tmp_path / "usual")["corpus"]
    (data,) = (tmp_path / "mine").glob("data-*")
    assert pa.Table.from_batches(open_arrow(data / DOCUMENTS)).to_pylist() == [
        {"doc_id": "20", "title": "A", "text": "one", "page": 1},
        {"doc_id": "7", "title": None, "text": "two", "page": 2},
    ]


def test_titles_may_be_left_out(tmp_path: Path, write_corpus: Write) -> None:
    file = write_corpus({"doc_id": ["1"], "title": ["A"], "text": ["one"]})
    build_local_index(tmp_path / "index", file, index_fields("english"), columns=CorpusSettings(title_column=None))
    assert LocalDocuments(tmp_path / "index").texts(["1"]) == ["one"]


def test_a_column_of_two_types(write_corpus: Write, tmp_path: Path) -> None:
    files = [write_corpus({"doc_id": [name], "text": ["t"], "x": x}) for name, x in (("1", [1]), ("2", [[1]]))]
    with pytest.raises(RetrieverError, match=r"differ in a column's type: .*; convert them"):
        written(tmp_path / "out", files)


@pytest.mark.parametrize(
    "damaged",
    [
        lambda whole: b"doc_id,text\n1,not parquet\n",
        lambda whole: whole[: len(whole) // 2],
        lambda whole: whole[:2000] + bytes(3000) + whole[5000:],
    ],
    ids=["text", "cut", "middle"],
)
def test_files_that_are_no_parquet(write_corpus: Write, tmp_path: Path, damaged: Callable[[bytes], bytes]) -> None:
    file = write_corpus({"doc_id": [str(i) for i in range(5000)], "text": [f"words {i}" for i in range(5000)]})
    file.write_bytes(damaged(file.read_bytes()))
    check_refused(tmp_path, file, f"corpus {file}: cannot be read as Parquet")
