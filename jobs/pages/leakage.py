"""How far pseudo-answers repeat what they are to find: a passage of their results, or a gold answer. Both of a sample."""

from __future__ import annotations

from cluster.errors import ConfigError
from jobs.measure.answers import answer_share
from jobs.runs.documents import texts_of
from jobs.runs.folder import RunFolder
from jobs.runs.reading import database, files, spread
from jobs.terminal.formats import sentence
from rewriters.guards.leakage import copies

MOST_COMPARED = 200  # passages; each with TOP documents
SHARDS = 5
TOP = 10


def leakage_words(run: RunFolder) -> list[str]:
    """Returns how many pseudo-answers copy one of their first results, and have a gold answer; nothing without any."""
    manifests = spread(run.manifests, SHARDS)
    names, results = files(run, "rewrites", manifests), files(run, "results", manifests)
    if not names:
        return []
    query = """
        SELECT query_id, text FROM rows_of(?) WHERE search_as = 'passage' OR list_contains(?, strategy)
        ORDER BY sha256(query_id), strategy, position LIMIT ?
    """
    hits: dict[str, list[str]] = {}
    with database() as connection:
        passages = connection.execute(query, [names, run.passage_strategies, MOST_COMPARED]).fetchall()
        wanted = sorted({query_id for query_id, _ in passages})
        query = "SELECT query_id, doc_id FROM rows_of(?) WHERE rank <= ? AND query_id IN (SELECT unnest(?))"
        for query_id, doc_id in connection.execute(query, [results, TOP, wanted]).fetchall() if results and wanted else ():
            hits.setdefault(query_id, []).append(doc_id)
    words = []
    if hits:
        texts, without = texts_of(run, sorted({doc_id for of in hits.values() for doc_id in of}))
        pairs = [] if without else [(text, hits.get(query_id, ())) for query_id, text in passages]
        copied = sum(any(copies(text, texts[doc_id]) for doc_id in doc_ids) for text, doc_ids in pairs)
        known = f"{copied:,} of {len(passages):,} pseudo-answers (a sample) copy one of the first {TOP} results of their query."
        words.append(known if without is None else sentence(f"whether pseudo-answers copy results is not known: {without}"))
    if passages and run.config.evaluate.answers is not None:
        try:
            have, of = answer_share(run, run.config.evaluate.answers, run.config.evaluate.key)
            words.append(f"{have:,} of {of:,} pseudo-answers of queries with a gold answer have it.")
        except ConfigError as error:
            words.append(sentence(f"gold answers cannot be read: {error}"))
    return words
