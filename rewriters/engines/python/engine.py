"""The engine of a strategy that is Python code, and the one of a pool that needs none."""

from __future__ import annotations

import inspect
import threading
import traceback
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from time import perf_counter
from typing import Any

from cluster.errors import RewriterError
from cluster.http import encodable
from cluster.plugins.modules import own_errors
from rewriters.engines import Completion, Request, SendGate
from rewriters.engines.python.settings import NoEngineSettings, PythonSettings
from rewriters.python.given import FirstLists, GivenQuery
from rewriters.python.texts import weighted_texts, written

RAISED = "raised"
"""The reason of a query on which the code of a strategy raises, or gives what are no texts."""
_PORTION = 64  # queries whose documents are read together
_WORDS = 300  # characters of an error


class PythonEngine:
    """Calls the code of a strategy, for one query at a time: it need not be made for threads.

    An error of the code is one of its query.
    """

    kind = "python"

    def __init__(self, settings: PythonSettings) -> None:
        """Loads nothing yet."""
        self._settings, self._strategy = settings, settings.strategy
        self._lock, self._rewrite = threading.Lock(), list[Callable[..., Any]]()

    def check(self) -> None:
        """The code was loaded when it was opened."""

    def start(self) -> dict[str, float]:
        """Has the strategy load what it needs."""
        if self._rewrite:
            return {}
        began = perf_counter()
        made = type(self._strategy)
        with own_errors(made, f"{made.__name__}.open failed", RewriterError):
            self._rewrite.append(self._strategy.open())
        return {"load": perf_counter() - began}

    def complete(self, requests: Sequence[Request], gate: SendGate | None = None) -> Iterator[tuple[Request, Completion]]:
        """Yields the texts of each request, in their order; nothing is sent or paid for, so no gate is asked."""
        for begin in range(0, len(requests), _PORTION):
            portion = requests[begin : begin + _PORTION]
            for request, lists in zip(portion, self._lists(portion), strict=True):
                yield request, self._completion(request, lists)

    def identity(self) -> dict[str, Any]:
        """Returns the kind, the code by its content, and the settings, as JSON values."""
        return {"kind": self.kind, **self._settings.known_by()}

    def close(self) -> None:
        """Lets go of what the strategy has loaded."""
        self._rewrite.clear()

    def _lists(self, portion: Sequence[Request]) -> Sequence[FirstLists | None]:
        """Returns the lists of requests; None of code that reads none."""
        given = [one.given for one in portion if one.given is not None]
        reads = next((one.lists for one in given if one.lists is not None), None)
        return [None] * len(portion) if self._settings.reads is None or reads is None else reads(given)

    def _completion(self, request: Request, lists: FirstLists | None) -> Completion:
        began, model = perf_counter(), self._settings.shown
        try:
            with self._lock:
                texts = weighted_texts(self._rewritten(request.given, lists), self._settings.most_texts)
        except Exception as error:  # whatever the code raises, the other queries and strategies go on
            message, seconds = _in_words(error, type(self._strategy)), perf_counter() - began
            return Completion(None, None, model, seconds=seconds, attempts=0, error_reason=RAISED, error_message=message)
        return Completion(written(texts), "stop", model, seconds=perf_counter() - began, attempts=0)

    def _rewritten(self, given: GivenQuery | None, lists: FirstLists | None) -> Any:
        assert given is not None, "a request to code has what it is given"
        if self._settings.reads is None:
            return self._rewrite[0](given.query)
        if lists is None:
            raise LookupError("the lists of the original are missing, since their search failed (stage gate)")
        return self._rewrite[0](given.query, lists)


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
