"""Judgements of documents in collections: an id may leave out its collection where one collection alone has the id."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from cluster.errors import ClusterError, ConfigError, RetrieverError
from jobs.config.config import Config
from jobs.job.indexes import text_indexes
from jobs.job.opening import open_documents
from jobs.log.judgements import Judgements
from retrievers.corpora.collections import id_parts, qualified_id
from retrievers.hybrid.settings import indexed_identities
from retrievers.web.hits import page_id, page_ids


def qualified_judgements(judgements: Judgements, config: Config, indexes: Mapping[str, Mapping[str, Any]]) -> Judgements:
    """Returns judgements with the collection before each id, as the tables have it; without collections as they are.

    An id that begins with the name of a collection and a colon is qualified already. A page of the web is of the collection
    that searches the web. Others are looked up in the indexes of all collections; those that no index has stay as they are, and
    cannot be found.

    Args:
        judgements: Of any key.
        config: Of the run.
        indexes: Retriever -> identity of its index.

    Raises:
        ConfigError: Several collections have an id, or an index cannot be read to look ids up.
    """
    collections = config.retrieve.collections
    if not collections:
        return judgements
    judged = {doc_id for grades in judgements.grades.values() for doc_id in grades}
    of_the_web = _web_collections(config)
    bare = sorted(
        doc_id for doc_id in judged
        if (first := id_parts(doc_id)[0]) not in collections or (first in of_the_web and page_id(doc_id) == doc_id)
    )  # fmt: skip
    if not bare:
        return judgements
    owners: dict[str, str] = {}
    pages = list(page_ids(bare))
    found = _known(judgements, config, indexes, bare)
    for collection, known in (*found.items(), *((collection, pages) for collection in of_the_web)):
        for doc_id in known:
            if doc_id in owners:
                of = qualified_id(owners[doc_id], doc_id), qualified_id(collection, doc_id)
                raise ConfigError(
                    "judgements",
                    f"{judgements.path}: {doc_id[:80]!r} is a document of {owners[doc_id]} and another of {collection}; "
                    f"write {of[0]} or {of[1]}",
                )
            owners[doc_id] = collection
    return judgements._replace(grades={key: _named(judgements, key, owners) for key in judgements.grades})


def _web_collections(config: Config) -> list[str]:
    """Returns the collections in which the web is searched; none where `web` finds pages, too, whose ids are bare."""
    if config.web is not None:
        return []
    indexed = {name for name, one in config.retrieve.retrievers.items() if one.indexed(name)}
    return [name for name, one in config.retrieve.collections.items() if not indexed.issuperset(one.retrievers)]


def _known(
    judgements: Judgements, config: Config, indexes: Mapping[str, Mapping[str, Any]], doc_ids: list[str]
) -> dict[str, list[str]]:
    """Returns collection -> those of the ids that its index has."""
    found, identities = {}, indexed_identities(indexes)
    for collection, (name, settings) in text_indexes(config).items():
        identity = identities.get(name, {})
        try:
            documents = open_documents(name, settings.at(identity), cached_only=True)
            there = getattr(documents, "entry", {}).get("corpus")
            if identity.get("corpus") and there and identity["corpus"] != there:
                raise RetrieverError("run-changed", "it holds other documents now")
            known = documents.known(doc_ids)
        except (RetrieverError, ClusterError, OSError) as error:
            raise ConfigError(
                "judgements",
                f"{judgements.path}: {doc_ids[0][:80]!r} names no collection, and the index of {collection} cannot be read to "
                f"look it up ({' '.join(str(error).split())}); write ids as {qualified_id(collection, 'ID')}",
            ) from error
        found[collection] = [doc_id for doc_id, is_known in zip(doc_ids, known, strict=True) if is_known]
    return found


def _named(judgements: Judgements, key: str, owners: Mapping[str, str]) -> dict[str, int]:
    """Returns the grades of a key with qualified ids."""
    grades: dict[str, int] = {}
    for doc_id, grade in judgements.grades[key].items():
        name = qualified_id(owners[doc_id], doc_id) if doc_id in owners else doc_id
        if grades.setdefault(name, grade) != grade:
            raise ConfigError(
                "judgements", f"{judgements.path}: {key[:80]!r}: {name} has grades {grades[name]} and {grade}; keep one"
            )
    return grades
