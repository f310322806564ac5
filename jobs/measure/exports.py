"""Files for other tools: measures key by key (Parquet or CSV), TREC run files, and answers as JSON lines."""

import hashlib
import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq

from cluster.errors import ConfigError, RetrieverError, nearest
from cluster.storage import remote, written
from jobs.chain.arms.arms import FULL, RUN
from jobs.chain.steps.contexts import without_citations
from jobs.log.judgements import Key
from jobs.measure.answers import GoldAnswers, answering, best_overlap, golds_by_query
from jobs.measure.frame import JUDGED_LISTS, Frame
from jobs.measure.judged_rows import ARM_LISTS, AskedQuery
from jobs.runs.documents import RunDocuments, pages
from jobs.runs.folder import RunFolder
from jobs.runs.tables import create_view, database, searched_rewrites
from retrievers.web.hits import is_page

ENDINGS = (".parquet", ".csv")
LONG = pa.schema([(name, pa.string()) for name in ("key", "query_id", "arm", "measure")] + [("value", pa.float64())])
_FETCHED = 1 << 16  # rows
_LONGEST_TAG = 100
_SPACE = r"^$|[\s\p{Z}\x0b\x1c-\x1f\x85]"  # whatever parts columns for Python's str.split, too
_FOUND = """
CREATE TEMP TABLE found AS
SELECT arm, place, topic, doc_id, rank FROM lists JOIN wanted USING (query_id)
"""
_SPACED = "SELECT name FROM (SELECT unnest([topic, doc_id]) AS name FROM found) WHERE regexp_matches(name, $space) LIMIT 1"
_LINES = """
SELECT concat_ws(' ', topic, 'Q0', doc_id, rank, 1 / rank::DOUBLE, $tag)
FROM (
    SELECT topic, doc_id, rank FROM found WHERE arm = $arm
    UNION ALL
    SELECT topic, doc_id, rank FROM found JOIN chosen ON chosen.member = found.arm AND chosen.place = found.place
    WHERE chosen.arm = $arm
)
ORDER BY topic, rank
"""
_BATCH = 2048  # answers whose documents are in memory
_ANSWERS = """
SELECT answers.*, query FROM answers JOIN queries USING (query_id) WHERE arm = $arm
ORDER BY query_id
"""
_REFINED = """
SELECT query_id, doc_id, strips FROM grades
WHERE arm = $arm AND strips IS NOT NULL AND query_id IN (SELECT unnest($ids))
"""
_JUDGED = """
SELECT query_id, kind, doc_id, grade, sample, model FROM judgements
WHERE (arm = $arm OR arm IS NULL) AND query_id IN (SELECT unnest($ids)) ORDER BY ALL
"""
Row = dict[str, Any]


def check_table(path: str, option: str = "") -> None:
    """Checks the path of a table that is to be written, which `option` of the command line named; raises ConfigError."""
    what = f"{option} {path}".strip()
    if not path.lower().endswith(ENDINGS):
        raise ConfigError("argument", f"{what}: is neither Parquet nor CSV; give a name that ends in {' or '.join(ENDINGS)}")
    if not remote(path) and not Path(path).absolute().parent.is_dir():
        raise ConfigError("argument", f"{what}: its folder does not exist; create it, or give another name")


def write_tables(path: str, schema: pa.Schema, tables: Iterable[pa.Table]) -> None:
    """Writes tables, one after the other, to a local file or an object on S3, Parquet or CSV by its ending."""
    check_table(path)
    is_parquet = path.lower().endswith(".parquet")
    with written(path) as file:
        opened: Any = pq.ParquetWriter(file, schema, compression="zstd") if is_parquet else pa.csv.CSVWriter(file, schema)
        with opened as writer:
            for table in tables:
                writer.write_table(table)


