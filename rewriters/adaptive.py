"""Adaptive selection, as in DMQR-RAG: one request shows the pool, and the answer has the chosen strategies' rewrites.

The prompt has the strategies' names and definitions, a guideline when each helps, and worked examples (demonstrations). The
answer has one labelled line per rewrite and a last line with the reason.
"""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

from pydantic import Field, TypeAdapter

from cluster.errors import RewriterError
from cluster.settings import Settings
from rewriters.files import Read, checked, prompt, read_local, read_yaml
from rewriters.pool import OF_THE_QUERY, with_context
from rewriters.strategy import EXAMPLE_QUERY, Strategy, one_line, render

REQUEST_NAME = "dmqr_adaptive"

_NUMBERS = (  # by the least number of methods
    "A query that is clear and\n  short may need none or one; a query with many parts may need several.",
    "Choose one\n  at least; a query with many parts may need several.",
)
_OURS = Path(__file__).parent / "demonstrations.yaml"
_REASON = re.compile(
    r"(?im)^[\s>*_#`-]{0,12}(?:\"reason\"|reason|reasons|reasoning)[*_`]{0,3}\s?[:：]\s?[*_`\"]{0,3}(?P<text>.+)$"
)
_JSON_REASON = re.compile(r'(?i)[{,]\s{0,9}"reason"\s{0,9}:\s{0,9}"(?P<text>(?:[^"\\\n]|\\.)+)"')  # JSON on one line
_MOST_REASON = 500  # characters


class Demonstration(Settings):
    """A worked example."""

    query: str
    """Query."""
    rewrites: dict[str, str | tuple[str, ...]]
    """Strategy -> its rewrite, or several."""
    reason: str
    """Reason for these strategies."""


def load_demonstrations(path: str | None, read: Read = read_local) -> tuple[Demonstration, ...]:
    """Returns the demonstrations of a file; None: ours. Raises RewriterError if the file cannot be read, or is wrong."""
    where = path or _OURS.name
    path, read = (str(_OURS), read_local) if path is None else (path, read)
    values = read_yaml("selection", where, path, read, "correct rewrite.select.demonstrations")
    with checked("selection", f"{where} (a list of query, rewrites, reason)", lambda place: Demonstration.model_fields):
        return TypeAdapter(Annotated[tuple[Demonstration, ...], Field(min_length=1)]).validate_python(values)


def adaptive_template(
    pool: Sequence[Strategy], demonstrations: Sequence[Demonstration], language: str | None, context: bool, least: int
) -> str:
    """Returns the prompt of adaptive selection; `{query}` and `{context}` are left to `render`.

    Demonstrations are shown whose strategies are all in the pool; where none of them has a rewrite, one of the pool's own
    examples. One that chooses nothing is shown beside others only, since alone it would teach that, and never where `least`
    is 1.

    Raises:
        RewriterError: A strategy has no definition or guideline, and so cannot be chosen.
    """
    bases = [strategy.base for strategy in pool]
    for strategy in pool:
        if bases.count(strategy.base) > 1:
            line = f"strategy {strategy.name!r}: adaptive selection offers each file's strategy once; remove one of them"
            raise RewriterError("strategy", line)
        if not one_line(strategy.definition) or not one_line(strategy.usage):
            line = f"strategy {strategy.name!r}: adaptive selection needs its definition and usage, each on one line; add them"
            raise RewriterError("strategy", line)
    methods = "\n".join(
        f"- {method.label}: {method.definition}{f' (up to {method.n} lines)' if method.n > 1 else ''}. For {method.usage}."
        + (f" Write it in {method.language}, whatever is said below." if method.language else "")
        for method in pool
    )
    shown = [one for one in demonstrations if one.rewrites.keys() <= {*bases}]
    chosen = [one for one in pool if one.example][: max(1, min(2, len(pool) - 1))]  # two at most, and not all
    if demonstrations and chosen and not any(one.rewrites for one in shown):
        rewrites: dict[str, str | tuple[str, ...]] = {one.base: tuple(one.example.splitlines()) for one in chosen}
        reason = f"The query is of a kind that these help with: {'; '.join(one.usage for one in chosen)}."
        shown.append(Demonstration(query=EXAMPLE_QUERY, rewrites=rewrites, reason=reason))
    if least or not any(one.rewrites for one in shown):
        shown = [one for one in shown if one.rewrites]
    values = {
        "methods": methods,
        "number": _NUMBERS[least],
        "demonstrations": "\n\n".join(_shown(one, pool) for one in shown),
        "language": language or OF_THE_QUERY,
    }
    template = render(prompt("adaptive"), values)
    return with_context(template) if context else template


def reason_in(answer: str) -> str | None:
    """Returns the reason that an answer gives, on one line; None without one."""
    matches = [*_JSON_REASON.finditer(answer), *_REASON.finditer(answer)]  # drafts come first
    return " ".join(matches[-1]["text"].split()).rstrip('"*_}, ')[:_MOST_REASON] or None if matches else None


def _shown(demonstration: Demonstration, pool: Sequence[Strategy]) -> str:
    lines = []
    for strategy in pool:
        texts = demonstration.rewrites.get(strategy.base, ())
        lines += [f"{strategy.label}: {text}" for text in ((texts,) if isinstance(texts, str) else texts)]
    return "\n".join([f"Query: {demonstration.query}", *lines, f"reason: {demonstration.reason}"])
