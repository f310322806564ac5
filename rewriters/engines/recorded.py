"""Completions from a file, for the quickstart, for tests, and to parse or search again what a model once said.

The file has one JSON object per line:

    {"query": "...", "completions": {"dmqr": "...", "keyword": {"text": "...", "finish_reason": "length",
     "usage": {"prompt_tokens": 210, "cached_tokens": 180, "completion_tokens": 90}, "model": "..."}}}

A completion is found by the normalised query and the request's name without parameters; of several samples, a list, each by its
number. Other keys are ignored. Several lines for one query are one recording, but no two may have different text under one
name. One that is not there is an error of its request (`not_recorded`). The file may be packed (`.gz`, `.zst`).

Memory holds where the lines lie, 350 bytes a query: 100,000 lines of 1 KB are read in 0.7 s, and a look-up takes 10 µs.
"""

import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from typing import IO, Any

from cluster.cause import absent, one_line
from cluster.errors import RewriterError
from cluster.http import encodable
from rewriters.engines import Completion, Request, SendGate
from rewriters.engines.settings import RecordedSettings
from rewriters.normalise import normalise

_MODEL = "recorded"  # where a recording does not name its model
_Completions = dict[str, list[dict[str, Any]]]
_Line = tuple[int, int, int]  # position of a line: its number from 1, its first byte, and its length in bytes


def _opened(path: str) -> IO[bytes]:
    """Opens a file; one that is packed as a temporary file of what it holds."""
    if not path.lower().endswith((".gz", ".zst")):
        return open(path, "rb")
    import pyarrow as pa

    file = tempfile.TemporaryFile()  # noqa: SIM115 - kept until close()
    with pa.input_stream(path) as stream:
        shutil.copyfileobj(stream, file)
    file.seek(0)
    return file