def wide_table(run: RunFolder, frames: Sequence[Frame]) -> pa.Table:
    """Returns a row per counted key of a run: the key, its query, and each measure of the results and of the original alone.

    Of frames of lists and of answers, a row has the measures of all; null where its key does not count. Frames of log rows or
    texts of queries stand beside frames of query_ids, such as a judge's: a row has the values of its query there, and a query
    without such a row has one without a key.
    A run whose queries have earlier turns has a column `context`.

    Raises:
        ConfigError: judgements and gold answers name different things.
    """
    kinds: list[Key] = [key for key in dict.fromkeys(frame.key for frame in frames) if key != "query_id"] or ["query_id"]
    if len(kinds) > 1:
        what = f"per_query: judgements name {kinds[0]}s, gold answers {kinds[1]}s, which are no rows of one table"
        raise ConfigError("argument", f"{what}; give both by one key")
    rows: dict[tuple[str | None, str | None], AskedQuery] = {}  # by key and query_id
    for frame in sorted(frames, key=lambda frame: frame.key != kinds[0]):
        own, keyed = frame.key == kinds[0], {query_id for key, query_id in rows if key is not None}
        for key, query_id, asked in zip(frame.keys, frame.query_ids, frame.asked, strict=True):
            if own or query_id not in keyed:
                rows.setdefault((key if own else None, query_id), asked)
    query_ids, queries = [query_id for _, query_id in rows], [asked.query for asked in rows.values()]
    columns: dict[str, pa.Array] = {}
    if kinds[0] != "query_id":
        texts = queries if kinds[0] == "query" else [None] * len(rows)
        columns[kinds[0]] = pa.array([key or text for (key, _), text in zip(rows, texts, strict=True)], pa.string())
    columns["query_id"] = pa.array(query_ids, pa.string())
    if kinds[0] != "query":
        columns["query"] = pa.array(queries, pa.string())
    if run.config.log.context_column is not None:
        columns["context"] = pa.array([asked.context for asked in rows.values()], pa.string())
    counts = [None if query_id is None else asked.log_count for (_, query_id), asked in rows.items()]
    columns["log_count"] = pa.array(counts, pa.int64())
    for frame in frames:
        place_of: dict[str | None, int] = {key: place for place, key in enumerate(frame.keys)}
        by_key = frame.key == kinds[0]
        places = pa.array([place_of.get(key if by_key else query_id) for key, query_id in rows], pa.int64())
        for number, name in enumerate(frame.measures):
            for arm, suffix in zip(frame.values, ("", " original"), strict=False):
                columns[f"{name}{suffix}"] = pa.array(arm[number]).take(places)
    return pa.table(columns)


def long_tables(*frames: Frame) -> Iterator[pa.Table]:
    """Yields the rows of each arm, of hundreds those of one at a time: key, query_id, arm, measure, value.

    There is one per measure and counted key. Measures of results that an LLM judged beside people have `judged ` before their
    names.
    """
    for frame in frames:
        measure, key = (pa.array(places.reshape(-1)) for places in np.indices(frame.values.shape[1:]))
        before = "judged " * (frame.kind == JUDGED_LISTS)
        names = pa.array([before + name for name in frame.measures], pa.string()).take(measure)
        keys, query_ids = (pa.array(of, pa.string()).take(key) for of in (frame.keys, frame.query_ids))
        for arm, values in zip(frame.arms, frame.values, strict=True):
            yield pa.table((keys, query_ids, pa.repeat(arm, len(key)), names, pa.array(values.reshape(-1))), schema=LONG)


