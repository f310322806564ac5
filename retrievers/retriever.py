"""The protocol of all retrievers, the ranked lists that they return, and opening a retriever from its settings.

In the whole project ranks start at 1, and a list is sorted by descending score, equal scores by `doc_id` in
code point order.

To add a retriever, add a folder (`retrievers.kinds.folders`); one of your own is a plug-in (docs/python.md). Its module has
`open_retriever`, `open_documents`, `retriever_identity`, and if there is something to note
`retriever_facts`. Of all functions that are given one, `name` is its key in the config, for messages, and `settings` are its
settings. They raise RetrieverError if there is no index, or none that fits the settings.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, NamedTuple, Protocol, runtime_checkable

import numpy as np
import pyarrow as pa

from cluster.errors import RetrieverError
from cluster.plugins import identity_of, is_plugin, module_beside, own_errors
from retrievers.kinds import RetrieverSettings, indexed_identities

CODE = "code"  # key of a plug-in's code in the identity of a retriever
BUILD = "dmqr index CONFIG"

Alive = Callable[[], object]  # a heartbeat callback: long operations call it regularly while they progress


def no_heartbeat() -> None:
    """Does nothing; the default heartbeat callback."""


class SearchText(NamedTuple):
    """The text of a search; `kind` is "query" or "passage" and selects the encoder's prefix."""

    text: str
    kind: str = "query"


@dataclass(frozen=True)
class JoinedText:
    """The texts of one query, to be searched as one (`retrievers/join.py`); `original` is None if it is not among them."""

    original: SearchText | None
    rewrites: tuple[SearchText, ...]

    @property
    def texts(self) -> tuple[SearchText, ...]:
        """Returns all of them, the original first."""
        return self.rewrites if self.original is None else (self.original, *self.rewrites)


Search = SearchText | JoinedText


class RankedLists(NamedTuple):
    """One ranked list per text, flat; list `i` is `doc_ids[offsets[i]:offsets[i + 1]]`, best first."""

    offsets: np.ndarray  # shape (n + 1,), int64; a text without hits has an empty list
    doc_ids: pa.StringArray
    scores: np.ndarray  # float64


@runtime_checkable
class Retriever(Protocol):
    """Searches a batch of texts. Opened from its settings in the worker that uses it."""

    def search(self, texts: Sequence[Search], depth: int, alive: Alive = no_heartbeat) -> RankedLists:
        """Returns at most `depth` hits for each text, in the order of the texts; calls `alive` meanwhile."""

    def identity(self) -> dict[str, Any]:
        """Returns the identity of the hits, as JSON values."""


@runtime_checkable
class Embedder(Protocol):
    """A dense retriever, which can also return the vectors of texts."""

    def embed(self, texts: Sequence[SearchText]) -> np.ndarray:
        """Returns the vectors with which `search` searches: length 1, shape (n, dim), float32."""


@runtime_checkable
class DocumentStore(Protocol):
    """Access to the texts of documents."""

    def texts(self, doc_ids: Sequence[str], alive: Alive = no_heartbeat) -> list[str]:
        """Returns the indexed text of each document, `title. text`; raises RetrieverError if one is not in the store."""

    def places(self, doc_ids: Sequence[str]) -> list[str]:
        """Returns the source of each document, as an answer cites it: source and page of its columns; "" where it has none."""

    def known(self, doc_ids: Sequence[str]) -> list[bool]:
        """Returns True if each document is in the store."""

    def some(self, count: int) -> list[str]:
        """Returns at most `count` indexed texts, to estimate the lengths of all."""


SOURCE, PAGE, CHUNK = "source", "page", "chunk"  # columns of a corpus that say where a passage is from


def place_of(columns: Mapping[str, Any]) -> str:
    """Returns the source of a document and its page, if it has one; "" without a source."""
    source, page = columns.get(SOURCE), columns.get(PAGE)
    return "" if not source else f"{source}, page {page}" if page is not None else str(source)


