"""Documents of text, Markdown, HTML and PDF, and the passages that they are split into."""

from contextlib import suppress
from itertools import pairwise
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cluster.errors import RetrieverError
from cluster.storage import files_at
from jobs.index.sources import documents_of
from retrievers.passages.corpus import Passages, TextFile, split, split_documents, write_passages
from retrievers.passages.documents import Page, PlainDocument, read_document
from retrievers.settings import CorpusSettings, SplitSettings
from tests.support.retrievers.small_pdf import small_pdf

TEXT = st.text(alphabet="ab .\n。!\u3000é", max_size=200)


def text_files(folder: Path) -> list[TextFile]:
    return documents_of(str(folder), files_at(str(folder)))


def spans(text: str, size: int, overlap: int) -> list[str]:
    return [text[begin:end] for begin, end in split(text, size, overlap)]


@given(TEXT, st.integers(1, 40), st.integers(0, 39))
def test_passages_hold_all_of_a_text_and_share_no_more_than_the_overlap(text: str, size: int, overlap: int) -> None:
    overlap = min(overlap, size - 1)
    found = list(split(text, size, overlap))
    covered = {place for begin, end in found for place in range(begin, end)}
    assert all(place in covered or text[place].isspace() for place in range(len(text)))
    assert all(0 < end - begin <= size and text[begin:end] == text[begin:end].strip() for begin, end in found)
    for (begin, end), (later, last) in pairwise(found):
        assert begin < later
        assert end < last
        assert end - later <= overlap


def test_a_passage_ends_with_a_paragraph_else_a_sentence_else_a_word() -> None:
    assert spans("One two. Three four.\n\nFive six seven. Eight nine ten.", 32, 0)[0] == "One two. Three four."
    assert spans("One two three. Four five six. Seven eight nine", 34, 0) == [
        "One two three. Four five six.",
        "Seven eight nine",
    ]
    assert spans("onetwo threefour fivesix", 18, 0) == ["onetwo threefour", "fivesix"]
    assert spans("abcdefghij", 4, 0) == ["abcd", "efgh", "ij"]
    assert spans("昨日は晴れ。今日は雨が降った。明日は", 15, 0) == ["昨日は晴れ。今日は雨が降った。", "明日は"]


def test_the_next_passage_begins_with_a_word() -> None:
    assert spans("alpha beta gamma delta epsilon", 16, 7) == ["alpha beta gamma", "gamma delta", "delta epsilon"]


MARKDOWN = (
    b"---\ndate: 1\n---\n# The *Tides*\n\nHigh [water](http://x.example)\nis early.\n\n- one\n- two\n\n"
    b"| a | b |\n|---|---|\n| 1 | 2 |\n"
)
RULES = b"---\n\nThe first part.\n\n---\n\nThe second."
HEAD = b"<html><head><title>Bread &amp; salt</title><style>p {}</style></head>"
HIDING = b"<!DOCTYPE html><body><p>Light<!-- hidden order --></p><pre>a <!-- b -->c</pre><?php echo 1 ?></body>"


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize(
    ("name", "data", "title", "text"),
    [
        ("a/b.md", MARKDOWN, "The Tides", "The Tides\n\nHigh water is early.\n\none\ntwo\n\na b\n1 2"),
        ("a.md", RULES, None, "The first part.\n\nThe second."),
        ("a.md", b"---\ntitle: T\n---", None, ""),
        ("a.md", b"<!-- lint: off -->\n\nOne.", None, "One."),
        ("x.HTML", HEAD + b"<body><p>A\n<b>b</b>old<br>loaf</p><script>x()</script>", "Bread & salt", "A bold\nloaf"),
        ("x.html", HIDING, None, "Light\n\na c"),
        ("x.html", b'<?xml version="1.0"?>' + HIDING, None, "Light\n\na c"),
        ("x.htm", "<meta charset='iso-8859-1'><p>Käse</p>".encode("latin-1"), None, "Käse"),
    ],
)
def test_markdown_and_html_are_read_as_they_show(name: str, data: bytes, title: str | None, text: str) -> None:
    assert read_document(name, data) == PlainDocument(title, [Page(None, text)])


