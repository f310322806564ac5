r"""Reader of Querqy's common rules, written from its documentation and sources: what a rule says once it is read.

Lines are trimmed of what is at most U+0020, after a comment is cut off: a `#` is a comment's unless one backslash stands before
it that has no other before it. A line that begins with `@` is a property, one that ends with `=>` an input, any other an
instruction.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field

_COMMENT = re.compile(r"(?<!(?<!\\)\\)#")
_INSTRUCTION = re.compile(r"\s*(\w+)\s*(?:\(\s*([\w.\-]+)\s*\))?\s*(?::([^\n\r\u0085\u2028\u2029]*))?\s*", re.ASCII)
_TRIMMED = "".join(map(chr, range(0x21)))


class Unreadable(Exception):
    """Querqy would refuse it, or take it for something that no rule of ours is to be."""


@dataclass
class Instruction:
    """One instruction: its kind, its number, its words."""

    kind: str
    parameter: float
    words: list[str]


@dataclass
class Rule:
    """One rule, which holds for a query that has exactly these words."""

    words: list[str]
    instructions: list[Instruction] = field(default_factory=list)
    properties: dict[str, str] = field(default_factory=dict)


def read_rules(text: str) -> list[Rule]:
    """Returns the rules of a file."""
    rules: list[Rule] = []
    for raw in re.split(r"\r\n|\r|\n", text):
        comment = _COMMENT.search(raw)
        line = raw[: comment.start() if comment else None].strip(_TRIMMED)
        if line.startswith("@") and rules:
            key, _, value = line[1:].partition(":")
            if key in rules[-1].properties or key.startswith("{"):
                raise Unreadable(line)
            rules[-1].properties[key] = json.loads(value)
        elif line.endswith("=>"):
            rules.append(Rule(_whole_query(line[:-2].strip(_TRIMMED))))
        elif line:
            rules[-1].instructions.append(_instruction(line))
    if len({rule.properties["_id"] for rule in rules}) != len(rules):
        raise Unreadable("an id twice")
    return rules


def _whole_query(written: str) -> list[str]:
    if not written.startswith('"') or not written.endswith('"') or written.endswith('\\"') or len(written) < 2:
        raise Unreadable(f"holds within queries, too: {written}")
    inside = written[1:-1].strip(_TRIMMED)
    words = [word for word in re.split(r"[ \t\n\x0b\f\r]+", inside) if word]
    for word in words:
        if len(word) > 1 and 0 < word.find(":") < len(word) - 1:
            raise Unreadable(f"a field: {word}")
        if re.search(r"(?<!\\)(\\\\)*\*", word) or word == "*":
            raise Unreadable(f"a wildcard: {word}")
    if not words:
        raise Unreadable("an empty input")
    return [word if len(word) == 1 else _unescaped(word) for word in words]


def _instruction(line: str) -> Instruction:
    found = _INSTRUCTION.fullmatch(line)
    if not found or not (found[3] or "").strip(_TRIMMED):
        raise Unreadable(line)
    kind, value = found[1].upper(), found[3].strip(_TRIMMED)
    words = re.split(r"[ \t\n\x0b\f\r]+", value)
    if kind == "SYNONYM":
        for word in words:
            if ":" in word or (word.endswith("*") and not word.endswith("\\*")):
                raise Unreadable(f"a field or a wildcard: {word}")
        words = [_unescaped(word) for word in words]
    elif kind != "UP" or value[0] in '"*' or any(word[0] in "+-" for word in words) or ":" in value:
        raise Unreadable(f"a phrase, a raw query, an operator, a field: {line}")
    if any(re.search(r"\$\d", word) for word in words):
        raise Unreadable(f"what a wildcard matched: {line}")
    return Instruction(kind, float(found[2] or 1), words)


def _unescaped(word: str) -> str:
    out, escaped = "", False
    for char in word:
        if escaped and char not in '\\*#"':
            raise Unreadable(f"escaped: {word}")
        if escaped or char != "\\":
            out += char
        escaped = not escaped and char == "\\"
    return out
