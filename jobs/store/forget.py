"""`store forget`: no row of a query stays, nor one with its words; none comes back by a job that works meanwhile.

Queries are marked first; then the files that hold them are written anew without them, at once: also files that others replace,
which otherwise stay for a while. Jobs put files and look for marks then, so that of two who meet here the later sees the other.

Words are looked for in prompts, answers, scored texts, what was sent to the web and what it answered.
"""

import re
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from cluster.errors import ConfigError
from cluster.storage import Storage, open_storage
from jobs.chain.store.files import read_range
from jobs.chain.store.layout import milliseconds
from jobs.chain.store.tombstones import forgotten_queries, mark_forgotten, remove_earlier_marks
from jobs.log.key import look_up_key
from jobs.runs.folder import find_runs, sample_logs
from jobs.store.compact import drop_forgotten
from jobs.store.contents import maintaining, stored_spaces
from rewriters.normalise import normalise

TEXTS = {"completions": ("prompt", "text"), "scores": ("text",), "web": ("text", "hits")}
"""Kind of rows -> its columns with texts of queries and answers; the others know texts by their hashes."""
MOST_OTHERS = 100  # other queries that may go with one, unless it is said that all may
_ESCAPED = re.compile(r"\\(u[0-9a-fA-F]{4}|[^u])", re.DOTALL)  # as in JSON, which many prompts and answers are
_PLAIN = re.compile("[a-z0-9]+")  # stands in JSON as it is
_LETTER = "[^\\W_\u0e00-\U0010ffff]"  # letter or digit; from U+0E00 on most scripts have no spaces between words


class QueryWords:
    """The words of a query, however they are written: in any case, width and spacing."""

    def __init__(self, query: str) -> None:
        self.normal = normalise(query)
        begin, end = (re.match(_LETTER, character) for character in (self.normal[:1], self.normal[-1:]))
        self._pattern = re.compile(f"(?<!{_LETTER})" * bool(begin) + re.escape(self.normal) + f"(?!{_LETTER})" * bool(end))
        self._longest = max(_PLAIN.findall(self.normal), key=len, default=None)

    def held_by(self, rows: pa.Table, columns: Sequence[str]) -> np.ndarray:
        """Returns for each row whether one of its columns has the words, shape (rows,)."""
        held = np.zeros(rows.num_rows, bool)
        for name in columns:
            if name in rows.column_names:
                for texts, of_row in _texts(rows.column(name).combine_chunks(), np.arange(rows.num_rows)):
                    places = np.flatnonzero(self._possible(texts).to_numpy(zero_copy_only=False))
                    has_query = [self.in_text(text) for text in texts.take(pa.array(places)).to_pylist()]
                    held[of_row[places[np.array(has_query, bool)]]] = True
        return held

    def in_text(self, text: str) -> bool:
        """Returns True if a text has the words; they do not begin or end inside a word of it."""
        texts = [text, _unescaped(text)] if "\\" in text else [text]
        return bool(self.normal) and any(self._pattern.search(normalise(one)) for one in texts)

    def _possible(self, texts: pa.Array) -> pa.Array:
        """Returns the texts that need a look; normal forms take long, and text in ASCII is ASCII in its normal form."""
        possible = pc.or_(pc.invert(pc.string_is_ascii(texts)), pc.match_substring(texts, "\\u"))
        if self._longest is not None or self.normal.isascii():
            possible = pc.or_(possible, pc.match_substring(texts, self._longest or "", ignore_case=True))
        return possible.fill_null(fill_value=False)


def _unescaped(text: str) -> str:
    """Returns a text with its escapes replaced; line breaks and tabs are spaces."""

    def character(escape: re.Match[str]) -> str:
        code = escape[1]
        return " " if code in "bfnrt" else chr(int(code[1:], 16)) if len(code) > 1 else code

    return _ESCAPED.sub(character, text).encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def _texts(values: pa.Array, of_row: np.ndarray) -> Iterator[tuple[pa.Array, np.ndarray]]:
    """Yields the arrays of texts within an array, with the row of each text."""
    if pa.types.is_string(values.type):
        yield values, of_row
    elif pa.types.is_list(values.type):
        yield from _texts(values.flatten(), of_row[pc.list_parent_indices(values).to_numpy(zero_copy_only=False)])
    elif pa.types.is_struct(values.type):
        for field in values.flatten():
            yield from _texts(field, of_row)


