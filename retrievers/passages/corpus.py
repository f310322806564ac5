"""Writes the passages of a corpus as Parquet, with the columns that an index is built from."""

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from cluster.errors import RetrieverError
from retrievers.corpora.files import Progress, Source, corpus_schema, open_source, reading
from retrievers.passages.documents import read_document
from retrievers.retriever import CHUNK, PAGE, SOURCE
from retrievers.settings import CorpusSettings, SplitSettings

_ROWS = 1024  # passages written at a time, and documents of Parquet read at a time


class TextFile(NamedTuple):
    """A document's file, here or in object storage."""

    name: str  # for messages
    source: str  # its path in the corpus's folder, by which its passages are known and cited
    open: Callable[[], BinaryIO]


class Passages(NamedTuple):
    """Counts of the passages that were written."""

    documents: int
    passages: int
    without_text: list[str]  # documents, and pages of PDFs (`manual.pdf page 3`), in which no text was found


def write_passages(files: Sequence[TextFile], columns: CorpusSettings, path: Path, progress: Progress) -> Passages:
    """Writes the passages of documents to a Parquet file; `progress` hears "split", documents done, documents in all."""
    without_text: list[str] = []
    title = columns.title_column
    texts = [name for name in (columns.id_column, title, columns.text_column, SOURCE) if name is not None]
    schema = pa.schema([*((name, pa.string()) for name in texts), (PAGE, pa.int32()), (CHUNK, pa.int32())])

    def rows() -> Iterator[dict[str, Any]]:
        for number, file in enumerate(files):
            progress("split", number, len(files))
            with file.open() as opened:
                document = read_document(file.name, opened.read())
            chunk = 0
            for page in document.pages:
                if not page.text.strip():
                    without_text.append(file.source if page.number is None else f"{file.source} page {page.number}")
                text = page.text if title is None else _without_title(page.text, document.title)
                for begin, end in _spans(text, columns.split):
                    chunk += 1
                    row: dict[str, Any] = {columns.id_column: f"{file.source}#{chunk}", columns.text_column: text[begin:end]}
                    row |= {SOURCE: file.source, PAGE: page.number, CHUNK: chunk}
                    yield row if title is None else row | {title: document.title}

    passages = _write(rows(), schema, path)
    if not passages:
        problem = f"no text in its {len(files):,} documents; give another, or one with text"
        raise RetrieverError("corpus", f"corpus {files[0].name}: {problem}")
    return Passages(len(files), passages, without_text)


def split_documents(files: Sequence[Path | Source], columns: CorpusSettings, path: Path, progress: Progress) -> Passages:
    """Writes the passages of documents that are rows of Parquet files, as `write_passages` does; their other columns stay."""
    schema = corpus_schema(files, columns)
    if CHUNK in schema.names:
        problem = f"has a column {CHUNK!r}, which corpus.split writes; rename it, or remove split"
        raise RetrieverError("corpus", f"corpus {files[0]}: {problem}")
    given = [pa.field(columns.read_as.get(one.name) or one.name, one.type) for one in schema]
    source = [] if SOURCE in schema.names else [(SOURCE, pa.string())]
    total = sum(pq.read_metadata(open_source(file)).num_rows for file in files)
    without_text: list[str] = []
    documents = 0

    def rows() -> Iterator[dict[str, Any]]:
        nonlocal documents
        for file in files:
            with reading(file), pq.ParquetFile(open_source(file)) as parquet:
                for batch in parquet.iter_batches(batch_size=_ROWS):
                    progress("split", documents, total)
                    for row in batch.to_pylist():
                        documents += 1
                        yield from passages_of(row)

    def passages_of(row: dict[str, Any]) -> Iterator[dict[str, Any]]:
        doc_id, text = row[columns.id_column], row[columns.text_column] or ""
        if doc_id is None:
            raise RetrieverError("corpus", f"corpus {files[0]}: a null doc_id; give every row one")
        if not text.strip():
            without_text.append(str(doc_id))
        for number, (begin, end) in enumerate(_spans(text, columns.split), start=1):
            passage = {columns.id_column: f"{doc_id}#{number}", columns.text_column: text[begin:end], CHUNK: number}
            yield {SOURCE: str(doc_id)} | row | passage

    passages = _write(rows(), pa.schema([*given, *source, (CHUNK, pa.int32())]), path)
    return Passages(documents, passages, without_text)


def _without_title(text: str, title: str | None) -> str:
    """Returns a text without a first line that is its title, which is indexed with it; a text that is no more stays."""
    first, _, rest = text.partition("\n")
    return rest if title and rest.strip() and "".join(first.split()) == "".join(title.split()) else text


def _spans(text: str, settings: SplitSettings | None) -> Iterable[tuple[int, int]]:
    """Returns the (begin, end) of the passages of a text; without settings it is one."""
    if settings is not None:
        return split(text, settings.size, settings.overlap)
    begin = len(text) - len(text.lstrip())
    return [(begin, len(text.rstrip()))] if text.strip() else []


def _write(rows: Iterator[dict[str, Any]], schema: pa.Schema, path: Path) -> int:
    written = 0
    with pq.ParquetWriter(path, schema) as writer:
        while part := [*islice(rows, _ROWS)]:
            writer.write_table(pa.Table.from_pylist(part, schema))
            written += len(part)
    return written


# Where a passage may end, the best kind first: at the end of a paragraph, of a sentence, of a word.
_BREAKS = (
    re.compile(r"\n[ \t]*\n"),
    re.compile(r"[.!?…][\"'”’»)\]]*(?=\s)|[。！？][」』”’]*|\n"),
    re.compile(r"(?=\s)"),
)
_WORD = re.compile(r"(?<=\s)\S")


def split(text: str, size: int, overlap: int) -> Iterator[tuple[int, int]]:
    """Yields the (begin, end) of each passage of a text, without white space around it.

    A passage has `size` characters at most. It ends with the last paragraph that ends in its second half, else with the last
    sentence, else with the last word, else where it is full. The next one begins at most `overlap` characters before that end,
    with a word where one begins there.
    """
    begin, covered = 0, 0
    while begin < len(text):
        full = min(begin + size, len(text))
        end = full if full == len(text) else _end(text, max(covered, begin + size // 2), full)
        left = begin + len(text[begin:end]) - len(text[begin:end].lstrip())
        right = left + len(text[left:end].rstrip())
        if right > max(left, covered):
            yield left, right
        if end == len(text):
            return
        covered = end
        back = max(left + 1, end - overlap)
        word = _WORD.search(text, back, end)
        begin = word.start() if word else min(back, end)


def _end(text: str, least: int, full: int) -> int:
    """Returns the end of a passage that is full at `full`, behind `least`."""
    for kind in _BREAKS:
        ends = [found.end() for found in kind.finditer(text, least, full + 1) if least < found.end() <= full]
        if ends:
            return ends[-1]
    return full
