"""Sample queries: some that failed, gained most, lost most and were asked most, and any others.

Each with its rewrites, what later steps made of it, one request of each kind, and its results beside those of the original
alone as it is measured. The choice is deterministic for a run and its judgements.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import duckdb
import pyarrow as pa

from jobs.measure.judged_rows import TextId, asked_queries, fuse_original, of_original, text_names
from jobs.measure.strategies import FIRST_RESULTS, comparable
from jobs.pages.comparison import MeasuredRun
from jobs.pages.steps import answer_lines, grade_lines, judged_lines, list_words, round_lines
from jobs.runs.documents import texts_of
from jobs.runs.folder import RunFolder
from jobs.runs.tables import committed_queries, create_views, database
from jobs.tables import NOTES, ORIGINAL

SAMPLES, KINDS = 30, 5  # errors, gain, loss, traffic, any: each has an equal part of the samples
CHARACTERS = 3_000  # of the beginning and of the end of a prompt, and of an answer

Row = dict[str, Any]
COLUMNS = {
    "rewrites": "position, strategy, text, parsed_as", "selections": "query_type, strategies, reason",
    "errors": "stage, component, reason, message", "rounds": "round, best, text, new, documents",
    "grades": "rank, doc_id, grade, verdict, strips", "corrections": "question, web_query, hits",
    "answers": "text, model, cited, documents, left_out", "judgements": "kind, doc_id, grade, sample",
    "results": "rank, doc_id, score, sources",
}  # fmt: skip
"""Table -> what is read of the samples' rows, by the first column; errors as they were stored."""


@dataclass
class Hit:
    """A document at a rank; without texts `text` is empty."""

    rank: int
    doc_id: str
    found_by: str
    text: str = ""
    is_new: bool = False
    grade: str = ""
    relevant: bool = False


@dataclass
class Sample:
    """One query, as the page shows it."""

    query_id: str
    title: str
    log_count: int
    values: tuple[float, float | None] | None = None
    """The leading measure of the results and of the original alone; None: the query is not judged."""
    lines: list[tuple[str, str]] = field(default_factory=list)
    reasons: str = ""
    requests: list[tuple[str, str]] = field(default_factory=list)
    hits: list[Hit] = field(default_factory=list)
    alone: list[Hit] = field(default_factory=list)  # of the original alone, its lists fused as `evaluate` measures them
    alone_title: str = ""  # empty: they are not known, since lists were not kept or all texts were searched as one

    @property
    def gain(self) -> float | None:
        """Returns results - original alone; None where it was not measured."""
        return None if self.values is None or self.values[1] is None else self.values[0] - self.values[1]

    @property
    def gain_words(self) -> str:
        """Returns the gain with a sign; empty where it was not measured."""
        if not self.gain:
            return "" if self.gain is None else "= 0"
        return f"{'▲' if self.gain > 0 else '▼'} {self.gain:+.2f}".replace("-", "−")


def samples(run: RunFolder, failed: Sequence[str], measured: MeasuredRun, *, texts: bool) -> list[Sample]:
    """Returns sample queries, the greatest gain first, then the most asked; without `texts` ids, names and numbers only.

    `failed` are the query_ids of some queries with errors.
    """
    chosen = _choose(run, failed, measured)
    if not chosen:
        return []
    shards = dict.fromkeys(chosen.values())
    manifests = [manifest for manifest in run.manifests if manifest.shard in shards]
    with database(run) as connection:
        create_views(connection, run, (*COLUMNS, "runs"), manifests)
        connection.register("wanted", pa.table({"query_id": list(chosen)}))
        by_query_id = {}
        for query_id, (query, context, log_count) in asked_queries(connection, run).items():
            sample = by_query_id[query_id] = Sample(query_id, str(query) if texts else query_id, log_count)
            sample.lines += [("earlier turns", context)] if texts and context else []
        _fill(run, connection, by_query_id, texts)
        if texts:
            _fill_requests(run, connection, shards, by_query_id)
    _tell_documents(run, by_query_id, texts, measured)
    return sorted(by_query_id.values(), key=lambda one: (one.gain is None, -(one.gain or 0.0), -one.log_count, one.query_id))