def open_retriever(
    name: str, settings: RetrieverSettings, device: str = "cpu", expect_identity: Mapping[str, Any] | None = None
) -> Retriever:
    """Returns an open retriever of the config's `retrieve.retrievers`.

    An encoder runs on `device`, "cpu" or "cuda:0". `expect_identity` is the `Retriever.identity` when the run was planned: an
    index with another one is refused; None: any.
    """
    planned = None if expect_identity is None else {key: value for key, value in expect_identity.items() if key != CODE}
    opened: Any = _called("open_retriever", name, settings, device=device, expect_identity=planned)
    if is_plugin(type(settings)) and not isinstance(opened, Retriever):
        line = f"open_retriever gives {type(opened).__name__}, and should give what has search and identity; correct it"
        raise RetrieverError("plugin", f"retrieve.retrievers.{name}: {_opener(settings).__file__}: {line}")
    return opened


def with_code(settings: RetrieverSettings, identity: Mapping[str, Any]) -> dict[str, Any]:
    """Returns an identity of a retriever with that of its code, where it is a plug-in."""
    code = identity_of(type(settings))
    return dict(identity) | ({CODE: code} if code else {})


def open_documents(name: str, settings: RetrieverSettings, *, patient: bool = False) -> DocumentStore:
    """Returns the documents of a retriever's index; where `patient`, an unreachable server is waited for, as by a worker."""
    store: DocumentStore = _called("open_documents", name, settings, patient=patient)
    return store


def retriever_identity(
    name: str, settings: RetrieverSettings, of_index: Callable[[str, Any], dict[str, Any]] | None = None
) -> dict[str, Any]:
    """Returns the `Retriever.identity` without loading a model, after a check of its indexes against the settings.

    `of_index` returns that of each index, by its key and settings; None: as the module of its kind does.
    """
    indexes = {key: (of_index or _index_identity)(key, one) for key, one in settings.indexed(name).items()}
    return settings.identity_of(name, indexes) if indexes else _index_identity(name, settings)


def _index_identity(name: str, settings: RetrieverSettings) -> dict[str, Any]:
    return with_code(settings, _called("retriever_identity", name, settings))


def identity_differences(before: Mapping[str, Any], after: Mapping[str, Any], prefix: str = "") -> str:
    """Returns the differences of two identities, for a message: `key: old then, new now`, separated by commas."""
    differences = []
    for key in sorted({*before, *after}):
        old, new = before.get(key), after.get(key)
        if isinstance(old, Mapping) and isinstance(new, Mapping):
            differences.append(identity_differences(old, new, f"{prefix}{key}."))
        elif old != new:
            differences.append(f"{prefix}{key}: {old!r} then, {new!r} now")
    return ", ".join(part for part in differences if part)


def check_planned(where: str, planned: Mapping[str, Any] | None, identity: Mapping[str, Any]) -> None:
    """Refuses an index, which `where` names, that has another identity than the planned one; None: any is good."""
    if planned is not None and dict(planned) != identity:
        problem = f"was replaced since this run was planned ({identity_differences(planned, identity)})"
        raise RetrieverError("run-changed", f"{where} {problem}; start a new run, or restore the old index")


def retriever_facts(
    name: str,
    settings: RetrieverSettings,
    identity: Mapping[str, Any],
    of_index: Callable[[str, Any, Mapping[str, Any]], dict[str, Any]] | None = None,
) -> dict[str, Any]:
    """Returns facts about indexes for a run's record that are no part of their identity, such as the number of documents.

    `identity` is that of `retriever_identity`; it names the concrete index, even if an alias points to another one by now.
    `of_index` returns those of each index, as of `retriever_identity`.
    """
    identities = indexed_identities({name: identity})
    facts = {key: (of_index or _index_facts)(key, one, identities[key]) for key, one in settings.indexed(name).items()}
    return settings.facts_of(name, identities, facts)


def _index_facts(name: str, settings: RetrieverSettings, identity: Mapping[str, Any]) -> dict[str, Any]:
    noted = hasattr(_opener(settings), "retriever_facts")
    return _called("retriever_facts", name, settings, identity) if noted else {}


def _opener(settings: RetrieverSettings) -> Any:
    return module_beside(type(settings), settings.opener)


