"""Queries that `try` is given one after the other: typed at a terminal, or lines of standard input."""

from __future__ import annotations

import itertools
import sys
from collections.abc import Iterator

from cluster.errors import ConfigError

PROMPT = "query> "


def queries() -> Iterator[str]:
    """Returns the queries until the end of standard input (Ctrl-D at a terminal); empty lines are left out.

    Raises:
        ConfigError: standard input is no terminal and has none.
    """
    if sys.stdin.isatty():
        return _typed()
    if hasattr(sys.stdin, "reconfigure"):
        sys.stdin.reconfigure(errors="surrogateescape")  # a line that is not UTF-8 is refused, the others are tried
    lines = (line.rstrip("\r\n") for line in sys.stdin if line.strip())
    first = next(lines, None)  # before any model is loaded
    if first is None:
        raise ConfigError("argument", "QUERY is missing; give it in quotes, as lines on standard input, or at a terminal")
    return itertools.chain([first], lines)


def _typed() -> Iterator[str]:
    import readline  # noqa: F401 - lines can be edited and called back

    print("Type a query; Ctrl-D ends.", file=sys.stderr)
    while True:
        try:
            if sys.stdout.isatty():
                line = input(f"\n{PROMPT}")
            else:
                print(f"\n{PROMPT}", end="", file=sys.stderr, flush=True)
                line = input()
        except EOFError:
            print(file=sys.stderr)
            return
        if line.strip():
            yield line
