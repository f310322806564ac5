"""Types of queries by rules, or by the LLM, and the strategies of each type.

The rules are YAML, so that a language or a domain can have its own; ours (`rules/english.yaml`) follow the usual types of
search queries. The first rule that matches decides.
"""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Self

from pydantic import Field, model_validator

from cluster.settings import Settings
from rewriters.files import Read, checked, prompt, read_local, read_yaml
from rewriters.lengths import any_of, length
from rewriters.normalise import normalise
from rewriters.selection import Choice, chosen
from rewriters.strategy import Strategy

REQUEST_NAME = "classify"
_FOLDER = Path(__file__).parent / "rules"


class Rule(Settings):
    """Conditions of a type of query; a rule without conditions always matches."""

    type: str
    """Name of the type."""
    contains: tuple[str, ...] = ()
    """Words or phrases of which the query has some."""
    at_least: Annotated[int, Field(ge=1)] = 1
    """Smallest number of occurrences of `contains`."""
    starts: tuple[str, ...] = ()
    """Words or phrases with which the query begins."""
    without: tuple[str, ...] = ()
    """Words or phrases that the query lacks."""
    at_most_words: Annotated[int, Field(ge=1)] | None = None
    """Largest number of words; characters in scripts without spaces."""
    pattern: re.Pattern[str] | None = None
    """Regular expression found in the normalised query."""

    def matches(self, query: str) -> bool:
        """Returns True if a query in normal form is of the type."""
        return (
            (not self.contains or len(any_of(self.contains).findall(query)) >= self.at_least)
            and (not self.starts or any_of(self.starts).match(query) is not None)
            and (not self.without or any_of(self.without).search(query) is None)
            and (self.at_most_words is None or length(query) <= self.at_most_words)
            and (self.pattern is None or self.pattern.search(query) is not None)
        )


class Rules(Settings):
    """A file of rules."""

    rules: Annotated[tuple[Rule, ...], Field(min_length=1)]
    """Rules in order; the first that matches decides."""
    otherwise: str
    """Type of a query that no rule matches."""
    descriptions: dict[str, str]
    """Type -> description, for the LLM."""
    strategies: dict[str, tuple[str, ...] | str | int | None]
    """Type -> names of strategies, a number of texts, or `none`."""

    @model_validator(mode="after")
    def _types_are_known(self) -> Self:
        types = {*(rule.type for rule in self.rules), self.otherwise}
        for key, names in (("descriptions", self.descriptions.keys()), ("strategies", self.strategies.keys())):
            for name in types - names:
                raise ValueError(f"{key}: the type {name!r} is missing; add it")
            for name in names - types:
                raise ValueError(f"{key}: no rule gives the type {name!r}; add a rule, or remove it")
        return self

    def type_of(self, query: str) -> str:
        normalised = normalise(query)
        return next((rule.type for rule in self.rules if rule.matches(normalised)), self.otherwise)

    def choice(self, query_type: str, pool: Sequence[Strategy]) -> Choice:
        texts = chosen(self.strategies[query_type], pool, f"rules: strategies.{query_type}")
        return Choice(texts, query_type, f"{query_type}: {', '.join(texts) or 'no rewriting'}")

    def types(self, queries: Sequence[str]) -> list[str]:
        return [self.type_of(query) for query in queries]

    def prompt(self) -> str:
        """Returns the template of the LLM's request."""
        return prompt("classify").replace("{types}", "\n".join(f"- {name}: {text}" for name, text in self.descriptions.items()))

    def read(self, answer: str) -> str | None:
        """Returns the type that an answer names, or None; of several the last, since reasoning comes before it."""
        names = {_spaced(name): name for name in self.descriptions}
        names_in_answer = any_of(tuple(names)).findall(_spaced(answer))
        return names[names_in_answer[-1]] if names_in_answer else None


def load_rules(source: str, read: Read = read_local) -> Rules:
    """Returns the rules of a file, or ours of that name. Raises RewriterError if there is no such file, or it is wrong."""
    ours = sorted(path.stem for path in _FOLDER.glob("*.yaml"))
    known = f"; ours are: {', '.join(ours)}" if "/" not in source else ""
    path, read = (str(_FOLDER / f"{source}.yaml"), read_local) if source in ours else (source, read)
    what = "rules, otherwise, descriptions and strategies"
    values = read_yaml("selection", source, path, read, f"correct rewrite.select.rules{known}", what)
    with checked("selection", source, lambda place: (Rule if place else Rules).model_fields):
        return Rules.model_validate(values)


def _spaced(text: str) -> str:
    """Returns a text in normal form with spaces for hyphens and underscores: an LLM writes How-to for how_to."""
    return normalise(re.sub(r"[\s_-]+", " ", text))
