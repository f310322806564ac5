"""Rewriting strategies: their definition, and loading one by its name.

To add a strategy, add a file to `strategies/` that exports `STRATEGY`. The file name is the strategy's name in configs,
tables and reports; the joint prompt, the parser and the tests include every file of the folder.
"""

from __future__ import annotations

import hashlib
import importlib
import pkgutil
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from cluster.errors import RewriterError, nearest
from rewriters import strategies
from rewriters.normalise import normalise

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
    "hi all, sorry if asked before: im german, 67, renting a car in iceland in march 2025, wich documents do i need? "
    "my driving licence is from 1978. thanks!"
)
"""The query of the worked example in the joint prompt; the `example` of each strategy is its rewrite of this query."""

SHIPPED_PROMPTS = {
    "core_content": "f284664236da62df",
    "general": "f3d7a2aa638b2d46",
    "keyword": "bffbefffda9b2524",
    "pseudo_answer": "e8023ebfd851a976",
}
"""Name -> hash of the prompt as it is shipped, so that an edit which no request would send can be told."""

_NAME = re.compile(r"[a-z][a-z0-9_]*")
ANY_PLACEHOLDER = re.compile(r"\{\s*[A-Za-z_]\w*\s*\}")
# the original query, all texts searched as one, requests, a key of adaptive answers
_RESERVED_NAMES = {"original", "together", "dmqr", "dmqr_adaptive", "reason"}


@dataclass(frozen=True)
class Strategy:
    """A way to rewrite a query; an immutable value.

    Attributes:
        name: The file's name.
        label: The name for people; an answer may use it, the name or an alias.
        definition: One sentence on what the rewrite is, for the joint prompt.
        prompt: The template of a separate request: instructions first and `{query}` last, so that prefix caching works.
        aliases: Further names that models use.
        example: The rewrite of EXAMPLE_QUERY, for the joint prompt. It must share a number or a word of five letters or
            more with it; otherwise it is the rewrite of another query.
        search_as: "query" or "passage"; a passage gets no query prefix in dense retrieval, and may span several lines of
            an answer.
        max_chars: A longer rewrite is a failure, unless the query itself is as long.
        weight: Of its ranked lists in fusion.
        order: Sort key in the joint prompt.
        joint: Whether joint requests include it.
        list_separator: Joins the items of a rewrite that came as a list; None: a list is a failure.
    """

    name: str
    label: str
    definition: str
    prompt: str
    aliases: tuple[str, ...] = ()
    example: str = ""
    search_as: Literal["query", "passage"] = "query"
    max_chars: int = 1000
    weight: float = 1.0
    order: int = 100
    joint: bool = True
    list_separator: str | None = None

    @property
    def names(self) -> tuple[str, ...]:
        """All names that an answer may use."""
        return (self.label, self.name, *self.aliases)

    def __post_init__(self) -> None:
        """Checks the fields.

        Raises:
            RewriterError: A field is invalid; the message names the strategy and the rule.
        """
        for rule, passed in self._rules():
            if not passed:
                raise RewriterError("strategy", f"strategy {self.name!r}: its {rule}; correct its file")

    def _rules(self) -> Iterator[tuple[str, bool]]:
        found = ANY_PLACEHOLDER.findall(self.prompt)
        yield "name must be lower-case letters, digits and _, starting with a letter", bool(_NAME.fullmatch(self.name))
        yield f"name is taken; these are: {', '.join(sorted(_RESERVED_NAMES))}", self.name not in _RESERVED_NAMES
        yield (
            "label and aliases must have a letter and no colon, brace or line break",
            all(any(map(str.isalpha, one)) and not re.search(r"[:：{}\r\n]", one) for one in (self.label, *self.aliases)),
        )
        yield (
            f"prompt must have the placeholder {PLACEHOLDER} once and no other, found: {', '.join(found) or 'none'}",
            found == [PLACEHOLDER],
        )
        yield (
            f"prompt must end with {PLACEHOLDER}, so that the instructions before it can be cached",
            self.prompt.endswith(PLACEHOLDER),
        )
        yield f"search_as must be query or passage, found: {self.search_as!r}", self.search_as in ("query", "passage")
        yield (
            f"max_chars must be a whole number of 1 or more, found: {self.max_chars!r}",
            isinstance(self.max_chars, int) and self.max_chars >= 1,
        )
        yield f"weight must be 0 or more, found: {self.weight!r}", 0 <= self.weight < float("inf")
        if self.joint:
            yield "definition must be one line without placeholders, for the joint prompt", _one_line(self.definition)
            yield "example must be one line without placeholders: EXAMPLE_QUERY rewritten", _one_line(self.example)
            yield (
                "example must rewrite the one query that the joint prompt shows, and so share a number or a word of five "
                f"letters or more with it: {EXAMPLE_QUERY!r}; found: {self.example!r}",
                bool(_content_words(self.example) & _content_words(EXAMPLE_QUERY)),
            )


def _content_words(text: str) -> set[str]:
    return set(re.findall(r"\d+|[^\W\d_]{5,}", normalise(text)))


def _one_line(text: str) -> bool:
    return bool(text.strip()) and "\n" not in text and not ANY_PLACEHOLDER.search(text)


def strategy_names() -> list[str]:
    """Returns the sorted names of all strategies: the files in `strategies/` without a leading underscore."""
    return sorted(found.name for found in pkgutil.iter_modules(strategies.__path__) if not found.name.startswith("_"))


def load_strategy(name: str) -> Strategy:
    """Returns the strategy of that name.

    Raises:
        RewriterError: There is none (the message has the nearest name and the list), its file cannot be loaded, or the
            file exports no STRATEGY or one of another name.
    """
    if name not in strategy_names():
        raise RewriterError("strategy", f"unknown strategy {name!r}{nearest(name, strategy_names())}")
    where = f"strategies/{name}.py"
    try:
        module = importlib.import_module(f"{strategies.__name__}.{name}")
    except RewriterError as error:
        raise RewriterError("strategy", f"{where}: {error}") from error
    except Exception as error:
        raise RewriterError(
            "strategy", f"{where} cannot be loaded: {type(error).__name__}: {' '.join(str(error).split())}; correct that file"
        ) from error
    strategy = getattr(module, "STRATEGY", None)
    if not isinstance(strategy, Strategy):
        raise RewriterError(
            "strategy", f"{where} must export STRATEGY = Strategy(...), found: {type(strategy).__name__}; add it"
        )
    if strategy.name != name:
        named = f"its STRATEGY is named {strategy.name!r}; name it as its file, {name!r}"
        raise RewriterError("strategy", f"{where}: {named}")
    return strategy


def render(template: str, query: str) -> str:
    """Returns the template with the query in place of `{query}`; braces in the query are left as they are."""
    return template.replace(PLACEHOLDER, query, 1)


def template_hash(template: str) -> str:
    """Returns the first 16 hex digits of the template's SHA-256."""
    return hashlib.sha256(template.encode("utf-8", "surrogatepass")).hexdigest()[:16]