def write_trec(path: str, run: RunFolder, frame: Frame) -> dict[str, str]:
    """Writes results as TREC run files, here or on S3; returns arm -> path.

    Those of a run are the file of the path, with its id as the tag; those of an ablation are files `<arm>.run` of that folder,
    whole together. A topic is a counted judged key; of judgements by query text, the query_id. The score is 1 / rank, which
    falls strictly, so that no reader reorders ties. An arm that chooses among others by judgements has, for each key, the list
    of the arm that the comparison chose. What is not of A-Z a-z 0-9 . _ + = - in an arm's name is an underscore in its file's
    name, and a hash tells such names apart.

    Raises:
        ConfigError: a key or doc_id has white space, which parts the columns of such a file; or files cannot be read.
    """
    tags, paths = {RUN: run.record["run_id"]}, {RUN: path}
    if run.is_ablation:
        tags = run_tags(frame.arms)
        paths = {arm: f"{path.rstrip('/')}/{tag}.run" for arm, tag in tags.items()}
        if not remote(path):
            Path(path).mkdir(parents=True, exist_ok=True)
    places = [place for place, query_id in enumerate(frame.query_ids) if query_id is not None]
    query_ids = [frame.query_ids[place] for place in places]
    topics = query_ids if frame.key == "query" else [frame.keys[place] for place in places]
    wanted = {"place": places, "query_id": pa.array(query_ids, pa.string()), "topic": pa.array(topics, pa.string())}
    with ExitStack() as stack:
        files = {arm: stack.enter_context(written(paths[arm])) for arm in tags}
        connection = stack.enter_context(database(run))
        connection.register("wanted", pa.table(wanted))
        connection.register("chosen", _chosen(run, frame, places))
        create_view(connection, "lists", "results", [file for table in ARM_LISTS for file in run.tables.get(table, ())])
        connection.execute(_FOUND)
        spaced = connection.execute(_SPACED, {"space": _SPACE}).fetchone()
        if spaced is not None:
            what = f"--trec {path}: id {spaced[0][:80]!r} has white space, which separates columns in TREC files"
            raise ConfigError("argument", f"{what}; use --per-query")
        for arm, tag in tags.items():
            rows = connection.execute(_LINES, {"arm": arm, "tag": tag})
            with files[arm].open("w", encoding="utf-8", newline="\n") as file:
                while lines := rows.fetchmany(_FETCHED):
                    file.writelines(f"{line}\n" for (line,) in lines)
    return paths


def run_tags(arms: Iterable[str]) -> dict[str, str]:
    """Returns arm -> its run tag and name of its file, distinct even where a file system ignores case."""
    tags: dict[str, str] = {}
    taken: set[str] = set()
    for arm in arms:
        tag = re.sub(r"[^A-Za-z0-9._+=-]", "_", arm)[:_LONGEST_TAG].lstrip(".-")
        if tag != arm or tag.lower() in taken:
            tag = f"{tag or 'arm'}-{hashlib.sha256(arm.encode('utf-8', 'surrogatepass')).hexdigest()[:8]}"
        tags[arm] = tag
        taken.add(tag.lower())
    return tags


def _chosen(run: RunFolder, frame: Frame, places: Sequence[int]) -> pa.Table:
    """Returns the rows (arm, place, member): for each arm that chooses, the first member with the arm's values of that key."""
    number, rows = {arm: place for place, arm in enumerate(frame.arms)}, []
    for record in run.arms:
        arm, members = record["name"], [member for member in record.get("members") or () if member in number]
        if arm not in number or not members:
            continue
        values = frame.values[[number[member] for member in members]][:, :, places]
        same = (values == frame.values[number[arm]][:, places]).all(axis=1)
        rows += [
            {"arm": arm, "place": position, "member": members[member]}
            for position, member in zip(places, np.argmax(same, axis=0).tolist(), strict=True)
        ]
    return pa.Table.from_pylist(rows, pa.schema([("arm", pa.string()), ("place", pa.int64()), ("member", pa.string())]))


class WrittenAnswers(NamedTuple):
    """A file that was written."""

    path: str
    rows: int
    notes: tuple[str, ...]

    def __str__(self) -> str:
        return "; ".join([f"{self.path}: {self.rows:,} answers", *self.notes])


