"""A row per answered query with all that is known of it: answer, contexts, rewrites, measures, models, tokens, money, time.

Costs are those of the query's own rows in costs/: without the start-up of workers, the driver and idle nodes, which no query
has caused. Arms of an ablation share their work, so that its rows have no costs.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

import pyarrow as pa

from cluster.costs import Prices, Totals, add_totals
from cluster.token_prices import by_tier
from jobs.chain.steps.contexts import without_citations
from jobs.measure.answers.overlap import best_overlap
from jobs.measure.export.answers.answered import Answered, AnsweredArm
from jobs.measure.export.answers.ragas import notes_of
from jobs.measure.export.answers.written import WrittenAnswers, batched, write_rows
from jobs.measure.export.ir_metadata import stages_of
from jobs.measure.judged_rows import database
from jobs.runs.rewrites import searched_rewrites

STEPS = ("rewrite", "iterate", "grade", "answer")  # stages in which an LLM is asked
_TEXTS = pa.list_(pa.string())
_REWRITES = pa.list_(pa.struct([("strategy", pa.string()), ("text", pa.string())]))
_PER_STEP = (
    ("provider", pa.string()), ("model", pa.string()), ("input_tokens", pa.int64()), ("output_tokens", pa.int64()),
    ("reused", pa.int64()), ("usage_source", pa.string()), ("seconds", pa.float64()), ("usd", pa.float64()),
)  # fmt: skip
COLUMNS = pa.schema(
    [
        ("query_id", pa.string()), ("arm", pa.string()), ("question", pa.string()), ("answer", pa.string()),
        ("answer_cut", pa.bool_()), ("contexts", _TEXTS), ("documents", _TEXTS), ("labels", _TEXTS), ("cited", _TEXTS),
        ("ground_truth", _TEXTS), ("f1", pa.float64()), ("em", pa.float64()), ("retrieval_method", pa.string()),
        ("rewrites", _REWRITES), ("rewrite_count", pa.int64()),
        *((f"{step}_{name}", kind) for step in STEPS for name, kind in _PER_STEP),
        ("seconds", pa.float64()), ("usd", pa.float64()), ("price_source", pa.string()),
    ]
)  # fmt: skip
_COUNTS = ("prompt_tokens", "cached_tokens", "cache_write_tokens", "completion_tokens", "searches", "reused")
_COSTS = f"""
SELECT query_id, stage, component, coalesce(model, '') AS model, tier, any_value(coalesce(provider, engine)) AS provider,
string_agg(DISTINCT usage, ', ' ORDER BY usage) AS usage, sum(seconds) AS seconds, sum(device_seconds) AS device_seconds,
{", ".join(f"sum({name})::BIGINT AS {name}" for name in _COUNTS)}
FROM (SELECT NULL::VARCHAR AS tier WHERE false UNION ALL BY NAME FROM rows_by_name($files))
WHERE query_id IN (SELECT unnest($ids))
AND NOT starts_with(component, 'start_up') GROUP BY ALL ORDER BY ALL
"""
_BATCH = 500  # queries whose costs and rewrites are in memory


def write_full_rows(path: str, answers: AnsweredArm, prices: Prices | None, price_source: str | None) -> WrittenAnswers:
    """Writes a row per answer with the columns `COLUMNS`.

    Args:
        path: a local file or an object on S3, JSON lines or Parquet by its ending.
        answers: of a run or an arm, by query.
        prices: None: no money.
        price_source: where they are from, with the hash of the file.

    Raises:
        RetrieverError: the index of the documents is gone, or holds others now.
        ConfigError: files of the run cannot be read.
    """
    seen: Counter[str] = Counter()
    method, shared = _method(answers), answers.run.is_ablation

    def rows() -> Iterator[dict[str, Any]]:
        for batch in batched(answers.read(contexts=True), _BATCH):
            ids = [one.row["query_id"] for one in batch]
            rewrites, costs = _rewrites(answers, ids), {} if shared else _costs(answers, ids)
            for one in batch:
                seen["none"] += not one.gold
                seen["cut"] += bool(one.row["cut_documents"])
                query_id = one.row["query_id"]
                texts = rewrites.get(query_id, [])
                made = {} if shared else _spent(costs.get(query_id, []), prices)
                made["rewrite_model"] = ", ".join(sorted({text.pop("model") for text in texts} - {None})) or None
                yield _row(one, answers.arm, method) | {
                    "rewrites": texts, "rewrite_count": len(texts), **made, "answer_model": one.row["model"],
                    "price_source": None if shared or prices is None else price_source,
                }  # fmt: skip

    count = write_rows(path, COLUMNS, rows())
    notes = notes_of(answers, count, seen)
    notes += ("no costs: arms share their work",) if shared else ()
    notes += ("not in money: there are no prices",) if prices is None and not shared else ()
    return WrittenAnswers(path, count, notes)


def _row(one: Answered, arm: str, method: str) -> dict[str, Any]:
    row = one.row
    measured = best_overlap(without_citations(row["text"]), one.gold) if one.gold else None
    return {
        "query_id": row["query_id"], "arm": arm, "question": row["query"], "answer": row["text"], "answer_cut": row["cut"],
        "contexts": one.contexts, "documents": one.documents, "labels": [each["label"] for each in row["documents"]],
        "cited": row["cited"], "ground_truth": one.gold, "f1": None if measured is None else measured.f1,
        "em": None if measured is None else measured.exact, "retrieval_method": method,
    }  # fmt: skip


def _method(answers: AnsweredArm) -> str:
    """Returns how the documents were found: retrievers, fusion, reranker."""
    stages = stages_of(answers.run, answers.arm)
    retrievers = [f"{one['name']} ({one['method']})" for one in stages if one["name"] not in ("fusion", "reranker", "tail")]
    words = [" + ".join(retrievers)]
    words += [f"fusion {one['method']}" for one in stages if one["name"] == "fusion"]
    words += [f"reranker {one['model'] or one['method']}" for one in stages if one["name"] == "reranker"]
    return ", ".join(words)


def _rewrites(answers: AnsweredArm, ids: list[str]) -> dict[str, list[dict[str, Any]]]:
    """Returns query_id -> its rewrites, in the order of the strategies; of an arm those that it searched."""
    found: dict[str, list[dict[str, Any]]] = {}
    with database(answers.run) as connection:
        for one in searched_rewrites(connection, answers.run, ids, answers.arm):
            found.setdefault(one.query_id, []).append({"strategy": one.strategy, "text": one.text, "model": one.model})
    return found


def _costs(answers: AnsweredArm, ids: list[str]) -> dict[str, list[dict[str, Any]]]:
    """Returns query_id -> its costs by stage, component, model and tier, which files of before do not have."""
    files = answers.run.tables.get("costs")
    found: dict[str, list[dict[str, Any]]] = {}
    if files:
        with database(answers.run) as connection:
            rows = connection.sql(_COSTS, params={"files": files, "ids": ids}).to_arrow_table().to_pylist()
        for row in rows:
            found.setdefault(row["query_id"], []).append(row)
    return found


def _spent(costs: list[dict[str, Any]], prices: Prices | None) -> dict[str, Any]:
    """Returns the columns of costs of one query."""
    names = ("seconds", "device_seconds", *_COUNTS[:-1])
    sums: Totals = {}
    for row in costs:
        spent = {name: row[name] or 0 for name in names}
        add_totals(sums, {row["stage"]: {f"{row['component']}@{row['model']}": spent | by_tier(spent, row["tier"])}})
    columns: dict[str, Any] = {}
    for step in STEPS:
        own = [row for row in costs if row["stage"] == step]
        sources = sorted({word for row in own for word in (row["usage"] or "").split(", ") if word})
        columns |= {
            f"{step}_provider": ", ".join(sorted({row["provider"] for row in own if row["provider"]})) or None,
            f"{step}_model": ", ".join(sorted({row["model"] for row in own if row["model"]})) or None,
            f"{step}_input_tokens": sum(row["prompt_tokens"] or 0 for row in own),
            f"{step}_output_tokens": sum(row["completion_tokens"] or 0 for row in own),
            f"{step}_reused": sum(row["reused"] or 0 for row in own),
            f"{step}_usage_source": ", ".join(sources) or None,
            f"{step}_seconds": float(sum(row["seconds"] or 0.0 for row in own)),
            f"{step}_usd": None if prices is None else prices.usd(sums, [step] if step in sums else []),
        }
    columns["seconds"] = float(sum(row["seconds"] or 0.0 for row in costs))
    columns["usd"] = None if prices is None else prices.usd(sums)
    return columns
