"""The check that judgements name documents of collections as the tables do, `law:doc1`."""

from __future__ import annotations

from cluster.errors import ConfigError
from jobs.config.config import Config
from jobs.log.judgements import Judgements
from retrievers.corpora.collections import id_parts, qualified_id
from retrievers.web.hits import page_id


def checked_ids(judgements: Judgements, config: Config) -> Judgements:
    """Returns the judgements; where `web` finds pages, these have no collection.

    Raises:
        ConfigError: a document has no collection before its id.
    """
    collections = config.retrieve.collections
    for doc_id in {doc_id for grades in judgements.grades.values() for doc_id in grades} if collections else ():
        if id_parts(doc_id)[0] not in collections and not (config.web is not None and page_id(doc_id) == doc_id):
            named = " or ".join(qualified_id(name, doc_id[:80]) for name in list(collections)[:2])
            raise ConfigError("judgements", f"{judgements.path}: {doc_id[:80]!r} names no collection; write {named}")
    return judgements
