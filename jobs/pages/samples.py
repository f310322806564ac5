"""Sample queries: some that failed, gained most, lost most and were asked most, and others spread over the run.

Each with its rewrites, what later steps made of it, one request of each kind, and its results beside those of the original
alone as it is measured. The choice is deterministic for a run and its judgements.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import duckdb
import pyarrow as pa

from jobs.measure.judged_rows import contexts_of, fuse_original, of_original
from jobs.pages.comparison import MeasuredRun
from jobs.pages.contributions import TOP, comparable
from jobs.pages.steps import answer_lines, grade_lines, judged_lines, list_words, round_lines, text_names
from jobs.runs.documents import texts_of
from jobs.runs.folder import RunFolder
from jobs.runs.reading import database, files, queries_of, spread
from jobs.runs.tally import Committed
from jobs.tables import NOTES, ORIGINAL
from rewriters.steps.settings import HIGHEST_GRADES

SAMPLES, KINDS = 30, 5  # errors, gain, loss, traffic, spread: each has an equal part of the samples
SHARDS = 6  # that the spread ones are taken from
CHARACTERS = 3_000  # of the beginning and of the end of a prompt, and of an answer

Chosen = tuple[str, str, int]  # query_id, query, log_count
Row = dict[str, Any]


class Hit(NamedTuple):
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
    alone: list[Hit] = field(default_factory=list)
    """The first documents of the original alone, its lists fused as `evaluate` measures them."""
    alone_title: str = ""
    """Empty: they are not known, since lists were not kept or all texts were searched as one."""

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
    chosen = choose(run, failed, measured, SAMPLES)
    rows_of = [row for of in chosen.values() for row in of]
    found = {query_id: Sample(query_id, query if texts else query_id, asked) for query_id, query, asked in rows_of}
    if not found:
        return []
    for query_id, context in contexts_of(run, found).items() if texts else ():
        found[query_id].lines += [("earlier turns", context)] if context else []
    by_number = {manifest.shard: manifest for manifest in run.manifests}
    with database() as connection:
        rows = _Rows(connection, run, [by_number[number] for number in chosen], list(found))
        names = _fill_texts(run, rows, found, texts)
        _fill_steps(rows, found, texts)
        _fill_hits(run, rows, found, names)
        _fill_alone(run, rows, found)
        if texts:
            _fill_requests(run, rows, chosen, found)
    _tell_documents(run, found, texts, measured)
    return sorted(found.values(), key=lambda one: (one.gain is None, -(one.gain or 0.0), -one.log_count, one.query_id))


def choose(run: RunFolder, failed: Sequence[str], measured: MeasuredRun, most: int) -> dict[int, list[Chosen]]:
    """Returns shard -> the sample queries, `most` at most; `failed`: query_ids of some queries with errors."""
    committed = {manifest.shard for manifest in run.manifests if manifest.counts["queries"]}
    part = most // KINDS
    notable = list(dict.fromkeys(failed))[:part]
    notable += [query_id for query_id, gain in measured.gains[:part] if gain > 0]
    notable += [query_id for query_id, gain in measured.gains[::-1][:part] if gain < 0]
    chosen: dict[int, dict[str, Chosen]] = {}
    for shard, query_id, query, asked in _located(run, notable, part) if committed else ():
        chosen.setdefault(shard, {})[query_id] = query_id, query, asked
    wanted = most - sum(map(len, chosen.values()))
    shards = spread(sorted(committed), max(SHARDS, 2 * -(-wanted // run.plan.shard_size)))
    for number, shard in enumerate(shards):
        mine = chosen.setdefault(shard, {})
        others = [row for row in queries_of(run, shard) if row[0] not in mine]
        some = spread(others, -(-wanted // (len(shards) - number)))
        mine |= {row[0]: row for row in some}
        wanted -= len(some)
    return {shard: sorted(of.values()) for shard, of in sorted(chosen.items()) if of}


def _located(run: RunFolder, query_ids: Sequence[str], most: int) -> list[tuple[int, str, str, int]]:
    """Returns (shard, query_id, query, log_count) of these queries, and of those asked most often, if they are committed."""
    query = """
        SELECT shard, query_id, query, log_count
        FROM read_parquet($names, filename = true, file_row_number = true, hive_partitioning = false)
        JOIN spans USING (filename) WHERE file_row_number >= first AND file_row_number < next AND
    """
    done = [span for span in run.spans if span["shard"] in run.tally.shards]
    given = {"names": sorted({span["filename"] for span in done}), "ids": query_ids}
    asked = f"({query} log_count > 1 ORDER BY log_count DESC, query_id LIMIT {most})"
    with database() as connection:
        connection.register("spans", pa.Table.from_pylist(done))
        found = connection.execute(f"{asked} UNION {query} query_id IN (SELECT unnest($ids::VARCHAR[]))", given).fetchall()
    return list(found)


class _Rows(NamedTuple):
    """Reads the rows of the samples in a table."""

    connection: duckdb.DuckDBPyConnection
    run: RunFolder
    manifests: list[Committed]
    query_ids: list[str]

    def __call__(self, name: str, columns: str, condition: str = "true", order: str = "query_id") -> pa.Table:
        """Returns the query_id and these columns."""
        names = files(self.run, name, self.manifests)
        if not names:
            return pa.table({})
        query = f"SELECT query_id, {columns} FROM rows_of($names) WHERE query_id IN (SELECT unnest($ids)) AND {condition}"
        given = {"names": names, "ids": self.query_ids}
        return self.connection.sql(f"{query} ORDER BY {order}", params=given).to_arrow_table()


Names = dict[str, dict[tuple[str, int], str]]  # query_id -> strategy and position -> name of the text
STEP_COLUMNS = {
    "rounds": "round, best, text, new, documents", "grades": "rank, doc_id, grade, verdict, strips",
    "corrections": "question, web_query, hits", "answers": "text, model, cited, documents, left_out",
    "judgements": "kind, doc_id, grade, sample",
}  # fmt: skip


def _fill_texts(run: RunFolder, rows: _Rows, found: Mapping[str, Sample], texts: bool) -> Names:
    """Fills rewrites, what was selected, and errors; returns the names of the rewrites."""
    place = {name: number for number, name in enumerate([ORIGINAL, *run.config.rewrite.planned])}
    names: Names = {}
    by_query: dict[str, list[Row]] = {}
    for row in rows("rewrites", "strategy, position, text, parsed_as", order="query_id, position").to_pylist():
        by_query.setdefault(row["query_id"], []).append(row)
    for query_id, of in by_query.items():
        called = names[query_id] = text_names((row["strategy"], row["position"]) for row in of)
        for row in sorted(of, key=lambda row: (place.get(row["strategy"], len(place)), row["strategy"], row["position"])):
            name = called[row["strategy"], row["position"]]
            found[query_id].lines.append((name, row["text"] if texts else f"read as {row['parsed_as']}"))
    for row in rows("selections", "query_type, strategies, reason").to_pylist():
        words = [", ".join(row["strategies"]) or "none", f"query type {row['query_type']}" if row["query_type"] else ""]
        words += [row["reason"] or ""] if texts else []
        found[row["query_id"]].lines.append(("selected", "; ".join(filter(None, words))))
    errors: dict[tuple[str, str, str, str], list[str]] = {}
    for row in rows("errors", "stage, component, reason, message").to_pylist():
        key = row["query_id"], row["stage"], row["reason"], row["message"] or ""
        errors.setdefault(key, []).extend([row["component"]] if row["component"] else [])
    for (query_id, stage, reason, message), of_strategies in sorted(errors.items(), key=lambda one: one[0][2] in NOTES):
        told = f"{reason}: {message}" if texts and message else reason
        one = found[query_id]
        one.lines.append((", ".join([stage, *sorted(of_strategies, key=lambda name: place.get(name, len(place)))]), told))
        one.reasons = ", ".join(dict.fromkeys(filter(None, [*one.reasons.split(", "), reason])))
    return names


def _fill_steps(rows: _Rows, found: Mapping[str, Sample], texts: bool) -> None:
    """Fills what the steps after retrieval made of each sample."""
    named: dict[str, dict[str, list[Row]]] = {query_id: {} for query_id in found}
    for name, columns in STEP_COLUMNS.items():
        for row in rows(name, columns, order=f"query_id, {columns.partition(',')[0]}").to_pylist():
            named[row["query_id"]].setdefault(name, []).append(row)
    for query_id, of in named.items():
        (correction, answer) = (next(iter(of.get(name, ())), None) for name in ("corrections", "answers"))
        lines = found[query_id].lines
        lines += round_lines(of.get("rounds", ()), texts=texts)
        lines += grade_lines(of.get("grades", ()), correction, texts=texts)
        lines += answer_lines(answer, texts=texts)
        lines += judged_lines(of.get("judgements", ()), HIGHEST_GRADES)


def _fill_hits(run: RunFolder, rows: _Rows, found: Mapping[str, Sample], names: Names) -> None:
    known = {(row["query_id"], row["doc_id"]) for row in rows("runs", "doc_id", of_original(run)).to_pylist()}
    known_original = comparable(run)  # not if fusion left the original out and no list was kept
    for row in rows("results", "rank, doc_id, score, sources", f"rank <= {TOP}", "query_id, rank").to_pylist():
        sources = sorted(row["sources"] or [], key=lambda of: of["strategy"] != ORIGINAL)
        found_by_original = any(of["strategy"] == ORIGINAL for of in sources)
        new = known_original and not found_by_original and (row["query_id"], row["doc_id"]) not in known
        words = f"score {row['score']:.4g}; {list_words(sources, names.get(row['query_id'], {}))}"
        found[row["query_id"]].hits.append(Hit(row["rank"], row["doc_id"], words, is_new=new))


def _fill_alone(run: RunFolder, rows: _Rows, found: Mapping[str, Sample]) -> None:
    """Fills the original's documents, fused as measured; nothing where its lists are not known."""
    if run.config.joining or not run.config.retrieve.keep_runs:
        return
    table = rows("runs", "position, retriever, doc_id, score, rank", of_original(run), "query_id, retriever, rank")
    for sample in found.values():
        sample.alone_title = "Original alone" + ", fused, not reranked" * (run.config.rerank.kind != "none")
    if not table.num_rows:
        return
    ranks: dict[tuple[str, str], list[str]] = {}
    for row in table.to_pylist():
        ranks.setdefault((row["query_id"], row["doc_id"]), []).append(f"{row['retriever']} {row['rank']}")
    fused = fuse_original(table.drop_columns(["rank"]), run.config.fuse)
    for query_id, doc_ids in fused.items():
        first = enumerate(doc_ids[: min(TOP, run.config.results)], start=1)
        found[query_id].alone = [Hit(rank, doc_id, ", ".join(ranks[query_id, doc_id])) for rank, doc_id in first]


