"""The engine of a strategy that is Python code, and the one of a pool that needs none."""

from __future__ import annotations

import inspect
import threading
import traceback
from collections.abc import Iterator, Sequence
from pathlib import Path
from time import perf_counter
from typing import Any, NamedTuple

from cluster.errors import RewriterError
from cluster.http import encodable
from cluster.plugins.modules import own_errors
from rewriters.engines import Completion, Request, SendGate
from rewriters.engines.python.settings import NoEngineSettings, PythonSettings
from rewriters.python.given import FirstLists
from rewriters.python.texts import OpenedCode, WeightedText, written
from rewriters.query import Query

RAISED = "raised"
"""The reason of a query on which the code of a strategy raises, or gives what are no texts."""
_PORTION = 64  # queries whose documents are read together
_WORDS = 300  # characters of an error


class _AskedCode(NamedTuple):
    """A request, and the lists that the code reads of it."""

    request: Request
    lists: FirstLists | None

    @property
    def query(self) -> Query:
        """Returns what the code is given."""
        assert self.request.given is not None, "a request to code has what it is given"
        return self.request.given.query


class PythonEngine:
    """Calls the code of a strategy, from one thread at a time: for each query, or for a batch where it takes several.

    An error of the code is one of its query: where a batch fails, each of its queries is asked alone.
    """

    kind = "python"

    def __init__(self, settings: PythonSettings) -> None:
        """Loads nothing yet."""
        self._settings, self._strategy = settings, settings.strategy
        self._lock, self._opened = threading.Lock(), list[OpenedCode]()

    def check(self) -> None:
        """The code was loaded when it was opened."""

    def start(self) -> dict[str, float]:
        """Has the strategy load what it needs."""
        if self._opened:
            return {}
        began, made = perf_counter(), type(self._strategy)
        with own_errors(made, f"{made.__name__}.open failed", RewriterError):
            self._opened.append(OpenedCode(self._strategy))
        return {"load": perf_counter() - began}

    def complete(self, requests: Sequence[Request], gate: SendGate | None = None) -> Iterator[tuple[Request, Completion]]:
        """Yields the texts of each request, in their order; nothing is sent or paid for, so no gate is asked."""
        size = self._opened[0].batch
        read_together = max(size, _PORTION)
        for begin in range(0, len(requests), read_together):
            portion = requests[begin : begin + read_together]
            asked = [_AskedCode(*one) for one in zip(portion, self._lists(portion), strict=True)]
            for first in range(0, len(asked), size):
                yield from self._completed(asked[first : first + size])

    def identity(self) -> dict[str, Any]:
        """Returns the kind, the code by its content, and the settings, as JSON values."""
        return {"kind": self.kind, **self._settings.known_by()}

    def close(self) -> None:
        """Lets go of what the strategy has loaded."""
        self._opened.clear()

    def _lists(self, portion: Sequence[Request]) -> Sequence[FirstLists | None]:
        """Returns the lists of requests; None of code that reads none."""
        given = [one.given for one in portion if one.given is not None]
        reads = next((one.lists for one in given if one.lists is not None), None)
        return [None] * len(portion) if self._settings.reads is None or reads is None else reads(given)

    def _completed(self, batch: Sequence[_AskedCode]) -> Iterator[tuple[Request, Completion]]:
        together = [one for one in batch if self._may_be_asked(one)]
        if len(together) > 1:
            began = perf_counter()
            try:
                found = dict(zip(map(id, together), self._texts(together), strict=True))
            except Exception:  # of one of them, which says it when it is asked alone
                found = {}
            seconds = (perf_counter() - began) / len(together)
        else:
            found, seconds = {}, 0.0
        for one in batch:
            texts = found.get(id(one))
            yield one.request, self._completion(one) if texts is None else self._answer(texts, seconds)

    def _completion(self, one: _AskedCode) -> Completion:
        began = perf_counter()
        try:
            if not self._may_be_asked(one):
                raise LookupError("the lists of the original are missing, since their search failed (stage gate)")
            (texts,) = self._texts([one])
        except Exception as error:  # whatever the code raises, the other queries and strategies go on
            message, seconds = _in_words(error, type(self._strategy)), perf_counter() - began
            return Completion(
                None, None, self._settings.shown, seconds=seconds, attempts=0, error_reason=RAISED, error_message=message
            )
        return self._answer(texts, perf_counter() - began)

    def _answer(self, texts: list[WeightedText], seconds: float) -> Completion:
        return Completion(written(texts), "stop", self._settings.shown, seconds=seconds, attempts=0)

    def _may_be_asked(self, one: _AskedCode) -> bool:
        return self._settings.reads is None or one.lists is not None

    def _texts(self, asked: Sequence[_AskedCode]) -> list[list[WeightedText]]:
        with self._lock:
            return self._opened[0].texts([one.query for one in asked], [one.lists for one in asked])


def _in_words(error: Exception, made: type) -> str:
    """Returns an error of code with the place in the file of its class where it was raised."""
    file = inspect.getfile(made)
    frames = [one for one in traceback.extract_tb(error.__traceback__) if one.filename == file]
    place = f"{Path(file).name}, line {frames[-1].lineno}: " if frames else ""
    words = " ".join(f"{type(error).__name__}: {error}".split())
    return encodable(f"{place}{words[:_WORDS]}")


class NoEngine:
    """In the place of a common engine where every strategy is code: nothing is asked of it."""

    kind = "none"

    def __init__(self, settings: NoEngineSettings) -> None:
        """Needs nothing."""

    def check(self) -> None:
        """Nothing can fail."""

    def start(self) -> dict[str, float]:
        """Returns nothing."""
        return {}

    def complete(self, requests: Sequence[Request], gate: SendGate | None = None) -> Iterator[tuple[Request, Completion]]:
        """Yields nothing."""
        assert not requests, "a strategy that is no code has an engine"
        return iter(())

    def identity(self) -> dict[str, Any]:
        """Returns the kind."""
        return {"kind": self.kind}

    def close(self) -> None:
        """Holds nothing."""
