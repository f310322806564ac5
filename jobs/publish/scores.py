"""How good the reranker finds what is served: the quality of a version without judgements."""

from __future__ import annotations

import hashlib
import json
from typing import Any

from jobs.runs.folder import RunFolder
from jobs.runs.reading import database

_BEST = """
SELECT count(*), avg(best) FROM (SELECT max(rerank_score) AS best FROM rows_of($results)
WHERE rank <= $hits AND rerank_score IS NOT NULL GROUP BY query_id)
"""


def best_scores(run: RunFolder, hits: int) -> dict[str, Any] | None:
    """Returns `mean` of the best reranker scores of the queries' hits, `queries`, and `by`, which tells rerankers apart.

    None: no result has one.
    """
    if run.config.rerank.kind == "none" or not run.tables.get("results"):
        return None
    with database() as connection:
        found = connection.execute(_BEST, {"results": run.tables["results"], "hits": hits}).fetchone()
    if not found or not found[0]:
        return None
    reranker = json.dumps(run.record.get("identity", {}).get("rerank"), sort_keys=True, default=str)
    return {"mean": found[1], "queries": found[0], "by": hashlib.sha256(reranker.encode()).hexdigest()[:16]}
