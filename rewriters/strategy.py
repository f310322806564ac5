"""A rewriting strategy: a value that says what is asked of the LLM, how its answer is read, and how its texts are searched.

Its form is YAML (`rewriters/pool.py` reads it). The built-in ones are the files of `strategies/`, found by the same door as a
file of the user.
"""

import hashlib
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, Field, model_validator

from cluster.settings import FROZEN, Settings
from rewriters.engines.settings import AnyEngineSettings
from rewriters.normalise import normalise
from rewriters.settings import Decoding, identity_fields

PLACEHOLDER = "{query}"
CONTEXT = "context"

EXAMPLE_QUERY = (
    "hi all, sorry if asked before: im german, 67, renting a car in iceland in march 2025, wich documents do i need? "
    "my driving licence is from 1978. thanks!"
)
"""The query of the worked example in the joint prompt; the `example` of each strategy is its rewrite of this query."""

ANY_PLACEHOLDER = re.compile(r"\{\s*[A-Za-z_]\w*\s*\}")
RESERVED = {"original", "together", "iterate", "dmqr", "dmqr_adaptive", "classify", "reason"}
"""Names that no strategy may have: lists and requests that are not a strategy's, and a key of adaptive answers."""
PLAIN_NAME = "a letter, then letters, digits and _, in lower case"

_ALWAYS = ("name", "search_as", "weight", "max_chars", "list_separator")
_NO_IDENTITY = {
    *_ALWAYS, "base", "label", "aliases", "definition", "usage", "example", "prompt", "order", "joint", "own_file", "preserve",
    "engine",
}  # fmt: skip

Weight = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Mark = Annotated[str, Field(pattern=r"^\S(?:.*\S)?$")]


class Marks(Settings):
    """Marks between the parts of an answer, such as special tokens of a trained rewriter.

    For example `[S_Rewritten_Query] first query [EOS][A_Response] an answer`. A part goes up to the next mark. A mark that
    begins with a letter or a digit is one at the beginning of a line only.
    """

    texts: Annotated[tuple[Mark, ...], Field(min_length=1)]
    """Marks before a text."""
    others: tuple[Mark, ...] = ()
    """Marks before anything else: an end, an answer, what was found."""

    @property
    def all(self) -> tuple[str, ...]:
        """All marks, each once."""
        return tuple(dict.fromkeys((*self.texts, *self.others)))


class Words(Settings):
    """Range of lengths in words; characters in scripts without spaces."""

    least: Annotated[int, Field(ge=0)] = 0
    """A shorter text fails as `too_short`."""
    most: Annotated[int, Field(ge=1)] | None = None
    """A longer text fails as `too_long`."""
    guide: bool = False
    """Only flags a text outside of the range."""


