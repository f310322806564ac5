"""Marks jobs inside another program, such as a notebook, whose streams, loggers and signals are not ours."""

import importlib
import signal
import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar

_EMBEDDED: ContextVar[bool] = ContextVar("embedded", default=False)


@contextmanager
def embedded() -> Iterator[None]:
    """Has what this thread does in the `with` print nothing and leave the handlers of signals as they are."""
    with warnings.catch_warnings(), suppress(ImportError):
        warnings.simplefilter("ignore")  # of tqdm's bars, which libraries import: in a notebook without ipywidgets
        importlib.import_module("tqdm.auto")
    token = _EMBEDDED.set(True)
    try:
        yield
    finally:
        _EMBEDDED.reset(token)


def is_embedded() -> bool:
    """Returns True if this thread is inside `embedded`."""
    return _EMBEDDED.get()


@contextmanager
def sigterm_kept() -> Iterator[None]:
    """Undoes, where a job is embedded, what a library does to the handler of SIGTERM in the `with`: Ray takes it."""
    before = signal.getsignal(signal.SIGTERM)
    try:
        yield
    finally:
        if is_embedded() and before is not None and threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, before)
