"""The indexes that a config searches: identities, encoders, the texts of their documents, and whether others write to them."""

from collections.abc import Iterable, Mapping
from typing import Any

from cluster.errors import ConfigError
from jobs.config.config import Config
from jobs.job.corpora import SearchedIndex, searched_indexes, text_sources
from jobs.job.retrievers import open_documents, retriever_facts, retriever_identity
from retrievers.encoder import encoder_notes
from retrievers.kinds import RetrieverSettings, all_indexed, indexed_identities
from retrievers.retriever import retriever_facts as facts_by_indexes
from retrievers.retriever import retriever_identity as identity_by_indexes

States = Mapping[str, Any]  # index -> its state; only of those that may change in place


def read_states(searched: Iterable[SearchedIndex]) -> dict[str, Any]:
    """Returns the states of the indexes now, each read once."""
    facts: dict[str, dict[str, Any]] = {}
    for index in searched:
        if index.settings.foreign and index.location not in facts:
            facts[index.location] = retriever_facts(index.name, index.settings.at(index.identity), index.identity)
    return {place: known["state"] for place, known in facts.items() if known.get("state") is not None}


def noted_changes(starts: Iterable[Mapping[str, Any]]) -> list[str]:
    """Returns a warning for each change of an index in place that the records of a run's starts show, in their order."""
    seen, warnings = dict[str, Any](), list[str]()
    for start in starts:
        for when, since in (("begin", "the start before"), ("end", f"start {start['start']} began")):
            for name, state in ((start.get("index_states") or {}).get(when) or {}).items():
                if seen.setdefault(name, state) != state:
                    warnings.append(
                        f"index {name}: another program has written to it since {since}, so queries of this job were searched "
                        "in different states of it; search an index that is closed to writing, or run again while nobody writes"
                    )
                seen[name] = state
    return warnings


def index_identities(config: Config) -> dict[str, dict[str, Any]]:
    """Returns retriever -> identity of its index.

    Each alias is resolved once: retrievers that share it search the same index, even if it is moved meanwhile.
    """
    by_alias: dict[str, dict[str, Any]] = {}

    def identity_of(name: str, settings: RetrieverSettings) -> dict[str, Any]:
        alias = settings.model_dump_json(include={"kind", "url_env", "index", "filter"})
        identity = retriever_identity(name, settings.at(by_alias.get(alias, {})))
        by_alias.setdefault(alias, identity)
        return identity

    return {name: identity_by_indexes(name, one, identity_of) for name, one in config.retrieve.retrievers.items()}


def read_facts(config: Config, indexes: Mapping[str, Mapping[str, Any]]) -> dict[str, dict[str, Any]]:
    """Returns retriever -> facts about its index, by `index_identities`."""
    retrievers = config.retrieve.retrievers
    return {name: facts_by_indexes(name, one, indexes[name], retriever_facts) for name, one in retrievers.items()}


def check_depths(config: Config, facts: Mapping[str, Mapping[str, Any]]) -> None:
    """Checks by the facts about indexes that they give lists as deep as the config has them."""
    for name, retriever in config.retrieve.retrievers.items():
        key, depth = "retrieve.depth", config.retrieve.depth
        if retriever.own_depth is not None:
            key, depth = f"retrieve.retrievers.{name}.depth", retriever.own_depth
        for part, of_index in indexed_identities({name: facts[name]}).items():
            if depth > (most := of_index.get("most_hits", depth)):
                raise ConfigError(
                    "config-value",
                    f"retrieve.retrievers.{part}: index {of_index['named']} gives at most {most:,} hits "
                    f"(index.max_result_window), and {key} is {depth:,}; lower {key}, or raise the setting of the index",
                )


def encoder_warnings(config: Config, *, reranker: bool = True) -> list[str]:
    """Returns warnings on how vectors are made, those of a `reranker` among them, a line each."""
    encoders = {f"retrieve.retrievers.{name}": one.encoder for name, one in all_indexed(config.retrieve.retrievers).items()}
    if reranker and config.rerank.kind == "bi_encoder":
        encoders["rerank"] = getattr(config.rerank, "encoder", None)
    return [f"{where}: {note}" for where, encoder in encoders.items() if encoder for note in encoder_notes(encoder)]


def check_documents(config: Config, indexes: Mapping[str, Mapping[str, Any]]) -> None:
    """Checks that the texts of documents can be read, and are those of what all retrievers find."""
    retrievers, first = config.retrieve.retrievers, config.retrieve.text_retriever
    searched = searched_indexes(retrievers, indexes)
    sources = text_sources(searched_indexes({first: retrievers[first]}, indexes))
    if any(
        index.member not in sources or index.identity.get("corpus") != sources[index.member].identity.get("corpus")
        for index in searched
    ):
        raise ConfigError(
            "index-other",
            f"retrieve.retrievers: {', '.join(index.name for index in searched)} search indexes of different corpora, but "
            f"texts are taken from {first}; build all from one corpus, make them one retriever of kind: union, or set "
            "rerank.kind: none and fuse.duplicates: keep",
        )
    for member, source in sources.items():
        only = source.identity.get("filter")
        others = [index.name for index in searched if index.member == member and index.identity.get("filter") != only]
        if only is not None and others:
            raise ConfigError(
                "index-other",
                f"retrieve.retrievers.{source.name}: texts are taken from it, and its filter leaves out what {others[0]} may "
                f"find; give both one filter, put {others[0]} first, or set rerank.kind: none and fuse.duplicates: keep",
            )
        if source.settings.foreign:  # refuses an index without texts
            open_documents(source.name, source.settings.at(source.identity))
