"""Tells from words and letters, in many languages: talk about the answer, refusals, scripts, languages, sentences."""

import re
from functools import cache
from pathlib import Path
from typing import Any

import yaml


@cache
def word_lists() -> dict[str, Any]:
    """Returns the content of `words.yaml`."""
    return yaml.safe_load(Path(__file__).parent.with_name("words.yaml").read_text(encoding="utf-8"))


def pattern(name: str) -> re.Pattern[str]:
    """Returns a pattern of `words.yaml`."""
    return re.compile(_filled(name), re.IGNORECASE | re.VERBOSE)


def _filled(name: str) -> str:
    return re.sub(r"\{([a-z_]+)\}", lambda found: _filled(found[1]), word_lists()[name])
