"""What every retriever is: texts in, ranked lists out.

Said once, for the whole project:

- ranks start at 1 (`FIRST_RANK`);
- a list is ordered by score, highest first, and equal scores by ``doc_id`` in code point order.

Adding a retriever is one file and one line in `OPENERS`.
"""

from __future__ import annotations

import difflib
import importlib
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple, Protocol, TypeVar, runtime_checkable

import numpy as np
import pyarrow as pa

FIRST_RANK = 1
"""The rank of the best hit."""

OPENERS = {"local": "retrievers.local", "elastic": "retrievers.elastic"}
"""kind -> module with ``open_retriever(name, settings, device, expect_identity)``."""


class RetrieverError(Exception):
    """Something a person must put right; ``str()`` of it is one line: what, where, what to do."""


Alive = Callable[[], object]
"""Called now and then while something takes long, so that whoever watches knows that it goes on."""


def unwatched() -> None:
    """Nobody watches."""


class SearchText(NamedTuple):
    """A text to search with. ``kind`` is "query" or "passage": which prefix an encoder puts before it."""

    text: str
    kind: str = "query"


class RankedLists(NamedTuple):
    """One ranked list per text, flat.

    List ``i`` is ``doc_ids[offsets[i]:offsets[i + 1]]`` with the scores at the same places, best first.
    ``offsets`` has shape (n + 1,), int64; ``scores`` float64. A text without hits has an empty list.
    """

    offsets: np.ndarray
    doc_ids: pa.StringArray
    scores: np.ndarray


@runtime_checkable
class Retriever(Protocol):
    """Searches a batch of texts. Built where it is used (in the worker), from its settings."""

    def search(self, texts: Sequence[SearchText], depth: int, alive: Alive = unwatched) -> RankedLists:
        """At most ``depth`` hits for each text, in the order of ``texts``; no texts: no lists. ``alive``: see `Alive`."""
        ...

    def identity(self) -> dict[str, Any]:
        """What decides which hits come out; plain JSON values."""
        ...


@runtime_checkable
class Embedder(Protocol):
    """A retriever that searches with vectors can also give them."""

    def embed(self, texts: Sequence[SearchText]) -> np.ndarray:
        """Shape (n, dim), float32, every row of length 1: the vectors that `search` searches with."""
        ...


@runtime_checkable
class DocumentStore(Protocol):
    """Gives the text of documents."""

    def texts(self, doc_ids: Sequence[str], alive: Alive = unwatched) -> list[str]:
        """The indexed text of each document (``title. text``, or the text where there is no title).

        Raises:
            RetrieverError: a ``doc_id`` is not in the store.
        """
        ...


def open_retriever(
    name: str,
    settings: Mapping[str, Any],
    device: str = "cpu",
    expect_identity: Mapping[str, Any] | None = None,
) -> Retriever:
    """Open the retriever that one block of the config's ``retrieve.retrievers`` describes.

    Args:
        name: the block's name, for messages.
        settings: the block, e.g. ``{"kind": "local", "index": "idx/", "analyzer": "english"}``.
        device: where an encoder runs: "cpu", "cuda:0".
        expect_identity: the `Retriever.identity` noted when the job was planned; another one is refused.

    Raises:
        RetrieverError: unknown kind; or what the kind's own opener refuses.
    """
    opener = _opener(name, settings).open_retriever
    retriever: Retriever = opener(name, settings, device=device, expect_identity=expect_identity)
    return retriever


def open_documents(name: str, settings: Mapping[str, Any]) -> DocumentStore:
    """Open the documents behind a retriever's block, without its encoder.

    Raises:
        RetrieverError: unknown kind; no index there.
    """
    store: DocumentStore = _opener(name, settings).open_documents(name, settings)
    return store


def retriever_identity(name: str, settings: Mapping[str, Any]) -> dict[str, Any]:
    """What `Retriever.identity` would say, without loading a model; checks the index against the settings.

    Raises:
        RetrieverError: unknown kind; no index there; an index of another encoder or analyzer.
    """
    identity: dict[str, Any] = _opener(name, settings).retriever_identity(name, settings)
    return identity


def retriever_facts(name: str, settings: Mapping[str, Any]) -> dict[str, Any]:
    """What is worth noting of an index in a run's record though it decides no identity, such as its number of documents.

    Raises:
        RetrieverError: unknown kind; no index there.
    """
    opener = _opener(name, settings)
    facts: dict[str, Any] = opener.retriever_facts(name, settings) if hasattr(opener, "retriever_facts") else {}
    return facts


def _opener(name: str, settings: Mapping[str, Any]) -> Any:
    kind = settings.get("kind")
    if kind not in OPENERS:
        raise RetrieverError(f"retrieve.retrievers.{name}: {unknown('kind', kind, OPENERS)}")
    return importlib.import_module(OPENERS[kind])


def unknown(what: str, found: object, allowed: Sequence[str] | Mapping[str, Any]) -> str:
    """The words for a name that is not known: the nearest one, and the list."""
    near = difflib.get_close_matches(str(found), list(allowed), n=1)
    hint = f", did you mean {near[0]!r}?" if near else ";"
    return f"unknown {what} {found!r}{hint} known: {', '.join(sorted(allowed))}"


@contextmanager
def named(where: str) -> Iterator[None]:
    """What is refused inside is said to stand at this key of the config."""
    try:
        yield
    except RetrieverError as error:
        raise RetrieverError(f"{where}: {error}") from error


Item = TypeVar("Item", bound=Hashable)


def distinct(items: Sequence[Item]) -> tuple[list[Item], np.ndarray]:
    """The distinct items in order of first appearance, and for every item the place of its like (int64)."""
    places: dict[Item, int] = {}
    inverse = np.fromiter((places.setdefault(item, len(places)) for item in items), dtype=np.int64, count=len(items))
    return list(places), inverse


def ranked_lists(rows: Sequence[np.ndarray], scores: Sequence[np.ndarray], ids: pa.StringArray) -> RankedLists:
    """Lists of row numbers and scores as `RankedLists`; ``ids`` names each row."""
    offsets = np.zeros(len(rows) + 1, dtype=np.int64)
    np.cumsum([len(part) for part in rows], out=offsets[1:])
    flat = np.concatenate(rows) if len(rows) else np.empty(0, dtype=np.int64)
    values = np.concatenate(scores).astype(np.float64) if len(scores) else np.empty(0)
    return RankedLists(offsets, ids.take(pa.array(flat, type=pa.int64())), values)


def top_rows(scores: np.ndarray, depth: int, floor: float = -np.inf) -> np.ndarray:
    """The rows of the ``depth`` highest scores above ``floor``, best first, equal scores by row.

    Exact also where many rows share the score at the cut: the ones with the smallest row numbers are kept.
    Cost: one partition over the rows above the floor. NaN is never a hit.

    Args:
        scores: shape (n,).
    """
    hits = np.flatnonzero(scores > floor)
    if depth <= 0 or not len(hits):
        return hits[:0]
    values = scores[hits]
    if len(hits) > depth:
        cut = np.partition(values, len(values) - depth)[len(values) - depth]
        keep = values >= cut
        hits, values = hits[keep], values[keep]
    # stable, and the rows come in ascending order: equal scores stay in the order of their rows
    return hits[np.argsort(-values, kind="stable")][:depth]
