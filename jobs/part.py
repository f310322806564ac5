"""What all parts of the config have in common: they are frozen, know their keys, and say what is wrong in one line."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

from pydantic import BaseModel, ConfigDict


class ConfigError(Exception):
    """The config is not understood; the text is one line for the person who reads it."""


class Part(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, validate_default=True, use_attribute_docstrings=True)


def nearest(name: str, known: Iterable[str]) -> str:
    """'; did you mean X? (known: ...)' for a message about an unknown name."""
    known = list(known)
    close = difflib.get_close_matches(name, known, n=1, cutoff=0.5)
    return (f"; did you mean {close[0]!r}?" if close else "") + f" (known: {', '.join(known)})"