class Strategy(BaseModel):
    """A way to rewrite a query; an immutable value."""

    model_config = FROZEN

    name: str
    """In tables, weights and reports: the file's name, with the parameters that the config gives."""
    base: str
    """The file's name without parameters: recorded completions are found by it."""
    label: str
    """Name for people; an answer may use it."""
    aliases: tuple[str, ...] = ()
    """Further names that models use."""
    definition: str = ""
    """One sentence on the rewrite, for prompts with several strategies."""
    usage: str = ""
    """Queries that it helps with, for adaptive selection."""
    example: str = ""
    """Rewrite of the example query, a line per text, for the joint prompt and adaptive selection."""
    prompt: str
    """Prompt of a request of its own; ends with `{query}`, so that a prefix cache works."""
    prompt_as: Literal["message", "text"] = "message"
    """message: the prompt is a user's message; text: the model goes on with the bare prompt, `{query}` anywhere."""
    output: Literal["text", "lines", "array", "object"] = "text"
    """Form of the answer: one text, a text per line, a JSON array or a JSON object."""
    n: Annotated[int, Field(ge=1, le=20)] = 1
    """Number of texts, and the variable `{n}`; with output `text` that many answers are sampled."""
    marks: Marks | None = None
    """Marks between the parts of an answer; null: none."""
    separator: Annotated[str, Field(min_length=1)] | None = None
    """Text between the texts of output `lines`, such as `;`; null: line breaks."""
    keys: tuple[str, ...] = ()
    """Keys of an object's texts, or those of an array's objects whose values form one text."""
    search_as: Literal["query", "passage"] = "query"
    """Prefix that an encoder puts before the text: a query's or a passage's."""
    several_lines: bool = False
    """Lets a text that is searched as a query span several lines."""
    include_original: Annotated[int, Field(ge=0, le=20)] = 0
    """Number of times that the original stands before the searched text."""
    as_one: Literal["with_original", "texts"] | None = None
    """Searches its texts, with the original or alone, as one text with one list; null: each has its own."""
    weight: Weight = 1.0
    """Weight of its lists in fusion."""
    position_weights: tuple[Weight, ...] = ()
    """Factors of the weight by position; the last holds for all later ones."""
    depth: Annotated[int, Field(ge=1)] | None = None
    """Hits of each of its lists that take part in fusion; null: `fuse.depth`."""
    score_floor: float | None = None
    """Hits with a lower score take no part in fusion."""
    max_chars: Annotated[int, Field(ge=1)] = 1000
    """A longer text fails as `too_long`, unless the query is as long."""
    min_chars: Annotated[int, Field(ge=1)] = 1
    """Shorter lines of an answer are ignored."""
    words: Words = Words()
    """Allowed length of a text."""
    banned: tuple[str, ...] = ()
    """Words or phrases that fail a text as `banned` if the query lacks them."""
    any_language: bool = False
    """Allows texts in another script than the query's."""
    language: Annotated[str, Field(min_length=1)] | None = None
    """Language of its texts, `{language}` in its prompt; null: `rewrite.language`."""
    preserve: bool | Literal["count"] = False
    """Expects numbers, names and quoted phrases of the query in the text (`rewrite.guards.preserve`); count: only flags."""
    question: bool = False
    """Expects questions: a text that ends as a statement fails."""
    fallback: Literal["none", "original"] = "none"
    """Text in place of an unreadable answer: none (a row in errors/), or the original query."""
    decoding: Decoding = {}
    """Values that replace `rewrite.decoding`; the strategy then has requests of its own."""
    engine: AnyEngineSettings | None = None
    """Engine of its own, such as a trained rewriter's; null: `rewrite.engine`."""
    order: int = 100
    """Sort key in prompts."""
    joint: bool = False
    """Takes part in the joint request."""
    list_separator: str | None = None
    """Joins the items of a text that came as a list; null: a list fails."""
    own_file: bool = False
    """True if the user wrote it."""

    def __hash__(self) -> int:
        """Returns the hash of its name: patterns of answers are cached by the strategies that they know."""
        return hash(self.name)

    @property
    def names(self) -> tuple[str, ...]:
        """All names that an answer may use."""
        return (self.label, self.base, *self.aliases)

    @property
    def is_joint(self) -> bool:
        """True if joint requests ask for it: one text, in the common language, by the common engine and decoding."""
        own = self.decoding or self.language is not None or self.engine is not None or self.is_trained
        return self.joint and self.output == "text" and self.n == 1 and not own

    @property
    def is_trained(self) -> bool:
        """True if prompt or answer have the form of one trained rewriter, so that no other prompt can ask for it."""
        return self.prompt_as == "text" or self.marks is not None

    @property
    def is_passage(self) -> bool:
        """True if its texts are passages, whatever an encoder puts before them: they may span several lines of an answer."""
        return self.search_as == "passage" or self.several_lines

    def position_weight(self, position: int) -> float:
        """Returns the weight of a position, from 1."""
        return self.position_weights[min(position, len(self.position_weights)) - 1] if self.position_weights else 1.0

    def identity(self) -> dict[str, Any]:
        """Returns the fields that decide texts and lists; those beside the first five only where not at their default.

        Of an engine of its own those count that count of `rewrite.engine`; the caller adds what its names stand for.
        """
        more = self.model_dump(mode="json", exclude_defaults=True, exclude=_NO_IDENTITY)
        if self.engine is not None:
            more["engine"] = identity_fields(self.engine)
        return {name: getattr(self, name) for name in _ALWAYS} | more

    @model_validator(mode="after")
    def _rules_hold(self) -> Self:
        for rule, passed in self._rules():
            if not passed:
                raise ValueError(rule)
        return self

    def _rules(self) -> Iterator[tuple[str, bool]]:
        yield f"name must be {PLAIN_NAME}, and none of {', '.join(sorted(RESERVED))}", plain_name(self.base)
        yield (
            "label and aliases must have a letter and no colon, brace or line break",
            all(any(map(str.isalpha, one)) and not re.search(r"[:：{}\r\n]", one) for one in (self.label, *self.aliases)),
        )
        once = self.prompt.count(PLACEHOLDER) == 1
        if self.prompt_as == "message":
            yield (
                f"prompt must have {PLACEHOLDER} once, as its last word, so that the text before it can be cached",
                once and self.prompt.endswith(PLACEHOLDER),
            )
        else:
            yield f"prompt must have {PLACEHOLDER} once", once
        yield (
            "joint belongs to prompts that are messages, and of answers without marks; remove joint, or prompt_as and marks",
            not (self.joint and self.is_trained),
        )
        yield "separator belongs to output: lines", self.separator is None or self.output == "lines"
        yield "keys belong to output: array or object", not self.keys or self.output in ("array", "object")
        yield (
            "position_weights weigh lists, and as_one makes one list; give weight, or remove one of them",
            not self.position_weights or self.as_one is None,
        )
        yield "output object needs keys, one per text", self.output != "object" or len(self.keys) >= 1
        if self.joint:
            yield "definition must be one line without placeholders, for the joint prompt", one_line(self.definition)
            yield "example must be one line without placeholders: EXAMPLE_QUERY rewritten", one_line(self.example)
            yield (
                "example must rewrite the one query that the joint prompt shows, and so share a number or a word of five "
                f"letters or more with it: {EXAMPLE_QUERY!r}; found: {self.example!r}",
                bool(_content_words(self.example) & _content_words(EXAMPLE_QUERY)),
            )