def write_answers(path: str, run: RunFolder, arm: str | None, gold: GoldAnswers | None) -> WrittenAnswers:
    """Writes a line per answered query: query, answer, contexts, citations, rewrites, gold answers, judgements."""
    chosen, seen = _arm(run, arm), Counter[str]()
    golds = {} if gold is None else golds_by_query(run, gold)
    try:
        documents = RunDocuments(run)
    except OSError as error:
        what = f"{run.storage.root}: the texts of documents cannot be read: {' '.join(str(error).split())}"
        raise RetrieverError("index-missing", f"{what}; restore the index in its old place") from error
    with written(path) as file, file.open("w", encoding="utf-8", newline="\n") as lines:
        for rows in _batches(run, chosen):
            for line in _lines(run, chosen, rows, documents, golds):
                seen.update(rows=1, ungolden=not line["gold_answers"], cut=bool(line.pop("cut_documents")))
                lines.write(json.dumps(line, ensure_ascii=False) + "\n")
    without = run.counts["queries"] - seen["rows"]
    notes = [f"{without:,} queries without an answer have no line"] if without else []
    notes += [f"{seen['ungolden']:,} without a gold answer"] if seen["ungolden"] else []
    notes += [f"contexts of {seen['cut']:,} are whole, of which the prompt had the beginning"] if seen["cut"] else []
    return WrittenAnswers(path, seen["rows"], tuple(notes))


def _arm(run: RunFolder, arm: str | None) -> str:
    if arm is not None and not run.is_ablation:
        raise ConfigError("argument", f"--arm {arm}: {run.storage.root} is a run, which has no arms; leave it out")
    choosing = {one["name"] for one in run.arms if one.get("members")}
    arms = [name for name in answering(run) if name not in choosing]  # which have no answers of their own
    if not arms:
        what = f"{run.storage.root}: no LLM answers, so there are no answers to write"
        raise ConfigError("argument", f"{what}; give a run whose config has `answer`")
    if arm is not None and arm not in arms:
        raise ConfigError("argument", f"--arm {arm}: no arm of this name answers{nearest(arm, arms)}")
    return (arm or (FULL if FULL in arms else arms[0])) if run.is_ablation else RUN


def _batches(run: RunFolder, arm: str) -> Iterator[list[Row]]:
    with database(run, tables=["answers", "queries"]) as connection:
        for batch in connection.sql(_ANSWERS, params={"arm": arm}).to_arrow_reader(_BATCH):
            yield batch.to_pylist()


def _lines(
    run: RunFolder, arm: str, rows: Sequence[Row], documents: RunDocuments, golds: dict[str, list[str]]
) -> Iterator[Row]:
    ids = [row["query_id"] for row in rows]
    judged: dict[str, list[Row]] = {}
    given = {"ids": ids, "arm": arm}
    with database(run, tables=["grades", "judgements"]) as connection:
        own = {(one.query_id, one.doc_id): one.text for one in pages(connection, run, "query_id", ids)}
        refined = connection.execute(_REFINED, given).fetchall()
        own |= {(query_id, doc_id): strips for query_id, doc_id, strips in refined}
        rewrites = searched_rewrites(connection, run, ids, arm)
        for judgement in connection.sql(_JUDGED, params=given).to_arrow_table().to_pylist():
            judged.setdefault(judgement.pop("query_id"), []).append(judgement)
    shown = [[(row["query_id"], one["doc_id"]) for one in row["documents"]] for row in rows]
    wanted = sorted({pair[1] for pairs in shown for pair in pairs if pair not in own})
    texts = documents(wanted) if wanted else {}
    indexed = sorted({doc_id for pairs in shown for _, doc_id in pairs if not is_page(doc_id)})
    places = documents.places(indexed) if indexed else {}
    for row, pairs in zip(rows, shown, strict=True):
        query_id = row["query_id"]
        gold = golds.get(query_id, [])
        f1, exact = best_overlap(without_citations(row["text"]), gold) if gold else (None, None)
        yield {
            "query_id": query_id, "arm": arm, "query": row["query"], "answer": row["text"], "cut": row["cut"],
            "model": row["model"], "cited": row["cited"],
            "contexts": [
                {"doc_id": document["doc_id"], "label": document["label"], "place": places.get(pair[1]) or None}
                | {"text": own[pair] if pair in own else texts[pair[1]]}
                for document, pair in zip(row["documents"], pairs, strict=True)
            ],
            "gold_answers": gold, "f1": f1, "em": exact,
            "rewrites": [{name: of[name] for name in ("strategy", "text")} for of in rewrites.get(query_id, ())],
            "judgements": judged.get(query_id, []),
            "cut_documents": row["cut_documents"],
        }  # fmt: skip
