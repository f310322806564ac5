"""What the steps after retrieval made of the sample queries: rounds, grades, corrections, answers, and what a judge says."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Protocol

from jobs.job.steps import WEB_SEARCH
from retrievers.web.hits import page_id
from rewriters.steps.settings import HIGHEST_GRADES

if TYPE_CHECKING:
    from jobs.pages.report.samples import Sample


_SCALES = {
    "relevance": f"results from 0 to {HIGHEST_GRADES['relevance']}", "accuracy": "the answer, 1 for right",
    "criteria": f"the answer from 0 to {HIGHEST_GRADES['criteria']}",
}  # fmt: skip


class ReadRows(Protocol):
    """Reads rows of the sample queries."""

    def __call__(self, name: str, columns: str, condition: str = "true", order: str = "query_id") -> list[dict[str, Any]]:
        """Returns the rows of a table as dicts."""
        ...


def fill_steps(rows: ReadRows, found: Mapping[str, Sample]) -> None:
    """Fills what the later steps made of each sample."""
    for row in rows("rounds", "query_id, round, best, text, new, documents", order="query_id, round"):
        found[row["query_id"]].rounds.append(row)
    for row in rows("grades", "query_id, rank, doc_id, grade, verdict, strips, model", order="query_id, rank"):
        found[row["query_id"]].graded.append(row)
    for row in rows("corrections", "query_id, question, web_query, hits"):
        found[row["query_id"]].correction = row | {"pages": []}
    for row in rows("web", "query_id, rank, doc_id, url, title", f"retriever = '{WEB_SEARCH}'", order="query_id, rank"):
        sample = found[row["query_id"]]
        is_graded = row["doc_id"] in (page_id(one["doc_id"]) for one in sample.graded)  # a page that is a result is no hit
        if (of := sample.correction) is not None and not is_graded and len(of["pages"]) < (of["hits"] or 0):
            of["pages"].append(row)
    for row in rows("answers", "query_id, text, cut, cited, documents, left_out, model"):
        found[row["query_id"]].answer = row
    for row in rows("judgements", "query_id, kind, doc_id, grade, model", "sample = 0", "query_id, kind, doc_id"):
        kind, _, key = row["kind"].partition("/")
        found[row["query_id"]].judged.append(row | {"name": row["doc_id"] or key or kind, "scale": _SCALES[kind]})
