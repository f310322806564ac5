"""The rewrites of some queries alone: what `try` makes of each before anything is retrieved, all in one block."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from jobs.chain.arms.arms import STEPS
from jobs.config.config import Config
from jobs.job.pools import searched_first
from jobs.tables import STORED
from jobs.try_one.trial import LoadedConfig, Phase
from retrievers.settings import RerankSettings
from retrievers.web.settings import WebSettings


def rewriting_alone(config: Config) -> Config:
    """Returns a config that rewrites as this one does, and needs neither an index nor a model of later stages.

    One whose originals are searched before they are rewritten is returned as it is.
    """
    if searched_first(config):
        return config
    unsearched = WebSettings(kind="web", provider="searxng", base_url="http://localhost")  # has no index, and is not opened
    retrievers = dict.fromkeys(config.retrieve.retrievers, unsearched)
    retrieve = config.retrieve.model_copy(update={"retrievers": retrievers, "store": False})
    changed = {"retrieve": retrieve, "rerank": RerankSettings(kind="none")}
    return config.model_copy(update=dict.fromkeys((*STEPS, "judge")) | changed)


def rewritten(queries: Sequence[str], loaded: LoadedConfig, report_phase: Phase) -> dict[str, pa.Table]:
    """Returns the tables `rewrites`, `errors` and `costs` of a run with a column `query` before them, in order of the queries.

    `queries`: one, or several; a query that stands twice has its rows twice, but those of its costs.

    Raises:
        DmqrError: `run` would refuse what the config says of rewriting, or reject a query.
    """
    rows = [loaded.query_row(query) for query in ([queries] if isinstance(queries, str) else queries)]
    distinct = {row["query_id"]: row for row in rows}
    by_query_id = (
        {row["query_id"]: row for row in loaded.rewrite(list(distinct.values()), report_phase).to_pylist()} if rows else {}
    )
    tables, asked = {}, [{"query": row["query"], "query_id": row["query_id"]} for row in rows]
    once = {row["query_id"]: row for row in asked}
    for name in ("rewrites", "errors", "costs"):
        of_table = once.values() if name == "costs" else asked
        flat = [row | entry for row in of_table for entry in by_query_id[row["query_id"]][name]]
        tables[name] = pa.Table.from_pylist(flat, pa.schema([("query", pa.string()), *STORED[name]]))
    return tables
