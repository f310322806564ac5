"""The schemas of the chain's columns in flight, and of the tables of a job of several arms.

In flight, `rewrites`, `selections` and `guarded` name the first arm that has them. `documents` are the distinct documents of a
query that any arm has; `fused` and `scores` refer to them by index, and they to the pages of `web`.
"""

import pyarrow as pa

from jobs.tables import ANSWER, CORRECTION, GRADE, LEFT_OUT, REWRITE, ROUND, SELECTION, SOURCE, STORED, WEB_PAGE

_ARM = ("arm", pa.string())
ARM_REWRITE = pa.struct([*REWRITE, _ARM])
ARM_SELECTION = pa.struct([_ARM, *SELECTION])
ARM_LEFT_OUT = pa.struct([_ARM, *LEFT_OUT])
# What the gate of a reading says of a query; `reading` is an index of `SharedWork.readings`.
GATED = pa.struct([("reading", pa.int16()), ("sure", pa.bool_()), ("reason", pa.string())])
COUNT = pa.struct([("name", pa.string()), ("count", pa.int64())])  # of the block, in its first row
# A list of the original that the gate has made; `retriever` is a key of `SharedWork.retrievers`.
KNOWN = pa.struct(
    [("retriever", pa.string()), ("text", pa.string()), ("doc_ids", pa.list_(pa.string())), ("scores", pa.list_(pa.float64()))]
)
# `web` is an index of the query's pages, one of which has the text; null: an index of documents has it. A page is a document
# for each text that it has in some arm.
DOCUMENT = pa.struct([("doc_id", pa.string()), ("web", pa.int32())])
FUSED = pa.struct(
    [("arm", pa.int16()), ("document", pa.int32()), ("score", pa.float64()), ("sources", pa.list_(SOURCE))]
)  # in order of arms and ranks; `arm` is an index of `SharedWork.answers`; `sources` is null unless they are kept
PAIR_SCORE = pa.struct([("reranker", pa.int16()), ("document", pa.int32()), ("score", pa.float64())])
# The best score of a retriever's list of the original, or of a refined query, by index of `SharedWork.searches`.
BEST = pa.struct([("search", pa.int16()), ("retriever", pa.string()), ("score", pa.float64())])
ARM_ROUND = pa.struct([("answer", pa.int16()), *ROUND])
ARM_GRADE = pa.struct([("answer", pa.int16()), *GRADE])
ARM_CORRECTION = pa.struct([("answer", pa.int16()), *CORRECTION, ("pages", pa.list_(WEB_PAGE))])  # `pages`: the hits
# Work that arms need: what it is known by, what it is, the `component@model` that it is paid for as, the arms; of requests to
# LLMs, whether the run made them (the store had the others), and whether they were answered.
NEED = pa.struct(
    [
        ("key", pa.string()),
        ("quantity", pa.string()),
        ("component", pa.string()),
        ("arms", pa.list_(pa.string())),
        ("made", pa.bool_()),
        ("answered", pa.bool_()),
    ]
)
ARM_ANSWER = pa.struct(  # `answer` is an index of `SharedWork.answers`; texts and places are those of `documents`, uncut
    [("answer", pa.int16()), *ANSWER, ("texts", pa.list_(pa.string())), ("places", pa.list_(pa.string()))]
)

ARM_STORED: dict[str, pa.Schema] = STORED | {
    "rewrites": STORED["rewrites"].append(pa.field("arm", pa.string())),
    "selections": pa.schema([("query_id", pa.string()), *ARM_SELECTION]),
    # which reranker, of several with the same model: as `ablation.arms[].reranker` of run.json names it
    "scores": STORED["scores"].append(pa.field("reranker", pa.string())),
    # behind the results of an arm, for measures that read deeper: `rank` goes on where the results end
    "tails": pa.schema([("query_id", pa.string()), ("arm", pa.string()), ("rank", pa.int32()), ("doc_id", pa.string())]),
}
