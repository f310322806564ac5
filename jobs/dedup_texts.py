"""Distinct query texts: their ids, their counts, and which of them are no queries."""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import sha256
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from jobs.log_rows import LogPiece
from rewriters.normalise import normalise

REASONS = {"empty": "null or only white space", "too_long": "over {max_chars:,} characters", "not_utf8": "not UTF-8"}
RAW_SHOWN = 200  # code points of a rejected text that are kept

MAX_TEXTS = 1 << 16  # times some 250 bytes: the table's share of peak memory
MAX_CHARS = 1 << 23
ID_BYTES = 16  # the first half of sha256: 32 hex digits

Slots = npt.NDArray[np.int64]
Digests = npt.NDArray[np.uint8]


class Rejection(NamedTuple):
    """Why a text is no query; `raw` is its beginning, null for a null text."""

    reason: str  # a key of REASONS
    message: str
    raw: str | None


NULL = Rejection("empty", "the query is null", None)
UNSEEN, REFUSED = -2, -1  # in place of a slot


def query_id_bytes(normalised: str) -> bytes:
    """The 16 bytes whose hex form is the query_id of a normalised query."""
    return sha256(normalised.encode()).digest()[:ID_BYTES]


def judge(text: str, max_chars: int) -> bytes | Rejection:
    """The 16 bytes of a query's id, or why the text is no query."""
    if len(text) > max_chars and not text.isspace():
        message = f"the query has {len(text):,} characters, log.max_chars is {max_chars:,}"
        return Rejection("too_long", message, text[:RAW_SHOWN])
    normalised = normalise(text)
    if not normalised:
        message = "the query is only white space" if text else "the query is empty"
        return Rejection("empty", message, text[:RAW_SHOWN])
    return query_id_bytes(normalised)


def hex_ids(digests: Digests) -> pa.StringArray:
    """(n, 16) bytes -> n query_ids of 32 hex digits; hex order is byte order."""
    offsets = np.arange(len(digests) + 1, dtype=np.int32) * (2 * ID_BYTES)
    digits = digests.tobytes().hex().encode()
    return pa.StringArray.from_buffers(len(digests), pa.py_buffer(offsets), pa.py_buffer(digits))


class DistinctTexts:
    """The distinct texts since the last `clear`, numbered from 0 as they came, with their ids and summed counts.

    Every text is normalised and hashed when it is first met: the heavy head of a log once per table, not per piece.
    """

    def __init__(self, max_chars: int) -> None:
        self.max_chars = max_chars
        self.clear()

    def clear(self) -> None:
        """Forget every text; slots handed out before mean nothing afterwards."""
        self._slots: dict[str | Rejection, int] = {}  # texts only
        self._chars = 0
        self._dictionary: pa.StringArray = pa.array([], pa.string())  # of the last piece
        self._dictionary_slots = np.full(1, UNSEEN, np.int64)
        self._rejections: dict[int, Rejection] = {}
        self._digests: Digests = np.empty((1024, ID_BYTES), np.uint8)
        self._counts = np.zeros(1024, np.int64)

    @property
    def full(self) -> bool:
        """Time to spill and clear: the table's memory is bounded."""
        return len(self._slots) >= MAX_TEXTS or self._chars >= MAX_CHARS

    @property
    def digests(self) -> Digests:
        """(texts, 16): first half of sha256 of each normalised text, by slot."""
        return self._digests[: len(self._slots)]

    @property
    def counts(self) -> npt.NDArray[np.int64]:
        """(texts,): rows, or their summed counts, by slot."""
        return self._counts[: len(self._slots)]

    @property
    def raws(self) -> list[str]:
        """The texts, by slot."""
        return list(self._slots)  # type: ignore[arg-type]

    def add(self, piece: LogPiece) -> tuple[Slots, dict[int, Rejection]]:
        """Count a piece's rows. Returns each row's slot, -1 where it is rejected, and the rejections by text code."""
        occurs = np.bincount(piece.codes, minlength=len(piece.texts) + 1)
        if not piece.texts.equals(self._dictionary):  # the pieces of a row group mostly come with the same one
            self._dictionary = piece.texts
            self._dictionary_slots = np.full(len(occurs), UNSEEN, np.int64)
            self._rejections = {}
        slots = self._dictionary_slots
        self._look_up(piece.texts, np.flatnonzero((slots == UNSEEN) & (occurs > 0)))
        weights = occurs
        if piece.counts is not None:
            weights = np.zeros(len(occurs), np.int64)
            np.add.at(weights, piece.codes, piece.counts)
        found = slots >= 0
        np.add.at(self._counts, slots[found], weights[found])  # add.at: a file's dictionary may name a text twice
        return slots[piece.codes], self._rejections

    def _look_up(self, dictionary: pa.StringArray, codes: Slots) -> None:
        """Give the texts of these codes, not seen before in this dictionary, their slots or rejections."""
        if len(codes) and codes[-1] == len(dictionary):
            self._dictionary_slots[-1] = REFUSED
            self._rejections[len(dictionary)] = NULL
            codes = codes[:-1]
        texts = dictionary.take(pa.array(codes)) if len(codes) < len(dictionary) else dictionary
        slots = []
        fresh = []
        for code, text in zip(codes.tolist(), _decoded(texts), strict=True):
            slot = self._slots.get(text)
            if slot is None:
                entry = judge(text, self.max_chars) if isinstance(text, str) else text
                if isinstance(entry, Rejection):
                    self._rejections[code] = entry
                    slot = REFUSED
                else:
                    fresh.append(entry)
                    slot = self._slots[text] = len(self._slots)
                    self._chars += len(text)
            slots.append(slot)
        self._dictionary_slots[codes] = slots
        self._append(b"".join(fresh))

    def _append(self, digests: bytes) -> None:
        fresh = np.frombuffer(digests, np.uint8).reshape(-1, ID_BYTES)
        old, new = len(self._slots) - len(fresh), len(self._slots)
        if new > len(self._counts):
            size = max(new, 2 * len(self._counts))
            more = size - len(self._counts)
            self._digests = np.concatenate([self._digests, np.empty((more, ID_BYTES), np.uint8)])
            self._counts = np.concatenate([self._counts, np.zeros(more, np.int64)])
        self._digests[old:new] = fresh


def _decoded(texts: pa.StringArray) -> Sequence[str | Rejection]:
    """Texts as Python strings; nulls and what is not UTF-8 (lone surrogates, too) as rejections."""
    try:
        strings: list[str | None] = texts.to_pylist()
    except UnicodeDecodeError:
        return [_decode(raw) for raw in texts.cast(pa.binary()).to_pylist()]
    return [NULL if text is None else text for text in strings] if texts.null_count else strings  # type: ignore[return-value]


def _decode(raw: bytes | None) -> str | Rejection:
    if raw is None:
        return NULL
    try:
        return raw.decode()
    except UnicodeDecodeError as error:
        shown = raw.decode("utf-8", "replace")[:RAW_SHOWN]
        return Rejection("not_utf8", f"the query is not UTF-8 (byte {error.start:,})", shown)