def _choose(run: RunFolder, failed: Sequence[str], measured: MeasuredRun) -> dict[str, int]:
    """Returns query_id -> shard."""
    part, gains = SAMPLES // KINDS, measured.gains
    notable = list(dict.fromkeys(failed))[:part]
    notable += [query_id for query_id, gain in gains[:part] if gain > 0] + [name for name, gain in gains[-part:] if gain < 0]
    query = f"""
        WITH notable AS (
            SELECT unnest($ids::VARCHAR[]) AS query_id
            UNION (SELECT query_id FROM committed WHERE log_count > 1 ORDER BY log_count DESC, query_id LIMIT {part})
        )
        SELECT query_id, shard FROM committed  -- ids are hashes: the first are any
        ORDER BY query_id NOT IN (FROM notable), query_id LIMIT {SAMPLES}
    """
    with database(run) as connection:
        committed_queries(connection, run)
        return dict(connection.execute(query, {"ids": notable}).fetchall())


def _fill(run: RunFolder, connection: duckdb.DuckDBPyConnection, by_query_id: Mapping[str, Sample], texts: bool) -> None:
    """Adds to each sample the output of the stages, its results, and those of the original alone, fused as measured."""

    def rows(table: str, columns: str, order: str, condition: str = "true") -> pa.Table:
        query = f"SELECT query_id, {columns} FROM {table} SEMI JOIN wanted USING (query_id) WHERE {condition}"
        return connection.sql(f"{query} ORDER BY query_id{order}").to_arrow_table()

    tables: dict[str, dict[str, list[Row]]] = {query_id: {name: [] for name in COLUMNS} for query_id in by_query_id}
    for name, columns in COLUMNS.items():
        for row in rows(name, columns, "" if name == "errors" else f", {columns.partition(',')[0]}").to_pylist():
            tables[row["query_id"]][name].append(row)
    lists = rows("runs", "position, retriever, doc_id, score, rank", ", retriever, rank", of_original(run))
    ranks: dict[tuple[str, str], list[str]] = {}
    for row in lists.to_pylist():
        ranks.setdefault((row["query_id"], row["doc_id"]), []).append(f"{row['retriever']} {row['rank']}")
    kept, known_original = run.config.retrieve.keep_runs and not run.config.joining, comparable(run)
    fused = fuse_original(lists.drop_columns(["rank"]), run.config.fuse) if kept and lists.num_rows else {}
    for query_id, sample in by_query_id.items():
        own = tables[query_id]
        own["errors"].sort(key=lambda row: row["reason"] in NOTES)
        sample.reasons = ", ".join(dict.fromkeys(row["reason"] for row in own["errors"]))
        names = text_names((row["strategy"], row["position"]) for row in own["rewrites"])
        sample.lines += _lines(run, own, names, texts)
        for row in own["results"][:FIRST_RESULTS]:
            sources = sorted(row["sources"] or [], key=lambda source: source["strategy"] != ORIGINAL)
            by_original = (query_id, row["doc_id"]) in ranks or any(source["strategy"] == ORIGINAL for source in sources)
            text = f"score {row['score']:.4g}; {list_words(sources, names)}"
            sample.hits.append(Hit(row["rank"], row["doc_id"], text, is_new=known_original and not by_original))
        if kept:
            sample.alone_title = "Original alone" + ", fused, not reranked" * (run.config.rerank.kind != "none")
            first = enumerate(fused.get(query_id, [])[: min(FIRST_RESULTS, run.config.results)], start=1)
            sample.alone = [Hit(rank, doc_id, ", ".join(ranks[query_id, doc_id])) for rank, doc_id in first]


