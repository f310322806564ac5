"""Batches of texts of similar length, bounded by tokens, for cross-encoders and encoders."""

import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait
from typing import Any, TypeVar

import numpy as np

Item = TypeVar("Item")
Made = TypeVar("Made")

# Texts or pairs tokenised and sorted by length at a time, while the device works on those before. 5,000 of SciFact's pairs have
# 0.6 % of padding on a CPU, and 0.3 % with 4,096; on a GPU 4 points more where a model is padded there, for less to wait for
# at the beginning: 5,000 pairs are tokenised in 0.8 s and scored in 2.3.
CHUNK = 1024
# Tokens of a forward pass, padding included; small batches fit the CPU cache and need little padding. Measured with MiniLM on
# a CPU. Pairs: two cores, 120 of SciFact: 12.7 pairs/s with 2,048 tokens, 16.2 with 4,096, 14.6 with 8,192, 12.0 with 32,768.
# Texts: one thread, 60 passages and 300 queries: 5.2 and 1.2 s of processor time with 1,024 tokens, 5.3 and 1.4 s with 2,048,
# 5.9 and 1.9 s with 4,096.
PAIR_TOKENS = {"cpu": 4096, "cuda": 65_536}
TEXT_TOKENS = {"cpu": 1024, "cuda": 65_536}
_ALIVE_SECONDS = 5.0  # between two heartbeats while a server is waited for


def device_kind(device: str) -> str:
    """Returns the kind of a device: "cpu" or "cuda"."""
    return "cpu" if device == "cpu" else "cuda"


def length_batches(lengths: np.ndarray, tokens: int) -> Iterator[np.ndarray]:
    """Yields batches of positions of texts, longest first, so that a batch too large for the memory fails at once.

    `lengths` are the tokens of each text, shape (n,). A batch has `tokens` at most, padding included, and one text at least.
    """
    order = np.argsort(-lengths, kind="stable")
    start = 0
    while start < len(order):
        size = max(1, tokens // max(1, int(lengths[order[start]])))
        yield order[start : start + size]
        start += size


def packed_batches(lengths: np.ndarray, tokens: int) -> Iterator[np.ndarray]:
    """Yields batches as `length_batches` does, for texts that lie one after the other, without padding."""
    order = np.argsort(-lengths, kind="stable")
    ends = np.cumsum(lengths[order])
    start = 0
    while start < len(order):
        before = ends[start - 1] if start else 0
        end = max(start + 1, int(np.searchsorted(ends, before + tokens, side="right")))
        yield order[start:end]
        start = end


def made_ahead(make: Callable[[Item], Made], items: Iterable[Item]) -> Iterator[Made]:
    """Yields the result of `make` for each item, in order; a thread makes the next one while the caller uses one.

    One thread, and not several as in `cluster/storage/prefetch.py`: a tokenizer serves one call at a time.
    """
    with ThreadPoolExecutor(1) as thread:
        last = None
        for item in items:
            begun = thread.submit(make, item)
            if last is not None:
                yield last.result()
            last = begun
        if last is not None:
            yield last.result()


def in_threads(
    work: Callable[[Item, threading.Event], Made], items: Sequence[Item], most: int, alive: Callable[[], object] = lambda: None
) -> list[Made]:
    """Returns the result of `work` for each item, in order, at most `most` at a time; calls `alive` now and then.

    Once one fails, the event that all are given is set, those that wait are dropped, and the error is raised.
    """
    stop, failures = threading.Event(), list[BaseException]()

    def result_of(item: Item) -> Made:
        if failures:  # before the waiting thread has heard of it: this one would begin to wait for a server that is away
            raise failures[0]
        try:
            return work(item, stop)
        except BaseException as error:
            failures.append(error)
            stop.set()
            raise

    with ThreadPoolExecutor(max(1, min(most, len(items)))) as threads:
        futures = [threads.submit(result_of, item) for item in items]
        left = set(futures)
        try:
            while left:
                _, left = wait(left, _ALIVE_SECONDS, FIRST_COMPLETED)
                alive()
                if failures:  # the first: those that wait end with failures of their own once the event is set
                    raise failures[0]
        except BaseException:
            stop.set()  # also where it is interrupted
            threads.shutdown(wait=False, cancel_futures=True)
            raise
    return [future.result() for future in futures]


def in_order(batches: Iterable[np.ndarray], compute: Callable[[np.ndarray], Any]) -> np.ndarray:
    """Returns the result of `compute` for each text, in the order of the texts, shape (n, ...).

    `compute` returns a tensor with a row for each text of a batch, and there is one batch at least. The results are copied from
    the device together at the end, so that it need not wait between batches.
    """
    import torch

    parts = list(batches)
    with torch.inference_mode():
        rows = torch.cat([compute(part) for part in parts]).cpu().numpy()
    ordered = np.empty_like(rows)
    ordered[np.concatenate(parts)] = rows
    return ordered
