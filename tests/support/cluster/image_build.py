"""A Dockerfile without an engine: its instructions, and the context of its build."""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[3]


class Instruction(NamedTuple):
    """`FROM`, `RUN`, ... and the rest of its line."""

    name: str
    text: str


def instructions(dockerfile: Path) -> list[Instruction]:
    """The instructions of a file, each on one line, without comments."""
    lines = [line for line in dockerfile.read_text(encoding="utf-8").splitlines() if not line.lstrip().startswith("#")]
    joined = re.sub(r"\\\n\s*", "", "\n".join(lines))
    return [Instruction(*line.split(maxsplit=1)) for line in joined.splitlines() if line.strip()]


def in_context(path: Path) -> bool:
    """Whether .dockerignore leaves a file in the context: of everything the names that it lists, less some names anywhere."""
    rules = [line for line in Path(ROOT, ".dockerignore").read_text().splitlines() if line and not line.startswith("#")]
    assert rules[0] == "*"
    kept = {rule[1:] for rule in rules if rule.startswith("!")}
    anywhere = {rule[3:] for rule in rules if rule.startswith("**/")}
    assert len(rules) == 1 + len(kept) + len(anywhere), "rules that this reader does not know"
    parts = path.relative_to(ROOT).parts
    return parts[0] in kept and not anywhere.intersection(parts)
