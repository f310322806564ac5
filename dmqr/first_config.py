"""The first config of a log and a corpus: their columns are guessed by names and values, and each guess is explained."""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from string import Template
from typing import TYPE_CHECKING, NamedTuple

from cluster.errors import ConfigError, LogError, RetrieverError
from dmqr.face import caller
from dmqr.results import Folder, Result

if TYPE_CHECKING:
    from jobs.log.table_file import ParquetTable, TextTable

_ROWS = 1000  # that are looked at
_LONGEST_QUERY = 300  # characters
_WORD = re.compile(r"[^\W\d_]{2}")
# Names of columns, the likeliest first, in lower case and without what is no letter.
_QUERY = ("query", "querytext", "searchquery", "searchterm", "userquery", "q", "question", "keywords", "keyword", "search",
          "term", "text")  # fmt: skip
_LOG_ID = ("logid", "queryid", "qid", "id", "requestid")
_DOC_ID = ("docid", "id", "documentid", "passageid", "pid", "docno")
_TEXT = ("text", "body", "content", "contents", "passage", "document", "abstract", "description")
_TITLE = ("title", "headline", "heading", "name", "subject")


class TableSample(NamedTuple):
    """The first rows of a table."""

    names: list[str]  # of all columns
    rows: int
    texts: dict[str, list[str]]  # column of text -> its values that are not empty, where it has some
    ids: dict[str, list[str]]  # column of text or whole numbers that has another value in each row -> its values


class Guess(NamedTuple):
    """A column, None if none comes into question, and why it was chosen."""

    column: str | None
    why: str

    def __str__(self) -> str:
        """Returns it as YAML has it, with the reason as a comment."""
        return f"{_scalar(self.column)}  # {self.why}"


def init(log: Folder, /, *documents: Folder, out: str = "dmqr.yaml") -> Result:
    """Reads a log and a corpus, and writes a config for them.

    It guesses which columns hold queries, ids, titles and texts, and says in comments what it guessed by what.

    Args:
        log: the queries: Parquet, JSON lines or CSV, a folder of one of these, or a data set
        documents: what is searched: tables of these forms, documents (text, Markdown, HTML, PDF), or folders of either
        out: where the config goes (default: dmqr.yaml); overwrites nothing

    Example:
        dmqr init configs/sample/log.parquet configs/sample/corpus.parquet
    """
    from cluster.storage import written
    from jobs.tune.config_file import check_out

    check_out(out)
    if not documents:
        raise ConfigError("argument", "documents: is missing; give the table or the folder of what is searched")
    path, corpus, program = os.fspath(log), [os.fspath(one) for one in documents], caller().program
    sample = _log_sample(path)
    log_id = _guess(sample.ids, _LOG_ID)
    query = _guess(_without(sample.texts, log_id), _QUERY, _distinct_queries)
    if query.column is None:
        raise LogError("log-column", f"log {path}: {_unknown('queries', sample)}")
    guesses = {"query_column": query, "id_column": log_id}
    documents_read, columns = _corpus_columns(corpus)
    values = {
        "out": shlex.quote(out), "rows": f"{sample.rows:,}", "log": _scalar(path), "query": query, "id": log_id,
        "name": re.sub(r"[^A-Za-z0-9_-]+", "-", Path(path).name.partition(".")[0]).strip("-_") or "mine",
        "corpus": _scalar(corpus[0]) if len(corpus) == 1 else f"[{', '.join(map(_scalar, corpus))}]",
        "columns": "\n".join([f"  # {documents_read}", *(f"  {key}: {guess}" for key, guess in columns.items())]),
    }  # fmt: skip
    text = Template(Path(__file__).with_suffix(".yaml").read_text(encoding="utf-8")).substitute(values)
    with written(out) as file:
        file.write_text(text, encoding="utf-8")
    tried = next((one for one in sample.texts[query.column] if one[0].isalnum() and _is_query(one)), "a query")
    command = shlex.join([*shlex.split(program), "try", out, " ".join(tried.split())])
    guesses |= {f"corpus.{key}": guess for key, guess in columns.items()}
    return Result(
        {"config": out, "guesses": {key: guess._asdict() for key, guess in guesses.items()}, "next": command},
        "\n".join([*(f"{key}: {guess}" for key, guess in guesses.items()), documents_read]),
        f"{out} is written; look through it, then:",
        f"  {command}",
    )


def _log_sample(path: str) -> TableSample:
    """Returns the first rows of the first file of a log that has some."""
    from jobs.log.check import opened
    from jobs.log.files import log_files
    from jobs.log.settings import LogSettings

    for file in log_files(LogSettings(path=path, query_column="query")):
        with opened(file) as table:
            if table is not None and (sample := _sample(table)).rows:
                return sample
    raise LogError("log-empty", f"the log is empty: no rows in {path}; give another")