class RecordedEngine:
    """The engine of one recording."""

    kind = "recorded"

    def __init__(self, settings: RecordedSettings) -> None:
        """Reads and checks the recording. Raises RewriterError if it cannot be read, or a line, which it names, is none."""
        self._path = settings.path
        self._lines: dict[bytes, tuple[_Line, ...]] = {}  # by the digest of the normalised query
        try:
            self._file = _opened(self._path)  # kept until close()
        except OSError as error:
            why = absent(self._path) if isinstance(error, FileNotFoundError) else error.strerror or one_line(error)
            line = f"recorded completions {self._path}: cannot be read: {why}; correct rewrite.engine.path"
            raise RewriterError("run-file", line) from error
        try:
            self._content = self._index()
        except RewriterError:
            self.close()
            raise

    def check(self) -> None:
        """The file was checked when it was opened."""

    def start(self) -> dict[str, float]:
        """Does nothing."""
        return {}

    def complete(self, requests: Sequence[Request], gate: SendGate | None = None) -> Iterator[tuple[Request, Completion]]:
        """Yields the recorded completion of each request, in their order; nothing is sent, so no gate is asked."""
        for request in requests:
            yield request, self._completion(request, self._recorded(request))

    def identity(self) -> dict[str, Any]:
        return {"kind": self.kind, "content": self._content}

    def close(self) -> None:
        self._file.close()

    def _index(self) -> str:
        """Reads and checks the file in one pass; returns the hash of its content."""
        content = hashlib.sha256()
        start, number = 0, 0
        for number, raw in enumerate(self._file, start=1):
            content.update(raw)
            if raw.strip():
                query, completions = self._parse(number, raw)
                where = _digest(query)
                for other in self._lines.get(where, ()):
                    others = self._at(other)[1]
                    for name in completions.keys() & others.keys():
                        if [one["text"] for one in completions[name]] != [one["text"] for one in others[name]]:
                            problem = f"has another text for {name!r} than line {other[0]}, and their queries are the same"
                            raise self._error(number, f"{problem}; keep one")
                self._lines[where] = (*self._lines.get(where, ()), (number, start, len(raw)))
            start += len(raw)
        if not self._lines:
            raise self._error(number, "the file ends without a record (per line a JSON object: query, completions); add some")
        return content.hexdigest()[:32]

    def _at(self, line: _Line) -> tuple[str, _Completions]:
        number, start, length = line
        return self._parse(number, os.pread(self._file.fileno(), length, start))

    def _parse(self, number: int, raw: bytes) -> tuple[str, _Completions]:
        try:
            record = json.loads(raw.decode("utf-8-sig"))
        except UnicodeDecodeError as error:
            raise self._error(number, f"is not UTF-8: {error.reason} at byte {error.start}; convert the file") from error
        except (ValueError, RecursionError) as error:
            why = f"{error.msg} at column {error.colno}" if isinstance(error, json.JSONDecodeError) else error
            raise self._error(number, f"is not JSON: {why}; correct that line") from error
        if not isinstance(record, dict) or not isinstance(record.get("query"), str):
            keys = ", ".join(sorted(record)) if isinstance(record, dict) else type(record).__name__
            raise self._error(number, f"needs the key query with a string; found: {keys or 'no keys'}; correct that line")
        completions = record.get("completions")
        if not isinstance(completions, dict):
            raise self._error(number, "needs the key completions: an object of request name -> text; add it")
        answers: _Completions = {}
        for name, recorded in completions.items():
            several = recorded if isinstance(recorded, list) else [recorded]
            answers[name] = [{"text": one} if isinstance(one, str) else one for one in several]
            problems = map(_problem, answers[name]) if several else ["is a list without a completion"]
            if problem := next(filter(None, problems), None):
                raise self._error(number, f"completion {name!r} {problem}; correct that line")
        return record["query"], answers

    def _recorded(self, request: Request) -> dict[str, Any] | None:
        name = request.base
        for line in self._lines.get(_digest(request.query), ()):
            _, completions = self._at(line)
            if name in completions:
                return dict(enumerate(completions[name])).get(request.sample)
        return None

    def _completion(self, request: Request, recorded: dict[str, Any] | None) -> Completion:
        if recorded is None:
            name, which = request.base, f", sample {request.sample + 1}," if request.sample else ""
            message = f"{self._path} has no completion {name!r}{which} for the query {request.query[:80]!r}"
            return Completion(None, None, _MODEL, error_reason="not_recorded", error_message=message)
        usage = recorded.get("usage") or {}
        return Completion(
            encodable(recorded["text"]),  # JSON can escape half a surrogate pair
            recorded.get("finish_reason") or "stop",
            recorded.get("model") or _MODEL,
            prompt_tokens=usage.get("prompt_tokens") or 0,
            cached_tokens=usage.get("cached_tokens") or 0,
            completion_tokens=usage.get("completion_tokens") or 0,
        )

    def _error(self, number: int, problem: str) -> RewriterError:
        return RewriterError("run-file", f"recorded completions {self._path}, line {number}: {problem}")


def _digest(query: str) -> bytes:
    return hashlib.sha256(normalise(query).encode("utf-8", "surrogatepass")).digest()[:16]


def _problem(completion: Any) -> str | None:
    """Returns the fault of one recorded completion, or None."""
    if not isinstance(completion, dict) or not isinstance(completion.get("text"), str):
        return "must be a string, or an object with the string text"
    for word in ("finish_reason", "model"):
        if not isinstance(completion.get(word), str | None):
            return f"has a {word} that is not a string"
    usage = completion.get("usage")
    if not isinstance(usage, dict | None):
        return "has a usage that is not an object"
    for name in ("prompt_tokens", "cached_tokens", "completion_tokens"):
        count = (usage or {}).get(name)
        if count is not None and (not isinstance(count, int) or isinstance(count, bool) or count < 0):
            return f"has a usage whose {name} is not a whole number of 0 or more, found: {count!r}"
    return None
