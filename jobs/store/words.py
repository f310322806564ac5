"""Finds rows with the words of a query: in prompts, answers, scored texts, what was sent to the web and what it answered."""

import re
from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rewriters.normalise import normalise

_ESCAPED = re.compile(r"\\(u[0-9a-fA-F]{4}|[^u])", re.DOTALL)  # as in JSON, which many prompts and answers are
_PLAIN = re.compile("[a-z0-9]+")  # stands in JSON as it is
_LETTER = "[^\\W_\u0e00-\U0010ffff]"  # letter or digit; from U+0E00 on most scripts have no spaces between words


class QueryWords:
    """The words of a query, however they are written: in any case, width and spacing."""

    def __init__(self, query: str) -> None:
        self.normal = normalise(query)
        begin, end = (re.match(_LETTER, character) for character in (self.normal[:1], self.normal[-1:]))
        self._pattern = re.compile(f"(?<!{_LETTER})" * bool(begin) + re.escape(self.normal) + f"(?!{_LETTER})" * bool(end))
        self._longest = max(_PLAIN.findall(self.normal), key=len, default=None)

    def held_by(self, rows: pa.Table, columns: Sequence[str]) -> np.ndarray:
        """Returns for each row whether one of its columns has the words, shape (rows,)."""
        held = np.zeros(rows.num_rows, bool)
        for name in columns:
            if name in rows.column_names:
                for texts, of_row in _texts(rows.column(name).combine_chunks(), np.arange(rows.num_rows)):
                    places = np.flatnonzero(self._possible(texts).to_numpy(zero_copy_only=False))
                    has_query = [self.in_text(text) for text in texts.take(pa.array(places)).to_pylist()]
                    held[of_row[places[np.array(has_query, bool)]]] = True
        return held

    def in_text(self, text: str) -> bool:
        """Returns True if a text has the words; they do not begin or end inside a word of it."""
        texts = [text, _unescaped(text)] if "\\" in text else [text]
        return bool(self.normal) and any(self._pattern.search(normalise(one)) for one in texts)

    def _possible(self, texts: pa.Array) -> pa.Array:
        """Returns the texts that need a look; normal forms take long, and text in ASCII is ASCII in its normal form."""
        possible = pc.or_(pc.invert(pc.string_is_ascii(texts)), pc.match_substring(texts, "\\u"))
        if self._longest is not None or self.normal.isascii():
            possible = pc.or_(possible, pc.match_substring(texts, self._longest or "", ignore_case=True))
        return possible.fill_null(fill_value=False)


def _unescaped(text: str) -> str:
    """Returns a text with its escapes replaced; line breaks and tabs are spaces."""

    def character(escape: re.Match[str]) -> str:
        code = escape[1]
        return " " if code in "bfnrt" else chr(int(code[1:], 16)) if len(code) > 1 else code

    return _ESCAPED.sub(character, text).encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def _texts(values: pa.Array, of_row: np.ndarray) -> Iterator[tuple[pa.Array, np.ndarray]]:
    """Yields the arrays of texts within an array, with the row of each text."""
    if pa.types.is_string(values.type):
        yield values, of_row
    elif pa.types.is_list(values.type):
        yield from _texts(values.flatten(), of_row[pc.list_parent_indices(values).to_numpy(zero_copy_only=False)])
    elif pa.types.is_struct(values.type):
        for field in values.flatten():
            yield from _texts(field, of_row)
