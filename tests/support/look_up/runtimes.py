"""The look-up function in the languages of docs/look-up/, each in one process that is fed with lines."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pytest

SOURCES = Path(__file__).resolve().parents[3] / "docs" / "look-up"
HERE = Path(__file__).resolve().parent
LANGUAGES = ("java", "node")


@dataclass(frozen=True)
class Asked:
    """A query as a search has it."""

    query: str
    context: str | None = None
    filters: Mapping[str, str] = field(default_factory=dict)

    def line(self) -> str:
        """Returns the query as a line: its texts in hex of UTF-16."""
        texts = [self.query, self.context, *(text for pair in self.filters.items() for text in pair)]
        return "\t".join("-" if one is None else one.encode("utf-16-be", "surrogatepass").hex() for one in texts)


@dataclass(frozen=True)
class Runtime:
    """A language's runtime with the function."""

    command: tuple[str, ...]

    def keys(self, asked: Iterable[Asked], max_context_chars: int = 8000) -> list[tuple[str, bool]]:
        """Returns each query's key, or "refused", and whether the runtime's Unicode has all of its code points."""
        lines = "".join(f"{one.line()}\n" for one in asked)
        command = [*self.command, str(max_context_chars)]
        done = subprocess.run(command, input=lines, capture_output=True, text=True, timeout=400, check=False)
        assert (done.returncode, done.stderr) == (0, "")
        return [(key, known == "known") for key, known in map(str.split, done.stdout.splitlines())]


def runtime(language: str, folder: Path) -> Runtime:
    """Returns the runtime of a language; skips the test where it is not installed."""
    needed = {"java": ("javac", "java"), "node": ("node",)}[language]
    if missing := [name for name in needed if not shutil.which(name)]:
        pytest.skip(f"{missing[0]} is not installed")
    if language == "node":
        return Runtime(("node", str(HERE / "lines.mjs"), str(SOURCES / "dmqr_key.mjs")))
    sources = [str(SOURCES / "DmqrKey.java"), str(HERE / "Lines.java")]
    made = subprocess.run(
        ["javac", "--release", "8", "-Xlint:all,-options", "-Werror", "-d", str(folder), *sources],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert (made.returncode, made.stdout + made.stderr) == (0, "")
    return Runtime(("java", "-cp", str(folder), "Lines"))