def _called(function: str, name: str, settings: RetrieverSettings, *arguments: Any, **options: Any) -> Any:
    """Returns the result of a function of a kind's module; says in one line what that of a plug-in raises."""
    with own_errors(type(settings), f"{function} failed", RetrieverError, f"retrieve.retrievers.{name}"):
        module = _opener(settings)
        if not hasattr(module, function):
            line = f"has no function {function}; write it as retrievers/retriever.py says"
            raise RetrieverError("plugin", f"{module.__file__}: {line}")
        return getattr(module, function)(name, settings, *arguments, **options)


def check_built(where: str, built: Mapping[str, Any], asked: Mapping[str, Any], section: str = "") -> None:
    """Refuses an index, which `where` names, that was built with another value of a key of the config's `section`."""
    for key, value in asked.items():
        if key in built and built[key] != value:
            problem = f"{where} was built with {section}{key} {built[key]!r}, the config asks for {value!r}"
            raise RetrieverError("index-other", f"{problem}; set {section}{key}: {built[key]}, or build it again: {BUILD}")


@contextmanager
def error_context(where: str) -> Iterator[None]:
    """Prefixes the message of a `RetrieverError` in its body with a key of the config."""
    try:
        yield
    except RetrieverError as error:
        raise RetrieverError(error.code, f"{where}: {error}") from error


def ranked_lists(rows: Sequence[np.ndarray], scores: Sequence[np.ndarray], ids: pa.StringArray) -> RankedLists:
    """Returns `RankedLists` of the row numbers and scores of each list's hits; `ids` has the doc_id of each row."""
    offsets = np.cumsum([0, *map(len, rows)], dtype=np.int64)
    flat = np.concatenate(rows) if len(rows) else np.empty(0, dtype=np.int64)
    values = np.concatenate(scores).astype(np.float64) if len(scores) else np.empty(0)
    return RankedLists(offsets, ids.take(pa.array(flat, type=pa.int64())).cast(pa.string()), values)


class RankedList(NamedTuple):
    """One ranked list: documents with their scores, best first."""

    doc_ids: pa.StringArray
    scores: np.ndarray


def single_lists(lists: RankedLists) -> list[RankedList]:
    """Returns the lists one by one, without copying."""
    ends = lists.offsets.tolist()
    return [RankedList(lists.doc_ids[begin:end], lists.scores[begin:end]) for begin, end in pairwise(ends)]


def lists_of(answers: Sequence[Iterable[tuple[str, float]]], depth: int) -> RankedLists:
    """Returns lists of hits (doc_id, score) that are in any order: sorted as lists are, the best `depth` of each."""
    kept = [sorted(hits, key=lambda hit: (-hit[1], hit[0]))[:depth] for hits in answers]
    offsets = np.cumsum([0, *map(len, kept)], dtype=np.int64)
    doc_ids = pa.array([doc_id for hits in kept for doc_id, _ in hits], pa.string())
    return RankedLists(offsets, doc_ids, np.array([score for hits in kept for _, score in hits], dtype=np.float64))


def joined_lists(lists: Sequence[RankedList]) -> RankedLists:
    """Returns the lists as flat arrays; the inverse of `single_lists`."""
    offsets = np.cumsum([0, *(len(one.scores) for one in lists)], dtype=np.int64)
    doc_ids = pa.concat_arrays([one.doc_ids for one in lists]) if lists else pa.array([], pa.string())
    return RankedLists(offsets, doc_ids, np.concatenate([np.empty(0), *(one.scores for one in lists)]))


def top_rows(scores: np.ndarray, depth: int, floor: float = -np.inf) -> np.ndarray:
    """Returns at most `depth` rows of the highest scores above the floor, best first, equal scores by row.

    Also exact if many rows have the score of the last hit: those with the smallest row numbers are kept. NaN is never a hit.
    Cost: one partition of the rows above the floor.
    """
    (hits,) = (scores > floor).nonzero()
    if depth <= 0 or not len(hits):
        return hits[:0]
    values = scores[hits]
    if len(hits) > depth:
        parted = values.copy()
        parted.partition(len(values) - depth)
        keep = values >= parted[len(values) - depth]
        hits, values = hits[keep], values[keep]
    # a stable sort of ascending rows keeps equal scores in the order of their rows
    return hits[(-values).argsort(kind="stable")][:depth]