def _fill_requests(run: RunFolder, rows: _Rows, shards: Mapping[int, Any], found: Mapping[str, Sample]) -> None:
    """Fills one request of each kind that was answered; what the engine gave up is not stored."""
    listed = [one.key for shard in shards for one in run.storage.list(f"completions/{shard:06d}")]
    names = [run.storage.url(key) for key in listed if key.endswith(".parquet")]
    query = f"""
        SELECT query_id, request, model, finish_reason, prompt_tokens, completion_tokens, {_ends("prompt")}, {_ends("text")},
            count(*) OVER (PARTITION BY query_id, request) FROM rows_of($names)
        WHERE query_id IN (SELECT unnest($ids)) AND text IS NOT NULL
        QUALIFY row_number() OVER (PARTITION BY query_id, request ORDER BY coalesce(sample, 0), start DESC, prompt_hash) = 1
        ORDER BY query_id, request
    """
    given = {"names": names, "ids": list(found)}
    answered = rows.connection.execute(query, given).fetchall() if names else []
    for query_id, request, model, finish, *tokens, prompt, answer, asked in answered:
        why = "cut by the token limit" if finish == "length" else finish
        words = f"Prompt and answer of {request}" + f", one of {asked:,}" * (asked > 1)
        words += f": {tokens[0]:,} prompt tokens, {tokens[1]:,} completion tokens, {why}"
        found[query_id].requests.append((words, f"{prompt}\n\n— answer of {model} —\n\n{answer}"))


