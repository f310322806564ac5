"""Reader of the records of a published file: a list of JSON objects, or JSON objects one a line; packed ones, too."""

from __future__ import annotations

import io
import json
import re
from collections.abc import Iterable, Iterator
from typing import Any, NoReturn, TextIO

from cluster.cause import one_line
from cluster.errors import ConfigError
from cluster.http import encodable
from cluster.storage import open_file
from cluster.storage.packed import unpacked

RECORD_CHARS = 1 << 24  # of a record, at most; what is longer is a record that does not end
_PIECE = 1 << 20  # read of a list at a time
_SPACE = re.compile(r"\s*")
_AS_PUBLISHED = "correct it, or take the file as it is published"
_KINDS = {str: "text", list: "a list", dict: "an object", bool: "true or false", int: "a whole number"}


class DataRecord:
    """An object of a file, and where it stands there."""

    def __init__(self, path: str, number: int, fields: Any, within: str = "") -> None:
        """Takes what was read.

        Args:
            path: Of the file.
            number: Of the record, from 1.
            fields: Its values by name.
            within: Of an object inside the record: where, such as `paragraphs[2].`.

        Raises:
            ConfigError: It is no object.
        """
        self.path, self.number, self._within = path, number, within
        if not isinstance(fields, dict):
            self.refuse(f"{within.rstrip('.') + ' ' if within else ''}is no object")
        self._fields: dict[str, Any] = fields

    @property
    def names(self) -> Iterable[str]:
        """Returns the names of its fields, in their order."""
        return self._fields

    def has(self, name: str) -> bool:
        """Returns whether there is a field, other than null."""
        return self._fields.get(name) is not None

    def text(self, name: str) -> str:
        """Returns a text that is not blank, without white space around it; a whole number is its digits."""
        found = self._get(name)
        if isinstance(found, int) and not isinstance(found, bool):
            return str(found)
        if not isinstance(found, str) or not found.strip():
            self.wrong(name, "is blank" if isinstance(found, str) else f"is not {_KINDS[str]}")
        return encodable(found.strip())

    def truth(self, name: str) -> bool:
        """Returns a value that is true or false."""
        found = self._get(name)
        if not isinstance(found, bool):
            self.wrong(name, f"is not {_KINDS[bool]}")
        return found

    def items(self, name: str) -> list[Any]:
        """Returns a list."""
        found = self._get(name)
        if not isinstance(found, list):
            self.wrong(name, "is no list")
        return found

    def texts(self, name: str) -> list[str]:
        """Returns a list of texts, without blank ones."""
        found = self.items(name)
        if not all(isinstance(one, str) for one in found):
            self.wrong(name, "is no list of texts")
        return [encodable(one.strip()) for one in found if one.strip()]

    def objects(self, name: str) -> list[DataRecord]:
        """Returns a list of objects."""
        return [
            DataRecord(self.path, self.number, one, f"{self._within}{name}[{place}].")
            for place, one in enumerate(self.items(name))
        ]

    def wrong(self, name: str, what: str) -> NoReturn:
        """Refuses a field.

        Raises:
            ConfigError: Always: file, record, field and `what`.
        """
        self.refuse(f"{self._within}{name} {what}")

    def refuse(self, words: str) -> NoReturn:
        """Refuses the record.

        Raises:
            ConfigError: Always: file, record and `words`.
        """
        _refuse(self.path, self.number, words)

    def _get(self, name: str) -> Any:
        if name not in self._fields:
            self.wrong(name, f"is missing (found: {', '.join(self._fields) or 'nothing'})"[:300])
        return self._fields[name]


def json_records(path: str) -> Iterator[DataRecord]:
    """Yields the records of a file, here or on S3: the items of a list, or the objects of its lines.

    Raises:
        ConfigError: A record is no JSON object, or the file is not UTF-8.
        OSError: It cannot be read.
    """
    number = 0
    with open_file(path) as opened:
        stream = io.TextIOWrapper(unpacked(opened, path), encoding="utf-8-sig")
        try:
            head = ""
            while not head and (piece := stream.readline(_PIECE)):
                head = piece.lstrip()
            values = _of_list(path, stream, head[1:]) if head.startswith("[") else _of_lines(path, stream, head)
            for number, value in values:
                yield DataRecord(path, number, value)
        except UnicodeDecodeError as error:
            words = f"is not UTF-8 ({error.reason}), behind record {number:,}; write the file as UTF-8"
            raise ConfigError("data-set", f"{path}: {words}") from error


def _of_list(path: str, stream: TextIO, buffer: str) -> Iterator[tuple[int, Any]]:
    """Yields number and value of a list's items; `buffer` begins behind its bracket."""
    decoder, place, number, after_item = json.JSONDecoder(), 0, 0, False
    while True:
        place = _SPACE.match(buffer, place).end()  # type: ignore[union-attr]  # it matches nothing, too
        if place < len(buffer):
            if buffer[place] == "]" and (after_item or not number):
                if buffer[place + 1 :].strip() or stream.read(_PIECE).strip():
                    raise ConfigError("data-set", f"{path}: has more behind its list; {_AS_PUBLISHED}")
                return
            if after_item and buffer[place] != ",":
                _refuse(path, number + 1, "no comma before it")
            if after_item:
                place, after_item = place + 1, False
                continue
            try:
                value, end = decoder.raw_decode(buffer, place)
            except (ValueError, RecursionError) as error:
                fault: Exception | None = error
            else:
                number, place, after_item = number + 1, end, True
                yield number, value
                continue
        else:
            fault = None
        piece = stream.read(_PIECE) if len(buffer) - place < RECORD_CHARS else ""
        if not piece:
            _refuse(path, number + 1, "the list does not end" if fault is None else _fault(fault))
        buffer, place = buffer[place:] + piece, 0


def _of_lines(path: str, stream: TextIO, head: str) -> Iterator[tuple[int, Any]]:
    """Yields number and value of lines that are not blank; `head` is what was read of the first."""
    number = 0
    line = head if head.endswith("\n") else head + stream.readline(RECORD_CHARS)
    while line:
        if line.strip():
            number += 1
            if len(line) > RECORD_CHARS:
                _refuse(path, number, f"is longer than {RECORD_CHARS:,} characters")
            try:
                value = json.loads(line)
            except (ValueError, RecursionError) as error:
                _refuse(path, number, _fault(error))
            yield number, value
        line = stream.readline(RECORD_CHARS + 1)


def _fault(error: Exception) -> str:
    if isinstance(error, json.JSONDecodeError):
        return f"is no JSON ({error.msg})"
    return "is nested too deep" if isinstance(error, RecursionError) else f"is no JSON ({one_line(str(error))})"


def _refuse(path: str, number: int, words: str) -> NoReturn:
    raise ConfigError("data-set", f"{path}: record {number:,}: {words}; {_AS_PUBLISHED}")
