"""Elasticsearch beside a bare loop: the same `_msearch` requests, as many threads, the client's own; answers read and dropped.

The server is the one that ELASTICSEARCH_URL names, or one that is started from the shared folder. It works on this machine's
cores, too; CPU seconds are those of the client.
"""

from __future__ import annotations

import pytest
from elastic_rate import contests, server
from recorded_sets import shared

from limits.rounds import Row, Unmeasured, interleaved
from tests.support.retrievers.elastic_server import found_serve


def measure(quick: bool) -> list[Row]:
    """Returns the rows of BM25 and of dense search."""
    searches, rows = 500 if quick else 3000, []
    try:
        found_serve()
        with server(shared()):
            for what, ours, bare in contests(shared(), searches):
                amount = ours()
                spent = interleaved({"ours": ours, "bare": bare}, 1 if quick else 5)
                rows.append(Row(f"Elasticsearch, {what}", "bare msearch", amount, "searches", spent["ours"], spent["bare"]))
    except pytest.skip.Exception as skipped:
        raise Unmeasured(str(skipped)) from None
    return rows