def _corpus_columns(paths: Sequence[str]) -> tuple[str, dict[str, Guess]]:
    """Returns a note on what was read of a corpus, and the columns of its first table; none where it has documents alone."""
    from cluster.storage import files_at
    from jobs.index.sources import documents_of, reading, table_files
    from jobs.log.sets.names import set_name
    from jobs.log.table_file import open_table

    count = 0
    for path in (path for path in paths if set_name(path) is None):
        files = files_at(path)
        if documents := documents_of(path, files):
            count += len(documents)
            continue
        file = table_files(path, files)[0].path
        with reading(file):
            table = open_table(file)
            sample = TableSample([], 0, {}, {}) if table is None else _sample(table)
        doc_id = _guess(sample.ids, _DOC_ID, lambda values: not any(map(str.isspace, "".join(values))))
        texts = _without(sample.texts, doc_id)
        text = _guess(texts, _TEXT, lambda values: sum(map(len, filter(_WORD.search, values))))
        for what, guess in (("ids", doc_id), ("texts", text)):
            if guess.column is None:
                raise RetrieverError("corpus", f"corpus {file}: {_unknown(what, sample)}")
        title = _guess(_without(texts, text), _TITLE)
        guesses = {"id_column": doc_id, "title_column": title, "text_column": text}
        return f"rows looked at: {sample.rows:,} of {_scalar(file)}", guesses
    read = f"documents: {count:,}; their ids are PATH#NUMBER" if count else "a data set, whose columns are known"
    return f"{read}; split: {{size: 1200, overlap: 200}} makes passages of long ones", {}


def _sample(table: ParquetTable | TextTable) -> TableSample:
    from jobs.log.check import TEXT
    from jobs.log.rows import values

    kinds = {name: str(table.types.get(name, "string")) for name in table.names if table.names.count(name) == 1}
    names = [name for name, kind in kinds.items() if re.fullmatch(rf"{TEXT}|u?int\d+", kind)]
    batch = next(iter(table.batches(names or table.names, _ROWS, any_bytes=True)), None)
    if batch is None:
        return TableSample(table.names, 0, {}, {})
    columns = {name: [value for value in values(batch.column(name)).to_pylist() if value] for name in names}
    texts = {name: column for name, column in columns.items() if column and re.fullmatch(TEXT, kinds[name])}
    ids = {name: column for name, column in columns.items() if len({*column}) == len(batch)}
    return TableSample(table.names, len(batch), texts, ids)


def _guess(
    columns: Mapping[str, list[str]], names: Sequence[str], score: Callable[[list[str]], float] = lambda values: 0
) -> Guess:
    """Returns the column with the likeliest of the names, else that of the highest score of its values; 0 is none."""
    plain = {re.sub(r"[\W_]", "", column.casefold()): column for column in reversed(list(columns))}
    ranked, why = [plain[name] for name in names if name in plain], "guessed by its name"
    if not ranked:
        scores = {column: score(values) for column, values in columns.items()}
        ranked, why = sorted(filter(scores.get, scores), key=scores.__getitem__, reverse=True), "guessed by its values"
    if not ranked:
        return Guess(None, "no column looks like it")
    others = ", ".join(map(_scalar, ranked[1:4]))
    return Guess(ranked[0], f"{why}; if it is wrong, perhaps: {others}" if others else why)


def _without(columns: Mapping[str, list[str]], guess: Guess) -> dict[str, list[str]]:
    return {name: values for name, values in columns.items() if name != guess.column}


def _unknown(what: str, sample: TableSample) -> str:
    columns = ", ".join(sample.names) or "no columns"
    return f'no column looks like {what}; it has {columns}; rename one, or write the config yourself (README, "Your own log")'


def _distinct_queries(values: list[str]) -> int:
    """Returns the number of distinct queries among them; 0 where they repeat as those of a category do."""
    queries = [*filter(_is_query, values)]
    return len({*queries}) if len({*queries}) * 10 > len(values) else 0


def _is_query(text: str) -> bool:
    """Returns True if a text has words, and is no number, date, code, address or paragraph."""
    return _WORD.search(text) is not None and len(text) <= _LONGEST_QUERY and re.fullmatch(r"\S*[\d/:@._=]\S*", text) is None


def _scalar(value: str | None) -> str:
    """Returns a text as YAML has it, in one line."""
    import yaml

    if value is None or (re.fullmatch(r"[\w./-]+", value) and yaml.safe_load(value) == value):
        return value or "null"
    return yaml.safe_dump(value, default_style='"', allow_unicode=True, width=1 << 30).strip()
