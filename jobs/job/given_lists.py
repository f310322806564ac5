"""Run files of TREC (`kind: trec`): read once, where the job is checked; their topics are the log's ids.

Workers are given the lists with the settings, so that no node needs the file.
"""

import hashlib
import io
import json
from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from cluster.cause import absent, one_line
from cluster.errors import ConfigError, RetrieverError
from cluster.storage import files_at, open_file
from jobs.config.config import Config
from jobs.log.check import LogColumns, check_log
from jobs.log.files import LogFile, log_files, versions
from jobs.log.rows import read_rows
from jobs.log.settings import LogSettings
from jobs.log.table_file import unpacked
from jobs.terminal.formats import and_more
from retrievers.trec.retriever import TREC_VERSION, GivenLists, plain
from retrievers.trec.run_file import RunFile, read_run
from retrievers.trec.settings import TrecSettings

_KEPT = 16  # files: the arms of an ablation mostly share one
_NAMED = 3  # topics


def with_given_lists(config: Config) -> Config:
    """Returns the config, whose retrievers of run files have the lists of the log's queries.

    Raises:
        RetrieverError: a run file cannot be read, or none of its topics is in the log.
        ConfigError, LogError: the log has no ids, or cannot be read.
    """
    of_files = {name: one for name, one in config.retrieve.retrievers.items() if isinstance(one, TrecSettings)}
    if not of_files:
        return config
    retrievers = dict(config.retrieve.retrievers)
    for name, settings in of_files.items():
        where = f"retrieve.retrievers.{name}: {settings.path}"
        if config.log.id_column is None:
            raise ConfigError(
                "config-value", f"{where}: its topics are the log's ids, and log.id_column is null; name the column"
            )
        version = next((f"{file.size} {file.changed}" for file in files_at(settings.path) if file.path == settings.path), None)
        if version is None:
            raise RetrieverError("run-file", f"{where}: {absent(settings.path)}; correct the path")
        read = json.dumps(versions(log_files(config.log)))
        retrievers[name] = settings.with_lists(_given(config.log.model_dump_json(), read, settings.path, version, where))
    return config.model_copy(update={"retrieve": config.retrieve.model_copy(update={"retrievers": retrievers})})


def given_list_notes(config: Config) -> list[str]:
    """Returns notes on the lists of a config's run files, after `with_given_lists`; a line each."""
    planned = config.rewrite.planned
    alone = [f"rewrites are not searched there ({', '.join(planned)}): it has lists of the log's queries"] if planned else []
    return [
        f"retrieve.retrievers.{name}: {settings.path}: {note}"
        for name, settings in config.retrieve.retrievers.items()
        if isinstance(settings, TrecSettings) and settings.lists is not None
        for note in (*settings.lists.notes, *alone)
    ]


@lru_cache(maxsize=_KEPT)
def _given(log: str, read: str, path: str, version: str, where: str) -> GivenLists:
    """Returns the lists of a file for the queries of a log, whose versions tell whether they were read before."""
    del read, version
    content = hashlib.sha256()

    def lines(text: Iterable[str]) -> Iterator[str]:
        for line in text:
            content.update(line.encode())
            yield line

    try:
        with open_file(path) as opened, io.TextIOWrapper(unpacked(opened, path), "utf-8-sig") as text:
            run = read_run(lines(text), where)
    except (UnicodeDecodeError, pa.ArrowException) as error:
        raise RetrieverError("run-file", f"{where}: cannot be read: {one_line(error)}; write it as UTF-8") from error
    settings = LogSettings.model_validate_json(log)
    topics, without = _queries(settings, log_files(settings), run, where)
    if not topics:
        ids = and_more(run.topics, _NAMED)
        problem = f"none of its topics ({ids}) is an id of the log (log.id_column: {settings.id_column}); name their column"
        raise RetrieverError("run-file", f"{where}: {problem}")
    queries: dict[str, int] = {}
    again = []
    for number, topic in enumerate(run.topics):
        query = topics.get(topic)
        if query is not None and queries.setdefault(query, number) != number:
            again.append(topic)
    pairs = json.dumps(sorted(topics.items()), ensure_ascii=False)
    identity = {
        "kind": "trec",
        "version": TREC_VERSION,
        "run": f"sha256:{content.hexdigest()[:32]}",
        "topics": f"sha256:{hashlib.sha256(pairs.encode('utf-8', 'surrogatepass')).hexdigest()[:32]}",
    }
    return GivenLists.from_run(queries, run, identity, tuple(_notes(run, topics, again, without)))


def _queries(log: LogSettings, files: list[LogFile], run: RunFile, where: str) -> tuple[dict[str, str], int]:
    """Returns topic -> its query in the log, in plain form, of the topics that are in the log; and rows without a list.

    Lists are known by the query alone: topics with one query after different turns are refused.
    """
    columns = LogColumns(log.query_column, log.id_column, context_column=log.context_column)
    wanted = pa.array(run.topics, pa.string())
    queries: dict[str, str] = {}
    after: dict[str, tuple[str, str]] = {}  # query -> its earlier turns, and a topic
    without = 0
    for rows in read_rows(check_log(files, columns), columns):
        mine = rows.filter(pc.is_in(rows.column("log_id"), value_set=wanted))
        without += len(rows) - len(mine)
        turns = mine.column("context") if log.context_column is not None else pa.nulls(len(mine), pa.binary())
        texts = (mine.column("log_id"), mine.column("text"), turns)
        for topic, raw, earlier in zip(*(column.to_pylist() for column in texts), strict=True):
            query, context = (plain((text or b"").decode("utf-8", "replace")) for text in (raw, earlier))
            if query and queries.setdefault(topic, query) == query:
                other, first = after.setdefault(query, (context, topic))
                if other != context:
                    what = f"topics {first} and {topic} have the query {query!r} after different turns; lists are known by it"
                    raise RetrieverError("run-file", f"{where}: {what}, so leave one of them out of the file")
    return {topic: queries[topic] for topic in run.topics if topic in queries}, without


def _notes(run: RunFile, topics: Mapping[str, Any], again: list[str], without: int) -> Iterator[str]:
    counts = run.counts
    if without:
        yield f"{without:,} rows of the log have no list in it"
    if absent := [topic for topic in run.topics if topic not in topics]:
        yield f"{len(absent):,} of its {len(run.topics):,} topics are not in the log ({and_more(absent, _NAMED)})"
    if again:
        others = "have the query of an earlier one, whose list counts"
        yield f"{len(again):,} topics {others} ({and_more(again, _NAMED)})"
    if counts.duplicates:
        note = "lines name a document again; the one with the best score counts (trec_eval refuses such a run)"
        yield f"{counts.duplicates:,} {note}"
    if counts.ties:
        yield f"{counts.ties:,} documents have the score of the one before; the greater id stands first, as in trec_eval"
    if counts.disordered:
        yield f"in {counts.disordered:,} topics ranks and scores disagree; scores count, as in trec_eval"