def searched_as_one(pool: Iterable[Strategy]) -> dict[str, str]:
    """Returns strategy -> what its one search is made of, of the strategies whose texts make one."""
    return {strategy.name: strategy.as_one for strategy in pool if strategy.as_one}


def plain_name(name: str) -> bool:
    """Returns True if a strategy may have this name: PLAIN_NAME, and not RESERVED."""
    return re.fullmatch(r"[a-z][a-z0-9_]*", name) is not None and name not in RESERVED


def one_line(text: str) -> bool:
    """Returns True if a text is one line that is not blank and has no placeholder."""
    return bool(text.strip()) and "\n" not in text and not ANY_PLACEHOLDER.search(text)


def variables(template: str) -> set[str]:
    """Returns the names of a template's variables."""
    return {found.strip("{} ") for found in ANY_PLACEHOLDER.findall(template)}


def render(template: str, values: Mapping[str, str]) -> str:
    """Returns the template with its variables replaced; braces in the values stay unchanged."""
    return ANY_PLACEHOLDER.sub(lambda found: values.get(found.group().strip("{} "), found.group()), template)


def shared_prefix(template: str, values: Mapping[str, str]) -> int:
    """Returns the number of first characters of a template that depend on none of its variables; 0 if it has none."""
    first = (found.start() for found in ANY_PLACEHOLDER.finditer(template) if found.group().strip("{} ") in values)
    return next(first, 0)


def template_hash(template: str) -> str:
    """Returns the first 16 hex digits of the template's SHA-256."""
    return hashlib.sha256(template.encode("utf-8", "surrogatepass")).hexdigest()[:16]


def told_hash(values: Mapping[str, str], masked: Iterable[str] = ()) -> str:
    """Returns the part of a request's key that its variables decide: the hash of the values of its variables; "" without any.

    `masked`: the kinds of personal data that the prompt shows placeholders of; another prompt, so another completion.
    """
    told: dict[str, Any] = {**values, "": sorted(masked)} if masked else dict(values)
    return template_hash(json.dumps(told, sort_keys=True, ensure_ascii=False)) if told else ""


def _content_words(text: str) -> set[str]:
    return set(re.findall(r"\d+|[^\W\d_]{5,}", normalise(text)))