def _lines(
    run: RunFolder, tables: Mapping[str, list[Row]], names: Mapping[TextId, str], texts: bool
) -> Iterator[tuple[str, str]]:
    position = {name: number for number, name in enumerate([ORIGINAL, *run.config.rewrite.planned])}
    order = {text: (position.get(text[0], len(position)), *text) for text in names}
    for row in sorted(tables["rewrites"], key=lambda row: order[row["strategy"], row["position"]]):
        yield names[row["strategy"], row["position"]], row["text"] if texts else f"read as {row['parsed_as']}"
    for row in tables["selections"]:
        facts = [", ".join(row["strategies"]) or "none", f"query type {row['query_type']}" if row["query_type"] else ""]
        facts += [row["reason"] or ""] if texts else []
        yield "selected", "; ".join(filter(None, facts))
    errors: dict[tuple[str, str, str], list[str]] = {}
    for row in tables["errors"]:
        key = row["stage"], row["reason"], row["message"] or ""
        errors.setdefault(key, []).extend([row["component"]] if row["component"] else [])
    for (stage, reason, message), strategies in errors.items():
        stages = ", ".join([stage, *sorted(strategies, key=lambda name: position.get(name, len(position)))])
        yield stages, f"{reason}: {message}" if texts and message else reason
    correction, answer = (next(iter(tables[name]), None) for name in ("corrections", "answers"))
    yield from round_lines(tables["rounds"], texts=texts)
    yield from grade_lines(tables["grades"], correction, texts=texts)
    yield from answer_lines(answer, texts=texts)
    yield from judged_lines(tables["judgements"])


def _fill_requests(
    run: RunFolder, connection: duckdb.DuckDBPyConnection, shards: Iterable[int], by_query_id: Mapping[str, Sample]
) -> None:
    """Fills one request of each kind that was answered; what the engine gave up is not stored."""
    listed = [one.key for shard in shards for one in run.storage.list(f"completions/{shard:06d}")]
    names = [run.storage.url(key) for key in listed if key.endswith(".parquet")]
    query = f"""
        SELECT query_id, request, model, finish_reason, prompt_tokens, completion_tokens,
            {ends("prompt", CHARACTERS)}, {ends("text", CHARACTERS)}, count(*) OVER (PARTITION BY query_id, request)
        FROM rows_of($names)
        SEMI JOIN wanted USING (query_id) WHERE text IS NOT NULL
        QUALIFY row_number() OVER (PARTITION BY query_id, request ORDER BY coalesce(sample, 0), start DESC, prompt_hash) = 1
        ORDER BY query_id, request
    """
    answered = connection.execute(query, {"names": names}).fetchall() if names else []
    for query_id, request, model, finish, *tokens, prompt, answer, asked in answered:
        why = "cut by the token limit" if finish == "length" else finish
        text = f"Prompt and answer of {request}" + f", one of {asked:,}" * (asked > 1)
        text += f": {tokens[0]:,} prompt tokens, {tokens[1]:,} completion tokens, {why}"
        by_query_id[query_id].requests.append((text, f"{prompt}\n\n— answer of {model} —\n\n{answer}"))


def ends(column: str, most: int) -> str:
    """Returns SQL for a text, of one with more than twice `most` characters its beginning and its end."""
    left_out = f"'\n[… ' || (length({column}) - {2 * most}) || ' characters …]\n'"
    return f"if(length({column}) > {2 * most}, left({column}, {most}) || {left_out} || right({column}, {most}), {column})"


def _tell_documents(run: RunFolder, by_query_id: Mapping[str, Sample], texts: bool, measured: MeasuredRun) -> None:
    wanted = sorted({hit.doc_id for sample in by_query_id.values() for hit in (*sample.hits, *sample.alone)})
    documents, without = texts_of(run, wanted, addresses=True) if texts else ({}, None)
    least = 1 if measured.judgements is None else measured.judgements.least
    for sample in by_query_id.values():
        if without is not None:
            sample.lines.append(("documents", f"by id only: {without}"))
        grades, sample.values = measured.grades.get(sample.query_id, {}), measured.by_query.get(sample.query_id)
        if sample.values is not None:
            alone = "" if sample.values[1] is None else f", {sample.values[1]:.4f} of the original alone"
            leading = "" if measured.frame is None else measured.frame.measures[0]
            sample.lines.insert(0, (leading, f"{sample.values[0]:.4f} of the results{alone}"))
        relevant = {doc_id for doc_id, grade in grades.items() if grade >= least}
        for hit in (*sample.hits, *sample.alone):
            hit.text, hit.relevant = documents.get(hit.doc_id, ""), hit.doc_id in relevant
            if hit.doc_id in grades:
                hit.grade = f"★ relevant {grades[hit.doc_id]}" if hit.relevant else "judged not relevant"
        missed = relevant - {hit.doc_id for hit in sample.hits}
        if missed:
            sample.lines.append(("relevant, missed", ", ".join(sorted(missed)[:FIRST_RESULTS])))
