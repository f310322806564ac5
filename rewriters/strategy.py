"""What a rewriting strategy is, and how one is found by its name.

Adding one is one file in `strategies/`: its file name is its name in configs, tables and reports, and it exports
`STRATEGY`. It joins the joint prompt, the parser and the tests by being there.
"""

from __future__ import annotations

import hashlib
import importlib
import pkgutil
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from rewriters import strategies
from rewriters.errors import RewriterError, unknown_name

__all__ = [
    "EXAMPLE_QUERY",
    "PLACEHOLDER",
    "RewriterError",
    "Strategy",
    "load_strategy",
    "render",
    "strategy_names",
    "template_hash",
]

PLACEHOLDER = "{query}"

EXAMPLE_QUERY = (
    "hi, my sister made a sourdough starter in march 2023 and now it smells like nail polish remover, "
    "she wants to know why that is and if she can still bake with it??"
)
"""The query of the joint prompt's worked example. A strategy's `example` is what that strategy makes of it."""

_NAME = re.compile(r"[a-z][a-z0-9_]*")
_ANY_PLACEHOLDER = re.compile(r"\{\s*[A-Za-z_]\w*\s*\}")
_TAKEN = {"original", "dmqr", "dmqr_adaptive", "reason"}  # the query, requests, and a line of adaptive answers


@dataclass(frozen=True)
class Strategy:
    """One way to rewrite a query: a value without state. Refuses what cannot work when it is made.

    name: the file's name. label: what people and models call it; an answer may use either.
    definition: one sentence on what the rewrite is; the joint prompt is put together from these.
    prompt: the template of a call of its own; instructions first and `{query}` last, so that prefix caching works.
    kind: how the rewrite is searched, "query" or "passage" (a passage gets no query prefix in dense retrieval, and may
    span several lines of an answer).
    max_chars: a longer rewrite is a failure, unless the query itself is as long.
    weight: of its lists in fusion. order: its place in the joint prompt. joint: whether it takes part in that at all.
    example: the rewrite of EXAMPLE_QUERY, for the joint prompt.
    list_separator: what joins a rewrite that came as a list; None where a list is several rewrites and so a failure.

    Raises RewriterError naming the strategy, what is wrong and what is allowed.
    """

    name: str
    label: str
    definition: str
    prompt: str
    example: str = ""
    kind: Literal["query", "passage"] = "query"
    max_chars: int = 1000
    weight: float = 1.0
    order: int = 100
    joint: bool = True
    list_separator: str | None = None

    def __post_init__(self) -> None:
        for rule, held in self._rules():
            if not held:
                raise RewriterError(f"strategy {self.name!r}: its {rule}; correct its file")

    def _rules(self) -> Iterator[tuple[str, bool]]:
        found = _ANY_PLACEHOLDER.findall(self.prompt)
        yield "name must be lower-case letters, digits and _, starting with a letter", bool(_NAME.fullmatch(self.name))
        yield f"name is taken; these are: {', '.join(sorted(_TAKEN))}", self.name not in _TAKEN
        yield (
            "label must have a letter and no colon, brace or line break",
            any(map(str.isalpha, self.label)) and not re.search(r"[:：{}\r\n]", self.label),
        )
        yield (
            f"prompt must have the placeholder {PLACEHOLDER} once and no other, found: {', '.join(found) or 'none'}",
            found == [PLACEHOLDER],
        )
        yield (
            f"prompt must end with {PLACEHOLDER}, so that the instructions before it can be cached",
            self.prompt.endswith(PLACEHOLDER),
        )
        yield f"kind must be query or passage, found: {self.kind!r}", self.kind in ("query", "passage")
        yield (
            f"max_chars must be a whole number of 1 or more, found: {self.max_chars!r}",
            isinstance(self.max_chars, int) and self.max_chars >= 1,
        )
        yield f"weight must be 0 or more, found: {self.weight!r}", 0 <= self.weight < float("inf")
        if self.joint:
            yield "definition must be one line without placeholders, for the joint prompt", _one_line(self.definition)
            yield "example must be one line without placeholders: EXAMPLE_QUERY rewritten", _one_line(self.example)


def _one_line(text: str) -> bool:
    return bool(text.strip()) and "\n" not in text and not _ANY_PLACEHOLDER.search(text)


def strategy_names() -> list[str]:
    """The names of all strategies: the files in `strategies/`, sorted (a leading underscore hides one)."""
    return sorted(found.name for found in pkgutil.iter_modules(strategies.__path__) if not found.name.startswith("_"))


def load_strategy(name: str) -> Strategy:
    """The strategy called `name`.

    Raises RewriterError if there is none (with the nearest name and the list), and if its file cannot be loaded,
    exports no STRATEGY, or one of another name.
    """
    if name not in strategy_names():
        raise unknown_name("strategy", name, strategy_names())
    where = f"strategies/{name}.py"
    try:
        module = importlib.import_module(f"{strategies.__name__}.{name}")
    except RewriterError as error:
        raise RewriterError(f"{where}: {error}") from error
    except Exception as error:
        raise RewriterError(
            f"{where} cannot be loaded: {type(error).__name__}: {' '.join(str(error).split())}; correct that file"
        ) from error
    strategy = getattr(module, "STRATEGY", None)
    if not isinstance(strategy, Strategy):
        raise RewriterError(f"{where} must export STRATEGY = Strategy(...), found: {type(strategy).__name__}; add it")
    if strategy.name != name:
        named = f"its STRATEGY is named {strategy.name!r}; name it as its file, {name!r}"
        raise RewriterError(f"{where}: {named}")
    return strategy


def render(template: str, query: str) -> str:
    """The template with the query in its place. The query may hold braces; nothing in it is read as a placeholder."""
    return template.replace(PLACEHOLDER, query, 1)


def template_hash(template: str) -> str:
    """16 hex digits that stand for a template: the first of its SHA-256."""
    return hashlib.sha256(template.encode("utf-8", "surrogatepass")).hexdigest()[:16]