@pytest.mark.slow
def test_a_pdf_keeps_its_pages() -> None:
    found = read_document("m.pdf", small_pdf("The kettle boils wa-\nter twice.", "", "Third page."))
    assert [page.number for page in found.pages] == [1, 2, 3]
    assert found.pages[0].text.split() == ["The", "kettle", "boils", "water", "twice."]
    assert [page.text.strip() for page in found.pages[1:]] == ["", "Third page."]


@pytest.mark.parametrize(
    ("name", "data", "words"),
    [
        ("a.txt", b"caf\xe9", "a.txt: is not UTF-8 (byte 3)"),
        ("a.pdf", b"no pdf", "a.pdf: cannot be read as PDF"),
        ("a.pdf", small_pdf("x")[:200], "a.pdf: cannot be read as PDF"),
    ],
)
def test_a_document_that_cannot_be_read_is_named(name: str, data: bytes, words: str) -> None:
    with pytest.raises(RetrieverError, match=words.replace("(", "[(]").replace(")", "[)]")):
        read_document(name, data)


@pytest.mark.parametrize(("title", "texts"), [("title", ["Water rises."]), (None, ["High tide\n\nWater rises."])])
def test_a_heading_that_is_the_title_is_no_text_too(title: str | None, texts: list[str], tmp_path: Path) -> None:
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "a.md").write_text("# High *tide*\n\nWater rises.\n")
    (tmp_path / "docs" / ".hidden.txt").write_text("no")
    columns = CorpusSettings(title_column=title, text_column="body")
    write_passages(text_files(tmp_path / "docs"), columns, tmp_path / "p.parquet", lambda *_: None)
    rows = pq.read_table(tmp_path / "p.parquet").to_pylist()
    assert [row["body"] for row in rows] == texts
    assert [row.get("title") for row in rows] == ["High tide" if title else None]
    (tmp_path / "docs" / "a.md").write_text("# Alone\n")
    write_passages(text_files(tmp_path / "docs"), columns, tmp_path / "p.parquet", lambda *_: None)
    assert [row["body"] for row in pq.read_table(tmp_path / "p.parquet").to_pylist()] == ["Alone"]


@given(st.binary(max_size=300))
def test_no_bytes_of_a_pdf_end_in_a_stack_trace(tail: bytes) -> None:
    whole = small_pdf("The kettle boils.")
    with suppress(RetrieverError):
        assert read_document("a.pdf", whole[: -len(tail) or None] + tail).title is None


def test_a_folder_with_parquet_files_is_a_corpus_of_rows(tmp_path: Path) -> None:
    (tmp_path / "README.md").write_text("About the corpus.")
    pq.write_table(pa.table({"doc_id": ["d"], "text": ["t"]}), tmp_path / "c.parquet")
    assert text_files(tmp_path) == []


def test_rows_are_split_and_keep_their_columns(tmp_path: Path) -> None:
    path = tmp_path / "c.parquet"
    pq.write_table(pa.table({"id": [7, 8], "text": ["One two three. Four five six.", None], "year": [1999, 2001]}), path)
    columns = CorpusSettings(id_column="id", split=SplitSettings(size=15, overlap=0))
    written = split_documents([path], columns, tmp_path / "p.parquet", lambda *_: None)
    assert written == Passages(2, 2, ["8"])
    assert pq.read_table(tmp_path / "p.parquet").select(["id", "text", "year", "source", "chunk"]).to_pylist() == [
        {"id": "7#1", "text": "One two three.", "year": 1999, "source": "7", "chunk": 1},
        {"id": "7#2", "text": "Four five six.", "year": 1999, "source": "7", "chunk": 2},
    ]
