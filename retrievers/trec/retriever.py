"""Retrievers of `kind: trec`: a query has the list that a run file has for it, any other text has none."""

import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import pyarrow as pa

from cluster.errors import RetrieverError
from retrievers.corpora.in_memory import DocumentsInMemory
from retrievers.retriever import Alive, RankedList, RankedLists, Search, SearchText, check_planned, joined_lists, no_heartbeat
from retrievers.trec.run_file import RunFile
from retrievers.trec.settings import TrecSettings

TREC_VERSION = 2  # incremented when the same file would give other lists; part of a run's fingerprint


@dataclass(frozen=True, eq=False)
class GivenLists:
    """The lists of the log's queries, as columns: workers are sent these, and a file may have ten million lines."""

    places: Mapping[str, int]  # a query that has a list, as `plain` returns it -> the place of its list in the file
    run: RunFile
    identity: Mapping[str, Any]  # of the file's content and of which query each topic is
    notes: tuple[str, ...] = ()  # what a person should know of how the file was read; a sentence each

    @classmethod
    def from_run(cls, queries: Mapping[str, int], run: RunFile, identity: Mapping[str, Any], notes: Sequence[str] = ()) -> Self:
        """Returns the lists of queries: text, as `plain` returns it -> the place of its list in a file."""
        kept = sorted(set(queries.values()))
        renumbered = {place: number for number, place in enumerate(kept)}
        places = {text: renumbered[place] for text, place in queries.items()}
        return cls(places, run.at(kept), identity, tuple(notes))

    def list_of(self, text: str) -> RankedList | None:
        """Returns the list of a query, by its text as `plain` returns it; None: it has none."""
        place = self.places.get(text)
        return None if place is None else self.run.list_at(place)


def plain(text: str) -> str:
    """Returns a text by which a query is known here: Unicode NFKC, casefold, white space collapsed and trimmed."""
    return " ".join(unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", text).casefold()).casefold().split())


class TrecLists:
    """Lists made elsewhere; implements `retrievers.retriever.Retriever`."""

    def __init__(self, lists: GivenLists) -> None:
        self._lists = lists

    def identity(self) -> dict[str, Any]:
        return dict(self._lists.identity)

    def search(self, texts: Sequence[Search], depth: int, alive: Alive = no_heartbeat) -> RankedLists:
        lists = []
        for text in texts:
            known = self._lists.list_of(plain(text.text)) if isinstance(text, SearchText) else None
            lists.append(_NONE if known is None else RankedList(known.doc_ids[:depth], known.scores[:depth]))
            alive()
        return joined_lists(lists)


_NONE = RankedList(pa.array([], pa.string()), np.empty(0))


def open_retriever(
    name: str, settings: TrecSettings, device: str = "cpu", expect_identity: Mapping[str, Any] | None = None
) -> TrecLists:
    """Opens the lists; see `retrievers.retriever.open_retriever`."""
    lists = _lists(name, settings)
    check_planned(f"retrieve.retrievers.{name}: {settings.path}", expect_identity, dict(lists.identity))
    return TrecLists(lists)


def open_documents(name: str, settings: TrecSettings, *, patient: bool = False) -> DocumentsInMemory:
    """Returns a store without documents; see `retrievers.retriever.open_documents`."""
    problem = "a run file has ids alone: name an index of its corpus beside it, or set rerank.kind: none"
    return DocumentsInMemory(f"retrieve.retrievers.{name}", {}, problem)


def retriever_identity(name: str, settings: TrecSettings) -> dict[str, Any]:
    """Returns the identity; see `retrievers.retriever.retriever_identity`."""
    return dict(_lists(name, settings).identity)


def _lists(name: str, settings: TrecSettings) -> GivenLists:
    if settings.lists is None:
        problem = "its lists belong to the queries of a log, which was not read; open it by a config"
        raise RetrieverError("run-file", f"retrieve.retrievers.{name}: {settings.path}: {problem}")
    return settings.lists
