"""A controlled vocabulary: rewrites that are searched as queries should have one of its terms."""

from __future__ import annotations

from functools import lru_cache

from cluster.errors import RewriterError
from rewriters.guards.files import GuardFile
from rewriters.guards.words import words


class Vocabulary:
    """Terms, found in texts word by word, whatever their case and punctuation."""

    def __init__(self, terms: list[str]) -> None:
        """Indexes the terms by their first word."""
        self._terms = {tuple(words(term)) for term in terms} - {()}
        self._lengths: dict[str, list[int]] = {}
        for first, length in sorted({(term[0], len(term)) for term in self._terms}):
            self._lengths.setdefault(first, []).append(length)

    def __len__(self) -> int:
        """Returns the number of different terms."""
        return len(self._terms)

    def has_term(self, text: str) -> bool:
        """Returns whether a text has at least one of the terms."""
        found = tuple(words(text))
        return any(
            found[start : start + length] in self._terms
            for start, word in enumerate(found)
            for length in self._lengths.get(word, ())
        )


@lru_cache(maxsize=2)
def load_vocabulary(file: GuardFile) -> Vocabulary:
    """Returns the vocabulary of a text file in UTF-8 with a term per line; lines that begin with # are notes.

    Raises:
        RewriterError: The file cannot be read, or has no term.
    """
    try:
        lines = file.read().read().decode("utf-8-sig").splitlines()
    except UnicodeDecodeError as error:
        raise RewriterError("guard-file", f"{file.where}: is not UTF-8; write a term per line") from error
    vocabulary = Vocabulary([line for line in lines if not line.startswith("#")])
    if not len(vocabulary):
        raise RewriterError("guard-file", f"{file.where}: holds no term; write one per line")
    return vocabulary
