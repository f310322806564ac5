"""Folders as BEIR has them: `corpus.jsonl`, `queries.jsonl` with the queries of all splits, judgements in `qrels/SPLIT.tsv`."""

import json

import pyarrow as pa

from cluster.errors import ConfigError, LogError, nearest
from cluster.storage import files_at, is_hidden, is_there
from jobs.log.sets.names import as_text, table_of
from jobs.log.table_file import TableFault, text_lines

CORPUS, QUERIES, QRELS = "corpus.jsonl", "queries.jsonl", "qrels"
HEADER = ("query-id", "corpus-id", "score")  # the first line of judgements
DEFAULT_SPLIT = "test"
_ENDING = ".tsv"


def split_of(rest: str, where: str) -> tuple[str, str]:
    """Returns the files of FOLDER/SPLIT, the queries of all splits and its own judgements.

    A folder alone is its split `test`, or the only one. `where` begins messages.
    """
    folder, split = _folder(rest, where)
    names = [file.name for file in files_at(f"{folder}/{QRELS}") if "/" not in file.name and not is_hidden(file.name)]
    splits = sorted(name.removesuffix(_ENDING) for name in names if name.endswith(_ENDING))
    chosen = split or (splits[0] if len(splits) == 1 else DEFAULT_SPLIT)
    if chosen not in splits:
        message = f"{where}: beir:{rest}: no judgements {QRELS}/{chosen}{_ENDING} in {folder}{nearest(chosen, splits)}"
        raise ConfigError("test-collection", f"{message}; name one as beir:{folder}/SPLIT")
    return f"{folder}/{QUERIES}", f"{folder}/{QRELS}/{chosen}{_ENDING}"


def corpus_of(rest: str, where: str) -> str:
    """Returns the file of the documents, as `split_of`."""
    return f"{_folder(rest, where)[0]}/{CORPUS}"


def _folder(rest: str, where: str) -> tuple[str, str]:
    """Returns the folder and the split that is named, "" if none is."""
    whole = rest.rstrip("/")
    above, _, last = whole.rpartition("/")
    for folder, split in ((whole, ""), (above or ".", last)):
        if any(is_there(f"{folder}/{name}") for name in (QUERIES, CORPUS)):
            return folder, split
    remedy = "name one as beir:FOLDER, or a split of it as beir:FOLDER/SPLIT"
    raise ConfigError("test-collection", f"{where}: beir:{rest}: is not a folder with {QUERIES} and {CORPUS}; {remedy}")


def judged_queries(queries: str, qrels: str) -> tuple[pa.Table, int]:
    """Returns the queries that a split judges, in the order of their file, and the number of the others there."""
    try:
        judged = {line.split("\t")[0].strip() for _, line in text_lines(qrels)} - {HEADER[0]}
    except TableFault as fault:  # of another file than that of the log's rows
        raise LogError("log-files", f"log file {qrels}{fault.at}: {fault.message}") from fault
    rows, left_out = [], 0
    for number, line in text_lines(queries):
        row = _query(line, f"log file {queries}, line {number}")
        if row["query_id"] in judged:
            rows.append(row)
        else:
            left_out += 1
    return table_of(rows), left_out


def _query(line: str, where: str) -> dict[str, str | None]:
    try:
        fields = json.loads(line)
        query_id, text, metadata = fields["_id"], fields["text"], fields.get("metadata") or {}
        if not isinstance(query_id, str | int) or not isinstance(text, str) or not isinstance(metadata, dict):
            raise TypeError
    except (ValueError, KeyError, TypeError, AttributeError):
        message = f"is not a query of BEIR, an object with _id and text; correct it: {line[:80]!r}"
        raise LogError("log-files", f"{where}: {message}") from None
    return {name: as_text(value) for name, value in metadata.items()} | {"query_id": str(query_id), "text": text}
