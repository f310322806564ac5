"""The schemas of an ablation's tables: those of a run, and what differs.

In flight `documents` are the distinct documents of a query that any arm has; `fused` and `scores` refer to them by index.
"""

from __future__ import annotations

import pyarrow as pa

from jobs.tables import REWRITE, SOURCE, STORED

ARM_REWRITE = pa.struct([*REWRITE, ("arm", pa.string())])  # the first arm that has the text
ARM_SELECTION = pa.struct([("arm", pa.string()), ("query_type", pa.string()), ("strategies", pa.list_(pa.string())),
                           ("reason", pa.string())])  # fmt: skip
DOCUMENT = pa.struct([("doc_id", pa.string()), ("scored_by", pa.list_(pa.int16()))])  # indexes of `SharedWork.rerankers`
FUSED = pa.struct(
    [("arm", pa.int16()), ("document", pa.int32()), ("score", pa.float64()), ("sources", pa.list_(SOURCE))]
)  # in order of arms and ranks; `arm` is an index of `SharedWork.answers`; `sources` is null unless they are kept
PAIR_SCORE = pa.struct([("reranker", pa.int16()), ("document", pa.int32()), ("score", pa.float64())])
ARM_COUNT = pa.struct([("name", pa.string()), ("count", pa.int64())])  # of the block, in its first row

ARM_STORED: dict[str, pa.Schema] = STORED | {
    "rewrites": STORED["rewrites"].append(pa.field("arm", pa.string())),
    "selections": pa.schema([("query_id", pa.string()), *ARM_SELECTION]),
    # which reranker, of several with the same model: as `ablation.arms[].reranker` of run.json names it
    "scores": STORED["scores"].append(pa.field("reranker", pa.string())),
    # behind the results of an arm, for measures that read deeper: `rank` goes on where the results end
    "tails": pa.schema([("query_id", pa.string()), ("arm", pa.string()), ("rank", pa.int32()), ("doc_id", pa.string())]),
}
