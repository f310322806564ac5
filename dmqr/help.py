"""Help of the command line: pages of plain text, as wide as the terminal, with bold names there."""

from __future__ import annotations

import shutil
import sys
import textwrap
from collections.abc import Iterable, Sequence

from dmqr.arguments import Argument, Verb, verbs

_WIDEST = 100
_NAMES = 24  # columns of the names of options
NIGHT = ("index", "plan", "run", "report")


def overview() -> str:
    """Returns the help of the whole command line: the verbs in groups, and one night."""
    every = verbs()
    longest = max(len(verb.name) for verb in every)
    parts = [
        "Usage: dmqr VERB ...\n",
        _filled("Rewrites a query log in several ways, retrieves with every rewrite, fuses and reranks; see README.md."),
    ]
    for group in dict.fromkeys(verb.group for verb in every):
        rows = [(verb.name, verb.summary.rstrip(".")) for verb in every if verb.group == group]
        parts += ["", _bold(group), *_rows(rows, longest)]
    parts += ["", _bold("Besides"), *_rows([
        ("help VERB", "Shows all options of a verb, and an example"),
        ("--version", "Prints the version"),
        ("--print-completion SHELL", "Prints the completion script of bash, zsh or fish"),
    ], longest)]  # fmt: skip
    examples = [verb.example for name in NIGHT for verb in every if verb.name == name]
    return "\n".join([*parts, "", _bold("One night"), *(f"  {line}" for line in examples), ""])


def page(verb: Verb) -> str:
    """Returns the help of a verb: its arguments, its options, an example."""
    given = [argument for argument in verb.arguments if not argument.is_option]
    options = [argument for argument in verb.arguments if argument.is_option]
    words = [_usage(one) for one in given] + [f"{one.spelled} {one.metavar}" for one in options if one.required]
    parts = [_filled(f"Usage: dmqr {verb.name} {' '.join(words)} [options]", "  "), "", _filled(verb.summary)]
    parts += ["", _filled(verb.details)] if verb.details else []
    for title, arguments in (("Arguments", given), ("Options", options)):
        parts += ["", _bold(title), *_rows([(_named(one), one.meaning) for one in arguments])]
    return "\n".join([*parts, "", _bold("Example"), f"  {verb.example}", ""])


def _usage(argument: Argument) -> str:
    word = f"{argument.metavar}..." if argument.many else argument.metavar
    return word if argument.required or argument.parameter == "given" else f"[{word}]"


def _named(argument: Argument) -> str:
    if not argument.is_option:
        return _usage(argument).strip("[]")
    return f"{argument.spelled} {argument.metavar}".rstrip() + (" ..." if argument.many == "list" else "")


def _rows(rows: Sequence[tuple[str, str]], longest: int = 0) -> Iterable[str]:
    """Yields a line per name, its meaning beside it, or below a name that is longer than the column of names."""
    names = (longest or min(_NAMES, max((len(name) for name, _ in rows), default=0))) + 2
    for name, meaning in rows:
        lines = textwrap.wrap(meaning, _width() - names - 2, break_on_hyphens=False)
        first = lines.pop(0) if len(name) <= names - 2 else ""
        yield f"  {_bold(name)}{' ' * (names - len(name))}{first}".rstrip()
        yield from (f"  {' ' * names}{line}" for line in lines)


def _filled(text: str, indent: str = "") -> str:
    return textwrap.fill(text, _width(), subsequent_indent=indent, break_on_hyphens=False)


def _width() -> int:
    return min(_WIDEST, shutil.get_terminal_size((80, 24)).columns)


def _bold(text: str) -> str:
    return f"\033[1m{text}\033[0m" if sys.stdout.isatty() else text