@dataclass
class Forgotten:
    """Rows that were forgotten, or would be."""

    query_id: str
    others: set[str] = field(default_factory=set)  # query_ids of others with rows that have its words
    rows: Counter[str] = field(default_factory=Counter)  # by kind
    files: int = 0  # that are written anew
    runs: list[str] | None = None
    """Folders of runs, and logs of stopped samples, which still hold one of these queries; None: not known."""

    @property
    def query_ids(self) -> set[str]:
        """Returns the query_ids that are forgotten."""
        return {self.query_id, *self.others}


def forget(
    storage: Storage,
    query: str,
    output: Storage | None,
    *,
    context: str | None = None,
    others: str = "some",
    dry_run: bool = False,
    now: Callable[[], float] = time.time,
) -> Forgotten:
    """Forgets a query, in any form and after earlier turns (`context`), or with `dry_run` tells what would go.

    `output` is where runs are that may hold it. Other queries whose rows have its words go with it if they are few; with
    `others` "all" all of them, with "none" none.

    Raises:
        ConfigError: The query has no word, or many other queries have its words.
        HeldError: Another process maintains the store.
    """
    query_words = QueryWords(query)
    if not query_words.normal:
        raise ConfigError("argument", "QUERY: has no words; give the query to forget, in quotes")
    gone, seen = Forgotten(look_up_key(query, context)), set[str]()
    with maintaining(storage, dry_run=dry_run) as check:

        def look() -> None:
            spaces = stored_spaces(storage) if others != "none" else ()
            for space, name in ((stored.space, name) for stored in spaces for name in stored.files):
                key, texts = f"{space.folder}/{name}", TEXTS.get(space.kind, ())
                if texts and key not in seen:
                    check()
                    seen.add(key)
                    with suppress(FileNotFoundError):  # merged with others since, and removed
                        rows = read_range(storage, key, columns=["query_id", *texts])
                        held = rows.column("query_id").filter(pa.array(query_words.held_by(rows, texts)))
                        gone.others.update(set(held.to_pylist()) - {gone.query_id})

        look()
        if not dry_run and others == "some" and len(gone.others) > MOST_OTHERS:
            what = f"rows of {len(gone.others):,} other queries have these words, too"
            raise ConfigError("argument", f"QUERY: {what}; give --own to keep them, or --all to forget them, too")
        marked: set[str] = set()
        while not dry_run and marked != gone.query_ids:
            mark_forgotten(storage, gone.query_ids - marked, milliseconds(now()))
            marked = gone.query_ids
            look()  # into files that jobs have put meanwhile
        known = dict.fromkeys(gone.query_ids, milliseconds(now())) if dry_run else forgotten_queries(storage)
        marks = {name: at for name, at in known.items() if name in gone.query_ids}
        for stored in stored_spaces(storage):
            files, count = drop_forgotten(storage, stored, marks, check, dry_run=dry_run)
            gone.files += files
            gone.rows[stored.space.kind] += count
        if not dry_run:
            remove_earlier_marks(storage)
    if output is not None:
        gone.runs = list(runs_with(output, gone.query_ids, query_words))
    return gone


def runs_with(output: Storage, query_ids: Collection[str], query_words: QueryWords) -> Iterable[str]:
    """Yields the folders of the runs below an output whose queries are among these, or have the words; also logs of samples."""
    wanted = pa.array(sorted(query_ids), pa.string())
    for folder, _ in find_runs(output):
        storage = open_storage(output.url(folder))
        keys = (entry.key for entry in storage.list("queries") if entry.key.endswith(".parquet"))  # with a plan or without
        if any(_has_queries(storage, key, wanted, query_words) for key in keys):
            yield storage.root
    for key in sample_logs(output):
        with output.open(key) as file:
            rows = pq.read_table(file)
        if query_words.held_by(rows, rows.column_names).any():
            yield output.url(key)


def _has_queries(storage: Storage, key: str, wanted: pa.Array, query_words: QueryWords) -> bool:
    with storage.open(key) as file:
        queries = pq.ParquetFile(file)
        names = [name for name in ("query_id", "normalised", "context") if name in queries.schema_arrow.names]
        for batch in queries.iter_batches(columns=names):
            rows = pa.Table.from_batches([batch])
            if pc.any(pc.is_in(rows.column("query_id"), wanted)).as_py() or query_words.held_by(rows, names[1:]).any():
                return True
    return False
