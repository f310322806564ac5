"""The original query's lists alone, fused as the run fused its own."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise

import numpy as np
import pyarrow as pa

from jobs.chain.answer import fused
from jobs.tables import ORIGINAL
from retrievers.corpora.collections import NO_COLLECTIONS
from retrievers.lists import Lists, by_document
from retrievers.ranking import encode
from retrievers.settings import FuseSettings


def fuse_original(
    rows: pa.Table, settings: FuseSettings, collections: Mapping[str, str] = NO_COLLECTIONS
) -> dict[str, list[str]]:
    """Returns query_id -> doc_ids, best first, of the original query's lists alone, fused with the same settings.

    Args:
        rows: columns query_id, position, retriever, doc_id and score of runs/, sorted by query_id, retriever and rank.
        settings: the config's `fuse`.
        collections: retriever -> its collection, where there are any.
    """
    columns = {name: rows.column(name).combine_chunks() for name in rows.column_names}
    query, query_ids = encode(columns["query_id"])
    retriever, _ = encode(columns["retriever"])
    begins = np.flatnonzero((np.diff(query, prepend=-1) != 0) | (np.diff(retriever, prepend=-1) != 0))
    lists = Lists(
        query[begins],
        pa.array([ORIGINAL] * len(begins), pa.string()),
        columns["position"].to_numpy()[begins],
        columns["retriever"].take(pa.array(begins)),
        np.zeros(len(begins), dtype=np.int64),
        np.ones(len(begins)),
        np.ones(len(begins)),
        np.append(begins, len(query)),
        columns["doc_id"],
        columns["score"].to_numpy(),
    )
    alone = settings.model_copy(update={"weights": _own_weights(settings), "redundancy": "none"})
    found = fused(by_document(lists, len(query_ids)), alone, collections=collections)
    doc_ids = found.doc_ids.to_pylist()
    of_query = [doc_ids[begin:end] for begin, end in pairwise(found.offsets.tolist())]
    return dict(zip(query_ids.to_pylist(), of_query, strict=True))


def _own_weights(settings: FuseSettings) -> dict[str, float]:
    """Returns the weights of the original's lists, as the arm `original` has them; none where the run leaves them all out."""
    own = {name: weight for name, weight in settings.weights.items() if name.partition("/")[0] == ORIGINAL}
    return own if own.get(ORIGINAL, 1.0) > 0 or any(own.values()) else {}
