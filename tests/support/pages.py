"""Blocks of the documentation: README.md and the pages of docs/, walked from top to bottom."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

import yaml

from tests.support.jobs.whole_runs import ROOT

PAGES = {
    path.relative_to(ROOT).as_posix(): path.read_text(encoding="utf-8")
    for path in sorted([ROOT / "README.md", *(ROOT / "docs").glob("*.md")])
}
SERVERS = re.compile(r"http://localhost:\d+/v1")


class Block(NamedTuple):
    """A fenced block: its language, its text, and the file that it is, if its first line names one."""

    language: str
    text: str
    file: str | None


def blocks(page: str) -> Iterator[Block]:
    """Yields the blocks of a page in order."""
    for language, text in re.findall(r"^ *```(\w*)\n(.*?)^ *```$", PAGES[page], re.MULTILINE | re.DOTALL):
        named = re.match(r"# ([\w./-]+\.(?:py|yaml))\n", text)
        yield Block(language, text, named[1] if named else None)


def commands(page: str) -> list[str]:
    """Returns the lines of the page's shell blocks, without comments."""
    lines = [line for block in blocks(page) if block.language == "bash" for line in block.text.splitlines()]
    return [command for line in lines if (command := re.sub(r" +#.*| *^#.*", "", line).strip())]


def fragments(text: str) -> list[dict[str, object]]:
    """Returns the parts of a config in a block; a section that stands there again begins another part."""
    parts: list[list[str]] = [[]]
    seen: set[str] = set()
    for line in text.splitlines():
        section = re.match(r"(\w+):", line)
        if section and section[1] in seen:
            parts.append([])
            seen.clear()
        seen |= {section[1]} if section else set()
        parts[-1].append(line)
    return [yaml.safe_load("\n".join(part)) for part in parts]