def _ends(column: str) -> str:
    """Returns SQL for a text, or the beginning and the end of a long one."""
    most, between = 2 * CHARACTERS, "'\n[… ' || (length({0}) - {1}) || ' characters …]\n'"
    ends = f"left({column}, {CHARACTERS}) || {between.format(column, most)} || right({column}, {CHARACTERS})"
    return f"CASE WHEN length({column}) > {most} THEN {ends} ELSE {column} END"


def _tell_documents(run: RunFolder, found: Mapping[str, Sample], texts: bool, measured: MeasuredRun) -> None:
    """Fills texts and grades of the documents, and the values of judged queries."""
    wanted = sorted({hit.doc_id for one in found.values() for hit in (*one.hits, *one.alone)})
    documents, without = texts_of(run, wanted, addresses=True) if texts else ({}, None)
    least = 1 if measured.judgements is None else measured.judgements.least
    leading = "" if measured.frame is None else measured.frame.measures[0]
    for sample in found.values():
        if without is not None:
            sample.lines.append(("documents", f"by id only: {without}"))
        grades = measured.grades.get(sample.query_id, {})
        if (values := measured.by_query.get(sample.query_id)) is not None:
            sample.values = values
            alone = "" if values[1] is None else f", {values[1]:.4f} of the original alone"
            sample.lines.insert(0, (leading, f"{values[0]:.4f} of the results{alone}"))
        for hits in (sample.hits, sample.alone):
            for place, hit in enumerate(hits):
                grade, text = grades.get(hit.doc_id), documents.get(hit.doc_id, "")
                relevant = grade is not None and grade >= least
                words = "" if grade is None else f"★ relevant {grade}" if relevant else "judged not relevant"
                hits[place] = hit._replace(text=text, grade=words, relevant=relevant)
        shown = {hit.doc_id for hit in sample.hits}
        missed = [doc_id for doc_id, grade in grades.items() if grade >= least and doc_id not in shown]
        if missed:
            sample.lines.append(("relevant, missed", ", ".join(sorted(missed)[:TOP])))
