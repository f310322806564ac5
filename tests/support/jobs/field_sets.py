"""A small data set in the forms of the field: a folder of BEIR, a set of ir_datasets, topics, and the same rows as tables."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

DOCUMENTS = {
    "d01": ("Lighthouses", "A keeper trimmed the wick of the lighthouse lamp every four hours."),
    "d02": ("Lighthouses", "A lens threw the light of a small lamp far across the sea."),
    "d03": ("Bread", "Sourdough rises slowly because wild yeast is in no hurry."),
    "d04": ("Bread", "Rye bread keeps for a week in a linen bag."),
    "d05": ("", "The yeast of beer and the yeast of bread are cousins."),
    "d06": ("Tides", "The moon pulls the sea twice a day and the harbours fill."),
    "d07": ("Tides", "Spring tides come with the new moon and with the full moon."),
}
QUERIES = {
    "q1": "lamp of a lighthouse",
    "q2": "why does bread rise",
    "q3": "moon and tides",
    "q4": "spring tide",
    "q5": "light of a lamp",
}
QRELS = {
    "test": {"q1": {"d01": 2, "d02": 1}, "q2": {"d03": 1}, "q4": {"d07": 1, "d06": 0}},
    "train": {"q3": {"d06": 1}, "q5": {"d02": 1}},
}
HEADER = "query-id\tcorpus-id\tscore\n"


def write_beir(folder: Path, splits: tuple[str, ...] = ("test", "train")) -> Path:
    """The set as BEIR publishes one."""
    (folder / "qrels").mkdir(parents=True)
    rows = [{"_id": key, "title": title, "text": text, "metadata": {}} for key, (title, text) in DOCUMENTS.items()]
    lines(folder / "corpus.jsonl", rows)
    lines(
        folder / "queries.jsonl",
        [{"_id": k, "text": text, "metadata": {"words": len(text.split())}} for k, text in QUERIES.items()],
    )
    for split in splits:
        (folder / "qrels" / f"{split}.tsv").write_text(HEADER + qrels_lines(split))
    return folder


def lines(path: Path, rows: list[dict[str, Any]]) -> None:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


def qrels_lines(split: str) -> str:
    return "".join(f"{key}\t{doc_id}\t{grade}\n" for key, of in QRELS[split].items() for doc_id, grade in of.items())


def write_tables(folder: Path, split: str = "test") -> dict[str, Any]:
    """The same rows as Parquet and plain judgements; returns the parts of a config that name them."""
    folder.mkdir()
    ids = [key for key in QUERIES if key in QRELS[split]]
    pq.write_table(pa.table({"query_id": ids, "text": [QUERIES[key] for key in ids]}), folder / "log.parquet")
    titles, texts = zip(*DOCUMENTS.values(), strict=True)
    metadata = ["{}"] * len(titles)
    columns = {"doc_id": [*DOCUMENTS], "title": titles, "text": texts, "metadata": metadata}
    pq.write_table(pa.table(columns), folder / "corpus.parquet")
    (folder / "qrels.tsv").write_text(qrels_lines(split))
    return {
        "log": {"path": str(folder / "log.parquet"), "query_column": "text", "id_column": "query_id"},
        "corpus": {"path": str(folder / "corpus.parquet")},
        "evaluate": {"qrels": str(folder / "qrels.tsv")},
    }


class Document(NamedTuple):
    """As BEIR's in ir_datasets, with a field of bytes, as TREC's have."""

    doc_id: str
    title: str
    text: str
    metadata: dict[str, str]
    raw: bytes


def registered(dataset_id: str, broken: str = "") -> None:
    """Registers the set in ir_datasets: documents at `dataset_id`, the splits below it; a `broken` part cannot be fetched."""
    import ir_datasets
    from ir_datasets.datasets.base import Dataset
    from ir_datasets.formats import BaseDocs, BaseQrels, BaseQueries, GenericQrel, GenericQuery

    def fetch(part: str) -> None:
        if part == broken:
            raise ConnectionError("no route to host,\nnot today")

    class Docs(BaseDocs):
        def docs_iter(self) -> Iterator[Document]:
            fetch("docs")
            for key, (title, text) in DOCUMENTS.items():
                yield Document(key, title, text, {}, b"raw")

        def docs_cls(self) -> type:
            return Document

        def docs_count(self) -> int:
            return len(DOCUMENTS)

    class Queries(BaseQueries):
        def __init__(self, split: str) -> None:
            self.split = split

        def queries_iter(self) -> Iterator[GenericQuery]:
            fetch("queries")
            yield from (GenericQuery(key, QUERIES[key]) for key in QUERIES if key in QRELS[self.split])

    class Qrels(BaseQrels):
        def __init__(self, split: str) -> None:
            self.split = split

        def qrels_iter(self) -> Iterator[GenericQrel]:
            fetch("qrels")
            for key, of in QRELS[self.split].items():
                yield from (GenericQrel(key, doc_id, grade) for doc_id, grade in of.items())

    docs = Docs()
    ir_datasets.registry.register(dataset_id, Dataset(docs))
    for split in QRELS:
        ir_datasets.registry.register(f"{dataset_id}/{split}", Dataset(docs, Queries(split), Qrels(split)))
