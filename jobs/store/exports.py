"""`store export`: stored completions as a recording, which the engine `recorded` reads and `store import` takes.

The store knows queries by their hashes; their texts are read from the runs below an output.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from cluster.errors import ConfigError
from cluster.storage import Storage, open_storage, remote
from jobs.chain.arms.shared_work import Reading
from jobs.chain.search_texts import queries_of
from jobs.chain.store.files import StoreFiles
from jobs.runs.folder import find_runs, query_files
from jobs.store.answered import read_rows
from jobs.store.asked import portions, recorded_requests
from jobs.tables import OPTIONAL_QUERIES
from rewriters.normalise import normalise, query_id
from rewriters.query import Query


class Exported(NamedTuple):
    """What was written.

    Attributes:
        queries: With a completion.
        completions: Of them.
        without: Queries of the runs of which the store has no completion.
        in_context: Queries after earlier turns, or with filters, which a recording cannot tell from the same words alone.
    """

    queries: int
    completions: int
    without: int
    in_context: int


def check_export(path: str) -> None:
    """Checks where a recording is to be written.

    Raises:
        ConfigError: It is no file of this machine, its folder is not there, or a file is there.
    """
    if remote(path):
        raise ConfigError("argument", f"--out {path}: is no file of this machine; give the name of one")
    if not Path(path).absolute().parent.is_dir():
        raise ConfigError("argument", f"--out {path}: its folder is not there; make it, or give another name")
    if Path(path).exists():
        raise ConfigError("argument", f"--out {path}: is there, and is not overwritten; give another name or remove it")


def export_recorded(readings: Sequence[Reading], files: StoreFiles, output: Storage, name: str, path: str) -> Exported:
    """Writes the stored completions of the queries of runs.

    Args:
        readings: Of the config's run: by its requests completions are looked for.
        files: Of the store, with the spaces of the config.
        output: Where runs are.
        name: Of those whose queries are meant.
        path: Of the recording; it appears when it is whole.
    """
    written: set[str] = set()
    queries = completions = without = 0
    others: set[str] = set()
    unfinished = Path(f"{path}.part")
    with unfinished.open("w", encoding="utf-8") as file:
        for portion in portions(_queries(output, name)):
            plain = {normalise(one.text): one for one in portion if one.query_id == query_id(one.text)}
            others |= {one.query_id for one in portion if one.query_id != query_id(one.text)}
            new = [one for text, one in plain.items() if text not in written]
            written |= plain.keys()
            for query, found in _completions(readings, files, new):
                if not found:
                    without += 1
                    continue
                file.write(json.dumps({"query": query.text, "completions": found}, ensure_ascii=False) + "\n")
                queries, completions = queries + 1, completions + sum(map(_samples, found.values()))
    unfinished.replace(path)
    return Exported(queries, completions, without, len(others))


def _queries(output: Storage, name: str) -> Iterator[Query]:
    """Yields the queries of the runs of a name; those of several runs several times."""
    for folder, _ in find_runs(output, name):
        storage = open_storage(output.url(folder))
        for key in query_files(storage):
            with storage.open(key) as file:
                yield from queries_of(_with_all_columns(pq.read_table(file)))


def _with_all_columns(table: pa.Table) -> pa.Table:
    for field in OPTIONAL_QUERIES:
        if field.name not in table.column_names:
            table = table.append_column(field, pa.nulls(table.num_rows, field.type))
    return table


def _completions(
    readings: Sequence[Reading], files: StoreFiles, queries: Sequence[Query]
) -> Iterator[tuple[Query, dict[str, Any]]]:
    """Yields each query with its completions as a recording has them: several samples of a request are a list."""
    asked = recorded_requests(readings, queries)
    stored = read_rows(files, asked)
    of_query: dict[str, dict[str, list[Any]]] = {query.query_id: {} for query in queries}
    for one in sorted(asked, key=lambda one: one.request.sample):
        row, samples = stored.get(one.fact), of_query[one.query.query_id].setdefault(one.name, [])
        if row is not None and len(samples) == one.request.sample:  # a recording counts samples from 0 without gaps
            samples.append(_recorded(row))
    for query in queries:
        found = {name: samples for name, samples in of_query[query.query_id].items() if samples}
        yield query, {name: samples[0] if len(samples) == 1 else samples for name, samples in found.items()}


def _recorded(row: Mapping[str, Any]) -> dict[str, Any]:
    usage = {name: row[name] or 0 for name in ("prompt_tokens", "cached_tokens", "completion_tokens")}
    return {"text": row["text"], "finish_reason": row["finish_reason"], "model": row["model"], "usage": usage}


def _samples(found: Any) -> int:
    return len(found) if isinstance(found, list) else 1
