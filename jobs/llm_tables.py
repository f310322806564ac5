"""Rows of the tables that LLMs make after retrieval, without query and arm: rounds, grades, answers, judgements."""

import pyarrow as pa

_SHOWN = pa.list_(pa.struct([("doc_id", pa.string()), ("label", pa.string())]))
# An LLM's answer to a query, from the first results: `documents` in the order of their numbers in the prompt, with the labels
# of relevance that they have there; `cited` are those that the answer cites.
ANSWER = pa.struct(
    [
        ("text", pa.string()),
        ("cut", pa.bool_()),  # by the token limit
        ("cited", pa.list_(pa.string())),
        ("documents", _SHOWN),
        ("left_out", pa.int32()),  # documents for which `answer.context_tokens` left no room
        ("cut_documents", pa.int32()),
        ("model", pa.string()),
        ("prompt_hash", pa.string()),
    ]
)
# The grade of one of the first results of a query in an arm, and what is kept of an ambiguous one.
GRADE = pa.struct(
    [
        ("rank", pa.int32()),
        ("doc_id", pa.string()),
        ("grade", pa.float64()),  # null: it could not be graded, and stays
        ("verdict", pa.string()),  # relevant, ambiguous, irrelevant; null without a grade
        ("strips", pa.string()),  # the sentences of an ambiguous document that are kept; null: all of it
        ("model", pa.string()),  # null: the reranker's score
        ("prompt_hash", pa.string()),
    ]
)
# What was made of the grades of a query in an arm.
CORRECTION = pa.struct(
    [
        ("question", pa.string()),  # made of the query and its rewrites; null: the query itself
        ("question_model", pa.string()),
        ("web_query", pa.string()),  # null: the web was not asked
        ("web_model", pa.string()),
        ("hits", pa.int32()),  # of the web, behind the documents that are kept; null: it was not asked, or is away
    ]
)
# What a judge, an LLM, says of a result or an answer. `sample`: from 0, of several judgements of the same.
JUDGEMENT = pa.struct(
    [
        ("kind", pa.string()),
        ("doc_id", pa.string()),  # null: an answer is judged
        ("arm", pa.string()),  # whose answer; null: a result is judged, for all arms
        ("grade", pa.int32()),
        ("sample", pa.int32()),
        ("model", pa.string()),
        ("prompt_hash", pa.string()),
    ]
)
# A further round of a query: its best score before, the refined query that was searched, how many of the first results of
# its arm are new, and the documents that it was written from.
ROUND = pa.struct(
    [
        ("round", pa.int32()),
        ("best", pa.float64()),  # null without a hit
        ("text", pa.string()),
        ("new", pa.int32()),
        ("model", pa.string()),
        ("prompt_hash", pa.string()),
        ("documents", _SHOWN),
    ]
)
